"""ACMv9, Citationv1 and DBLPv7: three citation networks with the same vocabulary and the same classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from edgemask.data import mat5
from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.forms import benchmark_file, take
from edgemask.data.store import File, Store
from edgemask.errors import InputError
from edgemask.graph import Graph
from edgemask.protocol import Protocol, leave_one_out

_ORIGIN = "https://raw.githubusercontent.com/shenxiaocam/ACDNE/c6e8ffd13c0243329c109ba8e41e6be5b94a9df4"
_SHORT = {"acmv9": "A", "citationv1": "C", "dblpv7": "D"}
_FILES = {  # size and checksum
    "acmv9": (1_107_832, "ee072387b0ea6599d9e9b4e60957b7b690aae4eb30adb3b9968a1e2c4e36cd74"),
    "citationv1": (1_031_712, "98f8f96b4d6141ad6d413bbc43116da54462e10a6b5e10d1b056202f82520c25"),
    "dblpv7": (558_772, "986b5505025a188a2526be37225408bbb1eef2da8b643775ad3f7e1c12768932"),
}


def files(domain: str) -> tuple[File, ...]:
    """Return the file of a network."""
    url = f"{_ORIGIN}/ACDNE_codes/input/{domain}.mat"
    size, digest = _FILES[domain]
    return (File(f"citation/{domain}.mat", url, f"sha256:{digest}", size),)


def read(store: Store, domains: Sequence[str], *, labels: str) -> dict[str, Graph]:
    """Read the given networks: word counts as CSR features, undirected edges without self-loops, five classes.

    Args:
        store: The data store.
        domains: Names of the networks.
        labels: `"first"` keeps the first label of a node with two labels (N integers), `"multi"` keeps both (an N × 5
            matrix of 0 and 1).

    Returns:
        The graphs by name.

    Raises:
        InputError: `labels` has another value.
        DataError: A file is altered, or it is missing and cannot be downloaded.
    """
    if labels not in ("first", "multi"):
        raise InputError(f"citation: labels must be 'first' or 'multi', got {labels!r}")
    graphs = {}
    for name in domains:
        path = store.get(files(name)[0])
        with benchmark_file(path), path.open("rb") as file:
            mat = mat5.read_variables(file, ("network", "attrb", "group"), path)
            network, x, group = (take(mat, field) for field in ("network", "attrb", "group"))
            graphs[name] = Graph(
                name,
                x=sp.csr_array(x),
                edges=np.stack(network.nonzero()),
                y=group if labels == "multi" else group.argmax(1),
                classes=tuple(str(c) for c in range(group.shape[1])),
                undirected=True,
                self_loops="drop",
            )
    return graphs


def _single() -> tuple[Protocol, ...]:
    """Return the six transfers from one network to another, by target in the order D, C, A."""
    return tuple(
        Protocol(f"{_SHORT[source]}→{_SHORT[target]}", (source,), (target,), ("micro_f1", "macro_f1"))
        for target in reversed(_SHORT)
        for source in _SHORT
        if source != target
    )


def _thresholded() -> tuple[Protocol, ...]:
    """Return the usual transfers with all labels of a node, scored as a task with several labels per node."""
    metrics, options = ("label_micro_f1", "label_macro_f1", "micro_f1", "macro_f1", "hits"), (("labels", "multi"),)
    return tuple(replace(p, name=f"{p.name}, thresholded", metrics=metrics, options=options) for p in _usual())


def _usual() -> tuple[Protocol, ...]:
    """Return the transfers from two networks to the third.

    The order is reversed, because papers usually list the targets in the order D, C, A.
    """
    transfers = leave_one_out(tuple(_SHORT), ("micro_f1", "macro_f1"), short=_SHORT)
    return tuple(replace(p, name=p.name.replace("+", "")) for p in reversed(transfers))


CITATION = Benchmark(
    name="citation",
    card=Card(
        title="Citation networks ACMv9, Citationv1, DBLPv7",
        nodes="papers: 9,360 (acmv9), 8,935 (citationv1), 5,484 (dblpv7); none isolated",
        edges="citations, undirected: 15,556 (acmv9), 15,098 (citationv1), 8,117 (dblpv7), "
        "after dropping 46, 15 and 13 self-loops",
        features="6,775 shared words, sparse counts of 1 to 3 without normalisation; no empty row",
        labels="5 research areas, numbered 0 to 4 in the order of the file, which does not name them; "
        "581 (acmv9), 166 (citationv1) and 15 (dblpv7) papers have two labels: labels='first' keeps "
        "the first, labels='multi' keeps both; no label is missing",
        shift="three sources and periods of papers: edges and word frequencies differ, vocabulary and areas do not",
        split="leave one domain out: AC→D, AD→C, CD→A; the set single has the six transfers from one network to "
        "another; the set thresholded has AC→D, AD→C, CD→A with all labels and thresholded metrics; whole graphs, no "
        "validation domain",
        metric="micro-F1 and macro-F1 over all nodes; multi-label hits can be used with both label options; "
        "label_micro_f1 and label_macro_f1 threshold the probability of every label at 1/2, as TRACI's code does",
        licence="not stated",
        origin="GitHub shenxiaocam/ACDNE, ACDNE_codes/input/",
        citation="Shen, Dai, Chung, Lu, Choi: Adversarial Deep Network Embedding for Cross-Network Node "
        "Classification, AAAI 2020",
        notes="With one label per node micro-F1 equals accuracy.",
    ),
    domains=tuple(_SHORT),
    protocols=_usual(),
    sets={"single": _single(), "thresholded": _thresholded()},
    files=files,
    read=read,
    options={"labels": "first"},
)
