"""The majority class: frequencies of the sources, scores on the targets, and no use of other labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.errors import DataError, GraphError
from edgemask.experiments.majority import MajorityRun, majority_metrics
from edgemask.experiments.records import ResultStore, Task
from edgemask.graph import Graph
from edgemask.protocol import Protocol
from edgemask.report.suite import CellSpec, RunSet

CLASSES = tuple("abc")
PROTOCOL = Protocol("s+t→u,v", ("s", "t"), ("u", "v"), ("accuracy", "macro_f1"), ("w",))


def graph(name: str, y, **more) -> Graph:
    return Graph(name, np.zeros((len(y), 2)), np.empty((2, 0), dtype=int), np.array(y), classes=CLASSES, **more)


DOMAINS = {
    "s": graph("s", [0, 0, 0, -1, -1]),
    "t": graph("t", [1, 1, 1, 1, 2]),
    "u": graph("u", [1, 1, 0, 2, -1]),
    "v": graph("v", [2, 2, 2, 1]),
    "w": graph("w", [2] * 9),
}


def test_the_most_frequent_class_of_the_sources_is_scored_on_every_target():
    assert majority_metrics(PROTOCOL, DOMAINS) == {
        "u": {"accuracy": 0.5, "macro_f1": pytest.approx((2 / 3) / 3)},
        "v": {"accuracy": 0.25, "macro_f1": pytest.approx(0.4 / 2)},
    }


def test_only_the_labels_of_the_sources_choose_the_class():
    expected = majority_metrics(PROTOCOL, DOMAINS)["v"]
    changed = DOMAINS | {"u": graph("u", [2] * 50), "w": graph("w", [0] * 50)}
    assert majority_metrics(PROTOCOL, changed)["v"] == expected


def test_equal_probabilities_for_all_nodes_have_an_auc_of_one_half():
    domains = {n: Graph(n, g.x, g.edges, np.minimum(g.y, 1), classes=("a", "b")) for n, g in DOMAINS.items()}
    scores = majority_metrics(replace(PROTOCOL, targets=("u",), metrics=("roc_auc",)), domains)
    assert scores == {"u": {"roc_auc": 0.5}}


def test_a_node_with_several_labels_counts_with_its_first():
    several = np.array([[0, 1, 1], [0, 1, 1], [0, 0, 1], [-1, -1, -1], [0, 0, 0]])
    domains = {n: graph(n, several if n == "s" else np.eye(3, dtype=int)[[2, 1]]) for n in "stuvw"}
    protocol = replace(PROTOCOL, sources=("s",), metrics=("accuracy", "hits"))
    assert majority_metrics(protocol, domains)["u"] == {"accuracy": 0.5, "hits": 0.5}
    empty = domains | {"s": graph("s", np.zeros((4, 3), dtype=int))}
    with pytest.raises(GraphError, match="no node of the sources has a class"):
        majority_metrics(protocol, empty)


def test_missing_targets_are_left_out_but_one_is_needed():
    assert list(majority_metrics(PROTOCOL, {n: g for n, g in DOMAINS.items() if n != "u"})) == ["v"]
    with pytest.raises(DataError, match=r"there is no data for any target \(u, v\)"):
        majority_metrics(PROTOCOL, {n: g for n, g in DOMAINS.items() if n not in "uv"})
    with pytest.raises(GraphError, match="domain 't' is missing"):
        majority_metrics(PROTOCOL, {n: g for n, g in DOMAINS.items() if n != "t"})


# ---- the record ------------------------------------------------------------------------------------------

BENCH = benchmark("synthetic")
SMALL = BENCH.load(nodes=120)
TASK: Task = MajorityRun("synthetic", {**BENCH.options, "nodes": 120}, BENCH.protocols[0])
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def record():
    return TASK.perform(SMALL, device=CPU)


def test_a_record_has_the_scores_and_everything_that_decides_them(record):
    (target,) = TASK.protocol.targets
    sources = np.concatenate([SMALL[name].y for name in TASK.protocol.sources])
    assert record["metrics"][target]["micro_f1"] == (SMALL[target].y == np.bincount(sources).argmax()).mean()
    assert record["metrics"] == majority_metrics(TASK.protocol, SMALL)
    assert (record["kind"], record["seed"], record["missing"]) == ("majority", 0, [])
    assert "method" not in record
    assert record["select"] == {"rule": "reference"}
    assert record["recipe"] == Recipe().to_json()
    assert record["data"] == {name: SMALL[name].hash for name in TASK.protocol.domains}
    assert record["seconds"]["score"] > 0
    assert record["machine"]["torch"] == torch.__version__
    assert TASK.label == f"synthetic {TASK.protocol.name} majority class"


def test_a_record_is_stored_and_found(record, tmp_path):
    store = ResultStore(tmp_path)
    assert store.find(TASK) is None
    assert store.add(TASK, record).parent == tmp_path / "synthetic" / "majority"
    again = ResultStore(tmp_path)
    assert not again.rejected
    assert again.find(TASK, SMALL)["metrics"] == record["metrics"]
    assert again.find(replace(TASK, options=BENCH.options)) is None


def test_missing_targets_are_named_in_the_record():
    protocol = replace(PROTOCOL, targets=("u", "v"))
    partly = MajorityRun("toy", {}, protocol).perform({n: g for n, g in DOMAINS.items() if n != "u"}, device=CPU)
    assert (partly["missing"], list(partly["metrics"]), "u" in partly["data"]) == (["u"], ["v"], False)
    with pytest.raises(DataError, match="there is no data for any target"):
        MajorityRun("toy", {}, protocol).perform({}, device=CPU)


def test_a_run_set_has_one_task_per_protocol_and_repeats_its_record_for_every_seed(tmp_path):
    names = tuple(protocol.name for protocol in BENCH.protocols)
    runs = RunSet("synthetic", "majority", Recipe(), names, seeds=4, options=(("nodes", 120),))
    tasks = list(runs.tasks())
    assert tasks[0] == TASK
    assert [(t.protocol.name, t.seed) for t in tasks] == [(name, 0) for name in names]
    store = ResultStore(tmp_path)
    store.add(tasks[0], tasks[0].perform(SMALL, device=CPU))
    pairs = runs.records(store)
    assert [(t.protocol.name, t.seed) for t, _ in pairs] == [(name, seed) for name in names for seed in range(4)]
    assert [r is not None for _, r in pairs] == [True] * 4 + [False] * 8
    cell = CellSpec("r", "c", runs, lambda r: 100 * r["metrics"]["alpha"]["micro_f1"]).cell(store, ())
    assert (len(cell.values), len(cell.keys), cell.absent) == (4, 1, "4 of 12 runs")
    assert np.isnan(cell.std)
