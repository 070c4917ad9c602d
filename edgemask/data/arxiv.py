"""OGB-Arxiv: the citation graph of computer-science papers on arXiv at the end of five years."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.forms import benchmark_file, read_rows
from edgemask.data.store import File, Store
from edgemask.errors import DataError
from edgemask.graph import Array, Graph
from edgemask.protocol import Protocol

# Domain: the last year before its window. Metrics use the papers of the window (all papers if the value is None).
WINDOWS: dict[str, int | None] = {"2011": None, "2014": 2011, "2016": 2014, "2018": 2016, "2020": 2018}
PERIODS = {"T1": ("2016",), "T2": ("2018",), "T3": ("2020",)}  # the paper's names of the test windows
_ORIGIN = (
    "https://raw.githubusercontent.com/avmoldovan/GCNII-forked/"
    "d8e89dd445b814ba131d8a6dc728277f9cdc3e19/dataset/ogbn_arxiv"
)
_FILES = {
    name: File(f"ogbn_arxiv/{path}.csv.gz", f"{_ORIGIN}/{path}.csv.gz", checksum, size)
    for name, path, size, checksum in (
        ("edge", "raw/edge", None, "git:79a501578454cfb045c7de245e7c7a7804246152"),
        ("node-feat", "raw/node-feat", None, "git:9e386dd5dbb585cdc8cb39f883c29ab6fcd684f8"),
        (
            "node-label",
            "raw/node-label",
            123_505,
            "sha256:b06e7cf75d909de66ce49bc4188a6dc525224f85dd6dcb36137de3d9321830d1",
        ),
        (
            "node_year",
            "raw/node_year",
            73_612,
            "sha256:fb97e19d6003deb09197f6df6b10ea1ab86ee49d98885836c3c857ab58d897f3",
        ),
        (
            "num-edge-list",
            "raw/num-edge-list",
            52,
            "sha256:430f1e00ae204bbb3208c5f494ab70170e9f2995fd3548d1754a74a8f59250d1",
        ),
        (
            "num-node-list",
            "raw/num-node-list",
            51,
            "sha256:9aa60a342efd209408933ace51e6b0a814e81c2894a993c44f9b173e477e2e82",
        ),
        (
            "categories",
            "mapping/labelidx2arxivcategeory",
            250,
            "sha256:a516ecd32007acca5817296bdd82f5b5db7e21b0917b94311ef4571e29305577",
        ),
    )
}


def files(domain: str) -> tuple[File, ...]:
    """Return the seven files. They contain all years, so they are the same for each domain."""
    return tuple(_FILES.values())


def read(store: Store, domains: Sequence[str]) -> dict[str, Graph]:
    """Read the graphs of the given years."""
    return read_years({name: store.get(file) for name, file in _FILES.items()}, domains)


def read_years(paths: Mapping[str, Path], domains: Sequence[str]) -> dict[str, Graph]:
    """Read the graphs of the given years from files in OGB's layout.

    The graph of year t contains the papers up to and including t in the order of the files, the citations among them in
    both directions, and the mask `eval` of the papers in the window that ends with t.

    Args:
        paths: Paths of the files by name (`"edge"`, `"node-feat"`, …).
        domains: The years, keys of `WINDOWS`.

    Returns:
        The graphs by year.

    Raises:
        DataError: A file has the wrong number of rows, or an edge names a node that does not exist.
    """
    n, m = (int(_table(paths[f"num-{kind}-list"], np.int64, 1, 1)[0, 0]) for kind in ("node", "edge"))
    edges = _table(paths["edge"], np.int64, m, 2).T
    x = _table(paths["node-feat"], np.float32, n)
    y, year = (_table(paths[name], np.int64, n, 1)[:, 0] for name in ("node-label", "node_year"))
    if edges.size and not 0 <= edges.min() <= edges.max() < n:
        raise DataError(f"{paths['edge']}: nodes must be 0 … {n - 1}, got {edges.min()} … {edges.max()}")
    categories = read_rows(paths["categories"], usecols=["arxiv category"], dtype=str, keep_default_na=False)
    classes = tuple(categories["arxiv category"])
    if len(set(classes)) < len(classes):
        raise DataError(f"{paths['categories']}: a category occurs twice")
    graphs = {}
    for name in domains:
        kept, after = year <= int(name), WINDOWS[name]
        new_index = np.cumsum(kept) - 1  # index of a paper in this graph
        if not kept.any():
            raise DataError(f"{paths['node_year']}: there is no paper up to {name}")
        with benchmark_file(paths["node-label"]):
            graphs[name] = Graph(
                name,
                x=x[kept],
                edges=new_index[edges[:, kept[edges].all(0)]],
                y=y[kept],
                classes=classes,
                masks={} if after is None else {"eval": year[kept] > after},
                undirected=True,
                duplicates="merge",
                self_loops="drop",
            )
    return graphs


def _table(path: Path, kind: type, rows: int, columns: int | None = None) -> Array:
    """Read a csv.gz file of finite numbers without a header, and check its numbers of rows and columns."""
    table: Array = read_rows(path, header=None, dtype=kind).to_numpy()
    if len(table) != rows:
        raise DataError(f"{path}: expected {rows} rows, got {len(table)}")
    if columns is not None and table.shape[1] != columns:
        raise DataError(f"{path}: expected {columns} columns, got {table.shape[1]}")
    if not np.isfinite(table).all():
        raise DataError(f"{path}: a number is missing or not finite")
    return table


ARXIV = Benchmark(
    name="arxiv",
    card=Card(
        title="OGB-Arxiv by year",
        nodes="papers up to the year: 17,401 (2011), 41,125 (2014), 69,499 (2016), 120,740 (2018), 169,343 (2020)",
        edges="1,166,243 citations in total, made undirected; the graph of a year has the citations among its papers",
        features="128 dense columns: the mean word embedding of title and abstract",
        labels="40 arXiv categories of computer science; no label is missing",
        shift="time: later papers have other topics and a larger and denser graph",
        split="EERM (Wu et al., ICLR 2022): train on papers up to 2011, validate on 2012–14, test on "
        "2015–16, 2017–18 and 2019–20",
        metric="accuracy over the papers of the window (mask `eval`): 23,724 (2014), 28,374 (2016), "
        "51,241 (2018), 48,603 (2020)",
        licence="not stated in the repository of this copy",
        origin="GitHub avmoldovan/GCNII-forked, dataset/ogbn_arxiv/ (OGB's layout)",
        citation="Hu et al.: Open Graph Benchmark: Datasets for Machine Learning on Graphs, NeurIPS 2020",
        notes="Each graph contains the earlier ones, so the graphs share papers. The masks do not overlap.",
    ),
    domains=tuple(WINDOWS),
    protocols=(
        Protocol(
            name="2011→2016,2018,2020",
            sources=("2011",),
            validation=("2014",),
            targets=("2016", "2018", "2020"),
            metrics=("accuracy",),
        ),
    ),
    files=files,
    read=read,
)
