"""The result store: keyed by all that decides a run, written once and whole, trusted only while unaltered."""

from __future__ import annotations

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.errors import RecordError
from edgemask.experiments.records import ResultStore, digest, key, read_record
from edgemask.experiments.run import Run
from edgemask.protocol import Protocol

DOMAINS = demo_family(80)
PROTOCOL = Protocol("alpha→gamma", ("alpha",), ("gamma",), ("micro_f1",), validation=("beta",))
RUN = Run("toy", {"nodes": 80}, PROTOCOL, "erm-gcn", Recipe(mask=False, backbone="gcn"), 0)


def record(run: Run = RUN, domains=DOMAINS, value: float = 0.5):
    """What a run returns, without the run."""
    return run.describe() | {
        "data": {name: domains[name].hash for name in run.protocol.domains},
        "metrics": {"gamma": {"micro_f1": value}},
        "select": {"rule": "last"},
        "curves": {"loss": [1.0, None]},
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
def test_all_that_decides_a_run_changes_its_key_and_finds_nothing(store: ResultStore, change):
    store.add(RUN, record())
    other = replace(RUN, **change)
    assert key(record(other)) != key(record())
    assert store.find(other) is None
    assert store.find(RUN)["seed"] == 0


def test_the_codes_version_changes_the_key():
    assert key(record() | {"code": "0.0.1"}) != key(record())


def test_the_data_change_the_key_and_the_metrics_do_not():
    assert key(record(domains=shuffled("alpha"))) != key(record())
    assert key(record(value=0.9)) == key(record())


def test_a_setting_at_its_default_does_not_change_the_key():
    old = record()
    del old["recipe"]["precision"]  # a record from before there was such a setting
    assert key(old) == key(record())


# ---- writing ---------------------------------------------------------------------------------------------


def test_what_was_written_is_found_again_and_told_apart_by_data(store: ResultStore):
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
    with pytest.raises(RecordError, match="records of the same run on different data"):
        store.find(RUN)
    assert store.find(RUN, DOMAINS) is not None


def test_a_record_is_never_written_again(store: ResultStore):
    path = store.add(RUN, record())
    before = path.read_bytes()
    for held in (store, ResultStore(store.root)):
        with pytest.raises(FileExistsError, match=re.escape(str(path))):
            held.add(RUN, record(value=0.9))
    assert path.read_bytes() == before


def test_of_many_writers_one_is_first_and_its_record_stays(tmp_path: Path):
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
def test_a_write_that_dies_leaves_nothing(store: ResultStore, monkeypatch, call):
    def die(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, call, die)
    with pytest.raises(OSError, match="disk full"):
        store.add(RUN, record())
    assert [p for p in store.root.rglob("*") if p.is_file()] == []
    assert store.find(RUN) is None


# ---- reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'"text"', b"null", b'{"key": "k"}', b"\xff\xfe"])
def test_foreign_files_are_reported_and_skipped(store: ResultStore, content):
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
        (alter_metrics, "was altered after it was written"),
        (alter_seed, "was altered after it was written"),
        (alter_a_curve, "was altered after it was written"),
        (rename_a_curve, "was altered after it was written"),
        (alter_seed_and_seal, "holds the record of another run"),
        (alter_recipe, "is not a result record"),
    ],
)
def test_an_altered_record_is_not_trusted(store: ResultStore, alter, why):
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
        {"nested": [[1.0], {"deep": 2.0}]},
        None,
    ],
)
def test_any_curves_are_trusted_as_written_in_any_order_of_keys(store: ResultStore, curves):
    path = store.add(RUN, record() | {"curves": curves, "mask": {"curves": curves}})
    held = json.loads(path.read_text())
    path.write_text(json.dumps({k: held[k] for k in reversed(held)}))
    again = ResultStore(store.root)
    assert not again.rejected
    assert repr(again.records[0]["curves"]) == repr(curves)


def test_a_truncated_or_renamed_record_is_not_trusted(store: ResultStore):
    path = store.add(RUN, record())
    renamed = path.with_name("alpha-to-gamma-seed0-0123456789abcdef.json")
    shutil.copy(path, renamed)
    path.write_bytes(path.read_bytes()[:-20])
    assert set(ResultStore(store.root).rejected) == {path, renamed}


def test_two_machines_folders_merge_by_copying(tmp_path: Path):
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


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path):
    (tmp_path / "results").write_text("")
    with pytest.raises(NotADirectoryError, match="is not a folder of results"):
        ResultStore(tmp_path / "results")


def test_a_protocol_is_kept_whole(store: ResultStore):
    store.add(RUN, record())
    held = dict(store.find(RUN)["protocol"])
    assert held == json.loads(json.dumps(asdict(PROTOCOL)))
