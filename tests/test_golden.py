"""Names and numbers that old records, models and checkpoints depend on must not change by accident."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import golden

EXPECTED = json.loads(golden.GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def actual() -> dict[str, Any]:
    return golden.snapshot()


def test_the_snapshot_has_the_same_sections(actual: dict[str, Any]) -> None:
    assert sorted(actual) == sorted(EXPECTED)


@pytest.mark.parametrize("section", sorted(EXPECTED))
def test_a_section_is_unchanged(section: str, actual: dict[str, Any]) -> None:
    assert actual[section] == EXPECTED[section], "a deliberate change is recorded by `python -m tests.golden`"
