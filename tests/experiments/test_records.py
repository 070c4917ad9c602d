"""The result store: keys, writing, reading and checking, packing."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.errors import EdgemaskError, FileError, RecordError, RecordExistsError
from edgemask.experiments import records
from edgemask.experiments.record_schema import KINDS
from edgemask.experiments.record_schema import pack as pack_array
from edgemask.experiments.records import LazyJSON, ResultStore, digest, key, pack, read_record
from edgemask.experiments.run import Run
from edgemask.protocol import Protocol

CHANGED = "was changed after it was written: its digest does not match"
DOMAINS = demo_family(80)
PROTOCOL = Protocol("alpha→gamma", ("alpha",), ("gamma",), ("micro_f1",), validation=("beta",))
RUN = Run("toy", {"nodes": 80}, PROTOCOL, "erm-gcn", Recipe(mask=False, backbone="gcn"), 0)


def record(run: Run = RUN, domains=DOMAINS, value: float = 0.5):
    """Return what a run would return, without running it."""
    return run.describe() | {
        "data": {name: domains[name].hash for name in run.protocol.domains},
        "metrics": {"gamma": {"micro_f1": value}},
        "select": {"rule": "last"},
        "curves": {"loss": [1.0, None]},
        "missing": [],
        "seconds": {"train": 1.0},
        "machine": {"device": "cpu"},
    }


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results")


def shuffled(name: str):
    graph = DOMAINS[name]
    return DOMAINS | {name: graph.replace(y=np.random.default_rng(0).permutation(graph.y))}


# ---- keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"recipe": RUN.recipe.replace(lr=0.5)},
        {"method": "mmd"},
        {"options": {"nodes": 81}},
        {"protocol": replace(PROTOCOL, validation=())},
        {"benchmark": "other"},
        {"also": ("oracle",)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_decides_a_run_changes_its_key(store: ResultStore, change):
    store.add(RUN, record())
    other = replace(RUN, **change)
    assert key(record(other)) != key(record())
    assert store.find(other) is None
    assert store.find(RUN)["seed"] == 0


def test_the_results_revision_changes_the_key():
    assert key(record() | {"code": "0.0.1"}) != key(record())


def test_data_change_the_key_and_metrics_do_not():
    assert key(record(domains=shuffled("alpha"))) != key(record())
    assert key(record(value=0.9)) == key(record())


def test_a_setting_at_its_default_does_not_change_the_key():
    old = record()
    del old["recipe"]["precision"]  # a record from before there was such a setting
    assert key(old) == key(record())


# ---- writing ---------------------------------------------------------------------------------------------


def test_a_written_record_is_found_by_run_and_data(store: ResultStore):
    path = store.add(RUN, record())
    assert path.parent == store.root / "toy" / "erm-gcn"
    for seen in (store, ResultStore(store.root)):
        assert seen.find(RUN)["metrics"] == {"gamma": {"micro_f1": 0.5}}
        assert seen.find(RUN, DOMAINS) == seen.find(RUN)
        assert seen.find(RUN, shuffled("alpha")) is None
        assert seen.path_of(seen.find(RUN)) == path
        assert len(seen) == 1


def test_records_of_one_run_on_different_data_are_an_error_unless_the_data_is_given(store: ResultStore):
    store.add(RUN, record())
    store.add(RUN, record(domains=shuffled("alpha")))
    with pytest.raises(RecordError, match="there are records of this run on different data"):
        store.find(RUN)
    assert store.find(RUN, DOMAINS) is not None


def test_a_record_is_never_written_again(store: ResultStore):
    path = store.add(RUN, record())
    before = path.read_bytes()
    for held in (store, ResultStore(store.root)):
        with pytest.raises(FileExistsError, match=re.escape(str(path))):
            held.add(RUN, record(value=0.9))
    assert path.read_bytes() == before


def test_only_the_first_of_many_writers_succeeds(tmp_path: Path):
    def write(value: int) -> bool:
        try:
            ResultStore(tmp_path).add(RUN, record(value=value / 100))
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(40))) == 1
    assert len(ResultStore(tmp_path)) == 1
    assert not ResultStore(tmp_path).rejected


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_failed_write_leaves_no_file(store: ResultStore, monkeypatch, call):
    def die(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, call, die)
    with pytest.raises(OSError, match="disk full"):
        store.add(RUN, record())
    assert [p for p in store.root.rglob("*") if p.is_file()] == []
    assert store.find(RUN) is None


# ---- reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'"text"', b"null", b'{"key": "k"}', b"\xff\xfe"])
def test_files_that_are_not_records_are_reported_and_skipped(store: ResultStore, content):
    store.add(RUN, record())
    path = store.root / "toy" / "erm-gcn" / "p-seed0-k.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=f"{re.escape(str(path))} is not a result record"):
        read_record(path)
    again = ResultStore(store.root)
    assert list(again.rejected) == [path]
    assert len(again) == 1


def alter_metrics(held):
    held["metrics"]["gamma"]["micro_f1"] = 0.99


def alter_seed(held):
    held["seed"] = 7


def alter_a_curve(held):
    held["curves"]["loss"][0] = 1.5


def rename_a_curve(held):
    held["curves"] = {"gain": held["curves"]["loss"]}


def alter_seed_and_seal(held):
    held["seed"] = 7
    held["digest"] = digest(held)


def alter_recipe(held):
    held["recipe"]["no such setting"] = 1


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (alter_metrics, CHANGED),
        (alter_seed, CHANGED),
        (alter_a_curve, CHANGED),
        (rename_a_curve, CHANGED),
        (alter_seed_and_seal, "holds the record of another run"),
        (alter_recipe, "is not a result record"),
    ],
)
def test_a_changed_record_is_rejected(store: ResultStore, alter, why):
    path = store.add(RUN, record())
    held = json.loads(path.read_text())
    alter(held)
    path.write_text(json.dumps(held))
    assert why in ResultStore(store.root).rejected[path]


@pytest.mark.parametrize(
    "curves",
    [
        {},
        {"b": [1e-05, float("nan"), None], "a c": [], "a": [0.1 + 0.2, 3]},
        {"with } and ]": [1.0], 'with " and \\': [2.0]},
    ],
)
def test_any_curves_and_any_order_of_keys_are_accepted(store: ResultStore, curves):
    path = store.add(RUN, record() | {"curves": curves, "later": {"curves": curves}})
    held = json.loads(path.read_text())
    path.write_text(json.dumps({k: held[k] for k in reversed(held)}))
    again = ResultStore(store.root)
    assert not again.rejected
    assert repr(again.records[0]["curves"]) == repr(curves)


def test_a_truncated_or_renamed_record_is_rejected(store: ResultStore):
    path = store.add(RUN, record())
    renamed = path.with_name("alpha-to-gamma-seed0-0123456789abcdef.json")
    shutil.copy(path, renamed)
    path.write_bytes(path.read_bytes()[:-20])
    assert set(ResultStore(store.root).rejected) == {path, renamed}


def test_folders_of_two_machines_merge_by_copying(tmp_path: Path):
    one, two = ResultStore(tmp_path / "one"), ResultStore(tmp_path / "two")
    for held, seeds in ((one, (0, 1)), (two, (1, 2))):
        for seed in seeds:
            held.add(replace(RUN, seed=seed), record(replace(RUN, seed=seed)))
    shutil.copytree(two.root, one.root, dirs_exist_ok=True)
    merged = ResultStore(one.root)
    assert sorted(r["seed"] for r in merged) == [0, 1, 2]
    assert not merged.rejected


def test_a_copy_of_a_record_in_another_folder_counts_once(store: ResultStore):
    path = store.add(RUN, record())
    twin = store.root / "toy" / "mmd" / path.name
    twin.parent.mkdir()
    shutil.copy(path, twin)
    again = ResultStore(store.root)
    assert len(again) == 1
    assert "repeats the record in" in again.rejected[twin]


def test_a_file_instead_of_the_folder_is_an_error(tmp_path: Path):
    (tmp_path / "results").write_text("")
    with pytest.raises(FileError, match="is not a folder of results"):
        ResultStore(tmp_path / "results")


def test_a_record_has_the_whole_protocol(store: ResultStore):
    store.add(RUN, record())
    held = dict(store.find(RUN)["protocol"])
    assert held == json.loads(json.dumps(PROTOCOL.describe()))


# ---- packing ---------------------------------------------------------------------------------------------


CURVES = {"loss": [1.0, None, 1e-05], "a\u2028b\x85": [0.1 + 0.2]}  # with characters at which str.splitlines splits


def view(**changes) -> dict:
    """A view of the mask of a graph with 3 nodes and 2 edges."""
    nodes, edges = np.arange(3), np.arange(2)
    arrays = {
        name: pack_array(nodes if name in ("true", "before", "after") else edges, kind) for name, kind in KINDS.items()
    }
    return {"nodes": 3, "classes": list("abc"), "origins": ["original", "knn"], "alpha": 0.5} | arrays | changes


def fill(store: ResultStore, seeds=range(3), methods=("erm-gcn", "erm-gcn-enriched", "mmd")) -> None:
    """Write a record for every method and seed."""
    for method in methods:
        for seed in seeds:
            run = replace(RUN, method=method, seed=seed)
            explorer = {"explorer": {"gamma": view()}} if seed else {}
            store.add(run, record(run, value=seed / 7) | {"curves": CURVES} | explorer)


def contents(store: ResultStore) -> list[dict]:
    """Return the records in their order, as plain JSON."""
    return [{k: dict(v) if isinstance(v, LazyJSON) else v for k, v in r.items()} for r in store]


def loose(root: Path) -> list[Path]:
    return sorted(root.rglob("*.json"))


def packed_files(root: Path) -> tuple[Path, Path]:
    return root / "toy" / "erm-gcn.jsonl", root / "toy" / "erm-gcn.parts.xz"


@pytest.fixture
def packed(store: ResultStore) -> Path:
    """Return the folder of a store of three packed records of one method."""
    fill(store, methods=("erm-gcn",))
    pack(ResultStore(store.root))
    return store.root


def test_packing_keeps_keys_digests_curves_and_order(store: ResultStore):
    fill(store)
    before = ResultStore(store.root)
    expected = contents(before)
    written = pack(before)
    after = ResultStore(store.root)
    assert not after.rejected
    assert contents(after) == expected
    assert [r["key"] for r in after] == [r["key"] for r in before]
    assert [r["digest"] for r in after] == [r["digest"] for r in before] == [digest(r) for r in after]
    assert all(r["curves"] == CURVES for r in after)
    assert loose(store.root) == []
    names = ("erm-gcn.jsonl", "erm-gcn-enriched.jsonl", "mmd.jsonl")
    assert sorted(written) == sorted(store.root / "toy" / name for name in names)
    assert sorted(p.name for p in (store.root / "toy").iterdir()) == sorted(
        (*names, *(name.replace(".jsonl", ".parts.xz") for name in names))
    )
    for method in ("erm-gcn", "mmd"):
        run = replace(RUN, method=method, seed=2)
        assert after.find(run, DOMAINS)["seed"] == 2
        assert after.path_of(after.find(run)) == store.root / "toy" / f"{method}.jsonl"
    assert before.path_of(before.find(RUN)) == store.root / "toy" / "erm-gcn.jsonl"


def test_packing_again_writes_nothing(packed: Path):
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in packed.rglob("*") if p.is_file()}
    assert pack(ResultStore(packed)) == []
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in packed.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    "curves",
    [{}, {"a": [], "b": [float("nan"), float("-inf"), None, -1e-300, 12]}, {'"\n\\\x01é': [1.0]}],
    ids=range(3),
)
def test_any_curves_survive_packing(store: ResultStore, curves):
    store.add(RUN, record() | {"curves": curves})
    pack(ResultStore(store.root))
    again = ResultStore(store.root)
    assert not again.rejected
    (found,) = contents(again)
    assert repr(found["curves"]) == repr(curves)


def test_packed_and_loose_records_mix(packed: Path):
    fill(ResultStore(packed), seeds=(3, 4), methods=("erm-gcn", "mmd"))
    mixed = ResultStore(packed)
    assert not mixed.rejected
    assert len(loose(packed)) == 4
    assert sorted((r["method"], r["seed"]) for r in mixed) == [
        *(("erm-gcn", seed) for seed in range(5)), ("mmd", 3), ("mmd", 4),
    ]  # fmt: skip
    pack(mixed)
    again = ResultStore(packed)
    assert loose(packed) == []
    assert not again.rejected
    assert {r["digest"] for r in again} == {r["digest"] for r in mixed}
    assert len(again) == 7


def test_a_record_added_after_packing_is_found(packed: Path):
    run = replace(RUN, seed=9)
    store = ResultStore(packed)
    path = store.add(run, record(run))
    for seen in (store, ResultStore(packed)):
        assert seen.path_of(seen.find(run)) == path
        assert len(seen) == 4


def test_a_record_that_is_packed_is_never_written_again(packed: Path):
    store = ResultStore(packed)
    with pytest.raises(RecordExistsError, match=re.escape(f"{packed_files(packed)[0]} exists")):
        store.add(RUN, record(value=0.9))
    assert loose(packed) == []
    assert len(store) == 3


def change_a_value(text: str) -> str:
    return text.replace('"micro_f1": 0.14285714285714285', '"micro_f1": 0.99')


def break_a_line(text: str) -> str:
    first, second, third = text.splitlines()
    return "\n".join([first, second[:-9], third]) + "\n"


def nest_a_line_deeply(text: str) -> str:
    first, _, third = text.splitlines()
    return "\n".join([first, "[" * 100_000 + "]" * 100_000, third]) + "\n"


def replace_a_line(text: str) -> str:
    first, _, third = text.splitlines()
    return "\n".join([first, "[]", third]) + "\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (change_a_value, CHANGED),
        (break_a_line, "is not a result record"),
        (nest_a_line_deeply, "is not a result record"),
        (replace_a_line, "is not a result record"),
    ],
)
def test_a_changed_line_is_rejected_and_the_other_lines_are_read(packed: Path, change, why):
    path, _ = packed_files(packed)
    changed = change(path.read_text(encoding="utf-8"))
    assert changed != path.read_text(encoding="utf-8")
    path.write_text(changed, encoding="utf-8")
    again = ResultStore(packed)
    assert list(again.rejected) == [path]
    assert again.rejected[path].startswith(f"{path}, line 2 {why}")
    assert sorted(r["seed"] for r in again) == [0, 2]
    with pytest.raises(RecordError, match=f"nothing was packed: {re.escape(str(path))}, line 2"):
        pack(again)


def test_several_changed_lines_are_counted(packed: Path):
    path, _ = packed_files(packed)
    path.write_text(path.read_text(encoding="utf-8").replace('"micro_f1": 0.', '"micro_f1": 1.'), encoding="utf-8")
    again = ResultStore(packed)
    assert len(again) == 0
    assert again.rejected == {path: f"{path}, line 1 {CHANGED} (3 lines of this file are not valid)"}


def test_a_line_that_occurs_twice_counts_once(packed: Path):
    path, _ = packed_files(packed)
    text = path.read_text(encoding="utf-8")
    path.write_text(text + text.splitlines()[0] + "\n", encoding="utf-8")
    again = ResultStore(packed)
    assert len(again) == 3
    assert again.rejected == {path: f"{path}, line 4 repeats the record in {path}"}


def test_changed_curves_are_rejected_with_the_line_of_their_record(packed: Path):
    path, parts = packed_files(packed)
    lines = lzma.decompress(parts.read_bytes()).decode().split("\n")
    own = ResultStore(packed).find(replace(RUN, seed=1))["key"]
    changed = [line.replace("[1.0, null", "[1.5, null") if line.startswith(own) else line for line in lines]
    assert changed != lines
    parts.write_bytes(lzma.compress("\n".join(changed).encode()))
    again = ResultStore(packed)
    assert again.rejected == {path: f"{path}, line 2 {CHANGED}"}
    assert sorted(r["seed"] for r in again) == [0, 2]


@pytest.mark.parametrize("damage", ["truncated", "missing", "empty", "other bytes", "other text", "a folder"])
def test_a_damaged_or_missing_parts_file_is_rejected_by_name(packed: Path, damage):
    path, parts = packed_files(packed)
    data = parts.read_bytes()
    parts.unlink()
    match damage:
        case "truncated":
            parts.write_bytes(data[: len(data) // 2])
        case "empty":
            parts.write_bytes(b"")
        case "other bytes":
            parts.write_bytes(b"not compressed")
        case "other text":
            parts.write_bytes(lzma.compress(b"a line without tabs\n"))
        case "a folder":
            parts.mkdir()
    fill(ResultStore(packed), seeds=(7,), methods=("mmd",))
    again = ResultStore(packed)
    assert list(again.rejected) == [path]
    assert again.rejected[path].startswith(f"{parts} is missing or damaged, so {path} cannot be read: ")
    assert [(r["method"], r["seed"]) for r in again] == [("mmd", 7)]
    with pytest.raises(RecordError, match="nothing was packed: "):
        pack(again)
    assert len(loose(packed)) == 1


def test_a_folder_that_an_interrupted_packing_left_empty_is_removed(packed: Path):
    (empty := packed / "toy" / "erm-gcn").mkdir()
    assert pack(ResultStore(packed)) == []
    assert not empty.exists()


def test_an_interrupted_packing_loses_and_doubles_nothing_and_is_completed_later(store: ResultStore, monkeypatch):
    fill(store)
    before = {r["key"]: r["digest"] for r in ResultStore(store.root)}
    with monkeypatch.context() as patch:
        patch.setattr(records, "_delete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pack(ResultStore(store.root))
    assert len(loose(store.root)) == len(before)
    halfway = ResultStore(store.root)
    assert {r["key"]: r["digest"] for r in halfway} == before
    assert len(halfway) == len(before)
    assert len(halfway.rejected) == 3  # the files of the one method that was packed
    assert all("repeats the record in" in why for why in halfway.rejected.values())
    pack(halfway)
    assert halfway.rejected == {}
    after = ResultStore(store.root)
    assert not after.rejected
    assert {r["key"]: r["digest"] for r in after} == before
    assert len(after) == len(before)
    assert loose(store.root) == []
    assert [p for p in (store.root / "toy").iterdir() if p.is_dir()] == []


def test_packing_interrupted_between_its_two_files_leaves_the_store_as_it_was(packed: Path, monkeypatch):
    fill(ResultStore(packed), seeds=(3,), methods=("erm-gcn",))
    original, calls = records.replacing, []

    def replacing(path, **options):
        calls.append(path)
        if len(calls) == 2:
            raise OSError("disk full")
        return original(path, **options)

    monkeypatch.setattr(records, "replacing", replacing)
    with pytest.raises(OSError, match="disk full"):
        pack(ResultStore(packed))
    again = ResultStore(packed)
    assert not again.rejected
    assert sorted(r["seed"] for r in again) == [0, 1, 2, 3]
    assert len(loose(packed)) == 1


def test_packing_never_deletes_another_record_of_the_same_run(packed: Path):
    other = ResultStore(packed.parent / "other")
    path = other.add(RUN, record(value=0.9))
    shutil.copytree(other.root, packed, dirs_exist_ok=True)
    (twin,) = loose(packed)
    assert twin.name == path.name
    with pytest.raises(RecordError, match=f"nothing was packed: {re.escape(str(twin))} repeats the record in"):
        pack(ResultStore(packed))
    assert twin.exists()


def test_packing_is_refused_while_a_file_is_not_valid(store: ResultStore):
    fill(store)
    path = store.root / "toy" / "mmd" / "p-seed0-k.json"
    path.write_text("{}")
    before = loose(store.root)
    with pytest.raises(RecordError, match=f"nothing was packed: {re.escape(str(path))} is not a result record"):
        pack(ResultStore(store.root))
    assert loose(store.root) == before
    assert not list(store.root.rglob("*.jsonl"))


def test_deeply_nested_json_and_folders_among_records_are_rejected_and_the_others_are_read(store: ResultStore):
    store.add(RUN, record())
    folder = store.root / "toy" / "erm-gcn" / "x.json"
    folder.mkdir()
    packed_folder = store.root / "toy" / "mmd.jsonl"
    packed_folder.mkdir()
    deep = store.root / "toy" / "erm-gcn" / "p-seed0-deep.json"
    deep.write_text("[" * 100_000 + "]" * 100_000)
    deep_field = store.root / "toy" / "erm-gcn" / "p-seed0-deeper.json"
    deep_field.write_text(json.dumps(record())[:-1] + ', "x": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001)
    again = ResultStore(store.root)
    assert len(again) == 1
    assert set(again.rejected) == {folder, packed_folder, deep, deep_field}
    assert all(why.startswith(f"{path} is not a result record: ") for path, why in again.rejected.items())


# ---- the schema ------------------------------------------------------------------------------------------


def sealed(change: dict) -> str:
    """The text of a record with changes, whose key and digest fit."""
    whole = record() | change
    whole |= {"key": key(whole)}
    return json.dumps(whole | {"digest": digest(whole)}, ensure_ascii=False)


WRONG = [
    {"machine": 5},
    {"machine": {"device": 5}},
    {"curves": 5},
    {"curves": {"loss": ["x"]}},
    {"curves": {"loss": 1.0}},
    {"seed": "x"},
    {"seed": None},
    {"seed": True},
    {"benchmark": ["toy"]},
    {"method": {}},
    {"options": []},
    {"data": {"alpha": 5}},
    {"code": 4},
    {"protocol": "alpha→gamma"},
    {"protocol": PROTOCOL.describe() | {"name": None}},
    {"protocol": PROTOCOL.describe() | {"metrics": "micro_f1"}},
    {"protocol": PROTOCOL.describe() | {"targets": []}},
    {"recipe": RUN.recipe.to_json() | {"hyper": 5}},
    {"recipe": RUN.recipe.to_json() | {"layers": 10**9}},
    {"select": None},
    {"select": {"rule": 5}},
    {"select": {"rule": "last", "scores": [1]}},
    {"metrics": {"gamma": 0.5}},
    {"metrics": {"gamma": {"micro_f1": "0.5"}}},
    {"metrics": {"gamma": {}}},
    {"metrics": {}},
    {"metrics": {"elsewhere": {"micro_f1": 0.5}}},
    {"rules": {"last": {"metrics": {}}}},
    {"rules": {"last": {"epoch": 1, "alpha": 0.0, "metrics": {"gamma": {}}}}},
    {"failed": "yes"},
    {"seconds": {"train": "long"}},
    {"missing": "gamma"},
    {"candidates": [5]},
    {"leaderboard": [{"name": "erm-gcn"}]},
    {"mask": {"alpha": {"original": {"mean": None}}}},
    {"calibration_error": [0.1]},
    {"explorer": {"g": 5}},
    {"explorer": {"g": {}}},
    {"explorer": {"g": view(nodes=4)}},
    {"explorer": {"g": view(nodes=10**12)}},
    {"explorer": {"g": view(src="AAAA")}},
    {"explorer": {"g": view(src="ü")}},
    {"explorer": {"g": view(dst=pack_array(np.array([3, 0]), np.uint32))}},
    {"explorer": {"g": view(mask=pack_array(np.zeros(9), np.uint8))}},
    {"explorer": {"g": view(after=pack_array(np.array([0, 1, -1]), np.int16))}},
    {"explorer": {"g": view(origin=pack_array(np.zeros(10**8), np.uint8))}},
]


@pytest.mark.parametrize("change", WRONG, ids=lambda change: str(change)[:60])
def test_a_record_of_another_shape_is_rejected_by_name_although_its_digest_fits(store: ResultStore, change):
    store.add(RUN, record())
    path = store.root / "toy" / "erm-gcn" / "stray.json"
    try:
        path.write_text(sealed(change))
    except (EdgemaskError, KeyError):  # such a record has no key
        path.write_text(json.dumps(record() | change | {"key": "k", "digest": "d"}))
    again = ResultStore(store.root)
    assert len(again) == 1
    assert again.rejected[path].startswith(f"{path} is not a result record: ")
    assert len(again.rejected[path]) < 500
    pack_path = store.root / "toy" / "other.jsonl"
    pack_path.write_text(path.read_text())
    pack_path.with_name("other.parts.xz").write_bytes(lzma.compress(b""))
    assert ResultStore(store.root).rejected[pack_path].startswith(f"{pack_path}, line 1 is not a result record: ")


NO_NUMBERS = ("1..2", "01", "1e", "-", "nul", "1, ")
DAMAGED = ("5", '{"loss": 5}', '{"loss": ["x"]}', "[" * 10**5, '{"loss": [1.0]', "\\", "")


@pytest.mark.parametrize("curves", [*DAMAGED, *(f'{{"loss": [{n}]}}' for n in NO_NUMBERS)])
def test_packed_curves_of_another_shape_are_rejected_although_their_digest_fits(packed: Path, curves: str):
    path, parts = packed_files(packed)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines[0] |= {"digest": digest(lines[0] | {"curves": LazyJSON(curves)})}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    old = lzma.decompress(parts.read_bytes()).decode().split("\n")
    new = [f"{lines[0]['key']}\tcurves\t{curves}" if line.startswith(lines[0]["key"]) else line for line in old]
    parts.write_bytes(lzma.compress("\n".join(new).encode()))
    again = ResultStore(packed)
    assert len(again) == 2
    assert again.rejected[path].startswith(f"{path}, line 1 is not a result record: record, curves: expected an object")
