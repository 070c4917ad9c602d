"""The examples run, and so does every block of code on two pages."""

from __future__ import annotations

import os
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "picture", "said"),
    [
        ("compare_methods", "compare_methods.png", r"erm-mlp +erm-sage +9 "),
        ("explain", "explain.png", "probability"),
        ("one_table", "ablation_lambda.svg", r"\| 1e-3 \|"),
        ("large_graph", None, r"5,000 nodes, accuracy 0\.[4-9]"),  # chance is 0.25
    ],
)
def test_an_example_prints_and_draws(tmp_path: Path, name: str, picture: str | None, said: str) -> None:
    for part in ("results", "paper"):
        (tmp_path / part).symlink_to(ROOT / part)
    script = ROOT / "examples" / f"{name}.py"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "MPLBACKEND": "agg"}
    more = ["5000"] if name == "large_graph" else []
    done = subprocess.run(
        [sys.executable, script, *more], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert re.search(said, done.stdout)
    assert picture is None or (tmp_path / "out" / picture).stat().st_size > 1000


@pytest.mark.slow
def test_the_first_model_is_better_than_chance(data_root: Path) -> None:
    script = ROOT / "examples" / "first_model.py"
    environment = os.environ | {"EDGEMASK_DATA": str(data_root)}
    done = subprocess.run([sys.executable, script, "20s"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = re.search(r"accuracy ([\d.]+)", done.stdout)
    assert found is not None
    assert float(found[1]) > 0.3  # chance is 0.25
