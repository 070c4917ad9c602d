"""`plan`: its arithmetic on artificial measurements, stand-ins, and one real prediction."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from edgemask.cli import app
from edgemask.config import Recipe, recipe
from edgemask.data import read_graph, write_graph
from edgemask.data.synthetic import Family, Wiring, domain
from edgemask.experiments import plan as planning
from edgemask.experiments.plan import plan, probe
from edgemask.experiments.plan.costs import Law, Sizes, enrichment, epoch_edges
from edgemask.experiments.plan.standins import FEWEST, level_sizes, stand_in, write_level
from edgemask.graph import Graph
from edgemask.methods.edgemask import Game
from edgemask.methods.sources import draw_edges, make_sampler
from edgemask.runtime.device import free_memory
from edgemask.seeds import torch_stream
from edgemask.training.fit import Fit

SMALL = {"hidden": 8, "mask_projection": 8, "mask_hidden": 8, "k": 4, "clusters": 10}


def graph(name: str, nodes: int, degree: float = 6, kind: str = "dense") -> Graph:
    return domain(Family(nodes=nodes, features=16, classes=4, kind=kind, words=5), Wiring(degree=degree), name)


def fake_probe(monkeypatch, **costs):
    """Replace measurements by formulas of nodes and edges, so that the result of `plan` is known in advance."""

    def cost(name, nodes, edges):
        return costs.get(name, lambda n, e: 0.0)(nodes, edges)

    class Fake:
        seconds = 4.0

        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def measure(self, level):
            graphs = [read_graph(path) for path in level["sources"]]
            nodes, edges = ([getattr(g, f"num_{what}") for g in graphs] for what in ("nodes", "edges"))
            total = sum(nodes), sum(edges)
            peak = {"host": cost("host", *total), "device": cost("device", *total)}
            times = [{kind: cost(kind, n, 0) for kind in ("knn", "spectral")} for n in nodes]
            return {
                "nodes": nodes, "train": [int(g.labelled.sum()) for g in graphs], "original": edges, "edges": edges,
                "knn_pairs": [0] * len(graphs), "spectral_pairs": [0] * len(graphs),
                "enrich": [{"nodes": n, "seconds": t} for n, t in zip(nodes, times, strict=True)],
                "peaks": [peak, peak], **{name: cost(name, *total) for name in ("build", "round", "shared", "score")},
            }  # fmt: skip

    monkeypatch.setattr(planning, "Probe", Fake)


# ---- growth laws -----------------------------------------------------------------------------------------


def test_a_law_finds_the_shares_it_was_made_of():
    sizes = [(1, 100, 700), (1, 300, 1500), (1, 900, 9000)]
    law = Law.of(sizes, [0.5 + 2e-3 * n + 1e-4 * e for _, n, e in sizes])
    assert law((1, 5000, 60000)) == pytest.approx(0.5 + 2e-3 * 5000 + 1e-4 * 60000, rel=1e-6)


def test_a_law_goes_through_its_last_point_and_never_falls():
    sizes = [(1, 100), (1, 300), (1, 900)]
    law = Law.of(sizes, [1.0, 0.8, 1.1])  # noise at the small end
    assert law((1, 900)) == pytest.approx(1.1)
    assert law((1, 9000)) >= 1.1


def test_a_law_accepts_a_single_point_and_costs_of_zero():
    assert Law.of([(1, 50)], [3.0])((1, 50)) == pytest.approx(3.0)
    assert Law.of([(1, 10), (1, 20)], [0.0, 0.0])((1, 1000)) < 1e-6


def test_the_neighbour_search_grows_with_the_square_and_the_clusters_with_the_nodes():
    measured = [{"nodes": n, "seconds": {"knn": 1e-8 * n * n, "spectral": 1e-5 * n}} for n in (1000, 3000, 9000)]
    assert enrichment(recipe("robust"), 90_000, measured) == pytest.approx(81 + 0.9, rel=0.3)
    indexed = [{"nodes": n, "seconds": {"knn": 1e-4 * n}} for n in (1000, 3000, 9000)]
    predicted = enrichment(recipe("robust", knn_exact_up_to=5000), 90_000, indexed)
    assert 9 <= predicted < 9 * np.log(90_000) / np.log(9000)


def test_a_stand_in_that_is_too_small_for_an_index_is_not_used():
    measured = [{"nodes": n, "seconds": {"knn": 1e-4 * n, "recall": 1e-5 * n}} for n in (3000, 9000)]
    config = recipe("robust", knn_exact_up_to=5000)
    exact = {"nodes": 1000, "seconds": {"knn": 7.0}}
    assert enrichment(config, 90_000, [exact, *measured]) == enrichment(config, 90_000, measured)


def test_more_pairs_than_a_sampler_draws_are_refused():
    measured = {"nodes": [1000], "original": [0], "edges": [1], "knn_pairs": [0], "spectral_pairs": [5000]}
    whole = SimpleNamespace(name="a", num_nodes=10**6, num_edges=10**6)
    with pytest.raises(ValueError, match=r"graph 'a': spectral_ratio = 0\.1 would draw some 500 pairs per node"):
        epoch_edges(recipe("robust"), whole, measured, 0)
    assert epoch_edges(recipe("robust", spectral_budget=5), whole, measured, 0) > 0


# ---- stand-ins -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "words"])
def test_a_stand_in_is_like_its_graph(kind):
    whole = graph("a", 4000, kind=kind)
    part = stand_in(whole, 1000, 1000)
    assert part.num_nodes == 1000
    assert (part.is_sparse, part.num_features, part.classes) == (whole.is_sparse, whole.num_features, whole.classes)
    assert part.num_edges / 1000 == pytest.approx(whole.num_edges / 4000, rel=0.05)
    assert set(part.y) == set(range(whole.num_classes))
    rows = {row.tobytes() for row in (whole.x.toarray() if whole.is_sparse else whole.x)}
    assert all(row.tobytes() in rows for row in (part.x.toarray() if part.is_sparse else part.x))
    assert part == stand_in(whole, 1000, 1000)


def test_a_stand_in_keeps_hubs_within_its_size():
    hub = np.array([[0] * 1999, list(range(1, 2000))])
    part = stand_in(Graph("star", np.ones((2000, 3)), hub, np.arange(2000) % 2, undirected=True), 500, 500)
    assert part.degrees.max() < 500


def test_the_edges_of_an_epoch_are_predicted_from_a_stand_in():
    config, whole = recipe("robust", **SMALL), graph("a", 6000)
    part = stand_in(whole, 1500, 1500)
    small = config.replace(spectral_ratio=min(1.0, config.spectral_ratio * 4))

    def drawn(r: Recipe, g: Graph) -> tuple[int, object]:
        sampler = make_sampler(r, g, torch.device("cpu"), None)
        return draw_edges(r, sampler, torch_stream(0, "test")).num_real, sampler

    edges, sampler = drawn(small, part)
    measured = {
        "nodes": [1500], "original": [part.num_edges], "edges": [edges],
        "knn_pairs": [sampler.num_knn_pairs], "spectral_pairs": [sampler.num_spectral_pairs],
    }  # fmt: skip
    assert epoch_edges(config, whole, measured, 0) == pytest.approx(drawn(config, whole)[0], rel=0.25)


def test_levels_grow_up_to_the_graphs_themselves_if_they_are_small():
    small, large = graph("a", 3000), SimpleNamespace(num_nodes=10**6, is_sparse=True)
    assert level_sizes([small]) == [2000, 3000]
    assert level_sizes([graph("a", 500)]) == [500]
    assert level_sizes([large]) == [2000, 6000, 18_000, 54_000, 162_000]
    wide = SimpleNamespace(num_nodes=10**6, is_sparse=False, num_features=4096)
    assert level_sizes([wide]) == [2000, 6000]


def test_a_level_has_smaller_graphs_and_a_matching_recipe(tmp_path):
    sources, config = [graph("a", 30_000), graph("b", 400)], recipe("robust")
    level = write_level(6080, sources, [graph("v", 4000)], "edgemask-dg-star", config, tmp_path)
    sizes = [read_graph(path).num_nodes for path in level["sources"] + level["validation"]]
    part = 6080 / 34_400
    assert sizes == [round(30_000 * part), FEWEST, round(4000 * part)]  # a fifth of 400 nodes is too small
    assert Recipe.from_json(level["recipe"]).spectral_ratio == pytest.approx(config.spectral_ratio / part)
    whole = write_level(3000, [graph("a", 3000)], [], "edgemask-dg-star", config, tmp_path)
    assert read_graph(whole["sources"][0]) == graph("a", 3000)
    assert Recipe.from_json(whole["recipe"]).spectral_ratio == config.spectral_ratio


def test_a_level_for_batches_has_labels_for_two_of_them(tmp_path):
    config = recipe("robust", batch_size=100)
    level = write_level(3000, [graph("a", 3000)], [], "edgemask-dg-star", config, tmp_path)
    assert read_graph(level["sources"][0]).labelled.sum() == 200


# ---- plans -----------------------------------------------------------------------------------------------


def test_every_stage_of_the_selection_is_counted(monkeypatch):
    fake_probe(monkeypatch, round=lambda n, e: 4e-4 * n, build=lambda n, e: 4e-3 * n, knn=lambda n, e: 16e-6 * n * n)
    a, b = graph("a", 1000), graph("b", 2000)
    predicted = plan([a, b], recipe("robust", epochs=50), "cpu")
    assert predicted.rule == "leave-one-source-out"
    assert [s.name for s in predicted.stages] == ["without a", "without b", "all sources"]
    assert [s.seconds for s in predicted.stages] == pytest.approx([50 * 0.8 + 8, 50 * 0.4 + 4, 50 * 1.2 + 12], rel=0.03)
    assert predicted.epoch_seconds == pytest.approx(1.2, rel=1e-3)
    assert predicted.enrich_seconds == pytest.approx(16 + 64, rel=1e-2)
    assert predicted.total_seconds == pytest.approx(4 + 80 + 144, rel=1e-2)
    assert predicted.whole
    assert "these graphs" in predicted.basis


def test_evaluations_are_counted_if_the_rule_scores_every_few_epochs(monkeypatch):
    fake_probe(monkeypatch, round=lambda n, e: 1.0, score=lambda n, e: 10.0)
    config = recipe("robust", epochs=20, eval_every=5)
    assert plan([graph("a", 500)], config, "cpu").train_seconds == pytest.approx(20 + 40)
    assert plan([graph("a", 500)], config, "cpu", validation=[graph("v", 500)]).rule == "validation"
    two = plan([graph("a", 500), graph("b", 500)], config, "cpu")
    assert two.train_seconds == pytest.approx(20 * (0.5 + 0.5 + 1))


def test_batches_are_counted_by_rounds(monkeypatch):
    fake_probe(monkeypatch, round=lambda n, e: 0.5, shared=lambda n, e: 1e-3 * n)
    config = recipe("robust", epochs=10, batch_size=64, fan_out=3, select="last", alpha=(0.0,))
    predicted = plan([graph("a", 3200)], config, "cpu", method="edgemask-dg")
    assert predicted.epoch_seconds == pytest.approx(3.2 + 50 * 0.5, rel=0.01)


def test_a_batch_reaches_all_of_a_small_graph_and_a_bounded_part_of_a_large_one():
    config = recipe("robust", batch_size=10, fan_out=5)  # three hops of a GCN of two layers

    def reached(nodes: int) -> float:
        return Sizes(np.array([nodes]), np.array([20 * nodes]), np.array([nodes])).reached(config)

    assert reached(50) == pytest.approx(50, rel=0.01)
    assert reached(10**7) == pytest.approx(10 * (1 + 5 + 25 + 125), rel=0.01)


def test_costs_of_a_large_graph_are_extrapolated(monkeypatch):
    fake_probe(monkeypatch, round=lambda n, e: 0.1 + 1e-5 * n + 1e-6 * e, device=lambda n, e: 400 + 0.01 * n)
    large = graph("a", 210_000, degree=2)
    predicted = plan([large], recipe("robust", epochs=1), "cpu", method="edgemask-dg")
    assert predicted.epoch_seconds == pytest.approx(0.1 + 2.1 + 1e-6 * large.num_edges, rel=0.05)
    assert predicted.peak_mib == pytest.approx(2500, rel=0.02)
    assert not predicted.whole
    assert "stand-ins of 2,000, 6,000, 18,000, 54,000 nodes" in predicted.basis


def test_a_plan_that_does_not_fit_suggests_settings(monkeypatch):
    fake_probe(monkeypatch, device=lambda n, e: 1e9)
    predicted = plan([graph("a", 500)], recipe("paper", knn_ratio=1.0), "cpu")
    assert not predicted.fits
    assert predicted.free_mib == pytest.approx(free_memory(), rel=0.5)
    assert any("backbone" in s for s in predicted.suggestions())
    fake_probe(monkeypatch, device=lambda n, e: 1.0)
    assert plan([graph("a", 500)], recipe("paper"), "cpu").fits


def test_the_job_is_checked_before_anything_is_measured():
    with pytest.raises(ValueError, match="no method 'magic'"):
        plan([graph("a", 500)], recipe("robust"), "cpu", method="magic")
    with pytest.raises(ValueError, match="needs validation graphs"):
        plan([graph("a", 500)], recipe("robust", select="validation"), "cpu")
    with pytest.raises(ValueError, match="backbone = 'mlp' ignores edges"):
        plan([graph("a", 500)], recipe("robust", backbone="mlp"), "cpu")


# ---- real measurements -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_probe_measures_enrichment_epochs_and_peaks():
    config = recipe("robust", **SMALL)
    measured = probe.measure("edgemask-dg-star", config, [graph("a", 600)], [], torch.device("cpu"))
    assert measured["nodes"] == [600]
    assert measured["edges"][0] > measured["original"][0]
    assert measured["round"] > 0
    assert measured["score"] > 0  # with one source, a part of its labels is scored
    assert all(peak["host"] > 50 for peak in measured["peaks"])
    assert set(measured["enrich"][0]["seconds"]) >= {"knn", "spectral"}


@pytest.mark.slow
def test_a_probe_of_batches_separates_rounds_from_their_shared_work():
    config = recipe("robust", batch_size=100, fan_out=3, **SMALL)
    measured = probe.measure("edgemask-dg-star", config, [graph("a", 600)], [], torch.device("cpu"))
    assert measured["shared"] > 0
    assert measured["round"] > 0


@pytest.mark.slow
def test_a_plan_is_close_to_the_measured_time():
    sources, config = [graph("a", 800), graph("b", 500)], recipe("robust", epochs=6, **SMALL)
    stamps: list[float] = []
    predicted = plan(sources, config, "cpu")
    Fit(Game, config, sources, on_epoch=lambda *_: stamps.append(time.perf_counter())).run()
    epoch = float(np.median(np.diff(stamps[-6:])))
    assert epoch / 4 < predicted.epoch_seconds < 4 * epoch
    assert 100 < predicted.peak_mib < 4000
    assert predicted.start_seconds > 0


def test_a_probe_that_fails_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(ValueError, match="does not run on a small part of these graphs: exit status 1"):
        planning.Probe(torch.device("cpu"), tmp_path)


def test_the_command_prints_stages_memory_and_verdict(monkeypatch, tmp_path: Path):
    fake_probe(monkeypatch, round=lambda n, e: 0.5, device=lambda n, e: 512.0, host=lambda n, e: 512.0)
    monkeypatch.setenv("COLUMNS", "200")
    paths = [str(tmp_path / f"{name}.npz") for name in "ab"]
    for name, path in zip("ab", paths, strict=True):
        write_graph(graph(name, 500), path)
    arguments = ["plan", *paths, "--method", "robust", "--set", "epochs=200", "--device", "cpu"]
    output = CliRunner().invoke(app, arguments, catch_exceptions=False).output
    for words in (
        "train, without a",
        "train, all sources",
        "1 min 40 s",
        "leave-one-source-out",
        "0.50 GiB",
        "it fits",
    ):
        assert words in output
    fake_probe(monkeypatch, device=lambda n, e: 1e9)
    output = CliRunner().invoke(app, arguments, catch_exceptions=False).output
    assert "does not fit" in output
