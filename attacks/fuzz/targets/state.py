"""Readers of trained state: model files and checkpoints."""

from __future__ import annotations

import json
import random
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from attacks.fuzz.archives import mutate_array
from attacks.fuzz.cases import Case, Files, Target, WrongContent, files_in
from attacks.fuzz.mutate import HUGE, TEXTS, dump_json, mutate_bytes, mutate_json
from attacks.fuzz.targets.oracles import check_probabilities, require
from edgemask import EdgeMaskClassifier, Graph, load_model
from edgemask.config import Recipe
from edgemask.errors import DivergenceError, GraphError, InputError
from edgemask.methods.registry import method_spec
from edgemask.runtime import checkpoint
from edgemask.training.candidates import choose_candidates
from edgemask.training.fit import Fit
from edgemask.training.race import Race
from edgemask.training.trainer import Trainer

EPOCHS = 3
SETTINGS: dict[str, Any] = {"epochs": EPOCHS, "hidden": 4, "select": "last", "alpha": (0.5,), "dropout": 0.0}


def domain(name: str, seed: int, n: int = 12) -> Graph:
    """Return a small graph of three classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    x = np.eye(3)[y] + 0.1 * rng.standard_normal((n, 3))
    source, destination = rng.integers(0, n, (2, 3 * n))
    kept = source != destination
    edges = np.stack([source, destination])[:, kept]
    return Graph(name, x, edges, y, tuple("abc"), undirected=True, duplicates="merge")


@lru_cache
def domains() -> tuple[Graph, Graph, Graph]:
    """Return three small graphs."""
    return domain("one", 1), domain("two", 2), domain("three", 3)


# ---- files of tensors --------------------------------------------------------------------------------------------


def seal(kind: str, tensors: Mapping[str, Tensor], meta: Any, *, version: Any = checkpoint.FORMAT) -> bytes:
    """Return a file as `checkpoint.write` writes it, whose checksum fits. The metadata may hold any JSON."""
    header = dump_json({"format": version, "kind": kind, "meta": meta})
    digest = checkpoint._digest(header, tensors)
    blob = save({name: t.contiguous() for name, t in tensors.items()}, metadata={"edgemask": header, "sha256": digest})
    return normalised(blob)


def normalised(blob: bytes) -> bytes:
    """Return a safetensors file whose header has its keys in order, so that equal content has equal bytes."""
    header, data = split(blob)
    return joined(json.dumps(header, sort_keys=True), data)


def split(blob: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the data of a safetensors file."""
    (length,) = struct.unpack("<Q", blob[:8])
    return json.loads(blob[8 : 8 + length]), blob[8 + length :]


def joined(header: str, data: bytes) -> bytes:
    """Return a safetensors file."""
    text = header.encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def content(blob: bytes) -> tuple[Any, ...]:
    """Return the content of a file of tensors in a form that can be compared."""
    header, data = split(blob)
    meta = header.get("__metadata__", {}).get("edgemask")
    tensors = {
        name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items() if name[0] != "_"
    }
    return meta, tensors


def state_mutation(suffix: str) -> Callable[[random.Random, Files], Files]:
    """Return a mutation of a file of tensors that keeps its checksum valid."""

    def mutate(rng: random.Random, files: Files) -> Files:
        name = rng.choice([name for name in sorted(files) if name.endswith(suffix)])
        try:
            tensors = dict(load(files[name]))
            described = json.loads(split(files[name])[0]["__metadata__"]["edgemask"])
        except Exception:  # an earlier mutation has damaged the file
            return files | {name: mutate_bytes(rng, {"": files[name]})[""]}
        kind, meta, version, action = described["kind"], described["meta"], described["format"], rng.randrange(20)
        chosen = rng.choice(sorted(tensors)) if tensors else None
        if action < 11 or chosen is None:
            meta = mutate_json(rng, meta)
        elif action == 11:
            kind, version = rng.choice(
                (("model", 1), ("checkpoint", 1), ("race", 1), (kind, 2), (kind, HUGE), (kind, None))
            )
        elif action == 12:
            del tensors[chosen]
        elif action == 13:
            tensors[rng.choice([chosen + "x", chosen.rpartition("/")[2], f"method/{chosen}", *TEXTS[:20]])] = (
                tensors.pop(chosen)
            )
        elif action == 14:
            kinds = (
                torch.float16,
                torch.bfloat16,
                torch.float64,
                torch.int64,
                torch.int32,
                torch.bool,
                torch.uint8,
                torch.complex64,
            )
            tensors[chosen] = tensors[chosen].to(rng.choice(kinds))
        elif action == 15:
            header, data = split(files[name])
            return files | {name: joined(dump_json(mutate_json(rng, header)), data)}
        elif action == 16:
            tensors[chosen] = tensors[chosen] * rng.choice((float("nan"), float("inf"), 1e30, 0, -1))
        elif action == 17:
            tensors[chosen] = tensors[rng.choice(sorted(tensors))].clone()
        else:
            try:
                tensors[chosen] = torch.from_numpy(np.ascontiguousarray(mutate_array(rng, tensors[chosen].numpy())))
            except (TypeError, ValueError):  # torch has no such type or byte order
                return files
        try:
            return files | {name: seal(kind, tensors, meta, version=version)}
        except (RuntimeError, ValueError, TypeError, UnicodeError):
            return files

    return mutate


def is_changed(case: Case, name: str) -> bool:
    """Return whether the content of a file differs, although its checksum is that of the valid file."""
    if not case.sealed or case.files[name] == case.base[name]:
        return False
    try:
        return content(case.files[name]) != content(case.base[name])
    except Exception as error:
        raise WrongContent("a damaged file was accepted") from error


# ---- models ------------------------------------------------------------------------------------------------------


def model_bases() -> list[Files]:
    """Return model files of several methods."""
    one, two, _ = domains()
    mask = {"mask_projection": 4, "mask_hidden": 4, "k": 2, "clusters": 2}
    fitted = [
        EdgeMaskClassifier("erm-gcn", device="cpu", **SETTINGS),
        EdgeMaskClassifier("robust", device="cpu", **SETTINGS | mask),
        EdgeMaskClassifier("erm-mlp", device="cpu", scale=False, **SETTINGS),
    ]
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for estimator in fitted:
            path = Path(folder) / "m.model"
            estimator.fit([one, two]).save(path)
            files.append({"m.model": normalised(path.read_bytes())})
    return files


def read_model(case: Case, folder: Path) -> None:
    """Load a model, predict, save it and load it again."""
    path, graph = folder / "m.model", domains()[2]
    model = load_model(path, device="cpu")
    EdgeMaskClassifier.load(path, device="cpu")
    require(not is_changed(case, "m.model"), "a changed model was accepted")
    try:
        p = model.predict_proba(graph.without_labels())
        check_probabilities(p, graph.num_nodes, len(model.classes))
        require(np.isin(model.predict(graph.without_labels()), model.classes_).all(), "a class that is not one")
    except GraphError:
        return  # the model takes other graphs, or its probabilities are not finite
    model.save(folder / "again.model", {})
    np.testing.assert_array_equal(
        load_model(folder / "again.model", device="cpu").predict_proba(graph.without_labels()), p
    )


# ---- checkpoints of a fit ----------------------------------------------------------------------------------------


class Stopped(Exception):
    """Ends a training between two epochs."""


def fit(method: str, path: Path | None, stop: int | None = None, **settings: Any) -> Fit:
    """Return a small fit with a checkpoint."""

    def on_epoch(trainer: Trainer, stage: str) -> None:
        if trainer.epoch == stop:
            raise Stopped

    recipe: Recipe = method_spec(method).under(None, **SETTINGS | settings)
    one, two, three = domains()
    return Fit(
        method_spec(method).make,
        recipe,
        [one, two],
        [three],
        checkpoint_path=path,
        checkpoint_every=1,
        on_epoch=on_epoch,
    )


FITS: dict[str, dict[str, Any]] = {
    "erm-gcn": {},
    "group-dro": {"average": 0.5, "select": "source-val"},
    "edgemask-dg": {"mask_projection": 4, "mask_hidden": 4, "n_descent": 1},
}


def checkpoint_bases() -> list[Files]:
    """Return checkpoints of fits that were stopped."""
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for method, settings in FITS.items():
            path = Path(folder) / f"{method}.ckpt"
            try:
                fit(method, path, stop=EPOCHS, **settings).run()
            except Stopped:
                files.append({path.name: normalised(path.read_bytes())})
    return files


@lru_cache
def trained(method: str) -> dict[str, Tensor]:
    """Return the weights of an uninterrupted fit."""
    trainer, _ = fit(method, None, **FITS[method]).run()
    return trainer.weights()


def read_checkpoint(case: Case, folder: Path) -> None:
    """Continue a fit from a checkpoint."""
    name = next(iter(case.files))
    method = name.removesuffix(".ckpt")
    this = fit(method, folder / name, **FITS[method])
    try:
        trainer, choice = this.run()
    except DivergenceError:
        return
    require(trainer.epoch == EPOCHS, f"training ended at epoch {trainer.epoch}")
    require(len(trainer.history) == EPOCHS, f"the history has {len(trainer.history)} epochs")
    require(choice.alpha in this.recipe.alpha and 0 <= choice.epoch <= EPOCHS, f"chose {choice}")
    if case.sealed:
        require(not is_changed(case, name), "a changed checkpoint was accepted")
        weights = trainer.weights()
        require(all(torch.equal(weights[k], t) for k, t in trained(method).items()), "other weights")


# ---- the state of a race -----------------------------------------------------------------------------------------


@lru_cache
def racers() -> tuple[Graph, Graph]:
    """Return two graphs with enough nodes to score candidates."""
    return domain("one", 1, 24), domain("two", 2, 24)


def race(folder: Path, stop: int | None = None) -> Race:
    """Return a race between two candidates, which may stop after a number of epochs of all candidates."""
    left = [EPOCHS * 100 if stop is None else stop]

    def on_epoch(trainer: Trainer, stage: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Stopped

    candidates = choose_candidates(("erm-mlp", "erm-gcn"), racers(), epochs=EPOCHS, eval_every=1, hidden=4, lr=0.02)
    return Race(candidates, racers(), folder=folder, on_epoch=on_epoch)


def race_bases() -> list[Files]:
    """Return the state of races that were stopped in the second and third round."""
    bases = []
    for stop in (5, 9):
        with tempfile.TemporaryDirectory() as folder:
            try:
                race(Path(folder) / "race", stop).run()
            except Stopped:
                files = files_in(Path(folder))
                bases.append({name: normalised(content) for name, content in files.items() if name.endswith(".ckpt")})
    return bases


@lru_cache
def winner() -> Any:
    """Return the probabilities of an uninterrupted race."""
    with tempfile.TemporaryDirectory() as folder:
        return race(Path(folder)).run().predict_proba(domains()[2])


def read_race(case: Case, folder: Path) -> None:
    """Continue a race from its state."""
    try:
        model = race(folder / "race").run()
    except InputError as error:
        require("every" in str(error), f"the race ended with {error}")
        return
    p = model.predict_proba(domains()[2])
    check_probabilities(p, domains()[2].num_nodes, 3)
    require(len(model.leaderboard) == 3, f"a leaderboard of {len(model.leaderboard)} rows")
    if case.sealed:
        require(not any(is_changed(case, name) for name in case.base), "a changed state was accepted")
        require(np.array_equal(p, winner()), "another model")


TARGETS = (
    Target("model", model_bases, read_model, (state_mutation(".model"),), share=3, byte_level=0.3),
    Target(
        "checkpoint",
        checkpoint_bases,
        read_checkpoint,
        (state_mutation(".ckpt"),),
        share=3,
        byte_level=0.3,
    ),
    Target("race", race_bases, read_race, (state_mutation(".ckpt"),), byte_level=0.3),
)
