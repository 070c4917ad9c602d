"""The sizes of the columns of a Parquet file, from its footer.

The footer is a structure in the compact protocol of Apache Thrift. It is read here because pyarrow ends the process if
it is asked for the metadata of some damaged columns. To read such a column is an error, as it should be.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from edgemask.errors import GraphError

MAGIC = b"PAR1"
TAIL = 8  # bytes of the length of the footer and of the magic number after it
ROW_GROUPS, COLUMNS, META_DATA, NUM_VALUES, TOTAL_UNCOMPRESSED_SIZE = 4, 1, 3, 5, 6  # numbers of fields
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = 1, 2, 3, 7, 8, 9, 10, 11, 12, 13  # types
INTEGERS = (4, 5, 6)


def column_sizes(file: BinaryIO) -> list[tuple[int, int]]:
    """Return the number of values and of uncompressed bytes of every column in every row group.

    Args:
        file: The opened file.

    Raises:
        GraphError: The footer is damaged.
    """
    end = file.seek(0, io.SEEK_END)
    file.seek(max(0, end - TAIL))
    tail = file.read(TAIL)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > end - TAIL:
        raise GraphError("its footer is damaged")
    file.seek(end - TAIL - length)
    try:
        footer = Thrift(file.read(length)).value(STRUCT)
        chunks = [chunk[META_DATA] for group in footer[ROW_GROUPS] for chunk in group[COLUMNS]]
        return [(max(0, c[NUM_VALUES]), max(0, c[TOTAL_UNCOMPRESSED_SIZE])) for c in chunks]
    except (IndexError, KeyError, TypeError, RecursionError) as error:
        raise GraphError("its footer is damaged") from error


class Thrift:
    """A reader of values in Thrift's compact protocol.

    Args:
        data: The bytes.
    """

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def value(self, kind: int) -> Any:
        """Return the next value of a type: structures as dictionaries by the number of a field, text as None."""
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in INTEGERS:
            number = self.varint()
            return (number >> 1) ^ -(number & 1)
        if kind in (LIST, SET):
            head = self.byte()
            size = head >> 4 if head >> 4 < 15 else self.varint()
            return [self.item(head & 15) for _ in range(size)]
        if kind == MAP:
            size = self.varint()
            kinds = self.byte() if size else 0
            return [(self.item(kinds >> 4), self.item(kinds & 15)) for _ in range(size)]
        if kind == STRUCT:
            return self.struct()
        self.skip({BYTE: 1, DOUBLE: 8, UUID: 16}[kind] if kind != BINARY else self.varint())
        return None

    def item(self, kind: int) -> Any:
        """Return the next item of a list, set or map, where a boolean takes a byte."""
        return self.byte() == TRUE if kind in (TRUE, FALSE) else self.value(kind)

    def struct(self) -> dict[int, Any]:
        """Return the next structure."""
        fields, number = dict[int, Any](), 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.value(INTEGERS[0])
            fields[number] = self.value(head & 15)
        return fields

    def varint(self) -> int:
        """Return the next number without a sign."""
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise IndexError("a number of more than 64 bits")

    def byte(self) -> int:
        """Return the next byte."""
        self.at += 1
        return self.data[self.at - 1]

    def skip(self, size: int) -> None:
        """Skip bytes."""
        self.at += size
        if self.at > len(self.data):
            raise IndexError("the footer ends within a value")
