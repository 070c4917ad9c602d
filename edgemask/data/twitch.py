"""Twitch-explicit: seven social networks of streamers, one per language."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.forms import benchmark_file, read_rows
from edgemask.data.store import File, Store
from edgemask.errors import DataError, InputError
from edgemask.graph import Graph
from edgemask.protocol import Protocol
from edgemask.schema import COUNT, Items, Table, parse

FEATURES = 3170
_ORIGIN = (
    "https://raw.githubusercontent.com/CUAI/Non-Homophily-Large-Scale/82f8f05c5c3ec16bd5b505cc7ad62ab5e09051e6/data"
)
_KINDS = ("edges.csv", "features.json", "target.csv")
_FILES = {  # edges, features, target: size and checksum
    "DE": (
        (1_499_865, "54feaf3e3e70a485fe07f8611e4d2677841b97f77b8358204bcf4a48cc884d86"),
        (1_167_905, "7b39c42570f05cd46017c765df8d8a1bc03f19787c3eb0f9684f50a52476ae3a"),
        (338_721, "2188f58a093bb9db363d3eaf7c3a52c2adc8ff6b23cbcb4f53875f87061c0321"),
    ),
    "ENGB": (
        (342_162, "5ea4d7f7267454e9523577eb2a9b4dcb7a22dd660a548240f01b815d08e0e3cc"),
        (893_932, "efcd846f7b687d299c9c674f3cda43cd70de8307d2558895bddd3645eb38d500"),
        (253_352, "e9d51399878216d2dd662b0a152b602cccde7b5cbb8452cb91d9379f64114443"),
    ),
    "ES": (
        (563_757, "17801d2cc45fc4909a431ce7a190c0565d4af87b0548ca7705cf2bef7da4c884"),
        (545_028, "598a610ef7e0469c5ad800c11f7ad89797e6a27d7d66b670782a5516cc344725"),
        (165_932, "f843427bae58289100e78c6c211fa4a1ae0d5fbf2c665841df9e390b00dcffb5"),
    ),
    "FR": (
        (1_090_900, "9924263f7e8edaa7278dcbc37bd90c8712cb0ea1726d85e054a5588b7959f887"),
        (781_778, "b6ecbefd5606f46d30a9b4be7b574e5427d9e0314f1bd6a1861942ae718d3573"),
        (234_662, "dd0a9e7ba565cbb95ae66003892709742bd08c26387656e3e235fc25205663b4"),
    ),
    "PTBR": (
        (275_216, "b72d93a3c8a82883771a2f3822fce229885fa0d40367fb105c0535fb36c773b9"),
        (229_854, "12ba6c60ce009b1bec8fd5ad110539775d14a2b96011df19ba9f72ad1393a406"),
        (67_878, "ecba7d1287e72ae7c3f42c922be475283288c0c67346245c72109690460444bd"),
    ),
    "RU": (
        (351_398, "fd307587a550289f746056ea12a7336171ab2053c9e08c42dba77499126ca5b2"),
        (545_944, "c5357468471545a6169de463ef706f321446dc667d9d62d49e68c0b3feef9675"),
        (158_570, "db7617528355be994352e491e7b25d060fed466d0d81c09cadd90fa10f15c071"),
    ),
    "TW": (
        (581_894, "47c986023f1f434f76026ddfb3ab544be24849011400c99402083d06d3dfa017"),
        (305_776, "9508cc55f4b891018f278df4cec40d622aba2b04c1bca9451fd9e8ce11321c7b"),
        (99_672, "65b75f23be40140d2e326813c3f81419f1a94aa1091acfc0279f0403be8165f7"),
    ),
}


def files(domain: str) -> tuple[File, ...]:
    """Return the edges, features and target files of a language."""
    paths = (f"twitch/{domain}/musae_{domain}_{kind}" for kind in _KINDS)
    return tuple(
        File(path, f"{_ORIGIN}/{path}", f"sha256:{digest}", size)
        for path, (size, digest) in zip(paths, _FILES[domain], strict=True)
    )


def read(store: Store, domains: Sequence[str], *, directed: bool) -> dict[str, Graph]:
    """Read the networks of the given languages.

    Args:
        store: The data store.
        domains: Names of the languages.
        directed: Keep each friendship only in the direction in which the file lists it, as EERM's code does.

    Returns:
        The graphs by name.

    Raises:
        InputError: `directed` is not a boolean.
        DataError: A file is altered or not valid, or it is missing and cannot be downloaded.
    """
    if not isinstance(directed, bool):
        raise InputError(f"twitch: directed must be True or False, got {directed!r}")
    return {name: read_language(name, *(store.get(f) for f in files(name)), directed=directed) for name in domains}


def read_language(name: str, edges: Path, features: Path, target: Path, *, directed: bool = False) -> Graph:
    """Read one network: edges, N × 3,170 multi-hot CSR features, and the label `mature`.

    Nodes are numbered by `new_id`. A node can have several target rows if all of them have the same label.

    Args:
        name: Name of the graph.
        edges: Path of the edges file.
        features: Path of the features file.
        target: Path of the target file.
        directed: Keep the directions of the file, which lists each friendship once. If False, edges are undirected.

    Raises:
        DataError: The content of a file is not valid. The message names the file.
    """
    with benchmark_file(target):
        rows = read_rows(target, usecols=["new_id", "mature"], dtype={"new_id": np.int64, "mature": bool})
        rows = rows.drop_duplicates().sort_values("new_id")
    ids = rows["new_id"].to_numpy()
    repeated = np.flatnonzero(ids[1:] == ids[:-1])
    if len(repeated):
        raise DataError(f"{target}: the rows of node {ids[repeated[0]]} have different labels 'mature'")
    n = len(ids)
    if not np.array_equal(ids, np.arange(n)):
        raise DataError(f"{target}: new_id must be 0 … {n - 1}, got {ids.min()} … {ids.max()} with gaps")
    with benchmark_file(features):
        listed = parse(features.read_bytes(), Table(Items(COUNT)), "the features")
        words = {int(node): set(columns) for node, columns in listed.items()}
        if len(words) < len(listed):
            raise DataError(f"{features}: a node occurs twice")
    if words.keys() != set(range(n)):
        node = min(words.keys() ^ set(range(n)))
        raise DataError(f"{features}: node {node} must be in both this file and {target.name}")
    starts = np.cumsum([0, *(len(words[node]) for node in range(n))])
    columns = np.fromiter(chain.from_iterable(words[node] for node in range(n)), np.int64, starts[-1])
    if columns.size and not 0 <= columns.min() <= columns.max() < FEATURES:
        raise DataError(f"{features}: features must be 0 … {FEATURES - 1}, got {columns.min()} … {columns.max()}")
    with benchmark_file(edges):
        return Graph(
            name,
            x=sp.csr_array((np.ones(len(columns), np.float32), columns, starts), shape=(n, FEATURES)),
            edges=read_rows(edges, dtype=np.int64)[["from", "to"]].to_numpy().T,
            y=rows["mature"].to_numpy(),
            classes=("not mature", "mature"),
            undirected=not directed,
            duplicates="merge",
            self_loops="drop",
        )


TWITCH = Benchmark(
    name="twitch",
    card=Card(
        title="Twitch-explicit",
        nodes="streamers: DE 9,498, ENGB 7,126, ES 4,648, FR 6,549, PTBR 1,912, RU 4,385, TW 2,772",
        edges="mutual friendships, undirected: DE 153,138, ENGB 35,324, ES 59,382, FR 112,666, PTBR 31,299, "
        "RU 37,304, TW 63,462; no self-loops, no duplicates; directed=True keeps "
        "only the direction in the file, as EERM's code does",
        features="3,170 shared columns, multi-hot, sparse: games played and liked, location, streaming "
        "habits; an index that is repeated within a row counts once",
        labels="2 classes, whether the streamer uses explicit language; mature: DE 5,742, ENGB 3,888, "
        "ES 1,360, FR 2,414, PTBR 661, RU 1,075, TW 1,088; no label is missing",
        shift="the language of the streamers: networks, habits and the share of mature streams differ",
        split="EERM (Wu et al., ICLR 2022): train DE, validate ENGB, test ES, FR, PTBR, RU, TW",
        metric="ROC-AUC of the class mature over all nodes; a value below 0.5 is reported unchanged",
        licence="not stated for the data; the code repository of its authors is under the GNU GPL",
        origin="GitHub CUAI/Non-Homophily-Large-Scale, data/twitch/",
        citation="Rozemberczki, Allen, Sarkar: Multi-Scale Attributed Node Embedding, Journal of Complex "
        "Networks 9(2), 2021",
        notes="FR has 6,551 target rows for 6,549 nodes: two rows are repeated, with equal labels.",
    ),
    domains=tuple(_FILES),
    protocols=(
        Protocol(
            name="DE→ES,FR,PTBR,RU,TW",
            sources=("DE",),
            validation=("ENGB",),
            targets=("ES", "FR", "PTBR", "RU", "TW"),
            metrics=("roc_auc",),
        ),
    ),
    files=files,
    read=read,
    later_options={"directed": False},
)
