"""A fitted model: its members, what was chosen and why, and the file that holds it.

A model predicts the mean of its members' class probabilities. A fit of a single method has one member. This module
loads no training code, so that a model can be used where nothing is trained (`load_model`).
"""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgemask._version import __version__
from edgemask.config import Recipe
from edgemask.coverage import Finding, GraphSummary, compare
from edgemask.data import read_graph
from edgemask.data.files import applicable_options
from edgemask.enrich import Cache
from edgemask.errors import CoverageWarning, GraphError, GraphWarning, SchemaError, warn
from edgemask.graph import Array, Contract, Graph, applicable, as_graph, is_sequence
from edgemask.inference import Member, Propagation, mean_probabilities
from edgemask.legal import Legal
from edgemask.methods.edgemask import Game
from edgemask.methods.registry import method_spec
from edgemask.runtime import checkpoint
from edgemask.runtime.device import resolve_device
from edgemask.runtime.threads import SHORT, threads_for
from edgemask.schema import (
    ANYTHING,
    COUNT,
    NUMBER,
    SCALAR,
    TEXT,
    Either,
    Fields,
    Items,
    Maybe,
    Row,
    Table,
    check,
    short,
)  # fmt: skip

LARGE = 200_000  # nodes; larger graphs are predicted in blocks
BLOCK = 50_000  # nodes of a block, unless the recipe or the user says otherwise
INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Standing:
    """A row of the leaderboard.

    Attributes:
        name: Name of the candidate.
        score: Its best score: the mean over the scored graphs. None if it was never scored.
        error: Standard error of the score. None if it is not known.
        epoch: Chosen epoch.
        propagation: Chosen propagation, as text.
        rounds: Number of rounds that the candidate took part in.
        weight: Its weight in the average, 0 if it is not a member.
        seconds: Time it took.
        note: Why it stopped; empty for members.
    """

    name: str
    score: float | None = None
    error: float | None = None
    epoch: int = 0
    propagation: str = ""
    rounds: int = 0
    weight: float = 0.0
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Expected:
    """The score to expect on an unseen graph: that of the members' average on the scored graphs.

    Attributes:
        score: Mean over the scored graphs.
        low: Lowest score of a scored graph, minus two standard errors.
        high: Highest score of a scored graph, plus two standard errors.
        by_graph: Score of each scored graph.
    """

    score: float
    low: float
    high: float
    by_graph: dict[str, float]


@dataclass(frozen=True)
class Model:
    """A fitted model.

    Attributes:
        members: Trained members. Their probabilities are averaged with equal weights.
        classes: Names of the classes.
        rule: Name of the selection rule.
        leaderboard: All candidates and the majority class, best first. A fit of a single method has one row.
        metric: The metric of all scores.
        seed: Seed of the fit.
        expected: The score to expect on an unseen graph; None if nothing was scored.
        histories: Training history of each member by name.
        sources: Content hash of each source graph by name.
        summaries: Summaries of the graphs that the model was trained and selected on.
        notes: What a user should know: candidates that failed, a budget that ended the race.
        contract: Columns and classes of all graphs of the model. None: as many columns as the members take.
        read: Options with which files and objects of other libraries are converted to graphs.
    """

    members: list[Member]
    classes: tuple[str, ...]
    rule: str
    leaderboard: list[Standing]
    metric: str = "micro_f1"
    seed: int = 0
    expected: Expected | None = None
    histories: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    summaries: list[GraphSummary] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    contract: Contract | None = None
    read: dict[str, Any] = field(default_factory=dict)

    @property
    def num_features(self) -> int:
        """Number of feature columns of every graph."""
        return self.members[0].method.num_features

    @property
    def classes_(self) -> Array:
        """The classes, as `predict` returns them: integers if all names are integers, else text."""
        integers = all(INTEGER.fullmatch(name) for name in self.classes)
        return np.array([int(name) for name in self.classes] if integers else self.classes)

    def graph(self, value: Any, *, labels: bool = False, name: str = "graph") -> Graph:
        """Return a graph in the form that the model takes: columns and classes matched by name, columns scaled.

        Args:
            value: A graph in any accepted form, or a path.
            labels: Whether the labels are needed. If not, they are removed.
            name: Name of the graph if it has none.

        Raises:
            InputTypeError: The value is not a graph.
            GraphError: The graph cannot be used with this model.
        """
        contract = self.contract or Contract(self.num_features, self.classes)
        return contract.aligned(self.read_graph(value, labels=labels, name=name), labels=labels)

    def read_graph(
        self, value: Any, options: Mapping[str, Any] | None = None, *, labels: bool = False, name: str = "graph"
    ) -> Graph:
        """Return a graph that is read in the same way as the graphs that the model was trained on.

        Options of the fit that the form of the graph does not have are not used: an `.npz` file, for example, has no
        names of columns. Text columns of the model are read as text, even if all their values look like numbers.

        Args:
            value: A graph in any accepted form, or a path.
            options: Options that override those of the fit.
            labels: Whether the labels are needed. If not, their column need not be there.
            name: Name of the graph if it has none.

        Raises:
            InputTypeError: The value is not a graph.
            InputError: There is no such option, or the form of the graph does not have it.
            GraphError: The value does not describe a valid graph.
        """
        remembered = {option: given for option, given in self.read.items() if option != "name"}
        if self.contract and self.contract.text_columns:
            remembered["text"] = self.contract.text_columns
        known = applicable_options if isinstance(value, str | Path) else applicable
        with warnings.catch_warnings():
            if not labels:
                warnings.filterwarnings("ignore", ".*so the graph has no labels", GraphWarning)
            return to_graph(value, name, {**known(value, remembered), **(options or {})})

    def predict_proba(self, value: Any) -> Any:
        """Return the N × C class probabilities of a graph's nodes. Labels are not used.

        A `CoverageWarning` says if the graph lies outside what the sources cover.

        Args:
            value: A graph in any accepted form, or a path. A list of graphs gives a list of results.

        Raises:
            InputTypeError: The value is not a graph.
            GraphError: The graph cannot be used with this model, or a probability is not finite.
        """
        if is_sequence(value):
            return [self.covered_probabilities(self.graph(one, name=f"graph-{i}")) for i, one in enumerate(value)]
        return self.covered_probabilities(self.graph(value))

    def covered_probabilities(self, graph: Graph) -> Array:
        """Return `probabilities(graph)`, with a `CoverageWarning` if the graph lies outside what the sources cover."""
        p = self.probabilities(graph)
        if outside := [f.message for f in self.findings(graph, p) if f.outside]:
            message = f"graph {graph.name!r} differs from the sources: {'; '.join(outside)}"
            warn(message, CoverageWarning)
        return p

    def predict(self, value: Any) -> Any:
        """Return the most probable class of every node, as a value of `classes_`. See `predict_proba`."""
        p = self.predict_proba(value)
        return [self.classes_[one.argmax(1)] for one in p] if isinstance(p, list) else self.classes_[p.argmax(1)]

    def findings(self, graph: Graph, p: Array) -> list[Finding]:
        """Compare a graph and its class probabilities with the sources."""
        return compare(self.summaries, GraphSummary.of(graph, p)) if self.summaries else []

    def probabilities(self, graph: Graph, *, cache: Cache | None = None) -> Array:
        """Return the N × C class probabilities of a graph in the model's form. Its labels are not used.

        A graph of more than 200,000 nodes is predicted in blocks of 50,000 nodes, unless the recipe says otherwise.

        Raises:
            GraphError: A probability is not finite.
        """
        members = self.members
        if graph.num_nodes > LARGE:
            members = [m if m.method.recipe.inference_batch else _in_blocks(m, BLOCK) for m in members]
        with threads_for([graph], SHORT):
            return mean_probabilities(members, graph, seed=self.seed, cache=cache)

    def with_inference_batch(self, size: int) -> Model:
        """Return the model with members that predict in blocks of `size` nodes.

        Raises:
            InputError: The size is not legal.
        """
        return replace(self, members=[_in_blocks(member, size) for member in self.members])

    def save(self, path: str | Path, params: Mapping[str, Any]) -> None:
        """Write the model to one safetensors file. Times are left out, so that equal models have equal files.

        Args:
            path: The file.
            params: Parameters of the estimator, as JSON values.
        """
        tensors: dict[str, Tensor] = {}
        for i, member in enumerate(self.members):
            tensors |= checkpoint.pack_module(f"member-{i}", member.method.networks)
        meta = {
            "version": __version__,
            "params": dict(params),
            "num_features": self.num_features,
            "members": [_described(member) for member in self.members],
            "leaderboard": [asdict(replace(s, seconds=0.0)) for s in self.leaderboard],
            "expected": None if self.expected is None else asdict(self.expected),
            "summaries": [s.to_json() for s in self.summaries],
            "contract": None if self.contract is None else self.contract.to_json(),
            "read": self.read,
            **{name: getattr(self, name) for name in _PLAIN},
        }
        checkpoint.write(path, "model", tensors, meta)

    @classmethod
    def load(cls, path: str | Path, device: torch.device) -> tuple[Model, dict[str, Any]]:
        """Return the model that `save` wrote, and the parameters of its estimator.

        Args:
            path: The file.
            device: Where to predict.

        Raises:
            CheckpointError: The file is damaged, or is not a model.
        """
        tensors, meta = checkpoint.read(path, "model")
        with checkpoint.unusable(path, "model"):
            if type(meta) is dict and "members" not in meta:
                check(meta, MODEL_0_3, "metadata")
                meta = _upgraded(meta, tensors)
            check(meta, MODEL, "metadata")
            plain = {name: meta[name] for name in _PLAIN} | {"classes": tuple(meta["classes"])}
            model = cls(
                members=[
                    _restored(m, checkpoint.unpack(f"member-{i}", tensors), meta, device)
                    for i, m in enumerate(meta["members"])
                ],
                leaderboard=[Standing(**s) for s in meta["leaderboard"]],
                expected=None if meta["expected"] is None else Expected(**meta["expected"]),
                summaries=_summaries(meta),
                contract=_contract(meta),
                read={k: tuple(v) if isinstance(v, list) else v for k, v in meta.get("read", {}).items()},
                **plain,
            )
        return model, {k: tuple(v) if isinstance(v, list) else v for k, v in meta["params"].items()}


def load_model(path: str | Path, *, device: str = "auto", inference_batch: int | None = None) -> Model:
    """Return a fitted model for prediction, without loading training code.

    Args:
        path: The model file.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` (`cuda` if there is a GPU, else `cpu`).
        inference_batch: If given, predict in blocks of this many nodes.

    Raises:
        CheckpointError: The file is damaged, or is not a model.
        InputError: The device or `inference_batch` cannot be used.
    """
    model, _ = Model.load(path, resolve_device(device))
    return model if inference_batch is None else model.with_inference_batch(inference_batch)


def to_graph(value: Any, name: str, options: Mapping[str, Any]) -> Graph:
    """Return a graph in any accepted form, or the graph of a path.

    Args:
        value: The graph or path.
        name: Name of the graph if it has none.
        options: Options of the conversion.

    Raises:
        InputTypeError: The value is not a graph.
        GraphError: It does not describe a valid graph, or there is no such file.
    """
    if not isinstance(value, str | Path):
        return as_graph(value, name, options)
    if not os.path.exists(value) and "," not in str(value):
        raise GraphError(f"{value if str(value) and str(value).isprintable() else repr(value)}: no such file or folder")
    return read_graph(value, **options)


def _contract(meta: Mapping[str, Any]) -> Contract:
    """Return the contract of a model file. Files of earlier versions have none: columns are matched by position."""
    width, classes = meta["num_features"], tuple(meta["classes"])
    contract = Contract.from_json(meta["contract"]) if meta.get("contract") else Contract(width, classes)
    if (contract.num_features, contract.classes) != (width, classes):
        raise SchemaError("its columns and classes contradict each other")
    return contract


def _summaries(meta: Mapping[str, Any]) -> list[GraphSummary]:
    """Return the summaries of a model file."""
    summaries = [GraphSummary.from_json(values) for values in meta["summaries"]]
    for summary in summaries:
        if summary.width != meta["num_features"] or len(summary.class_shares or meta["classes"]) != len(
            meta["classes"]
        ):
            raise SchemaError(f"the summary of graph {short(summary.name)} has other columns or classes than the model")
    return summaries


def _in_blocks(member: Member, size: int) -> Member:
    """Return a member that predicts in blocks of `size` nodes. It shares the networks."""
    method = copy.copy(member.method)
    method.recipe = method.recipe.replace(inference_batch=size)
    return replace(member, method=method)


# ---- schemas of model files ----------------------------------------------------------------------------------

TEXTS = Items(TEXT)
PARAMETERS = Table(Either(SCALAR, Items(SCALAR)))
STANDING = Fields(
    {"name": TEXT, "score": Maybe(NUMBER), "error": Maybe(NUMBER), "propagation": TEXT, "note": TEXT}
    | {"epoch": COUNT, "rounds": COUNT, "weight": NUMBER, "seconds": NUMBER}
)
PROPAGATION = Row((Legal(0, 1, open_high=True), Legal(choices=("logits", "probabilities"))))
MEMBER = Fields(
    {"name": TEXT, "recipe": Table(ANYTHING), "propagation": PROPAGATION, "temperature": Legal(0, open_low=True)},
    {"lam": Legal()},
)
HISTORY = Items(Table(NUMBER))
SHARED = {  # fields of all versions
    "params": PARAMETERS,
    "num_features": Legal(1, 2**62, whole=True),
    "classes": Items(TEXT, 1),
    "sources": Table(TEXT),
}
MODEL = Fields(
    SHARED
    | {
        "members": Items(MEMBER, 1),
        "leaderboard": Items(STANDING),
        "expected": Maybe(Fields({"score": NUMBER, "low": NUMBER, "high": NUMBER, "by_graph": Table(NUMBER)})),
        "summaries": Items(ANYTHING),  # `GraphSummary` has their schema
        "rule": TEXT,
        "metric": TEXT,
        "seed": Legal(whole=True),
        "histories": Table(HISTORY),
        "notes": TEXTS,
    },
    {"version": TEXT, "contract": ANYTHING, "read": PARAMETERS},
)
CHOICE = Fields(
    {"rule": TEXT, "alpha": Legal(0, 1, open_high=True), "epoch": COUNT, "scores": Items(Row((NUMBER, NUMBER)))}
)
MODEL_0_3 = Fields(
    SHARED | {"version": TEXT, "recipe": Table(ANYTHING), "choice": CHOICE, "history": HISTORY, "lam": Legal()}
)

_PLAIN = ("classes", "rule", "metric", "seed", "histories", "sources", "notes")  # fields that are JSON values


def _described(member: Member) -> dict[str, Any]:
    """Return a member without its weights, as JSON values."""
    method, how = member.method, member.propagation
    described = {
        "name": member.name,
        "recipe": method.recipe.to_json(),
        "propagation": [how.alpha, how.of],
        "temperature": member.temperature,
    }
    return described | ({"lam": float(method.lam)} if isinstance(method, Game) else {})


def _restored(
    described: Mapping[str, Any], weights: dict[str, Tensor], meta: Mapping[str, Any], device: torch.device
) -> Member:
    """Return the member that `_described` described."""
    recipe, make = Recipe.from_json(described["recipe"]), method_spec(described["name"].partition(":")[0]).make
    with checkpoint.BoundedBuild(weights):
        method = make(recipe, meta["num_features"], len(meta["classes"]), meta["seed"], device)
    checkpoint.check_tensors(weights, method.networks.state_dict())
    method.networks.load_state_dict(weights)
    if isinstance(method, Game):
        method.lam.fill_(described.get("lam", recipe.lam))
    alpha, of = described["propagation"]
    return Member(described["name"], method, Propagation(float(alpha), of), float(described["temperature"]))


def _upgraded(meta: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the metadata of a model that edgemask 0.3 wrote in the present form, and rename its tensors."""
    for name in list(tensors):
        tensors[f"member-0/{name.removeprefix('networks/')}"] = tensors.pop(name)
    name, choice, params = "edgemask-dg-star", meta["choice"], dict(meta["params"])
    scores = {float(a): float(v) for a, v in choice["scores"]}
    alpha = Propagation(float(choice["alpha"]))
    board = [Standing(name, scores.get(alpha.alpha), None, choice["epoch"], str(alpha), 1, 1.0)]
    member = {"name": name, "recipe": meta["recipe"], "propagation": [alpha.alpha, alpha.of], "temperature": 1.0}
    return {
        "params": {"method": name, **params},
        "num_features": meta["num_features"],
        "members": [member | {"lam": meta["lam"]}],
        "leaderboard": [asdict(s) for s in board],
        "expected": None,
        "summaries": [],
        "classes": meta["classes"],
        "rule": choice["rule"],
        "metric": params["metric"],
        "seed": params["seed"],
        "histories": {name: meta["history"]},
        "sources": meta["sources"],
        "notes": [],
    }
