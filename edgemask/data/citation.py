"""ACMv9, Citationv1 and DBLPv7: three citation networks with one vocabulary and one label set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.io
import scipy.sparse as sp

from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.store import File, Store
from edgemask.errors import InputError
from edgemask.graph import Graph
from edgemask.protocol import leave_one_out

_ORIGIN = "https://raw.githubusercontent.com/shenxiaocam/ACDNE/c6e8ffd13c0243329c109ba8e41e6be5b94a9df4"
_SHORT = {"acmv9": "A", "citationv1": "C", "dblpv7": "D"}
_SHA256 = {
    "acmv9": "ee072387b0ea6599d9e9b4e60957b7b690aae4eb30adb3b9968a1e2c4e36cd74",
    "citationv1": "98f8f96b4d6141ad6d413bbc43116da54462e10a6b5e10d1b056202f82520c25",
    "dblpv7": "986b5505025a188a2526be37225408bbb1eef2da8b643775ad3f7e1c12768932",
}


def files(domain: str) -> tuple[File, ...]:
    url = f"{_ORIGIN}/ACDNE_codes/input/{domain}.mat"
    return (File(f"citation/{domain}.mat", url, f"sha256:{_SHA256[domain]}"),)


def read(store: Store, domains: Sequence[str], *, labels: str) -> dict[str, Graph]:
    """The asked networks: word counts as CSR, symmetric edges without self-loops, five classes.

    `labels`: `"first"` gives a node of two labels its first one (N integers), `"multi"` keeps both
    (an N × 5 matrix of 0 and 1).
    """
    if labels not in ("first", "multi"):
        raise InputError(f"citation: labels must be 'first' or 'multi', got {labels!r}")
    graphs = {}
    for name in domains:
        mat = scipy.io.loadmat(store.get(files(name)[0]), variable_names=["network", "attrb", "group"])
        group = mat["group"]
        graphs[name] = Graph(
            name,
            x=sp.csr_array(mat["attrb"]),
            edges=np.stack(mat["network"].nonzero()),
            y=group if labels == "multi" else group.argmax(1),
            classes=tuple(str(c) for c in range(group.shape[1])),
            undirected=True,
            self_loops="drop",
        )
    return graphs


CITATION = Benchmark(
    name="citation",
    card=Card(
        title="Citation networks ACMv9, Citationv1, DBLPv7",
        nodes="papers: 9,360 (acmv9), 8,935 (citationv1), 5,484 (dblpv7); none isolated",
        edges="citations, undirected: 15,556 (acmv9), 15,098 (citationv1), 8,117 (dblpv7), "
        "after dropping 46, 15 and 13 self-loops",
        features="6,775 shared words, counts of 1 to 3 as they are (no normalisation), sparse; no empty row",
        labels="5 research areas, numbered 0 to 4 in the order of the file, which does not name them; "
        "581 (acmv9), 166 (citationv1) and 15 (dblpv7) papers carry two labels: labels='first' keeps "
        "the first, labels='multi' both; no label is missing",
        shift="three sources of papers and periods: other wiring and word use, same words and areas",
        split="leave one domain out: AC→D, AD→C, CD→A; whole graphs, no validation domain",
        metric="micro-F1 and macro-F1 over all nodes; multi-label hits also work with either label option",
        licence="not stated",
        origin="GitHub shenxiaocam/ACDNE, ACDNE_codes/input/",
        citation="Shen, Dai, Chung, Lu, Choi: Adversarial Deep Network Embedding for Cross-Network Node "
        "Classification, AAAI 2020",
        notes="With one label per node micro-F1 equals accuracy.",
    ),
    domains=tuple(_SHORT),
    # reversed: the customary order is by the target, D, C, A
    protocols=tuple(
        replace(p, name=p.name.replace("+", ""))
        for p in reversed(leave_one_out(tuple(_SHORT), ("micro_f1", "macro_f1"), short=_SHORT))
    ),
    files=files,
    read=read,
    options={"labels": "first"},
)
