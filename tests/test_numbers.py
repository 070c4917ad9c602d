"""Every route that predicts refuses features that overflow and results that are not finite."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask import EdgeMaskClassifier, compare, load_model
from edgemask.cli import main
from edgemask.data import write_graph
from edgemask.data.synthetic import demo_family
from edgemask.errors import DivergenceError, GraphError, PredictionError
from edgemask.experiments import own
from edgemask.experiments.run import Run, attempt
from edgemask.graph import Graph
from edgemask.methods.registry import METHODS, method_spec
from edgemask.protocol import Protocol
from edgemask.training.fit import Fit
from edgemask.training.race import Race

A, B, C = (g.replace(node_ids=[f"n{i}" for i in range(80)]) for g in demo_family(80).values())
TINY: dict[str, Any] = {"epochs": 2, "hidden": 8, "device": "cpu"}
TOO_LARGE = r"graph '\w+', x: the largest feature is (3|'word 3') of node 'n7', -?{}; a feature must be between -1e\+15"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def huge(graph: Graph, value: float = 3e38) -> Graph:
    x = graph.x.copy()
    x[7, 3] = value
    return graph.replace(x=x)


def changed(estimator: EdgeMaskClassifier, value: float) -> EdgeMaskClassifier:
    """Return the estimator after setting a matrix of weights of each of its networks."""
    for member in estimator.model_.members:
        for network in member.method.networks.values():
            with torch.no_grad():
                next(p for p in network.parameters() if p.ndim > 1).fill_(value)
    return estimator


@pytest.fixture(scope="module")
def game() -> EdgeMaskClassifier:
    return EdgeMaskClassifier("edgemask-dg", **TINY).fit([A, B])


@pytest.fixture
def broken() -> EdgeMaskClassifier:
    return changed(EdgeMaskClassifier("edgemask-dg", **TINY).fit([A, B]), np.nan)


ROUTES: dict[str, Callable[[EdgeMaskClassifier, Graph, Path], Any]] = {
    "predict": lambda e, g, _: e.predict(g),
    "predict_proba": lambda e, g, _: e.predict_proba(g),
    "a list": lambda e, g, _: e.predict([C, g]),
    "score": lambda e, g, _: e.score(g),
    "explain": lambda e, g, _: e.explain(g, ["n3"]),
    "adversary": lambda e, g, _: e.adversary(g),
    "theory": lambda e, g, _: e.theory(g, steps=1),
    "compare": lambda e, g, _: e.compare(g),
    "in blocks": lambda e, g, _: e.model_.with_inference_batch(9).predict(g),
    "loaded": lambda e, g, path: [e.save(path / "m"), EdgeMaskClassifier.load(path / "m").predict(g)],
    "loaded without training code": lambda e, g, path: [e.save(path / "m"), load_model(path / "m").predict(g)],
}


@pytest.mark.parametrize("route", ROUTES)
def test_features_that_overflow_are_refused_by_column_and_node(
    game: EdgeMaskClassifier, tmp_path: Path, route: str
) -> None:
    for value in (3e38, -1e20):
        number = f"{abs(value):g}".replace("+", r"\+")
        with pytest.raises(GraphError, match=TOO_LARGE.format(number)):
            ROUTES[route](game, huge(C, value), tmp_path)


@pytest.mark.parametrize("route", ROUTES)
def test_weights_that_are_not_finite_are_refused(broken: EdgeMaskClassifier, tmp_path: Path, route: str) -> None:
    with pytest.raises(PredictionError, match="is not finite: the model's weights are not finite"):
        ROUTES[route](broken, C, tmp_path)


@pytest.mark.parametrize("command", ["predict", "evaluate", "explain", "explain --adversary", "theory"])
def test_commands_end_with_one_line(
    game: EdgeMaskClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    game.save("model")
    write_graph(huge(C), "huge.npz")
    name, *options = command.split()
    monkeypatch.setattr(sys, "argv", ["edgemask", name, "model", "huge.npz", *options])
    with pytest.raises(SystemExit, match="2"):
        main()
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: graph 'gamma', x: the largest feature is 3 of node 'n7', 3e+38" in err


@pytest.mark.parametrize("name", [*METHODS, "auto"])
@pytest.mark.parametrize("role", ["source", "validation"])
def test_no_method_is_trained_on_features_that_overflow(monkeypatch: pytest.MonkeyPatch, name: str, role: str) -> None:
    for trained in (Fit, Race):
        monkeypatch.setattr(trained, "run", lambda _: pytest.fail("it was trained"))
    sources, validation = ([huge(A), B], None) if role == "source" else ([A, B], [huge(C)])
    with pytest.raises(GraphError, match=TOO_LARGE.format(r"3e\+38")):
        EdgeMaskClassifier(name, device="cpu").fit(sources, validation=validation)


def test_columns_with_names_are_scaled_before_they_are_judged() -> None:
    names = [f"word {j}" for j in range(A.num_features)]
    graphs = [huge(g, 1e20).replace(feature_names=names) for g in (A, B, C)]
    p = EdgeMaskClassifier("erm-mlp", **TINY).fit(graphs[:2]).predict_proba(graphs[2])
    assert np.isfinite(p).all()
    with pytest.raises(GraphError, match=TOO_LARGE.format(r"1e\+20")):
        EdgeMaskClassifier("erm-mlp", **TINY, scale=False).fit(graphs[:2])


def test_sparse_features_are_checked_too() -> None:
    with pytest.raises(GraphError, match=TOO_LARGE.format(r"3e\+38")):
        EdgeMaskClassifier("erm-mlp", **TINY).fit([huge(A).replace(x=sp.csr_array(huge(A).x)), B])


def test_comparisons_and_searches_refuse_them_before_a_run(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=TOO_LARGE.format(r"3e\+38")):
        compare([A, B, huge(C)], ["erm-mlp"], seeds=1, results=tmp_path, settings={"epochs": 2})
    with pytest.raises(GraphError, match=TOO_LARGE.format(r"3e\+38")):
        own.tune([A, huge(B)], "erm-mlp", trials=1, results=tmp_path, device="cpu")
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("method", ["erm-gcn-enriched", "edgemask-dg-star", "erm-mlp"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_graphs_whose_features_are_all_zero_can_be_used(method: str, form: Callable[[Any], Any]) -> None:
    a, b, c = (g.replace(x=form(np.zeros_like(g.x))) for g in (A, B, C))
    few = {} if method == "erm-mlp" else {"k": 3, "clusters": 4}
    for sources in ([a, b], [a, B]):
        assert np.isfinite(EdgeMaskClassifier(method, **TINY, **few).fit(sources).predict_proba(c)).all()


def test_a_recorded_run_that_predicts_what_is_not_finite_has_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = Protocol("alpha+beta→gamma", ("alpha", "beta"), ("gamma",), ("accuracy",))
    recipe = method_spec("erm-mlp").under(None, epochs=2, hidden=8, select="last", average=0.0)
    run = Run("synthetic", {}, protocol, "erm-mlp", recipe, 0)

    def broken_fit(fit: Fit) -> Any:
        trainer, choice = train(fit)
        with torch.no_grad():
            next(trainer.method.networks.parameters()).fill_(torch.nan)
        return trainer, choice

    train = Fit.run
    monkeypatch.setattr(Fit, "run", broken_fit)
    record = attempt(run, {g.name: g for g in (A, B, C)}, device=torch.device("cpu"))
    assert record["failed"]["kind"] == "PredictionError"
    assert "prediction of node 'n0' is not finite" in record["failed"]["message"]
    assert not record.get("metrics")


@pytest.mark.slow
def test_a_race_in_processes_drops_a_candidate_that_is_not_finite() -> None:
    race = EdgeMaskClassifier(candidates=["erm-mlp", "erm-gcn:lr=1e30:average=0"], jobs=2, **TINY | {"epochs": 20})
    race.fit([A, B])
    assert [m.name for m in race.model_.members] == ["erm-mlp"]
    (failed,) = (row.note for row in race.model_.leaderboard if "1e30" in row.name)
    assert failed.startswith("failed: ")
    with pytest.raises(DivergenceError):
        EdgeMaskClassifier("erm-gcn", lr=1e30, average=0.0, **TINY | {"epochs": 20}).fit([A, B])
