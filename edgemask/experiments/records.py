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
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch

from edgemask.config import Recipe
from edgemask.data import Benchmark, Store
from edgemask.enrich import Cache
from edgemask.errors import FileError, RecordError, RecordExistsError, SchemaError
from edgemask.experiments.record_schema import CURVES, CURVES_TEXT, check_record
from edgemask.graph import Graph
from edgemask.protocol import Protocol as Split
from edgemask.runtime.atomic import replacing
from edgemask.schema import parse

# Part of every record's identity. Change it only when the same settings, data and seed give other results; records of
# earlier revisions are then no longer found. The package's version does not matter.
RESULTS_REVISION = "0.3.0"

Record = dict[str, Any]
DECIDING = ("benchmark", "options", "protocol", "method", "candidates", "kind", "seed", "code", "also")
LONGEST = 60  # characters of a protocol's name in the name of a file
PARTS = ("curves", "explorer")  # fields that `pack` stores apart, because they are large


class Task(Protocol):
    """Something to run and record: a training (`Run`) or a measurement of graphs (`Enrichment`)."""

    @property
    def benchmark(self) -> str:
        """Name of the benchmark."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Options with which the benchmark is loaded."""
        ...

    @property
    def protocol(self) -> Split:
        """Sources, validation domains, targets and metrics."""
        ...

    @property
    def recipe(self) -> Recipe:
        """All settings."""
        ...

    @property
    def seed(self) -> int:
        """The seed."""
        ...

    @property
    def folder(self) -> str:
        """Folder of the record within the benchmark's folder."""
        ...

    @property
    def label(self) -> str:
        """Name of the task in messages."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return everything that decides the result, except the data."""
        ...

    def perform(self, domains: Mapping[str, Graph], *, device: torch.device, cache: Cache | None = None) -> Record:
        """Run the task and return its record, without key and digest.

        Args:
            domains: Graphs by name.
            device: The device to compute on.
            cache: Where enrichments are read from and stored.
        """
        ...


class LazyJSON(Mapping[str, Any]):
    """The curves of a record, which are parsed when they are first used.

    Args:
        text: The JSON text.
        place: Where it was read, for the error message.

    Raises:
        SchemaError: On the first use, if the text does not hold curves.
    """

    def __init__(self, text: str, place: str = "curves"):
        self.text, self.place = text, place

    @cached_property
    def _value(self) -> dict[str, Any]:
        value: dict[str, Any] = parse(self.text, CURVES, self.place)
        return value

    def __getitem__(self, name: str) -> Any:
        return self._value[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __bool__(self) -> bool:
        return self.text != "{}"


def description(task: Task, **own: Any) -> dict[str, Any]:
    """Return what `describe` of every task returns.

    Args:
        task: The task.
        **own: Fields of this kind of task, such as `method`.
    """
    return {
        "benchmark": task.benchmark,
        "options": dict(task.options),
        "protocol": task.protocol.describe(),
        **own,
        "recipe": task.recipe.to_json(),
        "seed": task.seed,
        "code": RESULTS_REVISION,
    }


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
        rejected: Files that are not valid records, or packed files with lines that are not, each with the reason. If
            several lines of a packed file are not valid, the reason is that of the first and their number is added.
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
            for path in sorted(self.root.glob("*/*.jsonl"), key=lambda path: (path.parent, path.stem)):
                self._read_pack(path)
            for path in sorted(self.root.glob("*/*/*.json")):
                try:
                    self._add_once(*_read_file(path), path, str(path))
                except RecordError as error:
                    self.rejected[path] = str(error)

    def _read_pack(self, path: Path) -> None:
        """Add the valid records of a packed file."""
        try:
            lines, parts = _lines(_read_text(path)), _read_parts(path)
        except RecordError as error:
            self.rejected[path] = str(error)
            return
        reasons = []
        for number, line in enumerate(lines, 1):
            place = f"{path}, line {number}"
            try:
                record = _parse(line, place)
                record |= parts.get(str(record.get("key")), {})
                self._add_once(record, check(record, place), path, place)
            except RecordError as error:
                reasons.append(str(error))
        if reasons:
            others = f" ({len(reasons)} lines of this file are not valid)" if len(reasons) > 1 else ""
            self.rejected[path] = reasons[0] + others

    def _add_once(self, record: Record, what: str, path: Path, place: str) -> None:
        if (twin := self._paths.get(record["key"])) is not None:
            raise RecordError(f"{place} repeats the record in {twin}")
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

    def moved(self, records: Iterable[Record], path: Path) -> None:
        """Note that another file holds these records now."""
        self._paths.update((record["key"], path) for record in records)

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
    transfer = re.sub(r'[\\/:*?"<>|\x00-\x1f]', "-", transfer)[:LONGEST]  # users choose the names of their graphs
    return f"{transfer}-seed{record['seed']}-{record['key']}.json"


def read_record(path: Path) -> Record:
    """Read one record file and check it.

    Raises:
        RecordError: The file is damaged, was changed, or holds the record of another run.
    """
    return _read_file(path)[0]


def check(record: Record, place: str) -> str:
    """Check a record's fields, digest and key, and return its identity.

    Args:
        record: The record.
        place: Where it was read, for the error message.

    Raises:
        RecordError: The record is not valid.
    """
    try:
        check_record({name: value for name, value in record.items() if type(value) is not LazyJSON})
        if isinstance(curves := record.get("curves"), LazyJSON) and not CURVES_TEXT.fullmatch(curves.text):
            raise SchemaError("record, curves: expected an object of arrays of numbers, in the form that `pack` writes")
        what = identity(record)
        own, actual = _key(what, record["data"]), digest(record)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"{place} is not a result record: {error}") from error
    if record["digest"] != actual:
        raise RecordError(f"{place} was changed after it was written: its digest does not match")
    if own != record["key"]:
        raise RecordError(f"{place} holds the record of another run ({record['key']})")
    return what


# ---- files ---------------------------------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        raise RecordError(f"{path} is not a result record: {error!r}") from error


def _read_file(path: Path) -> tuple[Record, str]:
    """Return the record of a file, checked, and its identity."""
    record = _parse(_read_text(path), str(path))
    what = check(record, str(path))
    if not path.stem.endswith(f"-{record['key']}"):
        raise RecordError(f"{path} holds the record of another run ({record['key']})")
    return record, what


def _parse(text: str, place: str) -> Record:
    try:
        record = json.loads(text)  # a repeated key needs no check: the digest covers the value that counts
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place} is not a result record: {error!r}") from error
    if not isinstance(record, dict):
        raise RecordError(f"{place} is not a result record: it is not a JSON object")
    return record


def _lines(text: str) -> list[str]:
    """Split a text at newlines only. `str.splitlines` also splits at U+2028 and others, which JSON strings may have."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _parts(pack: Path) -> Path:
    """Return the file of a pack's curves and mask views."""
    return pack.with_name(f"{pack.stem}.parts.xz")


def _read_parts(pack: Path) -> dict[str, dict[str, LazyJSON]]:
    """Return the curves and mask views of a packed file, by the key of the record and the name of the field."""
    parts: dict[str, dict[str, LazyJSON]] = {}
    try:
        data = lzma.decompress(_parts(pack).read_bytes()).decode()
        for own, name, text in (line.split("\t") for line in _lines(data)):
            parts.setdefault(own, {})[name] = (
                LazyJSON(text, f"{_parts(pack)}, {own}") if name == "curves" else json.loads(text)
            )
    except (ValueError, OSError, lzma.LZMAError, EOFError, RecursionError) as error:
        message = f"{_parts(pack)} is missing or damaged, so {pack} cannot be read: {error!r}"
        raise RecordError(message) from error
    return parts


def pack(store: ResultStore) -> list[Path]:
    """Join the record files of a store into packed files, and delete the files that were joined.

    The packed files are written first. If the process is interrupted before the deletion, the store ignores the files
    that repeat a packed record, and the next call deletes them.

    Returns:
        The packed files that were written.

    Raises:
        RecordError: A file of the store is not a valid record, or is another record of the same run. Nothing is packed.
    """
    digests = {record["key"]: record["digest"] for record in store}
    repeated = [path for path in store.rejected if _repeats(path, digests)]
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
            store.moved(records, target)
        _delete(loose, target.parent / target.stem)
    for path in repeated:
        _delete([path], path.parent)
    for path in repeated:
        del store.rejected[path]
    return written


def _repeats(path: Path, digests: Mapping[str, str]) -> bool:
    """Return whether a rejected record file has the same key and content as a record of the store."""
    if path.suffix != ".json":
        return False
    try:
        record = read_record(path)
    except RecordError:
        return False
    return bool(digests.get(record["key"]) == record["digest"])


def _delete(paths: Iterable[Path], folder: Path) -> None:
    """Delete files, and their folder if it is empty then. A call that was killed may have left an empty one."""
    for path in paths:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # the folder is not empty, or not there
        folder.rmdir()


def write_pack(path: Path, records: Iterable[Record]) -> None:
    """Write records as one packed file, sorted by protocol, seed and key."""
    ordered = sorted(records, key=file_name)
    apart = [{name: record[name] for name in PARTS if isinstance(record.get(name), Mapping)} for record in ordered]
    parts = [
        f"{record['key']}\t{name}\t{value.text if isinstance(value, LazyJSON) else canonical(value)}\n"
        for record, fields in zip(ordered, apart, strict=True)
        for name, value in fields.items()
    ]
    with replacing(_parts(path)) as sink:
        sink.write(lzma.compress("".join(parts).encode(), preset=6))
    with replacing(path, text=True) as sink:
        for record, fields in zip(ordered, apart, strict=True):
            sink.write(canonical({name: value for name, value in record.items() if name not in fields}) + "\n")


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

    These are the missing files of its sources and validation domains, and of its targets if no target is available.

    Args:
        benchmark: The benchmark.
        protocol: A protocol of the benchmark.
        store: Where files are looked for. Nothing is downloaded.

    Returns:
        The paths of the files, relative to the data root.
    """
    available = set(benchmark.available(store))
    needed = [*protocol.sources, *protocol.validation]
    needed += [] if available & set(protocol.targets) else protocol.targets
    files = dict.fromkeys(f for d in needed if d not in available for f in benchmark.files(d))
    return [f.path for f in files if not store.has(f)]


def load_domains(benchmark: Benchmark, protocol: Split, store: Store, options: Mapping[str, Any]) -> dict[str, Graph]:
    """Load the domains of a protocol. Targets whose files are missing are left out.

    Args:
        benchmark: The benchmark.
        protocol: A protocol of the benchmark.
        store: The data store.
        options: Options with which the benchmark is loaded.

    Returns:
        The graphs by name.

    Raises:
        DataError: A file is altered, or a file of a source or validation domain is missing.
    """
    available = set(benchmark.available(store))
    wanted = [n for n in protocol.domains if n in available or n not in protocol.targets]
    return benchmark.load(wanted, store=store, **options)
