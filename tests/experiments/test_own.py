"""Comparisons on own graphs: equal to the estimator, blind to the target, complete records, clear errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import edgemask.experiments.runner as runner
from edgemask import EdgeMaskClassifier, Graph, compare, tune, write_graph
from edgemask.data.synthetic import demo_family
from edgemask.errors import GraphError, InputError, MetricError
from edgemask.experiments.records import ResultStore
from edgemask.experiments.stored import aligned, content_hash, load
from edgemask.experiments.study import REFERENCES, Study, makers
from edgemask.graph import unify
from edgemask.metrics import score
from edgemask.report.comparison import MAJORITY
from edgemask.report.own import paired, table
from edgemask.report.statistics import holm, paired_test

GRAPHS = list(demo_family(80).values())
TINY = {"epochs": 3, "hidden": 8}
ENRICHED = TINY | {"k": 3, "clusters": 5}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def _private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path / "cache"))


def run(graphs, methods=("erm-gcn",), **more) -> pd.DataFrame:
    return compare(graphs, methods, **{"seeds": 2, "settings": TINY, "device": "cpu", "references": False} | more)


def named(seed: int, name: str, scale: float = 1.0, cities: tuple[str, ...] = ("Oslo", "Rome")) -> Graph:
    """Return a graph with named columns, one of them text, and weights."""
    stream = np.random.default_rng(seed)
    y = stream.integers(2, size=40)
    nodes = pd.DataFrame(
        {
            "id": np.arange(40),
            "age": scale * (40 + 5 * y + stream.normal(size=40)),
            "city": stream.choice(cities, size=40),
            "label": np.where(y, "good", "bad"),
        }
    )
    ends = np.unique(stream.integers(40, size=(90, 2)), axis=0)
    edges = pd.DataFrame(ends[ends[:, 0] != ends[:, 1]], columns=["source", "destination"])
    return Graph.from_pandas(nodes, edges.assign(weight=1.5), name=name)


# ---- scores ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["erm-gcn", "edgemask-dg-star", "paper"])
def test_scores_are_those_of_the_estimator(method: str):
    settings = TINY if method == "erm-gcn" else ENRICHED
    frame = run(GRAPHS, [method], settings=settings)
    for row in frame.to_dict("records"):
        sources = [g for g in GRAPHS if g.name != row["target"]]
        (target,) = (g for g in GRAPHS if g.name == row["target"])
        model = EdgeMaskClassifier(method, seed=row["seed"], device="cpu", **settings).fit(sources)
        assert row["micro_f1"] == model.score(target)
        assert row["rule"] == model.rule_
        assert row["sources"] == "+".join(g.name for g in sources)
    assert len(frame) == 6


@pytest.mark.slow
def test_the_race_and_named_columns_give_the_scores_of_the_estimator():
    graphs = [named(0, "a"), named(1, "b", 3.0, ("Oslo", "Bern")), named(2, "c", 0.5, ("Rome", "Lima"))]
    frame = run(graphs, ["auto"], candidates=["erm-mlp", "erm-gcn"], settings={"epochs": 10}, seeds=1)
    for row, target in zip(frame.to_dict("records"), graphs, strict=True):
        model = EdgeMaskClassifier(candidates=["erm-mlp", "erm-gcn"], epochs=10, device="cpu")
        assert row["micro_f1"] == model.fit([g for g in graphs if g is not target]).score(target)


def test_names_and_order_of_the_graphs_do_not_matter():
    one = run(GRAPHS[:2], targets=GRAPHS[2], seeds=1)
    renamed = [g.replace(name=n) for g, n in zip(GRAPHS, ("source-1", "z", "source-0"), strict=True)]
    other = run(renamed[1::-1], targets=renamed[2], seeds=1)
    assert one["micro_f1"].tolist() == other["micro_f1"].tolist()
    assert other["target"].tolist() == ["source-0"]


@pytest.mark.slow
def test_references_take_part_and_the_majority_class_is_that_of_the_sources():
    frame = run(GRAPHS[:2], targets=GRAPHS[2], references=True, settings=ENRICHED)
    assert list(dict.fromkeys(frame["method"])) == ["erm-gcn", *REFERENCES, MAJORITY]
    labels = np.concatenate([g.y for g in GRAPHS[:2]])
    expected = (GRAPHS[2].y == np.bincount(labels).argmax()).mean()
    assert frame.loc[frame["method"] == MAJORITY, "micro_f1"].tolist() == [pytest.approx(expected)] * 2


def test_masks_say_which_labels_are_used():
    rows = np.arange(80)
    masked = [g.replace(masks={"train": rows < 40, "test": rows >= 40}) for g in GRAPHS]
    row = run(masked, seeds=1).iloc[0]
    model = EdgeMaskClassifier("erm-gcn", epochs=3, hidden=8, device="cpu").fit(masked[1:])
    assert row["micro_f1"] == model.score(masked[0])
    wrong = masked[0].replace(y=np.where(rows >= 40, GRAPHS[0].y, 0))
    p = model.predict_proba(wrong)
    assert row["micro_f1"] == score(["micro_f1"], wrong, p)["micro_f1"]


# ---- the target cannot matter ------------------------------------------------------------------------------


def training_record(folder: Path, method: str) -> dict:
    (record,) = (r for r in ResultStore(folder) if r.get("method") == method)
    return {name: record[name] for name in ("select", "curves", "recipe", "seed")}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["erm-gcn", "auto"])
def test_neither_labels_nor_features_of_the_target_enter_training(method: str, tmp_path: Path):
    sources, target = [named(0, "a"), named(1, "b", 2.0)], named(2, "c")
    others = [
        target.replace(y=1 - target.y),
        target.replace(x=100 * np.asarray(target.x.todense() if target.is_sparse else target.x)),
        named(2, "c", cities=("Lima", "Quito", "Cali")),
    ]
    records, scores = [], []
    for i, one in enumerate([target, *others]):
        settings = {"settings": {"epochs": 3}, "seeds": 1, "results": tmp_path / str(i)}
        more = {"candidates": ["erm-mlp", "erm-gcn"]} if method == "auto" else {}
        scores.append(run(sources, [method], targets=one, **settings, **more)["micro_f1"][0])
        records.append(training_record(tmp_path / str(i), method))
    assert all(record == records[0] for record in records)
    assert scores[1] == pytest.approx(1 - scores[0])


def test_only_the_sources_decide_the_common_form():
    graphs = {g.name: g for g in (named(0, "a"), named(1, "b", 2.0), named(2, "c", 9.0, ("Lima", "Oslo")))}
    protocol = Study.of([graphs["a"], graphs["b"]], graphs["c"]).protocols[0]
    forms = aligned(graphs, protocol, True)
    contract, sources = unify([graphs["a"], graphs["b"]])
    assert "city=Lima" not in forms["c"].feature_names
    assert forms["a"] == sources[0]
    assert forms["c"] == contract.aligned(graphs["c"])
    assert abs(np.asarray(forms["c"].x)[:, 0].mean()) > 3  # scaled by the sources, not by itself


# ---- records ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_run_runs_nothing_and_a_record_names_the_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    options = {"results": tmp_path, "references": True, "settings": ENRICHED}
    first = run(GRAPHS, **options)
    files = sorted(tmp_path.rglob("*.*"))
    monkeypatch.setattr("edgemask.experiments.local.perform", lambda *_: pytest.fail("a run was repeated"))
    pd.testing.assert_frame_equal(run(GRAPHS, **options), first)
    assert sorted(tmp_path.rglob("*.*")) == files
    hashes = {g.name: content_hash(g) for g in GRAPHS}
    assert {f.stem for f in (tmp_path / "graphs").iterdir()} == {*hashes.values()}
    assert all(record["options"]["graphs"] == hashes for record in ResultStore(tmp_path))


def test_stored_graphs_are_complete_and_changes_are_noticed(tmp_path: Path):
    graph = named(0, "a")
    run([graph, named(1, "b")], results=tmp_path, seeds=1)
    stored = load(tmp_path, "a", content_hash(graph))
    assert stored == graph.replace(node_ids=None)
    assert stored.weights is not None
    write_graph(named(5, "a"), tmp_path / "graphs" / f"{content_hash(graph)}.npz")
    with pytest.raises(Exception, match="was changed after it was written"):
        load(tmp_path, "a", content_hash(graph))


@pytest.mark.slow
def test_two_processes_give_the_results_of_one():
    one, two = (run(GRAPHS, jobs=jobs, seeds=1) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one.drop(columns="seconds"), two.drop(columns="seconds"))


def test_a_run_that_fails_has_no_score_but_a_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("edgemask.experiments.local.perform", lambda *_: runner.Failed("Traceback\nOSError: disk"))
    with pytest.warns(UserWarning, match="erm-gcn on alpha, seed 0, has no score: OSError: disk"):
        frame = run(GRAPHS, seeds=1)
    assert frame["micro_f1"].isna().all()
    assert table(frame).cell("erm-gcn", "average").failed == 3


# ---- forms of graphs -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_graphs_may_be_objects_of_pytorch_geometric_or_paths(tmp_path: Path):
    expected = run(GRAPHS, seeds=1)["micro_f1"].tolist()
    assert run([g.to_pyg() for g in GRAPHS], seeds=1)["micro_f1"].tolist() == expected
    paths = [tmp_path / g.name for g in GRAPHS]
    for graph, path in zip(GRAPHS, paths, strict=True):
        write_graph(graph, path)
    frame = run(paths, seeds=1)
    assert frame["target"].tolist() == ["alpha", "beta", "gamma"]
    assert frame["micro_f1"].tolist() == expected


def test_files_with_the_same_name_are_called_after_their_paths(tmp_path: Path):
    paths = []
    for year, graph in zip(("2022", "2023"), GRAPHS, strict=False):
        (tmp_path / year).mkdir()
        paths.append(tmp_path / year / "g.npz")
        write_graph(graph.replace(name="g"), paths[-1])
    assert run(paths, seeds=1)["target"].tolist() == [str(path) for path in paths]


# ---- tests -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_paired_tests_are_those_of_the_tables():
    stream = np.random.default_rng(0)
    frame = run(GRAPHS, ["erm-gcn", "erm-mlp", "irm"], seeds=2)
    frame["micro_f1"] = stream.random(len(frame))
    by_method = {m: f.sort_values(["protocol", "seed"])["micro_f1"].to_numpy() for m, f in frame.groupby("method")}
    tests = paired(frame).set_index("method")
    p = [paired_test(100 * (by_method[m] - by_method["erm-gcn"])) for m in tests.index]
    assert set(tests.index) == {"erm-mlp", "irm"}
    assert tests["p"].tolist() == pytest.approx(p)
    assert tests["adjusted"].tolist() == pytest.approx(holm(p))
    assert tests.loc["irm", "difference"] == pytest.approx(100 * (by_method["irm"] - by_method["erm-gcn"]).mean())
    assert paired(frame, reference="irm")["reference"].tolist() == ["irm", "irm"]
    with pytest.raises(InputError, match="no metric 'accuracy'"):
        paired(frame, metric="accuracy")


# ---- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graphs", "more", "message"),
    [
        (GRAPHS[:1], {}, "at least 2 graphs, got 1"),
        ([], {"targets": GRAPHS[0]}, "no graphs to train on"),
        ([GRAPHS[0], GRAPHS[1].without_labels()], {}, "graph 'beta', y: .* needs labels"),
        (GRAPHS[:1], {"targets": GRAPHS[1].without_labels()}, "graph 'beta', y: scores .* needs labels"),
        (GRAPHS[:2], {"targets": GRAPHS[1]}, "graph 'beta' is the same as graph 'beta'"),
        (GRAPHS[:2], {"targets": GRAPHS[1].replace(name="new")}, "graph 'new' is the same as graph 'beta'"),
        ([g.replace(name="x") for g in GRAPHS], {}, "two graphs are called 'x'"),
        ([GRAPHS[0], GRAPHS[1].replace(classes=tuple("vwxyz"))], {}, "classes"),
    ],
)
def test_graphs_that_cannot_be_compared(graphs, more, message: str):
    with pytest.raises(GraphError, match=message):
        run(graphs, **more)


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"methods": ["erm-gnc"]}, InputError, "no method 'erm-gnc'.*did you mean 'erm-gcn'"),
        ({"methods": []}, InputError, "methods must be a list of at least one name"),
        ({"methods": ["erm-gcn:hiden=3"]}, InputError, "method 'erm-gcn:hiden=3'.*did you mean 'hidden'"),
        ({"settings": {"epoch": 3}}, InputError, "setting 'epoch'.*did you mean 'epochs'"),
        ({"settings": {"backbone": "gat"}}, InputError, "setting 'backbone' defines these methods"),
        ({"settings": {"epochs": 0}}, InputError, "method 'erm-gcn': epochs"),
        ({"metric": "f2"}, MetricError, "no metric 'f2'"),
        ({"seeds": 0}, InputError, "seeds"),
        ({"candidates": ["erm-mlp"]}, InputError, "candidates needs method 'auto'"),
        ({"device": "tpu"}, InputError, "device"),
    ],
)
def test_arguments_are_checked_before_a_graph_is_read(more, error, message: str):
    with pytest.raises(error, match=message):
        run("missing.npz", **more)


def test_settings_reach_the_methods_that_have_them():
    made = makers(["irm", "erm-gcn", "paper", "edgemask-dg:rho=0.7"], {"anneal": 7, "k": 2})
    study = Study.of(GRAPHS)
    recipes = {name: own[0].recipe for name, own in study.tasks(made).items()}
    assert dict(recipes["irm"].hyper)["anneal"] == 7
    assert [recipes[n].k for n in ("irm", "erm-gcn", "paper", "erm-gcn-enriched")] == [0, 0, 2, 2]
    assert recipes["edgemask-dg:rho=0.7"].rho == 0.7


# ---- tune ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_uses_the_graphs_alone_and_continues(tmp_path: Path):
    pytest.importorskip("optuna")
    seen: list[int] = []
    options = {"settings": {"epochs": 3}, "results": tmp_path, "device": "cpu"}
    first = tune(GRAPHS[:2], "erm-gcn", trials=2, on_trial=lambda i, _: seen.append(i), **options)
    again = tune(GRAPHS[1::-1], "erm-gcn", trials=3, on_trial=lambda i, _: seen.append(i), **options)
    assert seen == [0, 1, 2]
    assert again.trials[:2] == first.trials
    assert again.score == max(t.score for t in again.trials)
    EdgeMaskClassifier(again.method, epochs=3, device="cpu", **again.settings).fit(GRAPHS[:2])
    assert tune(GRAPHS[1:], "erm-gcn", trials=1, **options).trials != first.trials[:1]  # other graphs, other search
    with pytest.raises(InputError, match="no method 'nope'"):
        tune("missing", "nope")
    with pytest.raises(InputError, match="'auto' chooses among methods"):
        tune("missing", "auto")
