"""The examples run, and so does every code block of two pages."""

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
