"""Mutations of pickles: their instructions are changed one by one, so that the pickle stays readable."""

from __future__ import annotations

import pickle
import pickletools
import random
import struct
from typing import Any

from attacks.fuzz.mutate import INTEGERS, mutate_bytes

NAMES = (
    "os system", "builtins eval", "numpy.core.multiarray _reconstruct", "numpy.core.multiarray scalar", "numpy ndarray",
    "numpy dtype", "scipy.sparse.csr csr_matrix", "collections defaultdict", "__builtin__ list", "numpy frombuffer",
)  # fmt: skip
VALUES: list[Any] = [
    *(
        None,
        True,
        0,
        1,
        -1,
        7,
        2**31,
        2**40,
        2**62,
        -(2**63),
        2**64,
        0.5,
        float("nan"),
        "",
        "x",
        "O",
        "f8",
        "V8",
        ">i4",
    ),
    *("<U9999999", b"", b"\x00" * 8, (), (1,), (2**40,), (-1,), (2**31, 2**31), [], [[]], {}, [1, 2], {0: [1]}),
    *({0: [99]}, {0: "x"}, {"a": [0]}, {0: [0.5]}, {0: [[1, 2]]}, {5: []}, {-1: [-1]}, {2**70: [0]}, {0: [2**70]}),
]


def pieces(data: bytes) -> list[bytes]:
    """Return the instructions of a pickle that is not damaged, and raise an exception for another one."""
    starts = [place for _, _, place in pickletools.genops(data) if place is not None]
    return [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]


def mutate_pickle(rng: random.Random, data: bytes) -> bytes:
    """Return a pickle with an instruction that is removed, repeated, moved or replaced."""
    try:
        parts = pieces(data)
    except Exception:  # an earlier mutation has damaged the pickle
        return mutate_bytes(rng, {"": data})[""]
    i, action = rng.randrange(len(parts)), rng.randrange(10)
    if action == 0:
        del parts[i]
    elif action == 1:
        parts.insert(i, parts[i])
    elif action == 2:
        j = rng.randrange(len(parts))
        parts[i], parts[j] = parts[j], parts[i]
    elif action == 3:
        parts[i] = b"c" + rng.choice(NAMES).replace(" ", "\n").encode() + b"\n"
    elif action < 8:
        plain = [j for j, part in enumerate(parts) if part[:1] in b"KMJIFGNSTUXVBC\x88\x89\x8a\x8c]})l"]
        i = rng.choice(plain or [i])
        parts[i] = pickle.dumps(rng.choice(VALUES), 2)[2:-1]  # without the protocol and the end
    elif action == 8:
        parts[i] = parts[i][:1] + struct.pack("<I", rng.choice(INTEGERS) % 2**32) + parts[i][5:]
    else:
        parts[i] = mutate_bytes(rng, {"": parts[i]})[""]
    return b"".join(parts)
