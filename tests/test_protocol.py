"""Tests of protocols: roles of the domains, and that training never gets a label of a target."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from edgemask.errors import GraphError
from edgemask.graph import Graph
from edgemask.metrics import score
from edgemask.protocol import Protocol, leave_one_out


def domain(name: str, **changes: Any) -> Graph:
    rng = np.random.default_rng(len(name) + ord(name[0]))
    fields: dict[str, Any] = {"x": rng.random((8, 2)), "edges": [[0], [1]], "y": [0, 1, 1, 0, 1, 0, 0, -1], **changes}
    return Graph(name, **fields)


def protocol(**changes: Any) -> Protocol:
    fields: dict[str, Any] = {"name": "p", "sources": ("a",), "targets": ("c",), "metrics": ("accuracy",), **changes}
    return Protocol(**fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": ()}, "sources must not be empty"),
        ({"targets": ()}, "targets must not be empty"),
        ({"metrics": ()}, "metrics must not be empty"),
        ({"targets": ("a",)}, "'a' is both source and target"),
        ({"validation": ("a",)}, "'a' is both source and validation"),
        ({"validation": ("c",)}, "'c' is both validation and target"),
        ({"sources": ("a", "a")}, "'a' is source twice"),
        ({"metrics": ("accuracy", "auc")}, "no metric 'auc'"),
        ({"metrics": ("f1",)}, "'f1': f1 needs the index of a class"),
        ({"repeats": 0}, r"repeats must be an integer in \[1, inf\), got 0"),
    ],
)
def test_errors_name_the_protocol(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"protocol 'p': .*{message}"):
        protocol(**changes)


def test_domains_are_sources_validation_and_targets() -> None:
    assert protocol(sources=("a", "b"), validation=("v",)).domains == ("a", "b", "v", "c")


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_leave_one_out(count: int) -> None:
    names = "abcde"[:count]
    protocols = leave_one_out(names, ["micro_f1", "macro_f1"], repeats=3)
    assert [p.targets for p in protocols] == [(name,) for name in names]
    for p in protocols:
        assert (*p.sources, *p.targets) == (*(n for n in names if n not in p.targets), *p.targets)
        assert (p.validation, p.metrics, p.repeats) == ((), ("micro_f1", "macro_f1"), 3)
    assert len({p.name for p in protocols}) == count


def test_leave_one_out_uses_short_names() -> None:
    protocols = leave_one_out(["acm", "cit", "dblp"], ["accuracy"], short={"acm": "A", "cit": "C", "dblp": "D"})
    assert [p.name for p in protocols] == ["C+D→A", "A+D→C", "A+C→D"]


def test_leave_one_out_needs_two_domains() -> None:
    with pytest.raises(ValueError, match="at least 2 domains, got 1"):
        leave_one_out(["a"], ["accuracy"])


def test_open_returns_the_graphs_of_each_role() -> None:
    domains = {name: domain(name) for name in "xcvba"}
    training, _ = protocol(sources=("a", "b"), validation=("v",)).open(domains)
    assert training.sources == (domains["a"], domains["b"])
    assert training.validation == (domains["v"],)
    assert training.targets == (domains["c"].without_labels(),)
    assert training.metrics == ("accuracy",)


@pytest.mark.parametrize(
    ("c", "message"),
    [
        (None, "protocol 'p': domain 'c' is missing"),
        (domain("d"), "protocol 'p': domain 'c' is a graph with the name 'd'"),
        (domain("c", y=None), "graph 'c', y: protocol 'p' needs labels, but it has none"),
        (domain("c", y=[-1] * 8), "graph 'c', y: protocol 'p' needs labels, but it has none"),
        (domain("c", x=np.ones((8, 3))), "graph 'c', x: 3 features, but graph 'a' has 2"),
        (domain("c", y=[2] * 8), "graph 'c', classes: .* but graph 'a' has"),
    ],
)
def test_open_rejects_invalid_domains(c: Graph | None, message: str) -> None:
    domains = {"a": domain("a"), **({} if c is None else {"c": c})}
    with pytest.raises(GraphError, match=message):
        protocol().open(domains)


def reachable(root: object) -> list[object]:
    """Return all objects that can be reached from `root`, except classes, modules and their globals."""
    seen: dict[int, object] = {}
    queue = [root]
    while queue:
        item = queue.pop()
        if id(item) not in seen and not isinstance(item, (type, type(gc))) and not callable(item):
            seen[id(item)] = item
            queue.extend(gc.get_referents(item))
    return list(seen.values())


@pytest.mark.parametrize("several", [False, True])
def test_no_label_of_a_target_can_be_reached_from_training(several: bool) -> None:
    y = np.array([0, 1, 1, 0, 1, 0, 0, 1])
    labels = np.eye(2, dtype=int)[y] if several else y
    base = np.column_stack([np.ones((8, 2)), labels])  # features and labels as views of one array
    target = domain("c", x=base[:, :2], y=base[:, 2:].astype(int) if several else base[:, 2], masks={"eval": y >= 0})
    assert target.labelled.all()  # fills the cache of the graph
    training, exam = protocol().open({"a": domain("a", y=labels), "c": target})
    arrays = [item for item in reachable(training.targets) if isinstance(item, np.ndarray)]
    assert any(array is training.targets[0].x for array in arrays)  # the search reaches arrays
    assert target.y is not None
    for array in arrays:
        assert not np.shares_memory(array, target.y)
        assert array.shape != target.y.shape or not np.array_equal(array, target.y)
    assert not any(item is exam or item is target for item in reachable(training))


def test_exam_scores_equal_the_metrics() -> None:
    names = ("accuracy", "macro_f1", "roc_auc")
    target = domain("c", masks={"eval": np.arange(8) > 1})
    _, exam = protocol(metrics=names).open({"a": domain("a"), "c": target})
    p = np.random.default_rng(0).random((8, 2))
    assert exam.score("c", p) == score(names, target, p)
    assert tuple(exam.score("c", p)) == names


def test_exam_rejects_domains_that_are_not_targets() -> None:
    _, exam = protocol(targets=("c", "d")).open({name: domain(name) for name in "acd"})
    with pytest.raises(ValueError, match=r"no target 'a' \(targets: c, d\)"):
        exam.score("a", np.ones((8, 2)))
