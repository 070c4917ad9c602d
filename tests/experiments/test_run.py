"""One run and its record, and the separation of training from the labels of the targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgemask.config import Recipe
from edgemask.data import BENCHMARKS, Benchmark, File, Store, benchmark
from edgemask.data.synthetic import demo_family
from edgemask.errors import DataError
from edgemask.experiments.record_schema import unpack
from edgemask.experiments.records import ResultStore, load_domains, missing_files
from edgemask.experiments.run import ORACLE, Run, attempt, curves, execute
from edgemask.graph import Graph
from edgemask.methods import registry
from edgemask.methods.erm import ERM
from edgemask.protocol import Protocol

CPU = torch.device("cpu")
FAMILY = demo_family(80)
DOMAINS = FAMILY | {"delta": demo_family(80, seed=1)["gamma"].replace(name="delta")}
TINY = Recipe(
    hidden=8, backbone="gcn", epochs=3, mask_projection=4, mask_hidden=4, k=3, clusters=5,
    bound="budget", alpha=(0.0, 0.5), select="auto", eval_every=1,
)  # fmt: skip
PROTOCOL = Protocol("alpha→gamma,delta", ("alpha",), ("gamma", "delta"), ("micro_f1", "macro_f1"), validation=("beta",))
RUN = Run("toy", {"nodes": 80}, PROTOCOL, "edgemask-dg-star", TINY, 0)


@pytest.fixture(scope="module")
def record():
    return execute(RUN, DOMAINS, device=CPU)


def shuffled(graph: Graph) -> Graph:
    return graph.replace(y=np.random.default_rng(0).permutation(graph.y))


# ---- the record ------------------------------------------------------------------------------------------


def test_a_record_has_everything_that_decides_the_run(record):
    assert (record["benchmark"], record["options"], record["method"], record["seed"]) == (
        "toy", {"nodes": 80}, "edgemask-dg-star", 0,
    )  # fmt: skip
    assert record["protocol"]["sources"] == ("alpha",)
    assert Recipe.from_json(record["recipe"]) == TINY
    assert record["data"] == {name: DOMAINS[name].hash for name in ("alpha", "beta", "gamma", "delta")}
    assert record["machine"]["torch"] == torch.__version__
    assert record["machine"].keys() >= {"device", "python", "numpy", "scipy", "torch_geometric", "edgemask"}


def test_a_record_holds_every_metric_of_every_target(record):
    assert list(record["metrics"]) == ["gamma", "delta"]
    assert all(list(m) == ["micro_f1", "macro_f1"] for m in record["metrics"].values())
    assert all(0 <= v <= 1 for m in record["metrics"].values() for v in m.values())
    assert record["missing"] == []


def test_a_record_names_the_selection_rule_and_its_scores(record):
    select = record["select"]
    assert select["rule"] == "validation"
    assert set(select["scores"]) == {"0", "0.5"}
    assert select["alpha"] in (0.0, 0.5)
    assert 1 <= select["epoch"] <= 3


def test_a_record_has_costs_and_curves(record):
    assert record["seconds"]["train"] > 0
    assert record["seconds"]["predict"] > 0
    assert record["peak_memory_mib"] > 10
    assert record["curves"]["epoch"] == [1, 2, 3]
    assert {"loss alpha", "mask original alpha", "select 0.5"} <= record["curves"].keys()


def test_curves_have_a_value_per_epoch_with_gaps_where_nothing_was_recorded():
    assert curves([{"loss": 0.123456789}, {"loss": 2.0, "select": 1.0}]) == {
        "loss": [0.12346, 2.0],
        "select": [None, 1.0],
    }


# ---- missing data ----------------------------------------------------------------------------------------


def toy(root: Path, absent: str) -> tuple[Benchmark, Store]:
    """Return a benchmark with one file per domain, and an offline store that has all files except one."""

    def files(name: str) -> tuple[File, ...]:
        return (File(f"{name}.bin", f"https://example.org/{name}", "sha256:" + "0" * 64),)

    def read(store: Store, domains) -> dict[str, Graph]:
        for name in domains:
            if not store.has(files(name)[0]):
                store.get(files(name)[0])
        return {name: DOMAINS[name] for name in domains}

    for name in DOMAINS:
        if name != absent:
            (root / f"{name}.bin").touch()
    benchmark = Benchmark("toy", BENCHMARKS["synthetic"].card, tuple(DOMAINS), (PROTOCOL,), files, read)
    return benchmark, Store(root, offline=True)


def test_a_target_that_is_not_in_the_store_is_missing_and_the_rest_is_scored(tmp_path: Path):
    benchmark, store = toy(tmp_path, absent="gamma")
    domains = load_domains(benchmark, PROTOCOL, store, {})
    record = execute(
        replace(RUN, method="erm-mlp", recipe=TINY.replace(mask=False, k=0, clusters=0)), domains, device=CPU
    )
    assert record["missing"] == ["gamma"]
    assert list(record["metrics"]) == ["delta"]
    assert list(record["data"]) == ["alpha", "beta", "delta"]
    assert record["protocol"]["targets"] == ("gamma", "delta")


@pytest.mark.parametrize("absent", ["alpha", "beta"])
def test_a_source_or_validation_domain_that_is_not_in_the_store_is_an_error(tmp_path: Path, absent):
    benchmark, store = toy(tmp_path, absent=absent)
    with pytest.raises(DataError, match=f"{absent}.bin is missing"):
        load_domains(benchmark, PROTOCOL, store, {})


def test_a_run_without_any_target_is_an_error():
    with pytest.raises(
        DataError, match="protocol 'alpha→gamma,delta': there is no data for any target \\(gamma, delta\\)"
    ):
        execute(RUN, {name: DOMAINS[name] for name in ("alpha", "beta")}, device=CPU)


# ---- labels of the targets -------------------------------------------------------------------------------


def test_a_method_never_sees_the_labels_of_a_target(monkeypatch):
    has_labels: dict[str, list[bool]] = {}

    class Spy(ERM):
        def update(self, sources, epoch):
            for source in sources:
                has_labels.setdefault(source.domain.name, []).append(source.domain.y is not None)
            return super().update(sources, epoch)

        def logits(self, domain, edges, s=None):
            held = domain.y is not None or domain.graph.y is not None or len(domain.labelled) > 0
            has_labels.setdefault(domain.name, []).append(held)
            return super().logits(domain, edges, s)

    monkeypatch.setitem(registry.METHODS, "spy", registry.MethodSpec(Spy, TINY, "spy", "none"))
    execute(replace(RUN, method="spy"), DOMAINS, device=CPU)
    assert {name: set(seen) for name, seen in has_labels.items()} == {
        "alpha": {True}, "beta": {True}, "gamma": {False}, "delta": {False},
    }  # fmt: skip


def test_other_target_labels_change_the_metrics_and_nothing_else(record):
    other = execute(RUN, DOMAINS | {t: shuffled(DOMAINS[t]) for t in PROTOCOL.targets}, device=CPU)
    assert other["metrics"] != record["metrics"]
    for part in ("select", "curves", "recipe"):
        assert other[part] == record[part]


def test_selection_uses_the_first_metric(record):
    swapped = replace(PROTOCOL, metrics=("macro_f1", "micro_f1"))
    other = execute(replace(RUN, protocol=swapped), DOMAINS, device=CPU)
    assert other["select"]["scores"] != record["select"]["scores"]


def test_thresholded_metrics_get_the_sigmoid_of_each_label():
    """The other metrics of the same weights are those of a run without thresholded metrics."""
    metrics = ("label_micro_f1", "label_macro_f1", "micro_f1")
    protocol = replace(PROTOCOL, metrics=metrics)
    recipe = TINY.replace(loss="binary", mask=False, k=0, clusters=0, select="validation", alpha=(0.0,))
    run = replace(RUN, method="erm-gcn", protocol=protocol, recipe=recipe, also=("oracle",))
    trained = execute(run, DOMAINS, device=CPU)
    plain = execute(replace(run, protocol=replace(protocol, metrics=("micro_f1",))), DOMAINS, device=CPU)
    last = [r["rules"]["last"]["metrics"]["gamma"] for r in (trained, plain)]
    assert last[0]["micro_f1"] == last[1]["micro_f1"]
    assert 0 < last[0]["label_micro_f1"] != last[0]["micro_f1"]
    assert trained["curves"]["select 0"] != plain["curves"]["select 0"]
    assert trained["rules"][ORACLE]["metrics"]["gamma"].keys() == set(metrics)


def test_a_protocol_whose_sources_are_missing_is_reported_not_run(tmp_path: Path):
    store = Store(tmp_path, offline=True)
    bench = benchmark("facebook100")
    protocol = bench.protocol("triple1→available")
    lacking = missing_files(bench, protocol, store)
    assert "facebook100/Caltech36.mat" in lacking
    assert "facebook100/Brown11.mat" in lacking  # no target is there either


def test_a_record_has_the_metrics_of_every_selection_rule(record):
    rule, last = record["rules"]["validation"], record["rules"]["last"]
    assert rule == {k: record["select"][k] for k in ("epoch", "alpha")} | {"metrics": record["metrics"]}
    assert (last["epoch"], last["alpha"]) == (TINY.epochs, record["select"]["alpha"])
    plain = replace(RUN, recipe=TINY.replace(select="last", alpha=(last["alpha"],)))
    assert execute(plain, DOMAINS, device=CPU)["metrics"] == last["metrics"]


def test_the_oracle_is_shown_beside_the_rule_and_changes_nothing():
    plain = execute(RUN, DOMAINS, device=CPU)
    asked = execute(replace(RUN, also=("oracle",)), DOMAINS, device=CPU)
    for part in ("metrics", "select", "curves"):
        assert asked[part] == plain[part]
    assert ORACLE not in plain["rules"]
    metric, oracle = PROTOCOL.metrics[0], asked["rules"][ORACLE]

    def headline(metrics):
        return np.mean([m[metric] for m in metrics.values()])

    assert headline(oracle["metrics"]) >= headline(asked["metrics"])
    assert oracle["alpha"] in RUN.recipe.alpha
    assert oracle["curve"]["epoch"] == [1, 2, 3]
    assert oracle["curve"][metric][-1] == pytest.approx(headline(asked["rules"]["last"]["metrics"]), rel=1e-4)


def test_a_game_records_the_pruned_share_by_origin(record):
    shares = record["mask"]["alpha"]
    assert list(record["mask"]) == ["alpha"]
    assert shares["original"]["edges"] == DOMAINS["alpha"].num_edges
    assert shares["augmented"]["edges"] == shares["knn"]["edges"] + shares["spectral"]["edges"]
    for share in shares.values():
        assert 0 <= share["pruned"] <= 1
    everything = [shares["original"], shares["augmented"]]
    mean = sum(g["edges"] * g["mean"] for g in everything) / sum(g["edges"] for g in everything)
    assert mean == pytest.approx(TINY.rho, abs=1e-4)  # the budget holds


def test_theory_and_explorer_are_recorded_on_request():
    asked = execute(replace(RUN, also=("explorer", "theory")), DOMAINS, device=CPU)
    assert asked["theory"]["graph"] == "alpha"
    view = asked["explorer"]["gamma"]
    assert list(asked["explorer"]) == ["gamma", "delta"]
    assert unpack(view["true"], np.int16).tolist() == DOMAINS["gamma"].first_labels.tolist()
    src, dst, origin = (unpack(view[k], d) for k, d in (("src", np.uint32), ("dst", np.uint32), ("origin", np.uint8)))
    held = set(zip(src[origin == 0].tolist(), dst[origin == 0].tolist(), strict=True))
    assert held == set(map(tuple, DOMAINS["gamma"].edges.T.tolist()))
    assert len(unpack(view["mask"], np.uint8)) == len(src)
    predicted = unpack(view["after"], np.int16)
    right = np.mean(predicted == DOMAINS["gamma"].first_labels)
    assert right == pytest.approx(asked["metrics"]["gamma"]["micro_f1"])
    assert not np.array_equal(unpack(view["before"], np.int16), predicted)


def test_an_unknown_or_impossible_extra_is_an_error():
    with pytest.raises(ValueError, match=r"no extra 'horoscope' \(extras: oracle, theory, explorer\)"):
        replace(RUN, also=("horoscope",))
    plain = replace(RUN, recipe=TINY.replace(mask=False), also=("theory",))
    with pytest.raises(ValueError, match="theory: Game has no MaskNet under this recipe"):
        execute(plain, DOMAINS, device=CPU)


def test_a_run_that_diverges_has_a_record_that_says_so(tmp_path: Path, monkeypatch):
    class Diverging(ERM):
        def update(self, sources, epoch):
            return {"loss alpha": float("nan")}

    broken = replace(registry.METHODS["erm-gcn"], make=Diverging)
    monkeypatch.setitem(registry.METHODS, "erm-gcn", broken)
    run = Run("toy", {}, PROTOCOL, "erm-gcn", Recipe(mask=False, backbone="gcn", epochs=3), 0)
    record = attempt(run, DOMAINS, device=CPU)
    assert record["failed"] == {
        "kind": "DivergenceError",
        "message": "epoch 1: the loss alpha is nan; lower lr, now 0.001",
    }
    assert record["metrics"] == {}
    ResultStore(tmp_path).add(run, record)
    assert ResultStore(tmp_path).find(run)["failed"]["kind"] == "DivergenceError"


def test_any_other_error_makes_no_record(monkeypatch):
    class Broken(ERM):
        def update(self, sources, epoch):
            raise KeyError("a mistake")

    monkeypatch.setitem(registry.METHODS, "erm-gcn", replace(registry.METHODS["erm-gcn"], make=Broken))
    with pytest.raises(KeyError, match="a mistake"):
        attempt(Run("toy", {}, PROTOCOL, "erm-gcn", Recipe(mask=False, backbone="gcn"), 0), DOMAINS, device=CPU)
