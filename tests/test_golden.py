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
def test_nothing_pinned_has_changed_or_gone(section: str, actual: dict[str, Any]) -> None:
    """New methods, protocols, suites and seed purposes are welcome; those that exist stay as they are."""
    expected, found = EXPECTED[section], actual[section]
    if isinstance(expected, list):
        assert set(expected) <= set(found)
        return
    for name, value in expected.items():
        assert found.get(name) == value, f"{name} changed: a deliberate change is recorded by `python -m tests.golden`"
