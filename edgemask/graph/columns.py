"""Columns of a table as the fields of a `Graph`: ids, labels, masks, and features."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import scipy.sparse as sp

from edgemask.errors import GraphError, GraphWarning, warn
from edgemask.graph.checks import MISSING, Array, advice, sorted_names
from edgemask.legal import did_you_mean

BOOLEANS = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False}
DENSE = 64  # one-hot columns up to which the features are a dense matrix
MANY = 1000  # values up to which a text column is never taken for an identifier
SHOWN = 20  # columns that a message lists
FEW = 0.1  # share of words in a column of numbers up to which they are taken for mistakes
HALF = 0.5  # share of distinct values in a text column from which it is probably no category
COMMA = re.compile(r"[+-]?[0-9]+(\.[0-9]{3})*,[0-9]+")  # a number with a comma

POINTS = "write them with a point for decimals and without separators of thousands"


class Table:
    """A table with distinct column names, and messages that say where something is in it.

    Args:
        frame: The rows. Messages name a row by its index.
        place: Start of all messages: the path of the file, or the name of the graph and of the table.

    Raises:
        GraphError: Two columns have the same name.
    """

    def __init__(self, frame: pd.DataFrame, place: str):
        self.place = place
        self.columns = [str(column) for column in frame.columns]
        self.frame = frame.set_axis(pd.Index(self.columns, dtype=object), axis=1)
        if len(set(self.columns)) < len(self.columns):
            twice = next(c for i, c in enumerate(self.columns) if c in self.columns[:i])
            self.fail(f"column {twice!r} occurs twice; column names must be distinct")

    def __getitem__(self, column: str) -> Any:
        return self.frame[column]

    def __len__(self) -> int:
        return len(self.frame)

    def fail(self, message: str, row: Any = None) -> NoReturn:
        """Raise a `GraphError` about the table, or about a row (its position)."""
        where = "" if row is None else f", row {self.row(row)}"
        raise GraphError(f"{self.place}{where}: {message}")

    def row(self, position: Any) -> str:
        """Return how messages call a row: its index if that is distinct, else its position."""
        index = self.frame.index
        return str(index[position]) if index.is_unique else f"{position} (counted from 0)"

    def require(self, column: str, option: str) -> str:
        """Return the name of a column that an option names, and raise a `GraphError` if it is not there."""
        if column not in self.columns:
            self.fail(
                f"no column {column!r} ({option}={column!r}); {self.listed()}{did_you_mean(column, self.columns)}"
            )
        return column

    def listed(self) -> str:
        """Return the columns for a message."""
        more = f" and {len(self.columns) - SHOWN:,} more" if len(self.columns) > SHOWN else ""
        return f"columns: {', '.join(self.columns[:SHOWN])}{more}"

    def values(self, column: str) -> tuple[Array, list[Any]]:
        """Return the distinct values of a column, and for every row the position of its value, or -1 if it is missing.

        A categorical column has all of its categories as values, in their order.
        """
        return distinct(self[column], self, f"column {column!r}")


def distinct(values: Any, table: Table, what: str) -> tuple[Array, list[Any]]:
    """Return for every row the position of its value among the distinct values (-1 if missing), and these values."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return values.array.codes.astype(np.int64), values.dtype.categories.tolist()
    try:
        codes, uniques = pd.factorize(values.astype(object))
    except TypeError:  # lists, arrays and dictionaries
        wrong = next(v for v in values if getattr(v, "__hash__", None) is None)
        table.fail(f"{what} holds values of type {type(wrong).__name__}; expected text, numbers or booleans")
    return codes, list(uniques)


def text(value: Any) -> str | None:
    """Return a value of a text column or a label as text: 3.0 is "3". None if it is neither text nor a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer()):
        return str(int(value))  # type: ignore[call-overload]
    return str(value) if isinstance(value, Real) else None


def plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python object that messages show, and any other value as it is."""
    return value.item() if isinstance(value, np.generic) else value


# ---- ids -------------------------------------------------------------------------------------------------


def ids_of(table: Table, values: Any, what: str) -> Any:
    """Return a column or an index of ids as an index of integers or of strings.

    Args:
        table: The table.
        values: The column or index.
        what: How messages call it.

    Raises:
        GraphError: A value is missing, or the values are not all integers or all strings.
    """
    if isinstance(values, pd.MultiIndex):
        table.fail(f"{what} has several levels; expected one id per row")
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    missing = np.flatnonzero(values.isna())
    if len(missing):
        table.fail(f"{what} is missing", missing[0])
    if values.dtype.kind in "iu":
        return pd.Index(values.to_numpy(dtype=np.int64))
    if values.dtype.kind == "f" and (whole := np.asarray(values, dtype=np.float64)).size:
        wrong = np.flatnonzero(whole != np.trunc(whole))
        if len(wrong):
            table.fail(f"{what} must be an integer or text, got {whole[wrong[0]]}", wrong[0])
        return pd.Index(whole.astype(np.int64))
    listed = values.tolist()
    if all(isinstance(value, str) for value in listed):
        return pd.Index(listed, dtype=object)
    if not all(isinstance(value, Integral) and not isinstance(value, bool) for value in listed):
        kinds = ", ".join(sorted({type(value).__name__ for value in listed}))
        table.fail(f"{what} must be all integers or all text, got {kinds}; convert them with astype(str)")
    return pd.Index(np.array(listed, dtype=np.int64))


def unique_ids(table: Table, column: str | None) -> Any:
    """Return the distinct ids of the nodes: a column, or the index of the table."""
    if not len(table):
        table.fail("the table must have at least one node, got none")
    if column is None and isinstance(table.frame.index, pd.RangeIndex):
        return table.frame.index
    ids = ids_of(table, table.frame.index if column is None else table[column], "the id")
    if column is not None and len(empty := np.flatnonzero(ids == "")):
        table.fail("the id is missing", empty[0])
    twice = np.flatnonzero(ids.duplicated())
    if len(twice):
        table.fail(f"id {plain(ids[twice[0]])!r} occurs twice", twice[0])
    return ids


# ---- labels and masks ------------------------------------------------------------------------------------


def booleans(table: Table, column: str) -> Array:
    """Return a column of 0/1, true/false or yes/no as 0 and 1, and -1 for missing values."""
    codes, values = table.values(column)
    bits = [MISSING] * (len(values) + 1)  # the last one is for missing values
    for i, value in enumerate(values):
        known = {"": MISSING, "True": True, "False": False, **BOOLEANS}
        if (bit := known.get(text(value) or "?", known.get(str(value).lower()))) is None:
            row = np.flatnonzero(codes == i)
            if not len(row):
                continue  # a category that does not occur
            table.fail(f"{column}: {plain(value)!r} is not one of {', '.join(BOOLEANS)}", row[0])
        bits[i] = int(bit)
    return np.array(bits)[codes]


def mask_of(table: Table, column: str) -> Array:
    """Return a column of 0/1, true/false or yes/no as booleans."""
    bits = booleans(table, column)
    missing = np.flatnonzero(bits == MISSING)
    if len(missing):
        table.fail(f"{column}: a value is missing; expected one of {', '.join(BOOLEANS)}", missing[0])
    return bits == 1  # type: ignore[no-any-return]


def several_labels(table: Table, columns: Sequence[str]) -> Array:
    """Return columns of 0 and 1, one per class, as a matrix. A row without values is a missing label."""
    y = np.stack([booleans(table, column) for column in columns], axis=1)
    partly = np.argwhere((y == MISSING) & ~(y == MISSING).all(axis=1, keepdims=True))
    if len(partly):
        row, column = partly[0]
        table.fail(f"{columns[column]}: a value is missing; set all columns of the row, or none", row)
    return y


def one_label(table: Table, column: str, classes: Sequence[str], *, exact: bool = False) -> tuple[Array, Any]:
    """Return a column of labels as class indices, and the names of the classes.

    Args:
        table: The table.
        column: Name of the column.
        classes: Names of the classes; those that occur if empty.
        exact: Take the values as they are: "" is a class, and only NaN and None are missing labels.

    Raises:
        GraphError: A value is not a label, or not one of the classes.
    """
    codes, values = table.values(column)

    def fail(i: int, message: str) -> NoReturn:
        table.fail(f"label {plain(values[i])!r}: {message}", np.flatnonzero(codes == i)[0])

    names = [text(value) for value in values]
    occurs = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
    for i in np.flatnonzero(occurs):
        if names[i] is None or (isinstance(values[i], Real) and not float(values[i]).is_integer()):
            fail(i, "expected text, an integer or a boolean")  # type: ignore[arg-type]
        if not exact and not len(classes) and str(names[i]).lower() in ("-1", "nan"):
            fail(i, "leave it empty if the label is missing, or list it in the option classes")  # type: ignore[arg-type]
    known = [str(name) for name in names if name is not None and (name or exact)]
    categorical = isinstance(table[column].dtype, pd.CategoricalDtype)
    order = tuple(classes) if len(classes) or exact else tuple(known) if categorical else sorted_names(set(known))
    index: dict[str | None, int] = {name: i for i, name in enumerate(order)}
    if not exact:
        index.setdefault("", MISSING)
    whole = all(isinstance(v, Integral) and not isinstance(v, bool) and 0 <= v < len(order) for v in values)  # type: ignore[unreachable, operator]
    if whole and not set(known) <= set(order):  # classes gives names to the integers
        index = {str(value): int(value) for value in values}
    for i in np.flatnonzero(occurs):
        if names[i] not in index:
            fail(i, f"not one of the classes {', '.join(map(repr, order))}")  # type: ignore[arg-type]
    return np.array([*(index.get(name, MISSING) for name in names), MISSING], dtype=np.int64)[codes], order


# ---- features --------------------------------------------------------------------------------------------


def encoded(
    table: Table, columns: Sequence[str], as_text: Sequence[str], chosen: Sequence[str], ids: Any
) -> tuple[Any, list[str], list[str]]:
    """Return columns as a matrix of features, the names of the features, and the names of the text columns.

    Args:
        table: The table.
        columns: The columns.
        as_text: Those that are text although they look numeric.
        chosen: Those that the user names, which are never taken for identifiers.
        ids: Ids of the nodes, for messages.

    Raises:
        GraphError: A number is missing or infinite, a column is of another type, or it looks like an identifier.
    """
    names: list[str] = []
    text_columns: list[str] = []
    parts: list[tuple[Array, Array, Array]] = []  # rows, columns and values
    sparse = False
    for column in columns:
        if column in as_text or not is_numeric(table, column):
            codes, values = _categories(table, column, check=column not in chosen)
            if column not in as_text:
                _report_text(table, column, values, chosen=column in chosen)
            rows = np.flatnonzero(codes >= 0)
            parts.append((rows, codes[rows] + len(names), np.ones(len(rows))))
            names += [f"{column}={value}" for value in values]
            text_columns.append(column)
        else:
            rows, numbers, is_sparse = _numbers(table, column, ids)
            parts.append((rows, np.full(len(rows), len(names)), numbers))
            names.append(column)
            sparse |= is_sparse
    rows, cols, data = (np.concatenate(part) for part in zip(*parts, strict=True))
    shape = len(table), len(names)
    if sparse or sum(name.startswith(tuple(f"{c}=" for c in text_columns)) for name in names) > DENSE:
        return sp.csr_array((data, (rows, cols)), shape=shape), names, text_columns
    x = np.zeros(shape)
    x[rows, cols] = data
    return x, names, text_columns


def is_numeric(table: Table, column: str) -> bool:
    """Return whether a column holds numbers or booleans, and raise a `GraphError` if it does not hold text either."""
    dtype, types = table[column].dtype, pd.api.types
    dtype = dtype.subtype if isinstance(dtype, pd.SparseDtype) else dtype
    if isinstance(dtype, pd.CategoricalDtype | pd.StringDtype) or (
        isinstance(dtype, pd.ArrowDtype) and dtype.kind == "U"
    ):
        return False
    if types.is_object_dtype(dtype):
        _, values = table.values(column)
        kind = next((type(value).__name__ for value in values if text(value) is None), "")
        numeric = bool(values) and not any(isinstance(value, str) for value in values)
    else:
        numeric = dtype.kind in "biuf"
        kind = "" if numeric else str(dtype)
    if kind:
        table.fail(
            f"column {column!r} holds values of type {kind}; expected numbers, booleans or text: convert it, or leave "
            "it out with features=…"
        )
    return bool(numeric)


def _report_text(table: Table, column: str, names: Sequence[str], *, chosen: bool) -> None:
    """Warn of a text column that is probably a mistake.

    It has no values, its numbers have commas, a few of its cells are words beside numbers, or most cells are distinct.
    The last does not count if the user chose the column.

    Args:
        table: The table.
        column: The column.
        names: Its distinct values as text.
        chosen: Whether the user names the column.
    """
    codes, values = table.values(column)
    known = np.array([*(value != "" for value in values), False])[codes]  # the last one is for missing values
    words = np.flatnonzero(known & np.array([*(not is_number(value) for value in values), False])[codes])
    place, what = table.place, f"column {column!r}"
    if not names:
        warn(f"{place}: {what} has no values, so it gives no feature", GraphWarning)
        return
    if all(map(COMMA.fullmatch, names)):
        what += f" is read as text, because its numbers have commas ({names[0]!r}): {POINTS}"
    elif isinstance(table[column].dtype, pd.CategoricalDtype):
        return
    elif 0 < len(words) <= FEW * known.sum():
        place += f", row {table.row(words[0])}"
        what = f"{values[codes[words[0]]]!r} is not a number, so {what} is read as text (cells that are not numbers: "
        what += f"{len(words):,})"
    elif not chosen and len(names) > max(SHOWN, HALF * known.sum()):
        what += f" has {len(names):,} distinct texts in {known.sum():,} rows, and each becomes a feature"
    else:
        return
    warn(f"{place}: {what}; if that is right, {advice('text', column)} says so", GraphWarning)


def is_number(value: Any) -> bool:
    """Return whether a cell is a number, or a text that is read as one."""
    try:
        float(str(value).replace("_", "?"))  # Python would read 1_000 as a number
    except ValueError:
        return False
    return True


def _categories(table: Table, column: str, *, check: bool) -> tuple[Array, list[str]]:
    """Return the sorted values of a text column, and for every row the position of its value, or -1."""
    codes, values = table.values(column)
    names = [text(value) for value in values]
    if None in names:
        wrong = type(values[names.index(None)]).__name__
        table.fail(f"column {column!r} holds values of type {wrong}; expected text, numbers or booleans")
    occurs = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
    order = sorted({str(name) for name, there in zip(names, occurs, strict=True) if there and name})
    if check and len(order) > MANY and len(order) > (codes >= 0).sum() / 2:
        if all(map(COMMA.fullmatch, order)):
            table.fail(f"column {column!r}: its numbers have commas ({order[0]!r}): {POINTS}")
        table.fail(
            f"column {column!r} looks like an identifier: {len(order):,} distinct texts in {len(codes):,} rows; choose "
            f"the columns to use with features=… (on the command line: --read features=…)"
        )
    index = {name: i for i, name in enumerate(order)}
    return np.array([*(index.get(str(name), MISSING) for name in names), MISSING])[codes], order


def _numbers(table: Table, column: str, ids: Any) -> tuple[Array, Array, bool]:
    """Return the rows of a numeric column, their values, and whether the column is sparse (then without zeros)."""
    values = table[column]
    sparse = isinstance(values.dtype, pd.SparseDtype) and values.dtype.fill_value == 0
    if sparse:
        rows, numbers = values.array.sp_index.to_int_index().indices, np.asarray(values.array.sp_values, np.float64)
    else:
        rows, numbers = np.arange(len(values)), values.to_numpy(dtype=np.float64, na_value=np.nan)
    with np.errstate(over="ignore"):
        wrong = np.flatnonzero(~np.isfinite(numbers.astype(np.float32)))
    if len(wrong):
        number, row = numbers[wrong[0]], rows[wrong[0]]
        node = plain(ids[row])
        what = "missing" if np.isnan(number) else f"{number:g}, which is not a finite float32"
        table.fail(
            f"column {column!r} of node {node!r} is {what}; fill it in, leave the column out with features=…, or "
            f"read it as text with text={column!r} (on the command line: --read text={column})",
            row,
        )
    return rows, numbers, sparse
