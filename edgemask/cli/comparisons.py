"""A table of results as JSON values."""

from __future__ import annotations

from typing import Any

from edgemask.report.comparison import Comparison


def described(table: Comparison) -> dict[str, Any]:
    """Return a table as JSON values: its rows, columns and cells."""
    cells = []
    for row in table.rows:
        for column in table.columns:
            cell = table.cell(row, column)
            values = [{"protocol": p, "seed": seed, "value": value} for (p, seed), value in cell.values.items()]
            cells.append(
                {
                    "row": row,
                    "column": column,
                    "mean": cell.mean,
                    "std": cell.std,
                    "values": values,
                    "paper": list(cell.paper),
                    "rules": list(cell.rules),
                    "failed": cell.failed,
                    "absent": cell.absent,
                    "equals_majority": cell.equals_majority,
                    "records": list(cell.keys),
                }
            )
    return {
        "name": table.name,
        "title": table.title,
        "rows": list(table.rows),
        "columns": list(table.columns),
        "cells": cells,
    }
