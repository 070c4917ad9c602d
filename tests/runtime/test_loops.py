"""Compiled loops where Numba cannot cache them, and in forked processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from edgemask.runtime.loops import Loop

ROOT = Path(__file__).resolve().parents[2]


def total(x):
    """Return the sum of an array."""
    result = 0.0
    for i in numba.prange(len(x)):
        result += x[i]
    return result


def test_a_loop_that_cannot_be_cached_is_compiled(monkeypatch):
    usual = numba.njit

    def without_folder(*function, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'total': no locator available")
        return usual(*function, **options)

    monkeypatch.setattr(numba, "njit", without_folder)
    assert Loop(total)(np.ones(5)) == 5


@pytest.mark.slow
def test_a_loop_runs_although_the_disk_of_the_cache_is_full(monkeypatch):
    loop = Loop(total)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(loop.compiled._cache, "save_overload", full)
    monkeypatch.setattr(loop.compiled._cache, "load_overload", lambda *_: None)
    assert loop(np.ones(5, dtype=np.float32)) == 5


FORK = """
import os
import numpy as np
from edgemask import EdgeMaskClassifier, benchmark

graphs = benchmark("synthetic").load(nodes=300)
sources, target = [graphs["alpha"], graphs["beta"]], graphs["gamma"]
small = {"epochs": 3, "hidden": 8, "device": "cpu"}
for model in (EdgeMaskClassifier("erm-gcn", **small), EdgeMaskClassifier("robust", **small)):
    here = model.fit(sources).predict_proba(target)
    child = os.fork()
    if not child:
        os._exit(not np.array_equal(model.predict_proba(target), here))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_predicts_as_its_parent(threads: int):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    ended = subprocess.run([sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, timeout=300)
    assert (ended.stdout, ended.returncode) == ("0\n0\n", 0), ended.stderr


@pytest.mark.slow
def test_the_package_can_be_imported_if_no_cache_can_be_written():
    """As in a container: the package and the home are read-only."""
    code = (
        "import numba.core.caching as c\n"
        "for locator in c.CacheImpl._locator_classes: locator.from_function = classmethod(lambda *_: None)\n"
        "import edgemask.nn.sparse, edgemask.enrich.knn, edgemask.nn.kernels.cpu.dropout as d\n"
        "import torch; print(d.noise(torch.ones(2000), 0.5) is not None)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert ended.stdout == "True\n", ended.stderr
