"""Elliptic: Bitcoin transactions, one graph for each of 49 time steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.forms import benchmark_file, read_rows
from edgemask.data.store import File, Store
from edgemask.errors import DataError
from edgemask.graph import MISSING, Array, Graph
from edgemask.protocol import Protocol

STEPS = 49
COLUMNS = 167  # transaction id, time step and 165 features
CHUNK = 20_000  # rows parsed at a time, because the text is larger than the parsed numbers
_TARGETS = tuple(f"t{step:02d}" for step in range(17, 50))
PERIODS = {
    "T1": _TARGETS[:11],
    "T2": _TARGETS[11:22],
    "T3": _TARGETS[22:],
}  # the paper splits the test steps into thirds

_COMMIT = "victorhsu890524/elliptic-data-set/4fd85d02da61ae04a2a6b2f75d3d2205eb186187/data/raw"
_FEATURES, _CLASSES, _EDGES = (
    File(
        "elliptic/elliptic_txs_features.csv",
        f"https://media.githubusercontent.com/media/{_COMMIT}/elliptic_txs_features.csv",
        "sha256:fd7f83573443c9e302e371d3f110e3b6224160f5d1ed8a287757936127800ff0",
        size=689_683_771,
    ),
    File(
        "elliptic/elliptic_txs_classes.csv",
        f"https://raw.githubusercontent.com/{_COMMIT}/elliptic_txs_classes.csv",
        "sha256:93e2e7b2405c735ba752bf6ba06b947561deddd1f5a8fc91e46f6a4c0e439493",
        size=3_305_144,
    ),
    File(
        "elliptic/elliptic_txs_edgelist.csv",
        f"https://raw.githubusercontent.com/{_COMMIT}/elliptic_txs_edgelist.csv",
        "sha256:a35053ba68a98e4382cae2ba65b9d9e36b23b6439e02dff084971b1b72a5156e",
        size=4_470_584,
    ),
)


def files(domain: str) -> tuple[File, ...]:
    """Return the three files. They contain all time steps, so they are the same for each domain."""
    return (_FEATURES, _CLASSES, _EDGES)


def read(store: Store, domains: Sequence[str]) -> dict[str, Graph]:
    """Read the graphs of the given time steps."""
    return read_steps(store.get(_FEATURES), store.get(_CLASSES), store.get(_EDGES), domains)


def read_steps(features: Path, classes: Path, edges: Path, domains: Sequence[str]) -> dict[str, Graph]:
    """Read the graphs of the given time steps from the three files of the data set.

    Each graph contains the transactions of one time step in the order of the features file, 165 dense features (all
    columns after the id and the time step), directed edges, and the labels 0 (licit), 1 (illicit) and -1 (unknown).

    Args:
        features: Path of the features file.
        classes: Path of the classes file.
        edges: Path of the edges file.
        domains: The time steps, `"t01"` … `"t49"`.

    Returns:
        The graphs by time step.

    Raises:
        DataError: The content of a file is not valid. The message names the file.
    """
    ids, steps, x = _read_features(features)
    table = read_rows(classes, usecols=["txId", "class"], dtype={"txId": np.int64, "class": str})
    row = _positions(classes, table["txId"].to_numpy(), ids)
    codes = table["class"].map({"1": 1, "2": 0, "unknown": MISSING})
    unknown_codes = table["class"][codes.isna()]
    if len(unknown_codes):
        raise DataError(f"{classes}: class must be 1, 2 or unknown, got {unknown_codes.iloc[0]!r}")
    y = codes.to_numpy(np.int64)[row]

    pairs = read_rows(edges, usecols=["txId1", "txId2"], dtype=np.int64)[["txId1", "txId2"]].to_numpy().T
    ends = _positions(features, ids, pairs.ravel()).reshape(2, -1)
    across = np.flatnonzero(steps[ends[0]] != steps[ends[1]])
    if len(across):
        (a, b), (s, t) = pairs[:, across[0]], steps[ends[:, across[0]]]
        raise DataError(f"{edges}: edge ({a}, {b}) must stay in one time step, got time steps {s} and {t}")

    graphs = {}
    for name in domains:
        in_step = steps == int(name[1:])
        if not in_step.any():
            raise DataError(f"{features}: time step {int(name[1:])} has no transactions")
        new_index = np.cumsum(in_step) - 1  # index of a transaction in its graph
        with benchmark_file(edges):
            graphs[name] = Graph(
                name,
                x=x[in_step],
                edges=new_index[ends[:, in_step[ends[0]]]],
                y=y[in_step],
                classes=("licit", "illicit"),
            )
    return graphs


def _read_features(path: Path) -> tuple[Array, Array, Array]:
    """Return the transaction ids, the time steps and the N × 165 float32 features, in the order of the file."""
    kinds = {0: np.int64, 1: np.int64} | dict.fromkeys(range(2, COLUMNS), np.float32)
    parts = []
    with benchmark_file(path), pd.read_csv(path, header=None, dtype=kinds, chunksize=CHUNK) as chunks:
        for chunk in chunks:
            if (width := chunk.shape[1]) != COLUMNS:
                raise DataError(f"{path}: expected {COLUMNS} columns (id, time step, features), got {width}")
            parts.append((chunk[0].to_numpy(), chunk[1].to_numpy(), chunk.iloc[:, 2:].to_numpy()))
    ids, steps, x = (np.concatenate(part) for part in zip(*parts, strict=True))
    short = np.isnan(x[:, -1])  # the parser fills a short row with NaN
    if short.any():
        raise DataError(f"{path}: the row of transaction {ids[short][0]} has fewer than {COLUMNS} columns")
    wrong = ~np.isfinite(x).all(1)
    if wrong.any():
        raise DataError(f"{path}: a feature of transaction {ids[wrong][0]} is missing or not finite")
    outside = (steps < 1) | (steps > STEPS)
    if outside.any():
        raise DataError(f"{path}: time step must be 1 … {STEPS}, got {steps[outside][0]}")
    return ids, steps, x


def _positions(path: Path, ids: Array, wanted: Array) -> Array:
    """Return the row of each wanted transaction in the file at `path`, whose transaction ids are `ids`."""
    index = pd.Index(ids)
    if not index.is_unique:
        raise DataError(f"{path}: transaction {ids[index.duplicated()][0]} occurs twice")
    rows: Array = index.get_indexer(pd.Index(wanted))
    if (rows < 0).any():
        raise DataError(f"{path}: no row for transaction {wanted[rows < 0][0]}")
    return rows


ELLIPTIC = Benchmark(
    name="elliptic",
    card=Card(
        title="Elliptic Bitcoin transactions",
        nodes="203,769 transactions in 49 time steps, 1,089 to 7,880 in each",
        edges="234,355 directed payments, none between time steps; no self-loops, no duplicates",
        features="165 dense columns: all after the transaction id and the time step, as in EERM; the "
        "usual number of 166 includes the time step, which would identify the domain",
        labels="2 classes: 42,019 licit, 4,545 illicit; 157,205 unknown, which loss and metrics ignore",
        shift="time: 49 steps about two weeks apart; the share of illicit transactions changes",
        split="EERM (Wu et al., ICLR 2022): train steps 7–11, validate 12–16, test 17–49; T1, T2, T3 are "
        "steps 17–27, 28–38, 39–49",
        metric="F1 of the illicit class and macro-F1 over the labelled nodes of each step",
        licence="not stated in the repository of this copy; others report CC BY-NC-ND 4.0 for the original on Kaggle",
        origin="GitHub victorhsu890524/elliptic-data-set, data/raw/ (features by Git LFS, 690 MB)",
        citation="Weber et al.: Anti-Money Laundering in Bitcoin: Experimenting with Graph Convolutional "
        "Networks for Financial Forensics, KDD Workshop on Anomaly Detection in Finance, 2019",
        notes="Each time step is one weakly connected component.",
    ),
    domains=tuple(f"t{step:02d}" for step in range(1, STEPS + 1)),
    protocols=(
        Protocol(
            name="t07–t11→t17–t49",
            sources=tuple(f"t{step:02d}" for step in range(7, 12)),
            validation=tuple(f"t{step:02d}" for step in range(12, 17)),
            targets=_TARGETS,
            metrics=("f1:1", "macro_f1"),
        ),
    ),
    files=files,
    read=read,
)
