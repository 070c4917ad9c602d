"""Tests of Cora and Photo with an artificial shift: counts, invariants of both variants, and the random networks."""

from __future__ import annotations

import hashlib
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.nn import GATConv, GCNConv, SGConv

from edgemask.data import shifted, unpickle
from edgemask.data.benchmark import Benchmark
from edgemask.data.shifted import CORA, DOMAINS, FLIP_RATES, GENERATORS, PHOTO, eerm, glorot, linear
from edgemask.data.store import File, Store
from edgemask.errors import DataError, InputError
from edgemask.graph import Graph

both = pytest.mark.parametrize("benchmark", [CORA, PHOTO], ids=lambda b: b.name)
kinds = pytest.mark.parametrize("generator", GENERATORS)


@pytest.fixture(scope="module")
def base() -> Graph:
    """A random graph with 60 nodes (the last one isolated), 30 sparse binary features and 3 real classes."""
    rng = np.random.default_rng(0)
    x = sp.csr_array(rng.random((60, 30)) < 0.2)
    return Graph(
        "small", x, rng.integers(0, 59, (2, 150)), rng.integers(0, 3, 60),
        undirected=True, duplicates="merge", self_loops="drop",
    )  # fmt: skip


@pytest.fixture(scope="module")
def cora(store: Store) -> dict[str, Graph]:
    return CORA.load(store=store)


# ---- the real data ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("benchmark", "nodes", "edges", "features", "classes"),
    [(CORA, 2708, 5278, 1433, 7), (PHOTO, 7650, 119081, 745, 8)],
    ids=["cora", "photo"],
)
def test_real_graph_has_the_published_counts(
    store: Store, benchmark: Benchmark, nodes: int, edges: int, features: int, classes: int
) -> None:
    graph = benchmark.load(["env0"], store=store, variant="flip")["env0"]
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (nodes, 2 * edges, features + 1)
    assert graph.num_classes == classes == len(np.unique(graph.y))
    assert graph.is_undirected
    assert set(np.unique(graph.x.data)) == {1}


def test_cora_test_rows_are_reordered_by_node(store: Store) -> None:
    graph = shifted.read_cora(store)
    source, destination = graph.edges
    same_class = (graph.y[source] == graph.y[destination]).mean()
    shared_words = graph.x[source].multiply(graph.x[destination]).sum() / graph.num_edges
    assert same_class == pytest.approx(0.81, abs=0.005)  # 0.45 with the test rows in the order of the file
    assert shared_words == pytest.approx(3.02, abs=0.01)  # 1.94 with the test rows in the order of the file


@both
def test_ten_environments_load_within_six_seconds(store: Store, benchmark: Benchmark) -> None:
    start = time.process_time()  # CPU time of this process, independent of the load of the machine
    assert tuple(benchmark.load(store=store)) == DOMAINS
    assert time.process_time() - start < 6


def test_generated_labels_of_cora_are_fixed(cora: dict[str, Graph]) -> None:
    counts = np.bincount(cora["env0"].y, minlength=10)
    assert counts.tolist() == [15, 1983, 6, 1, 2, 209, 48, 158, 73, 213]


@both
def test_protocol_trains_on_the_first_and_tests_on_the_last_eight_environments(
    base: Graph, benchmark: Benchmark
) -> None:
    training, _ = benchmark.protocol("env0→env2-9").open(eerm(base, benchmark.domains, "gcn", 0))
    roles = [[g.name for g in role] for role in (training.sources, training.validation, training.targets)]
    assert roles == [["env0"], ["env1"], [f"env{i}" for i in range(2, 10)]]


def test_no_file_is_unpickled_if_one_is_altered(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planetoid").mkdir()
    for file in CORA.files("env0"):
        shutil.copyfile(data_root / file.path, tmp_path / file.path)
    last = tmp_path / CORA.files("env0")[-1].path
    last.write_bytes(last.read_bytes()[:-1] + b"0")
    monkeypatch.setattr(unpickle, "load", lambda path: pytest.fail(f"unpickled {path}"))
    with pytest.raises(DataError, match=last.name):
        CORA.load(store=Store(tmp_path, offline=True))


# ---- the two layouts of Photo ------------------------------------------------------------------------------


def test_both_layouts_of_photo_give_the_same_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adjacency = sp.csr_matrix(np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0]], dtype=np.float32))
    x, y = sp.csr_matrix(np.eye(3, 5, dtype=np.float32)), np.array([0, 2, 1], dtype=np.int32)
    public, plain = tmp_path / "public.npz", tmp_path / "plain.npz"
    np.savez(public, adj_matrix=_boxed(adjacency), node_attr=_boxed(x), node_label=y)
    parts = {
        f"{name}_{field}": getattr(matrix, field)
        for name, matrix in (("adj", adjacency), ("attr", x))
        for field in ("data", "indices", "indptr", "shape")
    }
    np.savez(plain, labels=y.astype(np.int64), **parts)
    monkeypatch.setattr(shifted, "_PHOTO_PLAIN", _file(plain))
    monkeypatch.setattr(shifted, "_PHOTO", replace(_file(public), alternatives=(_file(plain),)))
    store = Store(tmp_path, offline=True)
    from_plain = shifted.read_photo(store)
    plain.unlink()
    from_public = shifted.read_photo(store)
    assert from_public == from_plain
    assert from_public.edges.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


@pytest.mark.parametrize("path", ["amazon_photo.npz", "amazon_electronics_photo.npz"])
def test_photo_is_available_with_either_file(tmp_path: Path, path: str) -> None:
    store = Store(tmp_path, offline=True)
    assert PHOTO.available(store) == ()
    (tmp_path / "amazon").mkdir()
    (tmp_path / "amazon" / path).touch()
    assert PHOTO.available(store) == DOMAINS


def _boxed(value: object) -> np.ndarray:
    box = np.empty((), dtype=object)
    box[()] = value
    return box


def _file(path: Path) -> File:
    return File(path.name, "", f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")


# ---- variant eerm ------------------------------------------------------------------------------------------


@kinds
def test_only_the_spurious_columns_differ_between_environments(base: Graph, generator: str) -> None:
    first, *others = eerm(base, DOMAINS, generator, 0).values()
    assert first.num_features == base.num_features + 10
    for graph in others:
        assert np.array_equal(graph.edges, base.edges)
        assert np.array_equal(graph.y, first.y)
        assert (graph.x[:, : base.num_features] != base.x).nnz == 0


@kinds
def test_environments_differ_by_one_constant_row(base: Graph, generator: str) -> None:
    spurious = [g.x[:, -10:].toarray() for g in eerm(base, DOMAINS, generator, 0).values()]
    weight, _ = linear(shifted.numpy_stream(0, "small", "eerm", generator, "environment"), 10, 10)
    for i, columns in enumerate(spurious):
        np.testing.assert_allclose(columns - spurious[0], np.tile(weight[i] - weight[0], (60, 1)), rtol=0, atol=1e-6)


def test_features_stay_sparse_and_classes_are_always_ten(cora: dict[str, Graph]) -> None:
    assert all(g.is_sparse and g.x.format == "csr" for g in cora.values())
    assert all(g.classes == tuple("0123456789") for g in cora.values())


@kinds
def test_graphs_depend_on_the_seed_but_not_on_the_requested_domains(base: Graph, generator: str) -> None:
    everything = eerm(base, DOMAINS, generator, 3)
    assert eerm(base, ["env7", "env2"], generator, 3) == {d: everything[d] for d in ("env7", "env2")}


def test_seed_and_generator_change_labels_and_columns(base: Graph) -> None:
    made = [eerm(base, ["env0"], g, s)["env0"] for g in GENERATORS for s in range(2)]
    assert len({g.y.tobytes() for g in made}) == len({g.x.data.tobytes() for g in made}) == 6


def test_real_labels_are_not_used(base: Graph) -> None:
    shuffled = base.replace(y=np.roll(base.y, 1))
    assert eerm(shuffled, DOMAINS, "gcn", 0) == eerm(base, DOMAINS, "gcn", 0)


# ---- the random networks compared with PyG, with the same weights, on a directed graph ---------------------


def _set(parameter: torch.nn.Parameter, value: np.ndarray) -> None:
    parameter.data = torch.as_tensor(value).reshape(parameter.shape)


def _pyg(kind: str, rng: np.random.Generator, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    width = x.shape[1]
    if kind == "sgc":
        conv = SGConv(width, 10, K=2).double()
        weight, bias = linear(rng, width, 10)
        _set(conv.lin.weight, weight.T)
        _set(conv.lin.bias, bias)
        return conv(x, edges)
    if kind == "gcn":
        layers = [GCNConv(width, 10), GCNConv(10, 10)]
    else:
        layers = [GATConv(width, 10, heads=2), GATConv(20, 10, heads=2, concat=False)]
    for layer in layers:
        _set(layer.double().lin.weight, glorot(rng, layer.in_channels, layer.lin.weight.shape[0]).T)
        if kind == "gat":
            _set(layer.att_src, glorot(rng, 2, 10))
            _set(layer.att_dst, glorot(rng, 2, 10))
    between = torch.relu if kind == "gcn" else torch.nn.functional.elu
    return layers[1](between(layers[0](x, edges)), edges)


@kinds
def test_network_equals_pyg_with_the_same_weights(generator: str) -> None:
    rng = np.random.default_rng(1)
    pairs = np.unique(rng.integers(0, 24, (2, 90)), axis=1)
    source, destination = pairs[:, pairs[0] != pairs[1]]
    x = rng.normal(size=(25, 7))
    adjacency = sp.csr_array((np.ones(len(source)), (destination, source)), shape=(25, 25)) + sp.eye_array(25)
    actual = GENERATORS[generator](np.random.default_rng(2), adjacency.tocsr(), x)
    edges = torch.as_tensor(np.stack([source, destination]))
    expected = _pyg(generator, np.random.default_rng(2), torch.as_tensor(x), edges)
    np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_weights_have_the_default_scale_of_pyg() -> None:
    rng = np.random.default_rng(0)
    for weights, pyg_weights in (
        (glorot(rng, 900, 10), GCNConv(900, 10).lin.weight),
        (linear(rng, 900, 10)[0], SGConv(900, 10).lin.weight),
    ):
        assert weights.std() == pytest.approx(pyg_weights.std().item(), rel=0.05)
        assert np.abs(weights).max() == pytest.approx(pyg_weights.abs().max().item(), rel=0.01)


# ---- variant flip ------------------------------------------------------------------------------------------


@both
def test_flip_rates_lie_within_binomial_bounds(store: Store, benchmark: Benchmark) -> None:
    for name, graph in benchmark.load(store=store, variant="flip").items():
        rate, flipped = FLIP_RATES[name], graph.x[:, [-1]].toarray()[:, 0] != (graph.y == 0)
        bound = 4 * np.sqrt(rate * (1 - rate) / graph.num_nodes)
        assert abs(flipped.mean() - rate) < bound, name


def test_flips_are_independent_for_each_environment_and_seed(base: Graph) -> None:
    drawn = [shifted.flip(base, DOMAINS, seed)[d].x[:, [-1]].toarray() for seed in range(2) for d in DOMAINS]
    assert len({column.tobytes() for column in drawn}) == 20


def test_flips_do_not_depend_on_the_requested_domains(base: Graph) -> None:
    assert shifted.flip(base, ["env5"], 0)["env5"] == shifted.flip(base, DOMAINS, 0)["env5"]


# ---- options -----------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "shift"}, "variant must be one of eerm, flip, got 'shift'"),
        ({"generator": "gin"}, "generator must be one of gcn, sgc, gat, got 'gin'"),
        ({"generator_seed": 0.5}, "generator_seed must be an integer, got 0.5"),
        ({"generator_seed": True}, "generator_seed must be an integer, got True"),
        ({"variant": "flip", "generator": "gat"}, "generator applies to variant eerm only, got 'gat'"),
    ],
)
def test_illegal_option_is_rejected_before_any_file_is_read(
    tmp_path: Path, benchmark: Benchmark, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        benchmark.load(store=Store(tmp_path, offline=True), **options)


@pytest.mark.parametrize("bench", [CORA, PHOTO], ids=lambda b: b.name)
def test_the_set_of_generator_seeds_has_three_protocols(bench):
    protocols = bench.select_protocols(["generator_seeds"])
    assert [bench.options_under(p, {})["generator_seed"] for p in protocols] == [0, 1, 2]
    assert protocols[0] == bench.protocols[0]
    with pytest.raises(InputError, match=r"fixes generator_seed = 1, got 3"):
        bench.options_under(protocols[1], {"generator_seed": 3})
