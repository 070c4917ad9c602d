"""Facebook-100: the friendship networks of 18 American schools, September 2005."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from edgemask.data import mat5
from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.forms import benchmark_file, decoded, error_prefix, take
from edgemask.data.store import File, Store
from edgemask.errors import DataError, EdgemaskError, GraphError, InputError
from edgemask.graph import Array, Graph
from edgemask.graph.frames import check_options, graph, names_of
from edgemask.legal import did_you_mean
from edgemask.protocol import Protocol

COLUMNS = ("student_fac", "gender", "major", "second_major", "dorm", "year", "high_school")  # of local_info
GENDER, ATTRIBUTES = 1, (0, 2, 3, 4, 5, 6)  # positions in COLUMNS
GENDERS = ("gender 1", "gender 2")
SCHOOL_OPTIONS = ("features", "classes", "undirected", "duplicates", "self_loops", "isolated")
_ORIGIN = "https://raw.githubusercontent.com/sisaman/pyg-datasets/9a92bf1e84f73b7b24dd745eb14f13e4d1979769"
_FILES: dict[str, tuple[int | None, str]] = {  # size, if it is published, and checksum
    "Amherst41": (333_541, "sha256:3108e4b2edb01be05c5a61147583a40e61012820fff7eebe621dd26018caaf00"),
    "Berkeley13": (3_999_916, "sha256:e8bcf00096b9cc18d95d1401ead634c0f5c4303511dc48b5e8056732387ce291"),
    "Bingham82": (1_539_765, "sha256:bd17acce235256f61f6e556068e376f35d29df0c1c7a08d1055d0f23901f7c89"),
    "Brandeis99": (529_867, "sha256:428b04687900c5c3501126f8c193905662738fce0e48ca8925dd9703009d668c"),
    "Brown11": (1_555_136, "sha256:a293f06404e0f36a920d7174c557903cb853a8197bfc392408cc11a3a6f46272"),
    "Caltech36": (58_993, "sha256:597d8307f9aaaaf50343e12a22893c203c52b92e1dd5b3fb35e13f19871d6ffa"),
    "Carnegie49": (1_003_249, "sha256:960b8875dc2f19aafe1e435b3c10d5e7004608e7e82f445aa0358befb97c5e50"),
    "Columbia2": (1_893_179, "sha256:953865148127d8b8f928785dca899fbef98c70ab39af236dd0c04b78b3c5bd7b"),
    "Cornell5": (3_543_757, "sha256:d9ff76ae34e855cb77b0779a3a320f7f73f848901cb13352e2734c17804c4aec"),
    "Duke14": (2_030_579, "sha256:5a99cb4141b2fbf9af2724b1cbe76151c7dcb36b7a595d91f2389a35d2c41100"),
    "JohnsHopkins55": (735_150, "sha256:fc7243bf257155df03afbc397ab34b5f8eb8e75f40cd1603398e207a033ef50f"),
    "Penn94": (None, "git:10f95de35049269ee41778c4aeb8e71bc98427bb"),
    "Princeton12": (1_152_675, "sha256:eafe1421449ed10999726d4b5c8f84ff88946dc7fe564974848547076519b56e"),
    "Reed98": (70_347, "sha256:d12ec74dc8c6e237385975b976c3709555a83629a1260be693fb688e3446070e"),
    "Texas80": (None, "git:b337a1bcca537cfd1bc39da20b712b2eccd254f4"),
    "Virginia63": (3_302_571, "sha256:a622e4a936d5dba82fd933d9043b812f86b3cda3bce8412b57abe55a11cf6631"),
    "WashU32": (1_461_476, "sha256:dbf280f94ee424657522dd5bfd02d37d74ea7ec2b370723c4a2787b04b50d9ef"),
    "Yale4": (1_614_868, "sha256:b26052f24d85446be1ced46b9c92515b359226ca470319983ab562266ed5c7f3"),
}


def files(domain: str) -> tuple[File, ...]:
    """Return the file of a school."""
    url = f"{_ORIGIN}/datasets/facebook100/{domain}.mat"
    size, checksum = _FILES[domain]
    return (File(f"facebook100/{domain}.mat", url, checksum, size),)


def read(store: Store, domains: Sequence[str], *, missing: str) -> dict[str, Graph]:
    """Read the given schools: gender as the label, one-hot attributes as CSR features.

    The feature columns are the attribute values of *all* schools in the store, so that all domains have the same
    columns. The columns, and therefore the content hash of every graph, depend on which of the 18 schools the store
    contains at the time of reading.

    Args:
        store: The data store.
        domains: Names of the schools.
        missing: `"skip"` leaves a person of unknown gender unlabelled, `"eerm"` assigns class 0.

    Returns:
        The graphs by name.

    Raises:
        InputError: `missing` has another value.
        DataError: A file is altered or has edges that are not symmetric, or it is missing and cannot be downloaded.
    """
    if missing not in ("skip", "eerm"):
        raise InputError(f"facebook100: missing must be 'skip' or 'eerm', got {missing!r}")
    paths = {name: store.get(files(name)[0]) for name in domains}  # first, because a downloaded school adds columns
    present = {name: store.get(file) for name in _FILES for file in files(name) if store.has(file)}
    info = {name: _attributes(path) for name, path in present.items()}
    values = [np.unique(np.concatenate([table[:, c] for table in info.values()])) for c in ATTRIBUTES]
    known = [v[v != 0] for v in values]
    graphs = {}
    for name in domains:
        y, stored = info[name][:, GENDER] - 1, _variable(paths[name], "A")
        with benchmark_file(paths[name]):
            adjacency = sp.csc_array(stored)
            _check_symmetry(adjacency, paths[name], DataError)
            graphs[name] = Graph(
                name,
                x=_one_hot(info[name][:, ATTRIBUTES], known),
                edges=np.stack(adjacency.nonzero()),
                y=np.maximum(y, 0) if missing == "eerm" else y,
                classes=GENDERS,
                self_loops="drop",
            )
    return graphs


def read_school(path: str | Path, name: str | None = None, *, label: str = "gender", **options: Any) -> Graph:
    """Read the original file of any school of Facebook-100.

    Its variables are `A`, the symmetric adjacency matrix, and `local_info`, an N × 7 table of numbers, 0 if missing:
    `student_fac` (student or faculty), `gender`, `major`, `second_major` (or minor), `dorm`, `year` and `high_school`.
    All of them except the label are text columns, because their numbers have no order: the feature `dorm=165` is 0 or
    1.

    The graphs of the benchmark `facebook100` are different: their columns are the values of all schools.

    Args:
        path: Path of the `.mat` file.
        name: Name of the graph. The stem of the path by default.
        label: Name of the column to predict.
        **options: `features` (names of columns; `degree`, `log-degree` and `clustering` are derived from the edges),
            `classes`, and the arguments of `Graph` that all readers have. Self-loops are dropped by default.

    Raises:
        GraphError: The file is damaged, or a variable is missing or not valid.
        InputError: There is no such label or option.
    """
    check_options(options, SCHOOL_OPTIONS)
    if label not in COLUMNS:
        raise InputError(f"{path}: no label {label!r} (labels: {', '.join(COLUMNS)}){did_you_mean(label, COLUMNS)}")
    with error_prefix(path):
        content = decoded(path, ".mat file", lambda file: mat5.read_variables(file, ("A", "local_info"), path))
        adjacency, info = take(content, "A"), take(content, "local_info")
        _check_attributes(info)
        if adjacency.shape != (len(info), len(info)):
            raise GraphError(
                f"A: expected a square matrix for the {len(info)} rows of local_info, got shape {adjacency.shape}"
            )
        if adjacency.dtype.kind not in "fiub":
            raise GraphError(f"A: expected numbers, got {adjacency.dtype}")
    adjacency = sp.csc_array(adjacency)
    _check_symmetry(adjacency, Path(path), GraphError)
    nodes = pd.DataFrame(info.astype(np.int64), columns=COLUMNS).astype(object).where(info != 0, None)
    if label == "gender":
        nodes["gender"] = [None if value is None else f"gender {value}" for value in nodes["gender"]]
        options.setdefault("classes", GENDERS)
    edges = pd.DataFrame(dict(zip(("source", "destination"), adjacency.nonzero(), strict=True)))
    columns = names_of(options.get("features") or [c for c in COLUMNS if c != label])
    given = (
        {"self_loops": "drop"}
        | options
        | {"label": label, "features": columns, "text": [c for c in columns if c in COLUMNS]}
    )
    places = (f"{path}, local_info", f"{path}, A")
    result: Graph = graph(Graph, nodes, edges, name or Path(path).stem, given, places)
    return result


def _check_symmetry(adjacency: Any, path: Path, error: type[EdgemaskError]) -> None:
    if adjacency.shape[0] != adjacency.shape[1] or (adjacency != adjacency.T).nnz:
        raise error(f"{path}: the adjacency matrix A is not symmetric")


def _variable(path: Path, name: str) -> Any:
    """Return one variable of a .mat file of the benchmark. The others are not decoded."""
    with benchmark_file(path), path.open("rb") as file:
        return take(mat5.read_variables(file, (name,), path), name)


def _attributes(path: Path) -> Array:
    """Return `local_info` of a file of the benchmark."""
    info = _variable(path, "local_info")
    with benchmark_file(path):
        _check_attributes(info)
    return np.asarray(info, dtype=np.int64)


def _check_attributes(info: Any) -> None:
    right = info.ndim == 2 and info.shape[1] == len(COLUMNS) and info.dtype.kind in "iuf" and not sp.issparse(info)
    if not right or not len(info) or not ((info >= 0) & (info < 2**31)).all():
        raise GraphError(
            f"local_info: expected an N × {len(COLUMNS)} table of numbers of at least 0 ({', '.join(COLUMNS)}), "
            f"got {info.dtype} of shape {info.shape}"
        )


def _one_hot(table: Array, values: Sequence[Array]) -> sp.csr_array:
    """Return an N × Σ|values| CSR matrix: row i has a 1 for each non-zero entry of row i of `table`."""
    offsets = np.cumsum([0, *map(len, values)])
    column = np.stack([offsets[c] + np.searchsorted(v, table[:, c]) for c, v in enumerate(values)], axis=1)
    known = table != 0
    starts = np.concatenate([[0], known.sum(1).cumsum()])
    ones = np.ones(starts[-1], np.float32)
    return sp.csr_array((ones, column[known], starts), shape=(len(table), offsets[-1]))


_VALIDATION, _EERM_TARGETS = ("Cornell5", "Yale4"), ("Penn94", "Brown11", "Texas80")
_TRIPLES = {
    "triple1": ("JohnsHopkins55", "Caltech36", "Amherst41"),
    "triple2": ("Bingham82", "Duke14", "Princeton12"),
    "triple3": ("WashU32", "Brandeis99", "Carnegie49"),
}
# Brown11, and three schools of the other triples.
_AVAILABLE = {
    "triple1": ("Brown11", "Princeton12", "Carnegie49", "Brandeis99"),
    "triple2": ("Brown11", "JohnsHopkins55", "Carnegie49", "Brandeis99"),
    "triple3": ("Brown11", "Princeton12", "JohnsHopkins55", "Duke14"),
}

FACEBOOK100 = Benchmark(
    name="facebook100",
    card=Card(
        title="Facebook-100 (18 of the 100 schools)",
        nodes="people: Amherst41 2,235, Berkeley13 22,937, Bingham82 10,004, Brandeis99 3,898, "
        "Brown11 8,600, Caltech36 769, Carnegie49 6,637, Columbia2 11,770, Cornell5 18,660, Duke14 9,895, "
        "JohnsHopkins55 5,180, Princeton12 6,596, Reed98 962, Virginia63 21,325, WashU32 7,755, "
        "Yale4 8,578; Penn94 and Texas80 not counted; none isolated",
        edges="friendships, undirected: Amherst41 90,954, Berkeley13 852,444, Bingham82 362,894, "
        "Brandeis99 137,567, Brown11 384,526, Caltech36 16,656, Carnegie49 249,967, Columbia2 444,333, "
        "Cornell5 790,777, Duke14 506,442, JohnsHopkins55 186,586, Princeton12 293,320, Reed98 18,812, "
        "Virginia63 698,178, WashU32 367,541, Yale4 405,450; Penn94 and Texas80 not counted; no self-loops",
        features="sparse one-hot columns of status, major, second major or minor, dormitory, year and high school; "
        "a missing value (0) sets no column; the columns are the values of all schools in the store: "
        "11,965 with the 16 schools counted above, another number with other schools",
        labels="2 classes, gender 1 and gender 2, which the file does not name; unknown for 12,936 of "
        "145,801 people in the 16 schools: with missing='skip' loss and metric ignore them, "
        "missing='eerm' assigns class 0 as EERM does",
        shift="the school: size, density, and which attributes friends have in common",
        split="EERM (Wu et al., ICLR 2022): three training triples, validate Cornell5 and Yale4, test "
        "Penn94, Brown11, Texas80; the protocols …→available test without Penn94 and Texas80, on Brown11 and three "
        "schools of the other triples",
        metric="accuracy over the labelled nodes",
        licence="MIT for the repository of this copy; not stated for the data",
        origin="GitHub sisaman/pyg-datasets, datasets/facebook100/",
        citation="Traud, Mucha, Porter: Social Structure of Facebook Networks, Physica A 391(16), 2012",
        notes="EERM uses a separate column for a missing attribute and the columns of other schools, so its "
        "feature width differs. The content hash of a graph depends on which schools the store contains.",
    ),
    domains=tuple(_FILES),
    protocols=(
        *(
            Protocol(f"{name}→Penn94,Brown11,Texas80", triple, _EERM_TARGETS, ("accuracy",), _VALIDATION)
            for name, triple in _TRIPLES.items()
        ),
        *(
            Protocol(f"{name}→available", triple, _AVAILABLE[name], ("accuracy",), _VALIDATION)
            for name, triple in _TRIPLES.items()
        ),
    ),
    files=files,
    read=read,
    options={"missing": "skip"},
)
