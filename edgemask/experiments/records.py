"""The result store: one immutable record per run.

A record is identified by a hash of everything that decides it: the content of the data, the settings, the seed, and
the revision of the results (`RESULTS_REVISION`). It is written completely or not at all, and never rewritten. A digest
over its content shows any later change. Stores of several machines are merged by copying.

A run writes one JSON file, `BENCHMARK/METHOD/PROTOCOL-seedN-KEY.json`. `pack` joins such files into one line each of
`BENCHMARK/METHOD.jsonl`, with curves and mask views compressed in `BENCHMARK/METHOD.parts.xz`. Both forms hold the
same records with the same digests, and a store may mix them.
"""

from __future__ import annotations

import gc
import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch

from edgemask.config import Recipe
from edgemask.data import Benchmark, Store
from edgemask.enrich import Cache
from edgemask.errors import EdgemaskError, FileError, RecordError, RecordExistsError
from edgemask.graph import Graph
from edgemask.protocol import Protocol as Split
from edgemask.runtime.atomic import replacing

# Part of every record's identity. Change it only when the same settings, data and seed give other results; records of
# the revision before are then no longer found. The package's version does not matter.
RESULTS_REVISION = "0.3.0"

Record = dict[str, Any]
REQUIRED = ("key", "digest", "benchmark", "options", "protocol", "recipe", "seed", "data", "code", "metrics")
DECIDING = ("benchmark", "options", "protocol", "method", "kind", "seed", "code", "also")
PARTS = ("curves", "explorer")  # fields that `pack` stores apart, because they are large


class Task(Protocol):
    """Something to run and record: a training (`Run`) or a measurement of graphs (`Enrichment`)."""

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


class LazyJSON(Mapping[str, Any]):
    """A JSON object that is parsed when it is first used."""

    def __init__(self, text: str):
        self.text = text

    @cached_property
    def _value(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.text)
        return value

    def __getitem__(self, name: str) -> Any:
        return self._value[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __bool__(self) -> bool:
        return self.text != "{}"


# ---- identity and digest -------------------------------------------------------------------------------------


def identity(described: Mapping[str, Any]) -> str:
    """Return everything that decides a record except its data, as canonical text.

    Only settings that differ from the defaults count, so that adding a setting leaves old records valid.
    """
    deciding = {name: described[name] for name in DECIDING if name in described}
    return canonical(deciding | {"recipe": _changes(canonical(described["recipe"]))})


@lru_cache(maxsize=10_000)  # thousands of records share a few hundred recipes
def _changes(settings: str) -> dict[str, Any]:
    return Recipe.from_json(json.loads(settings)).changes()


def key(described: Mapping[str, Any]) -> str:
    """Return the key of a record: a hash of its identity and its data."""
    return _key(identity(described), described["data"])


def _key(what: str, data: Mapping[str, str]) -> str:
    return hashlib.sha256(canonical({"what": what, "data": data}).encode()).hexdigest()[:16]


def digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record's content without its `digest` field."""
    content = {name: value for name, value in record.items() if name != "digest"}
    lazy = {name: value.text for name, value in content.items() if isinstance(value, LazyJSON)}
    text = canonical(content | {name: f"\0{name}" for name in lazy})
    for name, part in lazy.items():  # the text of a lazy part is canonical already
        text = text.replace(f'"\\u0000{name}"', part, 1)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return a value as JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


# ---- the store -----------------------------------------------------------------------------------------------


class ResultStore:
    """The records in a folder.

    Args:
        root: The folder. It need not exist yet.

    Attributes:
        records: All valid records.
        rejected: Files, or lines of packed files, that are not valid records, each with the reason.
        derived: Results that others computed from the records. Cleared when a record is added.

    Raises:
        FileError: `root` is not a folder.
    """

    def __init__(self, root: str | Path):
        self.root = Path(root)
        self.rejected: dict[Path, str] = {}
        self.records: list[Record] = []
        self.derived: dict[Any, Any] = {}
        self._by_identity: dict[str, list[Record]] = {}
        self._paths: dict[str, Path] = {}
        if self.root.exists() and not self.root.is_dir():
            raise FileError(f"{self.root} is not a folder of results")
        with _without_garbage_collection():
            for path, line, record in _read_all(self.root, self.rejected):
                self._check_and_add(path, line, record)

    def _check_and_add(self, path: Path, line: int | None, record: Record) -> None:
        place = f"{path}, line {line}" if line else str(path)
        try:
            what = check(record, place)
            if line is None and not path.stem.endswith(f"-{record['key']}"):
                raise RecordError(f"{place} holds the record of another run ({record['key']})")
            if (twin := self._paths.get(record["key"])) is not None:
                raise RecordError(f"{place} repeats the record in {twin}")
        except RecordError as error:
            self.rejected[path] = str(error)
        else:
            self._add(record, what, path)

    def _add(self, record: Record, what: str, path: Path) -> None:
        self._paths[record["key"]] = path
        self.derived.clear()
        self.records.append(record)
        self._by_identity.setdefault(what, []).append(record)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def find(self, task: Task, domains: Mapping[str, Graph] | None = None) -> Record | None:
        """Return the record of a task, or None.

        Args:
            task: The task.
            domains: If given, find only a record on exactly these graphs.

        Raises:
            RecordError: There are records of the task on different data.
        """
        matches = self._by_identity.get(identity(task.describe()), [])
        if domains is not None:
            data = {name: domains[name].hash for name in task.protocol.domains if name in domains}
            matches = [r for r in matches if r["data"] == data]
        if len({canonical(r["data"]) for r in matches}) > 1:
            files = ", ".join(str(self._paths[r["key"]]) for r in matches)
            raise RecordError(f"{task.label}: there are records of this run on different data: {files}")
        return matches[0] if matches else None

    def path_of(self, record: Record) -> Path:
        """Return the file that holds a record."""
        return self._paths[record["key"]]

    def add(self, task: Task, record: Record) -> Path:
        """Complete a record that `task.perform` returned with its key and digest, and write it.

        Raises:
            RecordExistsError: The record exists already, written by this process or another.
        """
        sealed: Record = json.loads(json.dumps(record | {"key": key(record)}, ensure_ascii=False))
        sealed["digest"] = digest(sealed)
        if sealed["key"] in self._paths:
            raise RecordExistsError(f"{self._paths[sealed['key']]} exists: records are never rewritten")
        path = self.root / task.benchmark / task.folder / file_name(sealed)
        try:
            with replacing(path, text=True, once=True) as sink:
                json.dump(sealed, sink, ensure_ascii=False)
                sink.write("\n")
        except FileExistsError as error:
            raise RecordExistsError(f"{path} exists: records are never rewritten") from error
        self._add(sealed, identity(sealed), path)
        return path


def file_name(record: Record) -> str:
    """Return the name of a record's own file."""
    transfer = record["protocol"]["name"].replace("→", "-to-").replace(",", "-").replace("+", "-").replace("–", "-")
    return f"{transfer}-seed{record['seed']}-{record['key']}.json"


def read_record(path: Path) -> Record:
    """Read one record file and check it.

    Raises:
        RecordError: The file is damaged, was changed, or holds the record of another run.
    """
    record = _read_file(path)
    check(record, str(path))
    if not path.stem.endswith(f"-{record['key']}"):
        raise RecordError(f"{path} holds the record of another run ({record['key']})")
    return record


def check(record: Record, place: str) -> str:
    """Check a record's fields, digest and key, and return its identity.

    Args:
        record: The record.
        place: Where it was read, for the error message.

    Raises:
        RecordError: The record is not valid.
    """
    try:
        missing = [name for name in REQUIRED if name not in record]
        if missing:
            raise KeyError(missing[0])
        what = identity(record)
        own, actual = _key(what, record["data"]), digest(record)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, EdgemaskError) as error:
        raise RecordError(f"{place} is not a result record: {error!r}") from error
    if record["digest"] != actual:
        raise RecordError(f"{place} was changed after it was written: its digest does not match")
    if own != record["key"]:
        raise RecordError(f"{place} holds the record of another run ({record['key']})")
    return what


# ---- files ---------------------------------------------------------------------------------------------------


def _read_file(path: Path) -> Record:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise RecordError(f"{path} is not a result record: {error!r}") from error
    if not isinstance(record, dict):
        raise RecordError(f"{path} is not a result record: it holds no JSON object")
    return record


def _read_all(root: Path, rejected: dict[Path, str]) -> Iterator[tuple[Path, int | None, Record]]:
    """Yield every record of a folder with its file and, if it is packed, its line. Packed records come first."""
    for path in sorted(root.glob("*/*.jsonl"), key=lambda path: (path.parent, path.stem)):
        try:
            yield from ((path, number, record) for number, record in enumerate(_read_pack(path), 1))
        except RecordError as error:
            rejected[path] = str(error)
    for path in sorted(root.glob("*/*/*.json")):
        try:
            yield path, None, _read_file(path)
        except RecordError as error:
            rejected[path] = str(error)


def _read_pack(path: Path) -> list[Record]:
    """Return the records of a packed file, with their parts."""
    try:
        records: list[Record] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines = lzma.decompress(_parts(path).read_bytes()).decode().splitlines() if _parts(path).exists() else []
        parts: dict[str, dict[str, LazyJSON]] = {}
        for line in lines:
            own, name, text = line.split("\t")
            parts.setdefault(own, {})[name] = LazyJSON(text)
        return [record | parts.get(record["key"], {}) for record in records]
    except (ValueError, KeyError, TypeError, RecursionError, OSError, lzma.LZMAError, EOFError) as error:
        raise RecordError(f"{path} is not a file of packed records: {error!r}") from error


def _parts(pack: Path) -> Path:
    """Return the file of a pack's curves and mask views."""
    return pack.with_name(f"{pack.stem}.parts.xz")


def pack(store: ResultStore) -> list[Path]:
    """Join the record files of a store into packed files, and delete the files that were joined.

    The packed files are written first. If the process is interrupted before the deletion, the store ignores the files
    that repeat a packed record, and the next call deletes them.

    Returns:
        The packed files that were written.

    Raises:
        RecordError: A file of the store is not a valid record.
    """
    repeated = [path for path, why in store.rejected.items() if path.suffix == ".json" and "repeats the record" in why]
    if bad := [why for path, why in store.rejected.items() if path not in repeated]:
        raise RecordError(f"nothing was packed: {bad[0]}")
    groups: dict[Path, list[Record]] = {}
    for record in store:
        path = store.path_of(record)
        target = path if path.suffix == ".jsonl" else path.parent.with_name(f"{path.parent.name}.jsonl")
        groups.setdefault(target, []).append(record)
    written = []
    for target, records in groups.items():
        loose = [path for r in records if (path := store.path_of(r)).suffix == ".json"]
        if loose:
            write_pack(target, records)
            written.append(target)
        for path in loose:
            path.unlink()
    for path in repeated:
        path.unlink(missing_ok=True)
    for target in written:
        folder = target.with_suffix("")
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return written


def write_pack(path: Path, records: Iterable[Record]) -> None:
    """Write records as one packed file, sorted by protocol, seed and key."""
    ordered = sorted(records, key=file_name)
    parts = [
        f"{record['key']}\t{name}\t{value.text if isinstance(value, LazyJSON) else canonical(value)}\n"
        for record in ordered
        for name, value in record.items()
        if name in PARTS
    ]
    with replacing(_parts(path)) as sink:
        sink.write(lzma.compress("".join(parts).encode(), preset=6))
    with replacing(path, text=True) as sink:
        for record in ordered:
            sink.write(canonical({name: value for name, value in record.items() if name not in PARTS}) + "\n")


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector. It takes a third of the time of reading records, all of which are kept."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ---- the data of a task ----------------------------------------------------------------------------------


def missing_files(benchmark: Benchmark, protocol: Split, store: Store) -> list[str]:
    """Return the files without which a protocol cannot be run.

    These are the missing files of its sources and validation domains, and those of its targets if no target is there.
    """
    available = set(benchmark.available(store))
    needed = [*protocol.sources, *protocol.validation]
    needed += [] if available & set(protocol.targets) else protocol.targets
    files = dict.fromkeys(f for d in needed if d not in available for f in benchmark.files(d))
    return [f.path for f in files if not store.has(f)]


def load_domains(benchmark: Benchmark, protocol: Split, store: Store, options: Mapping[str, Any]) -> dict[str, Graph]:
    """Load the domains of a protocol. Targets whose files are missing are left out."""
    available = set(benchmark.available(store))
    wanted = [n for n in protocol.domains if n in available or n not in protocol.targets]
    return benchmark.load(wanted, store=store, **options)
