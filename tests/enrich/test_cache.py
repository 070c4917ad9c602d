"""The cache of enrichment: hits, misses, and damaged files."""

from __future__ import annotations

import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from edgemask.enrich.cache import Cache, default_cache, feature_hash
from edgemask.errors import EnrichWarning

X = np.arange(12, dtype=np.float32).reshape(4, 3)
ANSWER = np.array([[1, 2], [0, 3]])


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
    first, second = (cache.get("knn", X, {"k": 2}, compute) for _ in range(2))
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
    cache.get("knn", X, {"k": 2}, compute)
    cache.get(kind, x, parameters, compute)
    assert compute.calls == 2


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(ANSWER.tobytes())
    content[at] ^= 1
    path.write_bytes(content)


def change_the_array(path: Path) -> None:
    with np.load(path) as stored:
        parts = dict(stored)
    np.savez(path, **{**parts, "array": parts["array"] + 1})


class Boom:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


DAMAGES = {
    "flipped byte": flip_a_byte,
    "changed array": change_the_array,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "not an archive": lambda path: path.write_text("hello"),
    "other fields": lambda path: np.savez(path, something=ANSWER),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Boom())),
    "pickled array": lambda path: np.savez(path, question="", checksum="", array=np.array([Boom()])),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_reported_and_replaced(cache, damage):
    cache.get("knn", X, {"k": 2}, Counter())
    path, compute = only_file(cache), Counter()
    damage(path)
    with pytest.warns(EnrichWarning, match=path.name):
        assert np.array_equal(cache.get("knn", X, {"k": 2}, compute), ANSWER)
    assert compute.calls == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.get("knn", X, {"k": 2}, compute)
    assert compute.calls == 1


def test_a_foreign_file_is_reported_and_replaced(cache, tmp_path):
    other = Cache(tmp_path / "other")
    other.get("knn", X, {"k": 3}, Counter(ANSWER + 1))
    cache.get("knn", X, {"k": 2}, Counter())
    shutil.copy(only_file(other), only_file(cache))
    with pytest.warns(EnrichWarning, match="it stores the result for"):
        assert np.array_equal(cache.get("knn", X, {"k": 2}, Counter()), ANSWER)


def test_a_failed_write_leaves_no_file(cache, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        cache.get("knn", X, {"k": 2}, Counter())
    assert list(cache.folder.iterdir()) == []


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
