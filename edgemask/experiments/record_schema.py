"""The schema of result records: their JSON values, and the arrays that views of the mask hold as text."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgemask.errors import SchemaError
from edgemask.graph import Array
from edgemask.legal import Legal
from edgemask.model import EXPECTED, PROPAGATION, STANDING
from edgemask.schema import ANYTHING, COUNT, NUMBER, TEXT, Fields, Items, Maybe, Table, check

LARGEST = 2**26  # entries of an array of a view, many times what fits into a page
TEXTS = Items(TEXT)
NAMES = Items(TEXT, 1)
SCORES = Table(Table(NUMBER))  # metric by target and name
CURVES = Table(Items(Maybe(NUMBER)))
KINDS = {
    "true": np.int16,
    "before": np.int16,
    "after": np.int16,
    "src": np.uint32,
    "dst": np.uint32,
    "origin": np.uint8,
    "mask": np.uint8,
}
VIEW = Fields(
    {
        "nodes": Legal(1, LARGEST, whole=True),
        "classes": NAMES,
        "origins": NAMES,
        "alpha": NUMBER,
        **dict.fromkeys(KINDS, TEXT),
    }
)
PROTOCOL = Fields(
    {
        "name": TEXT,
        "sources": NAMES,
        "targets": NAMES,
        "metrics": NAMES,
        "validation": TEXTS,
        "repeats": Legal(1, 2**62, whole=True),
    }
)
SELECT = Fields(
    {"rule": TEXT},
    {
        "alpha": NUMBER,
        "epoch": COUNT,
        "scores": Table(Maybe(NUMBER)),
        "members": Table(Fields({"propagation": PROPAGATION, "temperature": NUMBER})),
        "expected": Maybe(EXPECTED),
    },
)
RULE = Fields({"epoch": COUNT, "alpha": NUMBER, "metrics": SCORES}, {"curve": Table(Items(NUMBER))})
RECORD = Fields(
    {
        "key": TEXT,
        "digest": TEXT,
        "benchmark": TEXT,
        "options": Table(ANYTHING),
        "protocol": PROTOCOL,
        "recipe": Table(ANYTHING),  # `Recipe` has its schema
        "seed": Legal(whole=True),
        "data": Table(TEXT),
        "code": TEXT,
        "metrics": SCORES,
    },
    {
        "method": TEXT,
        "kind": TEXT,
        "select": SELECT,
        "candidates": TEXTS,
        "also": TEXTS,
        "rules": Table(RULE),
        "leaderboard": Items(STANDING),
        "calibration_error": Table(NUMBER),
        "mask": Table(Table(Fields({"edges": COUNT, "mean": NUMBER, "pruned": NUMBER}))),
        "theory": Table(ANYTHING),
        "explorer": Table(VIEW),
        "failed": Fields({"kind": TEXT, "message": TEXT}),
        "missing": TEXTS,
        "notes": TEXTS,
        "curves": CURVES,
        "seconds": Table(NUMBER),
        "peak_memory_mib": Maybe(NUMBER),
        "machine": Table(TEXT),
    },
    others=True,  # fields of later versions
)
RUN = Fields(dict.fromkeys(("select", "missing", "seconds", "machine"), ANYTHING), others=True)
# Curves in the form that `pack` of `records` writes. Parsing takes three times as long.
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\["\\bfnrt]|\\u00[01][0-9a-f])*+"'
_NUMBER = r"(?:-?(?:[1-9][0-9]*+|0)(?:\.[0-9]++)?+(?:e[-+]?[0-9]++)?+|null|NaN|-?Infinity)"
_CURVE = rf"{_STRING}: \[(?:{_NUMBER}(?:, {_NUMBER})*+)?+\]"
CURVES_TEXT = re.compile(rf"\{{(?:{_CURVE}(?:, {_CURVE})*+)?\}}")


def check_record(record: Mapping[str, Any]) -> None:
    """Check the values of a record, except those that are still text.

    Raises:
        SchemaError: A value is missing or does not fit, or values contradict each other.
    """
    check(record, RECORD, "record")
    protocol = record["protocol"]
    for name, view in record.get("explorer", {}).items():
        check_view(view, f"record, explorer, {name!r}")
    if "method" not in record:  # nothing was trained or compared
        return
    check(record, RUN, "record")
    if "failed" not in record:
        if record["metrics"].keys() | {*record["missing"]} != {*protocol["targets"]}:
            raise SchemaError("record, metrics: expected those of every target that is not missing")
        for metrics in (record["metrics"], *(rule["metrics"] for rule in record.get("rules", {}).values())):
            for target, own in metrics.items():
                if not own.keys() >= {*protocol["metrics"]}:
                    raise SchemaError(f"record, metrics, {target!r}: expected {', '.join(protocol['metrics'])}")


def check_view(view: Any, where: str) -> None:
    """Check that the arrays of a view of the mask fit each other, its nodes, classes and origins.

    Raises:
        SchemaError: They do not.
    """
    check(view, VIEW, where)
    nodes, classes, origins = view["nodes"], len(view["classes"]), len(view["origins"])
    arrays = {name: unpack(view[name], kind) for name, kind in KINDS.items()}
    edges = len(arrays["src"])
    for name, array in arrays.items():
        size, low, high = {
            "true": (nodes, -1, classes),
            "before": (nodes, 0, classes),
            "after": (nodes, 0, classes),
            "origin": (edges, 0, origins),
            "mask": (edges, 0, 256),
        }.get(name, (edges, 0, nodes))
        if len(array) != size or (size and not low <= int(array.min()) <= int(array.max()) < high):
            raise SchemaError(f"{where}, {name}: expected {size} integers in [{low}, {high})")


# ---- arrays as text --------------------------------------------------------------------------------------


def pack(values: Array, kind: type, effort: int = 9) -> str:
    """Encode numbers as little-endian bytes, deflated, in base64, which a browser can decode without a library.

    Args:
        values: The numbers.
        kind: NumPy type in which they are stored.
        effort: Compression level of zlib.

    >>> unpack(pack(np.array([3, 1, 2]), np.uint8), np.uint8)
    array([3, 1, 2], dtype=uint8)
    """
    data = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return base64.b64encode(zlib.compress(data, effort)).decode()


def unpack(text: str, kind: type) -> Array:
    """Decode numbers that `pack` encoded.

    Raises:
        SchemaError: The text is damaged, or holds more than `LARGEST` numbers.
    """
    dtype, inflater = np.dtype(kind).newbyteorder("<"), zlib.decompressobj()
    try:
        data = inflater.decompress(base64.b64decode(text, validate=True), LARGEST * dtype.itemsize)
        if not inflater.eof:
            raise ValueError("it is too long, or ends too early")
        return np.frombuffer(data, dtype)
    except (ValueError, zlib.error) as error:
        raise SchemaError(f"not an array of {np.dtype(kind).name} as text: {error}") from error
