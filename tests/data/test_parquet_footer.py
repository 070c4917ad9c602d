"""Sizes in the footers of Parquet files, against pyarrow."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from edgemask.data.parquet_footer import column_sizes
from edgemask.errors import GraphError

FRAMES = {
    "empty": pd.DataFrame({"a": []}),
    "types": pd.DataFrame({"a": [1, 2], "b": [0.5, None], "c": ["x", None], "d": [True, False]}),
    "lists": pd.DataFrame({"a": [[1, 2], [], [3]], "b": [["x"], [], ["y", "z"]]}),
    "wide": pd.DataFrame(np.ones((3, 40))),
    "long": pd.DataFrame({"a": np.arange(50_000), "b": 1.0}),
}


def written(frame: pd.DataFrame, **options: object) -> io.BytesIO:
    """Return a table as a Parquet file."""
    file = io.BytesIO()
    frame.rename(columns=str).to_parquet(file, engine="pyarrow", **options)
    return file


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("options", [{}, {"row_group_size": 1000, "compression": "zstd"}, {"write_page_index": True}])
def test_sizes_are_those_of_pyarrow(name: str, options: dict[str, object]) -> None:
    file = written(FRAMES[name], **options)
    described = parquet.read_metadata(file)
    groups = [described.row_group(i) for i in range(described.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    assert column_sizes(file) == [(c.num_values, c.total_uncompressed_size) for c in columns]


def test_a_damaged_footer_is_an_error_and_nothing_else() -> None:
    data = written(FRAMES["types"]).getvalue()
    start, rng = len(data) - 8 - int.from_bytes(data[-8:-4], "little"), np.random.default_rng(0)
    outcomes = set()
    for _ in range(2000):
        changed = bytearray(data)
        for at in rng.integers(start, len(data), rng.integers(1, 4)):
            changed[at] = rng.integers(256)
        try:
            column_sizes(io.BytesIO(bytes(changed)))
            outcomes.add("read")
        except GraphError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x19\x01\x00\x00\x00PAR1"])
def test_a_file_that_ends_too_early_is_an_error(data: bytes) -> None:
    with pytest.raises(GraphError, match="its footer is damaged"):
        column_sizes(io.BytesIO(data))


def test_deep_nesting_is_an_error() -> None:
    deep = b"\x1c" * 100_000
    with pytest.raises(GraphError, match="its footer is damaged"):
        column_sizes(io.BytesIO(deep + len(deep).to_bytes(4, "little") + b"PAR1"))
