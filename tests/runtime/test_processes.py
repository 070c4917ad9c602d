"""Tests of worker processes."""

from __future__ import annotations

import warnings

import pytest

from edgemask.errors import EnrichWarning
from edgemask.runtime.processes import shorten_warnings


def test_workers_print_warnings_of_edgemask_as_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    shorten_warnings()
    assert warnings.formatwarning(EnrichWarning("few nodes"), EnrichWarning, "a.py", 1) == "warning: few nodes\n"
    assert "a.py:1: UserWarning: other" in warnings.formatwarning(UserWarning("other"), UserWarning, "a.py", 1)
    evil = "graph 'a\x1b[2J\nb\r'"
    assert warnings.formatwarning(EnrichWarning(evil), EnrichWarning, "a.py", 1) == "warning: graph 'a\\x1b[2J b '\n"
    assert "graph 'a\\x1b[2J\nb\\x0d'" in warnings.formatwarning(UserWarning(evil), UserWarning, "a.py", 1)
