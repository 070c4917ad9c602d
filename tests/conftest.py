"""Shared fixtures."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

if shutil.which("nvidia-smi") is None:  # no GPU: Triton's kernels are interpreted, which it decides when it is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")

from edgemask.data.store import Store

HERE = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The real benchmark data: $EDGEMASK_DATA, or `shared/data` beside the checkout."""
    candidates = [Path(os.environ["EDGEMASK_DATA"])] if "EDGEMASK_DATA" in os.environ else []
    for root in [*candidates, HERE.parent / "shared" / "data"]:
        if (root / "citation" / "acmv9.mat").is_file():
            return root
    return pytest.skip("the benchmark data is not here: set EDGEMASK_DATA to run this test")


@pytest.fixture(scope="session")
def store(data_root: Path) -> Store:
    """A store over the real data that never goes to the network."""
    return Store(data_root, offline=True)
