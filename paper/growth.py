"""Tables of time and memory by graph size, from the records of `python -m benchmarks --part growth`."""

from __future__ import annotations

from edgemask.errors import SchemaError
from edgemask.experiments.records import ResultStore
from edgemask.legal import Legal
from edgemask.report.comparison import Cell, Comparison
from edgemask.schema import ANYTHING, TEXT, Fields, Items, Table, parse

COLUMNS = {"knn": "kNN, s", "spectral": "clusters, s", "enrich": "enrichment, s", "epoch": "epoch, s"}
# Exponents of N in the paper's complexity analysis: a full search, an eigendecomposition, their sum, and an epoch with
# dense spectral edges.
PAPER = {"knn": 2.0, "spectral": 3.0, "enrich": 3.0, "epoch": 2.0}
POSITIVE = Legal(0, open_low=True)
PEAK = Fields({"host": POSITIVE, "device": Legal(0)})
POINT = Fields(
    dict.fromkeys(COLUMNS, POSITIVE)
    | {"nodes": Legal(1, 2**62, whole=True), "peak": Fields({"process": PEAK}, others=True)},
    others=True,
)
FIGURES = Fields({"points": Items(POINT), "exponents": Table(Legal())}, others=True)
MACHINE = Fields({"device": TEXT, "kind": TEXT}, others=True)
GROWTH = Fields({"machine": MACHINE, "figures": FIGURES}, {"part": ANYTHING})
ABOUT = (
    "Synthetic graphs with 10 edges and 128 features per node, recipe `robust`. The table shows the seconds of "
    "enrichment and of one epoch, the peak memory of the device, and the exponent of N fitted to the times, compared "
    "with the paper's analysis."
)


def growth(store: ResultStore) -> list[Comparison]:
    """Return one table per measured machine.

    Args:
        store: The records. A growth file that is not valid is added to `store.rejected`.
    """
    tables = []
    for path in sorted((store.root / "speed").glob("growth-*.json")):
        try:
            record = parse(path.read_bytes(), GROWTH, path.name)
            device, figures = record["machine"]["device"], record["figures"]
            where = "device" if record["machine"]["kind"] == "cuda" else "host"
            cells = {}
            for point in figures["points"]:
                row = f"{point['nodes']:,} nodes"
                for name, column in COLUMNS.items():
                    cells[row, column] = Cell({("", 0): point[name]}, rules=("none",))
                cells[row, "peak, GiB"] = Cell({("", 0): point["peak"]["process"][where] / 1024}, rules=("none",))
            for name, column in COLUMNS.items():
                if name in figures["exponents"]:
                    fitted = {("", 0): figures["exponents"][name]}
                    cells["exponent", column] = Cell(fitted, (PAPER[name],), ("none",))
        except (SchemaError, OSError) as error:
            store.rejected[path] = f"{path} is not a growth record: {error}"
            continue
        rows = tuple(dict.fromkeys(row for row, _ in cells))
        columns = (*COLUMNS.values(), "peak, GiB")
        tables.append(
            Comparison(
                "complexity", f"Growth with graph size, {device}", ABOUT, rows, columns, cells, best="", decimals=3
            )
        )
    return tables
