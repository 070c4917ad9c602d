"""Inputs of readers: how they are described, generated and read."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attacks.fuzz.mutate import mutate_bytes

Files = dict[str, bytes]  # the files of an input by their path within a folder
Mutation = Callable[[random.Random, Files], Files]

FINDINGS = ("crash", "hang", "raw", "message", "memory", "wrong")
MOST_MUTATIONS = 4


class WrongContent(Exception):
    """A reader accepted an input and returned something that is not valid."""


@dataclass(frozen=True)
class Case:
    """An input.

    Args:
        target: Name of the target.
        files: The mutated files.
        base: The valid files that were mutated.
        sealed: Whether all checksums in the files are those of the valid files, so that every change must be noticed.
    """

    target: str
    files: Files
    base: Files = field(default_factory=dict)
    sealed: bool = False


@dataclass(frozen=True)
class Target:
    """A reader and how it is attacked.

    Args:
        name: Name of the target.
        bases: Returns valid inputs. It is called once, in a process of its own.
        read: Reads the files of a case in a folder and checks the result. An `EdgemaskError` refuses the input.
        mutations: Mutations that know the structure of the files.
        byte_level: Share of inputs in which only bytes are changed.
        share: How many of the inputs this target gets, relative to the others.
        names_file: Whether the message of an error must name a file of the input.
    """

    name: str
    bases: Callable[[], Sequence[Files]]
    read: Callable[[Case, Path], None]
    mutations: tuple[Mutation, ...] = ()
    byte_level: float = 0.4
    share: int = 1
    names_file: bool = True


@dataclass(frozen=True)
class Outcome:
    """The outcome of an input.

    Attributes:
        kind: `accepted`, `refused`, or one of `FINDINGS`.
        error: Type of the exception.
        where: Innermost function of the project in the traceback.
        message: Message of the exception.
        trace: The traceback.
        grown: Bytes of memory that reading took.
    """

    kind: str
    error: str = ""
    where: str = ""
    message: str = ""
    trace: str = ""
    grown: int = 0

    @property
    def is_finding(self) -> bool:
        """Return whether the reader did something that it must not do."""
        return self.kind in FINDINGS

    def same(self, other: Outcome) -> bool:
        """Return whether two outcomes have the same cause."""
        return (self.kind, self.error, self.where) == (other.kind, other.error, other.where)


def schedule(targets: Sequence[Target]) -> list[str]:
    """Return the names of the targets in the order in which they take turns, each as often as its share."""
    rounds = max(target.share for target in targets)
    return [
        t.name for turn in range(rounds) for t in targets if turn * t.share // rounds < (turn + 1) * t.share // rounds
    ]


def mutations_of(target: Target, seed: int, index: int) -> list[Mutation]:
    """Return the mutations that make an input."""
    rng = random.Random(f"{seed}:{index}:mutations")
    count = min(1 + int(rng.expovariate(1.2)), MOST_MUTATIONS)
    if not target.mutations or rng.random() < target.byte_level:
        return [mutate_bytes] * count
    return [rng.choice(target.mutations) for _ in range(count)]


def generate(
    target: Target, bases: Sequence[Files], seed: int, index: int, kept: Collection[int] | None = None
) -> Case:
    """Return an input.

    Args:
        target: The target.
        bases: Its valid inputs.
        seed: Seed of the run.
        index: Number of the input.
        kept: Which of its mutations are applied. All by default.
    """
    rng = random.Random(f"{seed}:{index}:base")
    base = files = rng.choice(bases)
    mutations = mutations_of(target, seed, index)
    for i, mutation in enumerate(mutations):
        if kept is None or i in kept:
            try:
                files = mutation(random.Random(f"{seed}:{index}:{i}"), files)
            except Exception:
                if files is base:
                    raise
                break  # earlier mutations have damaged what this one expects
    sealed = all(m is mutate_bytes for m in mutations)
    if mutations[0] is mutate_bytes and rng.random() < 0.05:  # splice two valid inputs, which can give the other one
        files, sealed = splice(rng, files, rng.choice(bases)), False
    return Case(target.name, files, base, sealed)


def splice(rng: random.Random, files: Files, other: Mapping[str, bytes]) -> Files:
    """Return files in which one ends like the file of the same name in another input."""
    common = sorted(files.keys() & other.keys())
    if not common:
        return files
    name = rng.choice(common)
    start, end = files[name], other[name]
    return files | {name: start[: rng.randint(0, len(start))] + end[rng.randint(0, len(end)) :]}


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files to a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def files_in(folder: Path) -> Files:
    """Return the files of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
