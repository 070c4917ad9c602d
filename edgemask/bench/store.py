"""The result store: a folder with one immutable JSON record per run.

A record is keyed by a hash of all that decides it: the data's content, the configuration, the code's version, the seed.
It is written whole or not at all, once, by whoever is first; a digest over its content shows any later change. Folders
of several machines merge by copying.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch

from edgemask.atomic import replacing
from edgemask.data import Benchmark, Store
from edgemask.enrich import Cache
from edgemask.graph import Graph
from edgemask.protocol import Protocol as Split
from edgemask.recipe import Recipe

Record = dict[str, Any]
CURVE = re.compile(r'"([^"\\{}]*)": \[([^]["{}]*)\]')  # of a record's text: its name and its numbers
REQUIRED = ("key", "digest", "benchmark", "options", "protocol", "recipe", "seed", "data", "code", "metrics")
DECIDING = ("benchmark", "options", "protocol", "method", "kind", "seed", "code", "also")


class Task(Protocol):
    """Something to run and record: a training (`bench.run.Run`) or a measurement of graphs (`bench.enrichment`)."""

    @property
    def benchmark(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def protocol(self) -> Split: ...
    @property
    def recipe(self) -> Recipe: ...
    @property
    def seed(self) -> int: ...
    @property
    def folder(self) -> str: ...
    @property
    def label(self) -> str: ...
    def describe(self) -> dict[str, Any]: ...
    def perform(self, domains: Mapping[str, Graph], *, device: torch.device, cache: Cache | None = None) -> Record: ...


class RecordError(ValueError):
    """A file that is not a record, or not the one it claims to be."""


def identity(described: Mapping[str, Any]) -> str:
    """All that decides a record but its data, as canonical text. Of the recipe only what differs from the defaults
    counts, so that a new setting orphans no record."""
    held = {name: described[name] for name in DECIDING if name in described}
    return canonical(held | {"recipe": _changes(canonical(described["recipe"]))})


@lru_cache(maxsize=10_000)  # thousands of records share some hundred recipes
def _changes(settings: str) -> dict[str, Any]:
    return Recipe.from_json(json.loads(settings)).changes()


def key(described: Mapping[str, Any]) -> str:
    return _key(identity(described), described["data"])


def _key(what: str, data: Mapping[str, str]) -> str:
    return hashlib.sha256(canonical({"what": what, "data": data}).encode()).hexdigest()[:16]


def digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({k: v for k, v in record.items() if k != "digest"}).encode()).hexdigest()


def _digest(record: Record, text: str) -> str:
    """`digest` of a record that was read from this text. Curves, most of a record, are taken from there where they
    stand as `add` writes them: to write their numbers anew takes as long as all the rest."""
    _, *found = text.split('"curves": {')
    curves = found[0].split("}", 1)[0] if len(found) == 1 else ""
    items = CURVE.findall(curves)
    if not items or ", ".join(f'"{name}": [{values}]' for name, values in items) != curves:
        return digest(record)
    ordered = ", ".join(f'"{name}": [{values}]' for name, values in sorted(items))
    rest = canonical({k: v for k, v in record.items() if k != "digest"} | {"curves": {}})
    return hashlib.sha256(rest.replace('"curves": {}', f'"curves": {{{ordered}}}', 1).encode()).hexdigest()


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


@contextmanager
def _without_collection() -> Iterator[None]:
    """The garbage collector paused: over millions of numbers that all stay it takes a third of the time of reading."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class ResultStore:
    """The records under a folder, read once; `rejected` says of each file that was not trusted why."""

    def __init__(self, root: str | Path):
        self.root = Path(root)
        self.rejected: dict[Path, str] = {}
        self.records: list[Record] = []
        self.derived: dict[Any, Any] = {}  # what others computed from the records, until one is added
        self._by_identity: dict[str, list[Record]] = {}
        self._keys: dict[str, Path] = {}
        if self.root.exists() and not self.root.is_dir():
            raise NotADirectoryError(f"{self.root} is not a folder of results")
        with _without_collection():
            for path in sorted(self.root.glob("*/*/*.json")):
                try:
                    record, what = _read(path)
                except RecordError as error:
                    self.rejected[path] = str(error)
                    continue
                if (twin := self._keys.get(record["key"])) is not None:
                    self.rejected[path] = f"{path} repeats the record in {twin}"
                    continue
                self._keep(record, what, path)

    def _keep(self, record: Record, what: str, path: Path) -> None:
        self._keys[record["key"]] = path
        self.derived.clear()
        self.records.append(record)
        self._by_identity.setdefault(what, []).append(record)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def find(self, task: Task, domains: Mapping[str, Graph] | None = None) -> Record | None:
        """The record of a task on these domains, or else on whatever data it was made: then records on different data
        are an error."""
        found = self._by_identity.get(identity(task.describe()), [])
        if domains is not None:
            data = {name: domains[name].hash for name in task.protocol.domains if name in domains}
            found = [r for r in found if r["data"] == data]
        if len({canonical(r["data"]) for r in found}) > 1:
            files = ", ".join(str(self._keys[r["key"]]) for r in found)
            raise RecordError(f"{task.label}: records of the same run on different data: {files}")
        return found[0] if found else None

    def path_of(self, record: Record) -> Path:
        return self._keys[record["key"]]

    def add(self, task: Task, record: Record) -> Path:
        """Seal and write a record that `task.perform` returned. One that is there already, from this process or
        another, is never written again: a `FileExistsError`."""
        sealed = json.loads(json.dumps(record | {"key": key(record)}, ensure_ascii=False))
        sealed["digest"] = digest(sealed)
        transfer = task.protocol.name.replace("→", "-to-").replace(",", "-").replace("+", "-").replace("–", "-")
        path = self.root / task.benchmark / task.folder / f"{transfer}-seed{task.seed}-{sealed['key']}.json"
        try:
            with replacing(path, text=True, once=True) as sink:
                json.dump(sealed, sink, ensure_ascii=False)
                sink.write("\n")
        except FileExistsError as error:
            raise FileExistsError(f"{path} exists: records are never rewritten") from error
        self._keep(sealed, identity(sealed), path)
        return path


def read_record(path: Path) -> Record:
    """A record from disk; one that is damaged, altered or in another's place is a `RecordError` naming it."""
    return _read(path)[0]


def _read(path: Path) -> tuple[Record, str]:
    try:
        text = path.read_text(encoding="utf-8")
        record: Record = json.loads(text)
        missing = [name for name in REQUIRED if name not in record]
        if missing:
            raise KeyError(missing[0])
        what = identity(record)
        own = _key(what, record["data"])
    except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{path} is not a result record: {error!r}") from error
    if record["digest"] != _digest(record, text):
        raise RecordError(f"{path} was altered after it was written: its digest does not fit")
    if own != record["key"] or not path.stem.endswith(f"-{own}"):
        raise RecordError(f"{path} holds the record of another run ({record['key']})")
    return record, what


# ---- the data of a task ----------------------------------------------------------------------------------


def missing_files(benchmark: Benchmark, protocol: Split, store: Store) -> list[str]:
    """The files not in the store without which a protocol cannot be run at all: those of its sources and
    validation domains, and of its targets when none of them is there."""
    here = set(benchmark.available(store))
    needed = [*protocol.sources, *protocol.validation]
    needed += [] if here & set(protocol.targets) else protocol.targets
    files = dict.fromkeys(f for d in needed if d not in here for f in benchmark.files(d))
    return [f.path for f in files if not store.has(f)]


def load_domains(benchmark: Benchmark, protocol: Split, store: Store, options: Mapping[str, Any]) -> dict[str, Graph]:
    """The domains of a protocol; targets whose files are not in the store are left out (sources may not be)."""
    there = set(benchmark.available(store))
    wanted = [n for n in protocol.domains if n in there or n not in protocol.targets]
    return benchmark.load(wanted, store=store, **options)
