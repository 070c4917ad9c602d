"""Readers of results: records, searches for hyper-parameters, stored graphs, and the cache of enrichments."""

from __future__ import annotations

import json
import lzma
import random
import tempfile
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from attacks.fuzz.archives import Arrays, archive_mutation
from attacks.fuzz.cases import Case, Files, Target, files_in
from attacks.fuzz.judge import message_fault
from attacks.fuzz.mutate import TEXTS, dump_json, json_mutation, mutate_bytes, mutate_json
from attacks.fuzz.targets.oracles import check_graph, require
from attacks.fuzz.targets.state import domain
from edgemask import Graph
from edgemask.config import Recipe
from edgemask.enrich import Cache, enrich
from edgemask.enrich import cache as cache_module
from edgemask.errors import EnrichWarning
from edgemask.experiments.own import record_frame
from edgemask.experiments.records import ResultStore, canonical, digest, key, pack, write_pack
from edgemask.experiments.run import Run
from edgemask.experiments.stored import content_hash, keep, load
from edgemask.experiments.study import OwnRun
from edgemask.experiments.tune import Search, Trial, best
from edgemask.methods.registry import method_spec
from edgemask.protocol import Protocol
from edgemask.report.page import benchmark_sections
from edgemask.report.page.data import embed
from edgemask.report.statistics import compare

PROTOCOL = Protocol("one→three", ("one",), ("three",), ("micro_f1",), validation=("two",), repeats=2)
GRAPHS = {name: domain(name, seed) for seed, name in enumerate(("one", "two", "three"), 1)}
METHODS = ("erm-gcn", "irm")


# ---- records -----------------------------------------------------------------------------------------------------


def record_bases() -> list[Files]:
    """Return results folders with record files, and with packed records."""
    bases = []
    for own in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            store = ResultStore(Path(folder) / "results")
            for method in METHODS:
                for seed in range(2):
                    run = _run(method, seed, own)
                    store.add(run, _result(run, seed))
            bases.append(files_in(Path(folder)))
            pack(store)
            bases.append(files_in(Path(folder)))
    return bases


def _run(method: str, seed: int, own: bool) -> Run:
    recipe = method_spec(method).under(None, epochs=3)
    if not own:
        return Run("synthetic", {"nodes": 80}, PROTOCOL, method, recipe, seed)
    options = {"graphs": {n: content_hash(g) for n, g in GRAPHS.items()}, "scale": True, "split": "targets"}
    return OwnRun("own", options, PROTOCOL, method, recipe, seed)


def _result(run: Run, seed: int) -> dict[str, Any]:
    """Return what a run would return."""
    return run.describe() | {
        "data": {name: GRAPHS[name].hash for name in PROTOCOL.domains},
        "metrics": {"three": {"micro_f1": 0.5 + seed / 10}},
        "select": {"rule": "last", "epoch": 3, "alpha": 0.5},
        "curves": {"loss": [1.0, 0.5, None], "mask one": [0.1, 0.2, 0.3]},
        "machine": {"device": "cpu", "torch": "2"},
        "seconds": {"train": 1.5},
    }


def mutate_record(rng: random.Random, files: Files) -> Files:
    """Change a record and, usually, give it a key and a digest that fit."""
    name = rng.choice([f for f in sorted(files) if not f.endswith(".xz")])
    try:
        lines = files[name].decode().splitlines()
        i = rng.randrange(len(lines))
        record = mutate_json(rng, json.loads(lines[i]))
        if isinstance(record, dict):
            record = _sealed(rng, record)
        lines[i] = dump_json(record, ensure_ascii=False)
    except (ValueError, IndexError, RecursionError):  # an earlier mutation has damaged the file
        return mutate_bytes(rng, files)
    changed = {name: ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")}
    if isinstance(record, dict) and name.endswith(".json"):  # the key is a part of the file's name
        start, _, _ = name.removesuffix(".json").rpartition("-")
        changed = {f"{start}-{record.get('key')}.json"[:200].replace("\0", ""): changed[name]}
    if "/" in str(record.get("key") if isinstance(record, dict) else ""):
        return files
    return {k: v for k, v in files.items() if k != name} | changed


def _sealed(rng: random.Random, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose key and digest fit, if they can be computed."""
    record = json.loads(dump_json(record))
    if rng.random() < 0.9:
        try:
            record["key"] = key(record)
        except Exception:  # the key needs some of the fields
            return record
    if rng.random() < 0.9:
        record["digest"] = digest(record)
    return record


def mutate_parts(rng: random.Random, files: Files) -> Files:
    """Change the compressed curves of packed records, and the digest of their record."""
    names = [f for f in sorted(files) if f.endswith(".xz")]
    if not names:
        return mutate_record(rng, files)
    name = rng.choice(names)
    try:
        lines = [line.split("\t") for line in lzma.decompress(files[name]).decode().splitlines()]
        i = rng.randrange(len(lines))
        own, field, text = lines[i]
        action = rng.randrange(6)
        if action < 3:
            text = dump_json(mutate_json(rng, json.loads(text)))
        elif action == 3:
            field = rng.choice(["explorer", "key", "digest", "metrics", "seed", *TEXTS])
        elif action == 4:
            own = rng.choice(TEXTS)
        elif rng.random() < 0.1:
            text = f'{{"loss": [{"0," * (50 * 2**20)}0]}}'
        lines[i] = [own, field, text]
        blob = lzma.compress("".join("\t".join(line) + "\n" for line in lines).encode("utf-8", "replace"), preset=0)
        pack_name = name.replace(".parts.xz", ".jsonl")
        records = [json.loads(line) for line in files[pack_name].decode().splitlines()]
        for record in records:
            if record["key"] == own and rng.random() < 0.8 and len(text) < 10**6:
                whole = record | {f: json.loads(t) for k, f, t in lines if k == own}
                record["digest"] = digest(whole)
    except (ValueError, KeyError, lzma.LZMAError, RecursionError, TypeError):
        return mutate_bytes(rng, files)
    packed = "".join(canonical(record) + "\n" for record in records).encode("utf-8", "replace")
    return files | {name: blob, pack_name: packed}


def stray_file(rng: random.Random, files: Files) -> Files:
    """Add a file that does not belong into the store, or repeat a record under another name."""
    name = rng.choice(sorted(files))
    folder = name.rpartition("/")[0]
    other = rng.choice(["c.json", "x/c.json/d", "c.jsonl", "c.parts.xz", "x.json", "again.json", "again/again.json"])
    return files | {f"{folder}/{other}": rng.choice([files[name], b"", b"[" * 100_000, b"{}", b"null", b"\xff\xfe"])}


def read_records(case: Case, folder: Path) -> None:
    """Read a store, and make the tables and the data of the report page from its records."""
    store = ResultStore(folder / "results")
    for path, why in store.rejected.items():
        require(not message_fault(why, case, folder), f"{path.name} is rejected with the reason {why[:300]!r}")
    if case.sealed:
        valid = _valid(tuple(sorted(case.base.items())))
        require(all(canonical(_whole(r)) in valid for r in store), "a changed record was accepted")
    sections = benchmark_sections(store)
    tested = {section.name: [(table, compare(table)) for table in section.tables] for section in sections}
    embed(store, tested, "")
    if store.records:
        record_frame({"row": store.records})
    write_pack(folder / "again" / "method.jsonl", store.records)


def _whole(record: Any) -> dict[str, Any]:
    return {k: dict(v) if k in ("curves", "explorer") else v for k, v in record.items()}


@lru_cache
def _valid(files: tuple[tuple[str, bytes], ...]) -> set[str]:
    """Return the records of valid files as text."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return {canonical(_whole(record)) for record in ResultStore(Path(folder) / "results")}


# ---- searches ----------------------------------------------------------------------------------------------------


@lru_cache
def search() -> Search:
    """Return a search."""
    recipe: Recipe = method_spec("irm").under(None, epochs=3, hidden=32)
    return Search("synthetic", "one→three", "irm", recipe, {"one": "1", "two": "2"})


def tune_bases() -> list[Files]:
    """Return files of searches with three trials."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "search.json"
        search().run(3, lambda recipe: -abs(np.log10(recipe.lr) + 3), path)
        trials = search().read(path)
        search().write(path, [*trials[:2], Trial(trials[2].settings, None, "DivergenceError: the loss is NaN")])
        return [files_in(Path(folder))]


def read_tune(case: Case, folder: Path) -> None:
    """Read a search and continue it."""
    trials = search().read(folder / "search.json")
    for trial in trials:
        search().recipe_of(trial.settings)
        require(trial.score is None or type(trial.score) in (int, float), f"a score of {trial.score}")
    require(search().space.keys() == search().settings(len(trials), trials).keys(), "other settings")
    if any(trial.score is not None for trial in trials):
        best(trials)


# ---- stored graphs -----------------------------------------------------------------------------------------------


def stored_bases() -> list[Files]:
    """Return the graphs of a comparison."""
    files = []
    for graph in (*GRAPHS.values(), _named()):
        with tempfile.TemporaryDirectory() as folder:
            keep([graph], Path(folder))
            files.append(files_in(Path(folder)))
    return files


def _named() -> Graph:
    graph = GRAPHS["one"]
    return graph.replace(feature_names=("age", "city=Oslo", "city=Rome"), text_columns=("city",))


def read_stored(case: Case, folder: Path) -> None:
    """Load a graph by the hash that is its file's name."""
    name = next(iter(case.base or case.files))
    graph = load(folder, "own", Path(name).stem)
    check_graph(graph, folder)
    require(content_hash(graph) == Path(name).stem, "another content than the file's name says")


# ---- the cache ---------------------------------------------------------------------------------------------------

ENRICH: dict[str, Any] = {"k": 2, "clusters": 2, "seed": 0}


def cache_bases() -> list[Files]:
    """Return a cache with neighbour lists and clusters."""
    with tempfile.TemporaryDirectory() as folder:
        enrich(GRAPHS["one"], cache=Cache(Path(folder) / "cache"), **ENRICH)
        return [files_in(Path(folder))]


def seal_cache(arrays: Arrays) -> Arrays:
    """Return the arrays of a cache file with a checksum that fits."""
    try:
        checksum = cache_module._digest(str(arrays["question"]), np.asarray(arrays["array"]))
    except (KeyError, ValueError, TypeError, BufferError):
        return arrays
    return arrays | {"checksum": np.array(checksum)}


@lru_cache
def expected() -> Any:
    """Return the enriched graph."""
    return enrich(GRAPHS["one"], **ENRICH)


def read_cache(case: Case, folder: Path) -> None:
    """Enrich a graph with the cache. What a file holds must be used, or computed again with a warning."""
    cache = Cache(folder / "cache")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        enriched = enrich(GRAPHS["one"], cache=cache, **ENRICH)
    for warning in caught:
        if issubclass(warning.category, EnrichWarning):
            require(
                not message_fault(str(warning.message), case, folder), f"the warning {str(warning.message)[:300]!r}"
            )
    n, pairs, clusters = GRAPHS["one"].num_nodes, enriched.knn_pairs, enriched.clusters
    require(pairs.dtype == clusters.dtype == np.int64 and clusters.shape == (n,), "arrays of a wrong type or shape")
    require(pairs.ndim == 2 and len(pairs) == 2 and (pairs[0] < pairs[1]).all(), "pairs that are not sorted")
    require(not pairs.size or (pairs.min() >= 0 and pairs.max() < n), "a pair outside the graph")
    require(clusters.min() >= -1 and clusters.max() < ENRICH["clusters"], "a cluster out of range")
    if case.sealed:
        same = np.array_equal(pairs, expected().knn_pairs) and np.array_equal(clusters, expected().clusters)
        require(same, "another content than what was stored")
    again = enrich(GRAPHS["one"], cache=cache, **ENRICH)
    require(np.array_equal(again.knn_pairs, pairs) and np.array_equal(again.clusters, clusters), "another second time")


TARGETS = (
    Target(
        "records",
        record_bases,
        read_records,
        (mutate_record, mutate_record, mutate_record, mutate_parts, stray_file),
        byte_level=0.3,
        share=2,
        names_file=False,
    ),
    Target("tune", tune_bases, read_tune, (json_mutation("search.json"),), byte_level=0.3),
    Target("stored", stored_bases, read_stored, (archive_mutation("graphs/*", text="info"),)),
    Target(
        "cache",
        cache_bases,
        read_cache,
        tuple(
            partial(archive_mutation, seal=seal)(f"cache/{kind}-*")
            for kind in ("knn", "spectral")
            for seal in (seal_cache, dict)
        ),
        names_file=False,
    ),
)
