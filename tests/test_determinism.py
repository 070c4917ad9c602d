"""Every method gives the same result to the bit on the same machine, whatever a user does not ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgemask import EdgeMaskClassifier, load_model
from tests.determinism import NAMES, graphs, results, weights

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_only_data_settings_and_seed_decide_the_result_of_every_method(tmp_path: Path) -> None:
    """One test, so that its three processes run once: this one and, at the same time, two that differ from it."""
    variants = {
        "changed": (["reversed"], {"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"}),
        "threads": (["threads"], {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "2"}),
    }
    processes = []
    for variant, (options, environment) in variants.items():
        command = [sys.executable, "-m", "tests.determinism", str(tmp_path / f"{variant}.npz"), *options]
        processes.append(subprocess.Popen(command, env=os.environ | environment, cwd=ROOT))
    try:
        own = {name: (estimator, p) for name, estimator, p in results()}
        assert [process.wait(300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    changed, threads = (np.load(tmp_path / f"{variant}.npz") for variant in variants)

    # Another process, PYTHONHASHSEED and number of threads, other names and order of the sources: the same bits.
    assert [n for n in NAMES if (changed[f"{n}/weights"] != weights(own[n][0])).any()] == []
    assert [n for n in NAMES if (changed[f"{n}/p"] != own[n][1]).any()] == []

    # Graphs this small use one thread by themselves. If they are made to use two, results differ by rounding only.
    assert [n for n in NAMES if not np.allclose(threads[f"{n}/p"], own[n][1], rtol=1e-3, atol=1e-5)] == []

    # A model that was saved and loaded, with training code or without: the same bits.
    unseen, different = graphs()[1], []
    for name, (estimator, p) in own.items():
        estimator.save(tmp_path / "model")
        for loaded in (load_model(tmp_path / "model"), EdgeMaskClassifier.load(tmp_path / "model")):
            different += [name] if (loaded.predict_proba(unseen) != p).any() else []
    assert different == []
