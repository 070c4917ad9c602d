"""The measurement of enriched graphs and its record."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.enrich import Cache
from edgemask.enrich.measures import enrichment_measures
from edgemask.errors import DataError
from edgemask.experiments.enrichment import Enrichment
from edgemask.experiments.records import ResultStore, Task
from edgemask.inference import enriched_edges
from edgemask.nn.tensors import skeleton

CPU = torch.device("cpu")
BENCH = benchmark("synthetic")
OPTIONS = {**BENCH.options, "nodes": 120}
DOMAINS = BENCH.load(nodes=120)
PROTOCOL = BENCH.protocols[0]
RECIPE = Recipe(k=3, clusters=6, knn_ratio=0.5, spectral_ratio=0.3)
TASK: Task = Enrichment("synthetic", OPTIONS, PROTOCOL, RECIPE, 0)


@pytest.fixture(scope="module")
def record():
    return TASK.perform(DOMAINS, device=CPU)


def test_every_domain_is_measured_on_the_sample_that_inference_uses(record):
    assert list(record["metrics"]) == list(PROTOCOL.domains)
    for name, graph in DOMAINS.items():
        edges = enriched_edges(RECIPE, skeleton(graph, CPU), 0)
        pairs = np.stack([edges.src[edges.real], edges.dst[edges.real]])
        assert record["metrics"][name] == enrichment_measures(graph, pairs)
        assert record["metrics"][name]["edge increase %"] > 10


def test_a_record_has_everything_that_decides_it(record):
    assert (record["kind"], record["benchmark"], record["options"], record["seed"]) == (
        "enrichment", "synthetic", OPTIONS, 0,
    )  # fmt: skip
    assert "method" not in record
    assert record["data"] == {name: DOMAINS[name].hash for name in PROTOCOL.domains}
    assert record["select"] == {"rule": "none: nothing is trained"}
    assert record["missing"] == []
    assert record["seconds"]["enrich"] > 0
    assert record["seconds"]["measure"] > 0
    assert record["peak_memory_mib"] > 10
    assert record["machine"]["torch"] == torch.__version__


def test_a_record_is_stored_and_found(record, tmp_path):
    store = ResultStore(tmp_path)
    assert store.find(TASK) is None
    path = store.add(TASK, record)
    assert path.parent == tmp_path / "synthetic" / "enrichment"
    again = ResultStore(tmp_path)
    assert not again.rejected
    found = again.find(TASK)
    assert found is not None
    assert found["metrics"] == record["metrics"]
    assert again.find(Enrichment("synthetic", OPTIONS, PROTOCOL, RECIPE, 1)) is None
    assert again.find(Enrichment("synthetic", OPTIONS, PROTOCOL, RECIPE.replace(k=4), 0)) is None
    with pytest.raises(FileExistsError):
        again.add(TASK, record)


def test_the_seed_decides_the_measures(record, tmp_path):
    again = TASK.perform(DOMAINS, device=CPU, cache=Cache(tmp_path))
    other = Enrichment("synthetic", OPTIONS, PROTOCOL, RECIPE, 1).perform(DOMAINS, device=CPU, cache=Cache(tmp_path))
    assert again["metrics"] == record["metrics"]
    assert all(other["metrics"][name] != record["metrics"][name] for name in DOMAINS)


def test_missing_domains_are_named(record):
    name = PROTOCOL.targets[0]
    partly = TASK.perform({n: g for n, g in DOMAINS.items() if n != name}, device=CPU)
    assert partly["missing"] == [name]
    assert name not in partly["data"]
    assert partly["metrics"] == {n: m for n, m in record["metrics"].items() if n != name}
    with pytest.raises(DataError, match=r"there is no data for any domain \(.*gamma.*\)"):
        TASK.perform({}, device=CPU)
