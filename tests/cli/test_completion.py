"""Shell completion with commands that are imported when they are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from edgemask.cli import COMMANDS
from edgemask.config import RECIPES
from edgemask.data import BENCHMARKS
from edgemask.methods.registry import METHODS
from edgemask.metrics import METRICS


def completed(line: str, *, code: str = "") -> subprocess.CompletedProcess[str]:
    """Ask for the completions of the last word of a line as bash does."""
    words = line.split(" ")
    environment = os.environ | {"_EDGEMASK_COMPLETE": "complete_bash", "COMP_WORDS": line}
    start = f"import sys; sys.argv = ['edgemask']\n{code}\nfrom edgemask.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start],
        env=environment | {"COMP_CWORD": str(len(words) - 1)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_commands_are_completed_without_heavy_libraries():
    watch = "import atexit, json; atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))"
    result = completed("edgemask ", code=watch)
    assert set(COMMANDS) <= set(result.stdout.split())
    assert set(json.loads(result.stderr)).isdisjoint({"torch", "numpy", "pandas", "scipy", "matplotlib"})
    assert completed("edgemask pre").stdout.split() == ["predict"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("edgemask fit a.npz --me", {"--method", "--metric"}),
        ("edgemask fit a.npz --method erm-m", {"erm-mlp", "erm-mix", "erm-mix-enriched"}),
        ("edgemask fit a.npz --recipe ", set(RECIPES)),
        ("edgemask fit a.npz --metric ", set(METRICS)),
        ("edgemask bench ", set(BENCHMARKS)),
        ("edgemask bench synthetic --method ", {"auto", *METHODS}),
        ("edgemask methods edgemask-dg", {name for name in METHODS if name.startswith("edgemask-dg")}),
        ("edgemask data ", {"list", "info", "verify", "fetch"}),
        ("edgemask data info c", {"citation", "cora"}),
    ],
)
def test_options_and_names_are_completed(line, expected):
    assert set(completed(line).stdout.split()) == expected


def test_the_completion_script_is_shown():
    start = "import sys; sys.argv = ['edgemask', '--show-completion']\nfrom edgemask.cli import main; main()"
    for shell in ("bash", "zsh", "fish"):
        environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
        code = start.replace("'--show-completion'", f"'--show-completion', '{shell}'")
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert "_EDGEMASK_COMPLETE=" in result.stdout
