"""Distributed fits: same result as one process, only one process writes, and a lost worker gives a clear error.

The tests start real processes with torchrun, as users do, over gloo.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from edgemask import EdgeMaskClassifier
from edgemask.data import write_graph
from edgemask.data.synthetic import demo_family
from edgemask.errors import CheckpointError
from edgemask.runtime.checkpoint import read
from edgemask.runtime.distributed import World, place, started

STAR = "edgemask-dg-star"
LONG = 240  # seconds; on an idle machine every command is faster
ROOT = Path(__file__).resolve().parents[2]
A, B, _ = demo_family(80).values()
SMALL = {
    "k": 3, "clusters": 5, "hidden": 8, "mask_projection": 8, "mask_hidden": 8, "batch_size": 30, "fan_out": 4,
    "shards": 4, "rho": 0.7, "bound": "dual", "alpha": (0.0, 0.5), "select": "source-val",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for graph in (A, B):
        write_graph(graph, tmp_path / f"{graph.name}.npz")


def fit_command(*arguments: object, settings: dict) -> list[str]:
    fit = [
        "-m",
        "edgemask",
        "fit",
        "alpha.npz",
        "beta.npz",
        "--model",
        "model",
        "--method",
        "robust",
        "--device",
        "cpu",
    ]
    for name, value in settings.items():
        fit += ["--set", f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}"]
    return [*fit, *map(str, arguments)]


@contextmanager
def torchrun(*arguments: str) -> Iterator[subprocess.Popen]:
    """Start two processes. They are stopped at the end of the block if they still run."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    with subprocess.Popen(launch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        try:
            yield job
        finally:
            if job.poll() is None:
                job.terminate()  # torchrun stops its workers


def fitted(settings: dict, **options) -> EdgeMaskClassifier:
    """The same fit in this process alone."""
    return EdgeMaskClassifier("robust", device="cpu", **settings).fit([A, B], **options)


def assert_same(one: EdgeMaskClassifier, other: EdgeMaskClassifier) -> None:
    weights = other.members_[0].method.networks.state_dict()
    for name, t in one.members_[0].method.networks.state_dict().items():
        torch.testing.assert_close(t, weights[name], rtol=0, atol=1e-5)
    assert [r.keys() for r in one.history_[STAR]] == [r.keys() for r in other.history_[STAR]]
    for mine, expected in zip(one.history_[STAR], other.history_[STAR], strict=True):
        assert mine == pytest.approx(expected, abs=1e-4)
    assert one.members_[0].propagation == other.members_[0].propagation
    assert float(one.members_[0].method.lam) == pytest.approx(float(other.members_[0].method.lam), abs=1e-6)


# ---- one or two processes --------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_give_the_result_of_one_and_only_one_prints():
    """They also continue from the checkpoint of one process."""
    settings = SMALL | {"epochs": 3, "backbone": "gat", "heads": 2, "gate": "softmax"}

    def stop(trainer, stage):
        if trainer.epoch == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fitted(settings, checkpoint_path="state", checkpoint_every=1, on_epoch=stop)
    with torchrun(*fit_command("--checkpoint", "state", settings=settings)) as job:
        printed, errors = job.communicate(timeout=LONG)
    assert job.returncode == 0, errors
    assert printed.count("selection rule: source-val") == printed.count("model: model") == 1
    assert "Warning" not in errors
    assert sorted(p.name for p in Path().iterdir()) == ["alpha.npz", "beta.npz", "cache", "model", "state"]
    assert_same(EdgeMaskClassifier.load("model", device="cpu"), fitted(settings))


# ---- a worker that dies ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_worker_ends_the_job_with_a_clear_error_and_a_checkpoint_that_continues(rank):
    """One process continues from the checkpoint."""
    settings, state = SMALL | {"epochs": 12}, Path("state")
    with torchrun(*fit_command("--checkpoint", state, "--checkpoint-every", 1, settings=settings)) as job:
        deadline = time.monotonic() + LONG
        while not state.exists():
            assert job.poll() is None, job.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        workers = {p.environ()["RANK"]: p for p in psutil.Process(job.pid).children()}
        workers[str(rank)].kill()
        _, errors = job.communicate(timeout=40)
    assert job.returncode not in (0, None)
    assert f"error: process {1 - rank} of 2 " in errors
    assert "worker was lost" in errors or "lost another worker" in errors
    assert "run the same command with --checkpoint state to continue from the last state written there" in errors
    assert not Path("model").exists()
    assert 1 <= read(state, "checkpoint")[1]["trainer"]["epoch"] < 12

    assert_same(fitted(settings, checkpoint_path=state), fitted(settings))


# ---- communication between processes ----------------------------------------------------------------------

COMMUNICATION = """
import torch
from edgemask.errors import DriftError
from edgemask.runtime.distributed import processes

def refuse():
    raise ValueError(f"process {world.rank} says no")

def caught(kind, work):
    try:
        work()
    except kind as error:
        return str(error)

with processes(torch.device("cpu"), "advice") as world:
    assert world.mean({"both": world.rank, f"only {world.rank}": 7.0}) == {"both": 0.5, "only 0": 7.0, "only 1": 7.0}
    assert world.average(torch.tensor([1.0, 3.0 * world.rank])).tolist() == [1.0, 1.5]
    assert world.on_rank_zero(lambda: world.rank) == 0
    assert caught(ValueError, lambda: world.on_rank_zero(refuse)) == "process 0 says no"
    with world.rank_zero_first():
        with open("order", "a") as file:
            file.write(f"{world.rank}")
    network = torch.nn.Linear(2, 3)
    wrapped = world.wrap(network)
    world.check_together(network)
    (wrapped(torch.ones(1, 2)).sum() * world.rank).backward()
    assert network.bias.grad.tolist() == [0.5] * 3
    with torch.no_grad():
        network.bias += 1e-6 * world.rank
    assert "drifted apart" in caught(DriftError, lambda: world.check_together(network))
print("well")
"""


@pytest.mark.slow
def test_processes_agree():
    Path("talk.py").write_text(COMMUNICATION)
    with torchrun("talk.py") as job:
        printed, errors = job.communicate(timeout=LONG)
    assert printed.count("well") == 2, errors  # sometimes on one line: the two print at the same time
    assert Path("order").read_text() == "01"


# ---- sharing the shards and devices -----------------------------------------------------------------------


@pytest.mark.parametrize(("shards", "size"), [(1, 2), (4, 3)])
def test_processes_must_share_the_shards_evenly(shards, size):
    with pytest.raises(ValueError, match=f"shards must be a multiple of {size}, got {shards}: set shards={size}"):
        World(0, size).check(shards)


def test_every_shard_is_taken_once():
    assert [list(World(rank, 3).local_shards(6)) for rank in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert list(World().local_shards(4)) == [0, 1, 2, 3]


def test_a_process_alone_needs_no_others():
    world = World()
    assert world.first
    assert world.mean({"a": 1.5}) == {"a": 1.5}
    assert world.on_rank_zero(lambda: 3) == 3
    assert world.average(torch.tensor(2.0)) == 2
    with pytest.raises(CheckpointError):
        world.on_rank_zero(lambda: read("nowhere", "checkpoint"))


def test_a_place_is_read_from_the_environment(monkeypatch):
    assert started() == World(0, 1)
    assert place(torch.device("cuda")) == torch.device("cuda")
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert started() == World(5, 8)
    assert place(torch.device("cuda")) == torch.device("cuda:1")
    assert place(torch.device("cuda:3")) == torch.device("cuda:3")
    assert place(torch.device("cpu")) == torch.device("cpu")
