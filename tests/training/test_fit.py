"""`Fit`: determinism, checkpoints and exact resume."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from edgemask.errors import CheckpointError
from edgemask.methods import sources as sources_module
from edgemask.methods.ada import ADA
from edgemask.methods.edgemask import Game
from edgemask.methods.eerm import EERM
from edgemask.methods.erm import ERM
from edgemask.methods.group_dro import GroupDRO
from edgemask.methods.mat import MAT
from edgemask.metrics import score
from edgemask.nn.tensors import GraphTensors
from edgemask.runtime import checkpoint
from edgemask.training.fit import Fit
from edgemask.training.selection import withhold
from edgemask.training.trainer import EvalGraph
from tests.training.toys import TINY, A, B, C, domain, same, weights

TRAIN = """
import hashlib
from edgemask import EdgeMaskClassifier
from edgemask.data.synthetic import demo_family
alpha, beta, _ = demo_family(70).values()
small = dict(hidden=8, mask_projection=8, mask_hidden=8, k=3, clusters=5, epochs=6)
for recipe in ("robust", "paper"):
    networks = EdgeMaskClassifier(recipe, device="cpu", **small).fit([alpha, beta]).members_[0].method.networks
    print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in networks.state_dict().values())).hexdigest())
"""


@pytest.mark.long
@pytest.mark.slow
def test_the_process_that_compiles_the_kernels_trains_as_those_that_find_them_compiled(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", TRAIN]
    first, later = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert any(tmp_path.rglob("*.nbc"))
    assert first == later


@pytest.mark.slow
@pytest.mark.parametrize("make", [Game, ERM])
def test_training_is_deterministic_in_its_seed(make):
    first, second = (weights(Fit(make, TINY, [A, B], seed=5)) for _ in range(2))
    assert same(first, second)
    assert not same(first, weights(Fit(make, TINY, [A, B], seed=6)))


def test_training_leaves_the_callers_random_state_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    weights(Fit(Game, TINY, [A]))
    assert torch.equal(before, torch.get_rng_state())


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("select", ["last", "source-val", "leave-one-source-out", "validation"])
@pytest.mark.parametrize("stop", [1, 5, 11, 17])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, select, stop):
    alpha = (1 / 3,) if select == "last" else (0.0, 1 / 3, 0.9)
    r = TINY.replace(select=select, alpha=alpha)
    validation = [C] if select == "validation" else []
    whole_trainer, whole = Fit(Game, r, [A, B], validation, seed=3).run()
    path, count = tmp_path / "run.ckpt", 0

    def kill(trainer, stage):
        nonlocal count
        count += 1
        if count == stop:
            raise Killed

    total = 12 * (3 if select == "leave-one-source-out" else 1)
    if stop < total:
        with pytest.raises(Killed):
            Fit(Game, r, [A, B], validation, seed=3, checkpoint_path=path, checkpoint_every=2, on_epoch=kill).run()
    trainer, choice = Fit(Game, r, [A, B], validation, seed=3, checkpoint_path=path, checkpoint_every=2).run()
    assert same(trainer.method.networks.state_dict(), whole_trainer.method.networks.state_dict())
    assert choice == whole
    assert trainer.history == whole_trainer.history


def test_the_dual_variable_survives_a_stop(tmp_path: Path):
    r = TINY.replace(bound="dual", rho=0.3)
    whole, _ = Fit(Game, r, [A]).run()
    path = tmp_path / "run.ckpt"

    def kill(trainer, stage):
        if trainer.epoch == 7:
            raise Killed

    with pytest.raises(Killed):
        Fit(Game, r, [A], checkpoint_path=path, checkpoint_every=1, on_epoch=kill).run()
    resumed, _ = Fit(Game, r, [A], checkpoint_path=path).run()
    assert resumed.method.lam == whole.method.lam != r.lam


def test_a_checkpoint_of_another_task_is_refused(tmp_path: Path):
    path = tmp_path / "run.ckpt"
    Fit(Game, TINY, [A, B], checkpoint_path=path).run()
    with pytest.raises(CheckpointError, match="another task: its seed is 0, here 1"):
        Fit(Game, TINY, [A, B], seed=1, checkpoint_path=path).run()
    with pytest.raises(CheckpointError, match="sources"):
        Fit(Game, TINY, [A, C], checkpoint_path=path).run()


@pytest.mark.slow
@pytest.mark.parametrize("select", ["last", "source-val"])
def test_a_fit_on_relabelled_sources_learns_as_well_from_the_same_nodes(monkeypatch, select):
    r = TINY.replace(epochs=60, lr=1e-2, select=select)
    target, scores = domain("d", 4), []
    for threshold in (61, 60):
        monkeypatch.setattr(sources_module, "RELABELLED", threshold)
        trainer, _ = Fit(Game, r, [A, B], seed=1).run()
        p = trainer.probabilities(EvalGraph.of(GraphTensors.of(target), trainer.method, None))[0.0]
        scores.append(score(("micro_f1",), target, p)["micro_f1"])
        for source, graph in zip(trainer.sources, (A, B), strict=True):
            nodes = np.arange(60) if select == "last" else withhold(graph, 1)[0]
            taken = source.domain.graph.x[source.train]
            assert sorted(map(tuple, taken)) == sorted(map(tuple, graph.x[nodes]))
            assert (source.domain.graph == graph) == (threshold == 61)
    assert scores[1] > scores[0] - 0.05 > 0.7


# ---- damaged checkpoints ---------------------------------------------------------------------------------

AVERAGED = TINY.replace(average=0.5, average_from=0.0, select="source-val", alpha=(0.0, 0.5), eval_every=1)


def stopped_at(path: Path, epoch: int, make=Game, r=AVERAGED, **options):
    """Write the checkpoint of a fit that was stopped, and return its tensors and metadata."""

    def kill(trainer, stage):
        if trainer.epoch == epoch + 1:
            raise Killed

    with pytest.raises(Killed):
        Fit(make, r, [A, B], checkpoint_path=path, checkpoint_every=1, on_epoch=kill, **options).run()
    return checkpoint.read(path, "checkpoint")


def refused(path: Path, make=Game, r=AVERAGED) -> str:
    """Continue a fit from a checkpoint that is refused, and return the message."""
    with pytest.raises(CheckpointError) as caught:
        Fit(make, r, [A, B], checkpoint_path=path).run()
    said = str(caught.value)
    assert said.startswith(str(path))
    assert "\n" not in said
    assert len(said) < 1000
    return said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": -(2**63)}, "epoch: expected an integer in [0, 12]"),
        ({"epoch": 2**63}, "epoch: expected an integer"),
        ({"epoch": 1.0}, "epoch: expected an integer"),
        ({"epoch": 3}, "history: expected one record for each of 3 epochs"),
        ({"epoch": None}, "epoch: expected an integer"),
        ({"history": 5}, "history: expected an array"),
        ({"history": []}, "history: expected one record"),
        ({"history": [{"epoch": 1.0}, {"epoch": "2"}]}, "history[1], 'epoch': expected a number"),
        ({"history": [{"epoch": 2.0}, {"epoch": 1.0}]}, "history: expected one record"),
        ({"method": {}}, "method: 'lam' is missing"),
        ({"method": {"lam": "x"}}, "lam: expected a number"),
        ({"method": {"lam": 1.0, "other": 1.0}}, "unknown key 'other'"),
        ({"best": []}, "best: expected an object"),
        ({"best": {"0.25": [0.5, 1]}}, "best: unknown key '0.25'"),
        ({"best": {"0.0": [0.5]}}, "expected 2 items"),
        ({"best": {"0.0": [0.5, 10**9]}}, "expected an integer in [1, 12]"),
        ({"best": {"0.0": ["x", 1]}}, "expected a number"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_numbers_of_a_checkpoint_that_do_not_fit_are_named(tmp_path: Path, change, message):
    path = tmp_path / "run.ckpt"
    tensors, meta = stopped_at(path, 2)
    checkpoint.write(path, "checkpoint", tensors, meta | {"trainer": meta["trainer"] | change})
    assert message in refused(path)


@pytest.mark.parametrize(
    "change",
    [
        {"trainer": []},
        {"trainer": {}},
        {"held_out": 5},
        {"held_out": {"nobody": {"0.0": 0.5}}},
        {"task": 5},
        {"task": {}},
        {"task": {"recipe": []}},
        {"other": 1},
    ],
    ids=str,
)
def test_metadata_of_a_checkpoint_that_do_not_fit_are_named(tmp_path: Path, change):
    path = tmp_path / "run.ckpt"
    tensors, meta = stopped_at(path, 2)
    checkpoint.write(path, "checkpoint", tensors, meta | change)
    refused(path)


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, monkeypatch):
    path = tmp_path / "run.ckpt"
    stopped_at(path, 2)
    monkeypatch.setattr("edgemask.training.fit.__version__", "0.0.1")
    assert "another task: its version is '" in refused(path)


@pytest.mark.parametrize(
    ("make", "prefix"),
    [
        (Game, "method/networks/task"),
        (Game, "method/optimiser-task/0/exp_avg"),
        (Game, "method/optimiser-task/0/step"),
        (Game, "average/"),
        (Game, "best-0.5/"),
        (GroupDRO, "method/log_q"),
        (MAT, "method/delta/"),
        (ADA, "method/added/"),
        (EERM, "method/editor-"),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_tensors_of_a_checkpoint_that_do_not_fit_are_named(tmp_path: Path, make, prefix):
    path, r = tmp_path / "run.ckpt", AVERAGED
    if make is not Game:
        r = TINY.replace(mask=False, k=0, clusters=0, backbone="gcn", layers=2)
    tensors, meta = stopped_at(path, 8, make, r)
    name = next(name for name in sorted(tensors) if name.startswith(prefix))
    t = tensors[name]
    others = {n: v for n, v in tensors.items() if n != name}
    changes = [others, {**others, f"{name}x": t}, {**others, name: t.reshape(-1)[:0]}, {**others, name: t[None]}]
    changes += [{**others, name: t.to(torch.int64)}, {**others, name: torch.cat([t.reshape(-1)] * 3)}]
    for change in changes:
        checkpoint.write(path, "checkpoint", change, meta)
        said = refused(path, make, r)
        assert "does not hold a usable checkpoint: " in said
    checkpoint.write(path, "checkpoint", tensors, meta)
    Fit(make, r, [A, B], checkpoint_path=path).run()


@pytest.mark.parametrize("step", [0.0, -1.0, float("nan"), float("inf")])
def test_a_number_of_steps_that_is_none_is_refused(tmp_path: Path, step: float):
    path = tmp_path / "run.ckpt"
    tensors, meta = stopped_at(path, 2)
    checkpoint.write(path, "checkpoint", tensors | {"method/optimiser-task/0/step": torch.tensor(step)}, meta)
    assert "step': expected a number of steps" in refused(path)
