"""The examples run, and so does every block of code on two pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_game_keeps_its_budget_and_beats_chance() -> None:
    script = ROOT / "examples" / "game.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 40
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    found = re.search(r"mean mask ([\d.]+), accuracy on the unseen graph ([\d.]+)", done.stdout)
    assert found is not None
    assert float(found[1]) == pytest.approx(0.6, abs=0.001)
    assert float(found[2]) > 0.3  # chance is 0.2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["modules", "own_graphs"])
def test_the_code_on_a_page_runs(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    blocks, names = re.findall(r"```python\n(.*?)```", page, re.DOTALL), dict[str, object]()
    assert len(blocks) == page.count("```") / 2
    for block in blocks:  # later blocks use the names of earlier ones
        exec(block, names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [("pyg_lists", 0.7), ("two_tables", 0.7), ("grid_search", 0.3)],  # chance is 0.33, 0.4 and 0.2
)
def test_a_short_script_works_at_once_and_beats_chance(name: str, least: float) -> None:
    script = ROOT / "examples" / f"{name}.py"
    code = script.read_text(encoding="utf-8").partition('"""\n')[2]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 15
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    found = re.search(r"accuracy (?:on another graph )?([\d.]+)", done.stdout)
    assert found is not None
    assert float(found[1]) > least
    assert done.stderr == ""
