"""The cache of enrichment: hits, misses, and damaged files."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp
import torch

from edgemask import Graph
from edgemask.enrich import enrich
from edgemask.enrich.cache import Cache, Declared, default_cache, feature_hash
from edgemask.errors import EnrichWarning
from edgemask.runtime import checkpoint

X = np.arange(12, dtype=np.float32).reshape(4, 3)
ANSWER = np.array([[1, 2], [0, 3]])
LISTS = Declared((2, 2), -1, 4)


class Counter:
    """Returns the answer and counts the calls."""

    def __init__(self, answer=ANSWER):
        self.calls, self.answer = 0, answer

    def __call__(self):
        self.calls += 1
        return self.answer


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "made" / "on demand")


def only_file(cache):
    (path,) = cache.folder.iterdir()
    return path


def test_the_second_call_reads_the_file(cache):
    compute = Counter()
    first, second = (cache.get("knn", X, {"k": 2}, LISTS, compute) for _ in range(2))
    assert compute.calls == 1
    assert np.array_equal(first, second)
    assert first.dtype == second.dtype


@pytest.mark.parametrize(
    ("kind", "x", "parameters"),
    [("knn", X, {"k": 3}), ("spectral", X, {"k": 2}), ("knn", X + 1, {"k": 2}), ("knn", X.T, {"k": 2})],
    ids=["parameter", "kind", "features", "shape"],
)
def test_another_key_is_computed(cache, kind, x, parameters):
    compute = Counter()
    cache.get("knn", X, {"k": 2}, LISTS, compute)
    cache.get(kind, x, parameters, LISTS, compute)
    assert compute.calls == 2


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(ANSWER.tobytes())
    content[at] ^= 1
    path.write_bytes(content)


def change_the_array(path: Path) -> None:
    content = safetensors.numpy.load(path.read_bytes())
    safetensors.numpy.save_file({"array": content["array"] + 1}, path)


def stored(array: np.ndarray) -> Callable[[Path], None]:
    """Return a damage: another array with a valid checksum."""

    def store(path: Path) -> None:
        meta = checkpoint.read(path, "enrichment")[1]
        checkpoint.write(path, "enrichment", {"array": torch.from_numpy(array)}, meta)

    return store


class Boom:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


DAMAGES = {
    "flipped byte": flip_a_byte,
    "changed array": change_the_array,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "not an archive": lambda path: path.write_text("hello"),
    "other fields": lambda path: checkpoint.write(path, "enrichment", {}, {"question": ""}),
    "a model": lambda path: checkpoint.write(path, "model", {}, {}),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Boom())),
    "too large ids": stored(ANSWER + 10**6),
    "huge ids": stored(ANSWER + 2**40),
    "negative ids": stored(ANSWER - 3),
    "another shape": stored(ANSWER[:1]),
    "an empty array": stored(np.empty((0, 2**40), dtype=np.int64)),
    "another type": stored(ANSWER.astype(np.float64)),
    "numbers that are no ids": stored(np.full((2, 2), np.nan)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_reported_and_replaced(cache, damage):
    cache.get("knn", X, {"k": 2}, LISTS, Counter())
    path, compute = only_file(cache), Counter()
    damage(path)
    with pytest.warns(EnrichWarning, match=path.name):
        assert np.array_equal(cache.get("knn", X, {"k": 2}, LISTS, compute), ANSWER)
    assert compute.calls == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.get("knn", X, {"k": 2}, LISTS, compute)
    assert compute.calls == 1


def test_a_foreign_file_is_reported_and_replaced(cache, tmp_path):
    other = Cache(tmp_path / "other")
    other.get("knn", X, {"k": 3}, LISTS, Counter(ANSWER + 1))
    cache.get("knn", X, {"k": 2}, LISTS, Counter())
    shutil.copy(only_file(other), only_file(cache))
    with pytest.warns(EnrichWarning, match="it stores the result for another"):
        assert np.array_equal(cache.get("knn", X, {"k": 2}, LISTS, Counter()), ANSWER)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), OSError("disk full")], ids=str)
def test_a_failed_write_is_reported_and_leaves_no_file(cache, monkeypatch, error):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.warns(EnrichWarning, match="the result of enrichment is not cached: .*(No space left|disk full)"):
        assert np.array_equal(cache.get("knn", X, {"k": 2}, LISTS, Counter()), ANSWER)
    assert list(cache.folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(EnrichWarning, match=f"not cached: {tmp_path}/file/cache/knn-.* cannot be written"):
        assert np.array_equal(Cache(tmp_path / "file" / "cache").get("knn", X, {}, LISTS, Counter()), ANSWER)


@pytest.mark.filterwarnings("ignore::edgemask.errors.EnrichWarning")
@pytest.mark.parametrize("change", [lambda a: a + 10**6, lambda a: a + 2**40, lambda a: a[:1], lambda a: a * 0.5])
def test_enrichment_does_not_trust_a_file_with_a_valid_checksum(cache, change):
    graph = Graph("g", np.random.default_rng(0).random((20, 3)), [])
    before = enrich(graph, k=3, clusters=4, cache=cache)
    for path in cache.folder.iterdir():
        tensors, meta = checkpoint.read(path, "enrichment")
        array = np.ascontiguousarray(change(tensors["array"].numpy()))
        checkpoint.write(path, "enrichment", {"array": torch.from_numpy(array)}, meta)
    again = enrich(graph, k=3, clusters=4, cache=cache)
    assert np.array_equal(again.knn_pairs, before.knn_pairs)
    assert np.array_equal(again.clusters, before.clusters)


def test_feature_hash_follows_content():
    assert feature_hash(X) == feature_hash(np.asfortranarray(X))
    assert feature_hash(X) != feature_hash(X.astype(np.float64))
    assert feature_hash(sp.csr_array(X)) != feature_hash(sp.csr_array(X * 2))


def test_default_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path))
    assert default_cache().folder == tmp_path
    monkeypatch.delenv("EDGEMASK_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache().folder == tmp_path / ".cache" / "edgemask" / "enrich"
