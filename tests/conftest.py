"""Shared fixtures, the markers `numerical` and `long`, and the option `--fast`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

if shutil.which("nvidia-smi") is None:  # without a GPU Triton interprets its kernels; it decides this when imported
    os.environ.setdefault("TRITON_INTERPRET", "1")

from edgemask.data.store import Store

HERE = Path(__file__).resolve().parent
NUMERICAL = {  # folders and files, relative to this one
    *("enrich", "methods", "nn", "theory", "training", "report/test_statistics.py"),
    *("test_coverage.py", "test_estimator.py", "test_explain.py", "test_inference.py", "test_metrics.py"),
}
LONG = {  # the same for tests that start many processes
    *("attacks/test_torture.py", "cli/test_completion.py", "cli/test_terminal.py", "experiments/test_on_ray.py"),
    *("experiments/test_runner.py", "runtime/test_distributed.py", "runtime/test_loops.py", "test_determinism.py"),
    "test_examples.py",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="run the first case of every test, and no test that is marked slow"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(HERE)
        if not NUMERICAL.isdisjoint((path.parts[0], path.as_posix())):
            item.add_marker(pytest.mark.numerical)
        if path.as_posix() in LONG:
            item.add_marker(pytest.mark.long)
    if config.getoption("--fast"):
        first: dict[tuple[Path, str], pytest.Item] = {}
        for item in items:
            if item.get_closest_marker("slow") is None:
                first.setdefault((item.path, getattr(item, "originalname", item.name)), item)
        kept = set(first.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The real benchmark data: $EDGEMASK_DATA, or `shared/data` beside the checkout."""
    candidates = [Path(os.environ["EDGEMASK_DATA"])] if "EDGEMASK_DATA" in os.environ else []
    for root in [*candidates, HERE.parent.parent / "shared" / "data"]:
        if (root / "citation" / "acmv9.mat").is_file():
            return root
    return pytest.skip("the benchmark data is not here: set EDGEMASK_DATA to run this test")


@pytest.fixture(scope="session")
def store(data_root: Path) -> Store:
    """A store over the real data that never uses the network."""
    return Store(data_root, offline=True)
