"""Tests of Elliptic: small files in the public layout, and a part of the real files with random features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from edgemask.data.elliptic import ELLIPTIC, PERIODS, read_steps
from edgemask.data.store import Store
from edgemask.errors import DataError
from edgemask.graph import MISSING, Graph

FEATURES = [f"{value}" for value in np.linspace(-1, 1, 165)]
ROWS = [(10, 1), (20, 2), (30, 1), (40, 1), (50, 2)]  # transaction and time step, with interleaved steps
CLASSES = "50,unknown\n10,1\n20,2\n30,2\n40,unknown\n"
EDGES = "40,10\n30,10\n20,50\n"


def small(
    folder: Path,
    domains: tuple[str, ...] = ("t01", "t02"),
    *,
    rows: list[list[str]] | None = None,
    classes: str = CLASSES,
    edges: str = EDGES,
) -> dict[str, Graph]:
    texts = {
        "features.csv": "".join(",".join(row) + "\n" for row in rows or table()),
        "classes.csv": "txId,class\n" + classes,
        "edgelist.csv": "txId1,txId2\n" + edges,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return read_steps(*(folder / name for name in texts), domains)


def table() -> list[list[str]]:
    """Write the features file: the id, the step and 165 columns, the first of which is a tenth of the id."""
    return [[str(tx), str(step), str(tx / 10), *FEATURES[1:]] for tx, step in ROWS]


def test_graph_has_the_transactions_of_its_step_in_order(tmp_path: Path) -> None:
    graphs = small(tmp_path)
    assert graphs["t01"].x[:, 0].tolist() == [1, 3, 4]
    assert graphs["t02"].x[:, 0].tolist() == [2, 5]


def test_features_are_all_columns_after_id_and_step(tmp_path: Path) -> None:
    x = small(tmp_path)["t01"].x
    assert x.shape == (3, 165)
    assert x[0, 1:] == pytest.approx(np.linspace(-1, 1, 165)[1:])


def test_edges_keep_their_direction(tmp_path: Path) -> None:
    graphs = small(tmp_path)
    assert graphs["t01"].edges.T.tolist() == [[1, 0], [2, 0]]
    assert graphs["t02"].edges.T.tolist() == [[0, 1]]


def test_unknown_class_is_a_missing_label(tmp_path: Path) -> None:
    graphs = small(tmp_path)
    assert graphs["t01"].classes == ("licit", "illicit")
    assert [graph.y.tolist() for graph in graphs.values() if graph.y is not None] == [
        [1, 0, MISSING],
        [0, MISSING],
    ]


def test_a_step_without_transactions_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"features\.csv: time step 3 has no transactions"):
        small(tmp_path, ("t03",))


def test_a_transaction_without_a_class_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"classes\.csv: no row for transaction 40"):
        small(tmp_path, classes=CLASSES.replace("40,unknown\n", ""))


def test_unknown_class_code_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"classes\.csv: class must be 1, 2 or unknown, got '3'"):
        small(tmp_path, classes=CLASSES.replace("10,1", "10,3"))


def test_edge_between_steps_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"edgelist\.csv: edge \(30, 20\) must stay in one time step, got time steps 1 and 2"
    ):
        small(tmp_path, edges=EDGES + "30,20\n")


def test_edge_to_an_unknown_transaction_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"features\.csv: no row for transaction 99"):
        small(tmp_path, edges=EDGES + "30,99\n")


def test_a_repeated_transaction_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"features\.csv: transaction 10 occurs twice"):
        small(tmp_path, rows=[*table(), table()[0]])


def test_a_wrong_column_count_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"features\.csv: expected 167 columns .*, got 166"):
        small(tmp_path, rows=[row[:-1] for row in table()])


@pytest.mark.parametrize(
    ("row", "message"),
    [(table()[4][:-1], "transaction 50 has fewer than 167 columns"), ([*table()[4], "0"], "saw 168")],
)
def test_a_ragged_row_is_an_error(tmp_path: Path, row: list[str], message: str) -> None:
    with pytest.raises(DataError, match=rf"features\.csv: .*{message}"):
        small(tmp_path, rows=[*table()[:4], row])


def test_cell_that_is_not_a_number_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"features\.csv: .*oops"):
        small(tmp_path, rows=[*table()[:4], [*table()[4][:-1], "oops"]])


def test_a_time_step_out_of_range_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"features\.csv: time step must be 1 … 49, got 50"):
        small(tmp_path, rows=[*table()[:4], ["50", "50", *table()[4][2:]]])


def test_part_of_the_real_classes_and_edges(store: Store, tmp_path: Path) -> None:
    """Steps 1 and 2 are the first 7,880 and the next 4,544 transactions of the real files."""
    real = store.root / "elliptic"
    classes = pd.read_csv(real / "elliptic_txs_classes.csv")[: 7_880 + 4_544]
    edges = pd.read_csv(real / "elliptic_txs_edgelist.csv")
    edges = edges[edges["txId1"].isin(classes["txId"])]
    zeros = ["0"] * 165
    graphs = small(
        tmp_path,
        rows=[[str(tx), "1" if i < 7_880 else "2", *zeros] for i, tx in enumerate(classes["txId"])],
        classes=classes.to_csv(index=False, header=False),
        edges=edges.to_csv(index=False, header=False),
    )
    counts = [(g.num_nodes, g.num_edges, np.bincount(g.y + 1).tolist()) for g in graphs.values() if g.y is not None]
    assert counts == [(7_880, 9_164, [5_733, 2_130, 17]), (4_544, 5_241, [3_427, 1_099, 18])]


def test_missing_features_file_is_named(store: Store) -> None:
    if "t07" in ELLIPTIC.available(store):
        pytest.skip("the features file is here")
    with pytest.raises(DataError, match=r"elliptic/elliptic_txs_features\.csv"):
        ELLIPTIC.load(["t07"], store=store)


def test_protocol_is_that_of_eerm() -> None:
    (protocol,) = ELLIPTIC.protocols
    assert protocol.sources == ("t07", "t08", "t09", "t10", "t11")
    assert protocol.validation == ("t12", "t13", "t14", "t15", "t16")
    assert (protocol.targets[0], protocol.targets[-1], len(protocol.targets)) == ("t17", "t49", 33)
    assert protocol.metrics == ("f1:1", "macro_f1")


def test_periods_are_the_thirds_of_the_targets() -> None:
    assert [len(period) for period in PERIODS.values()] == [11, 11, 11]
    assert sum(PERIODS.values(), ()) == ELLIPTIC.protocols[0].targets
