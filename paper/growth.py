"""The complexity analysis as measured growth: tables of the records that `python -m benchmarks --part growth` wrote."""

from __future__ import annotations

import json

from edgemask.experiments.records import ResultStore
from edgemask.report.comparison import Cell, Comparison

COLUMNS = {"knn": "kNN, s", "spectral": "clusters, s", "enrich": "enrichment, s", "epoch": "epoch, s"}
# Exponents of N in the paper's analysis: a full search, an eigendecomposition, their sum, dense spectral edges.
PAPER = {"knn": 2.0, "spectral": 3.0, "enrich": 3.0, "epoch": 2.0}
ABOUT = (
    "Synthetic graphs of 10 edges and 128 features a node, `robust`: seconds of enrichment and of one epoch, peak "
    "memory of the device, and the exponent of N fitted to them, beside the paper's analysis."
)


def growth(store: ResultStore) -> list[Comparison]:
    """One table per machine that was measured; files that are no such records are rejected by the store."""
    tables = []
    for path in sorted((store.root / "speed").glob("growth-*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            store.rejected[path] = f"{path} is not a record of growth: {error!r}"
            continue
        rows = tuple(dict.fromkeys(row for row, _ in cells))
        columns = (*COLUMNS.values(), "peak, GiB")
        tables.append(Comparison("complexity", f"Growth, {device}", ABOUT, rows, columns, cells, best="", decimals=3))
    return tables
