"""`plan` for a race: its arithmetic on artificial measurements, the memory of candidates, and one real prediction."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from edgemask.cli import app
from edgemask.data import benchmark, read_graph, write_graph
from edgemask.data.synthetic import Family, Wiring, domain
from edgemask.errors import GraphError, InputError
from edgemask.experiments import needs
from edgemask.experiments import plan as planning
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.plan import probe
from edgemask.experiments.plan import race as race_planning
from edgemask.experiments.plan.race import fitting, plan_race, shortened
from edgemask.experiments.plan.standins import write_level
from edgemask.experiments.runner import Settings
from edgemask.graph import Graph
from edgemask.training import race as racing
from edgemask.training.candidates import AUTO_RECIPE, DEFAULTS, Candidate, choose_candidates
from edgemask.training.race import Race

NAMES = ("erm-mlp", "erm-gcn-enriched", "edgemask-dg:backbone=mix:rho=0.9", "edgemask-dg:backbone=mix:rho=0.5")
EPOCH = {"mlp": 1.0, "gcn": 2.0, "mix": 4.0}  # seconds of an epoch on all sources, by backbone
PEAK = {"mlp": 1000.0, "gcn": 2000.0, "mix": 4000.0}  # MiB


def graph(name: str, nodes: int = 500) -> Graph:
    return domain(Family(nodes=nodes, features=16, classes=4), Wiring(degree=6), name)


A, B, V = graph("a"), graph("b"), graph("v")


def chosen(*names: str, **settings) -> list[Candidate]:
    return choose_candidates(names or NAMES, [A, B], **{"epochs": 100, "hidden": 8} | settings)


@pytest.fixture
def levels(monkeypatch) -> list[dict]:
    """Replace measurements by constants for each backbone, and return the levels that were measured."""
    found: list[dict] = []

    class Fake:
        seconds = 4.0
        started = 0

        def __init__(self, *_):
            Fake.started += 1
            assert Fake.started == 1, "one process measures all candidates"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            Fake.started -= 1

        def measure(self, level):
            found.append(level)
            graphs = [read_graph(path) for path in level["sources"]]
            nodes, edges = [g.num_nodes for g in graphs], [g.num_edges for g in graphs]
            backbone = level["recipe"]["backbone"]
            if backbone == "gat":
                return {"failed": "no attention today"}
            peak = {"host": PEAK[backbone], "device": PEAK[backbone]}
            return {
                "nodes": nodes, "train": nodes, "original": edges, "edges": edges, "knn_pairs": [0] * len(graphs),
                "spectral_pairs": [0] * len(graphs), "enrich": [{"nodes": n, "seconds": {"knn": 3.0}} for n in nodes],
                "peaks": [peak, peak], "build": 0.5, "heat": 0.25, "score": 10.0, "shared": 0.0,
                "round": EPOCH[backbone], "first": EPOCH[backbone],
            }  # fmt: skip

    monkeypatch.setattr(planning, "Probe", Fake)
    monkeypatch.setattr(planning, "free_memory", lambda: 8000.0)
    return found


# ---- time --------------------------------------------------------------------------------------------------


def test_every_candidate_has_a_row_and_equal_ones_are_measured_once(levels):
    planned = plan_race([A, B], chosen(), "cpu")
    assert [c.name for c in planned.candidates] == list(NAMES)
    assert planned.rule == "auto, leave-one-source-out"
    measured = [(level["method"], level["recipe"]["backbone"]) for level in levels]
    groups = [("erm-mlp", "mlp"), ("erm-gcn-enriched", "gcn"), ("edgemask-dg", "mix")]
    assert measured == 2 * groups  # the warm-up, and the graphs themselves
    assert planned.candidates[2].first_seconds == planned.candidates[3].first_seconds
    assert [c.recipe.rho for c in planned.candidates[2:]] == [0.9, 0.5]
    assert planned.whole
    assert {level["recipe"]["eval_every"] for level in levels} == {1}


def test_the_default_candidates_are_thirteen_groups(levels, monkeypatch):
    names = ("mix", "sage", "gpr", "egc")
    for table in (EPOCH, PEAK):
        for name in names:
            monkeypatch.setitem(table, name, 1.0)
    planned = plan_race([A, B], choose_candidates(None, [A, B]), "cpu")
    assert [c.name for c in planned.candidates] == list(DEFAULTS)
    assert len(levels) == 2 * 13


@pytest.mark.parametrize(
    ("more", "groups"),
    [
        (("erm-mlp:lr=0.01", "erm-mlp:weight_decay=0.1", "erm-mlp:epochs=7", "erm-mlp:loss=binary"), 1),
        (("erm-mlp:hidden=16",), 2),
        (("erm-mlp:batch_size=50",), 2),
        (("erm-mlp:alpha=0",), 2),
    ],
)
def test_settings_that_do_not_change_the_cost_share_a_measurement(levels, more, groups):
    plan_race([A, B], chosen("erm-mlp", *more), "cpu")
    assert len(levels) == 2 * groups


def test_rounds_evaluations_and_the_final_training_are_counted(levels):
    row = plan_race([A, B], chosen("erm-mlp"), "cpu").candidates[0]
    # Each of two sources is trained on once per epoch; every 10 epochs both are scored.
    assert row.epoch_seconds == pytest.approx(1.0)
    assert row.first_seconds == pytest.approx(0.5 + 0.25 + 10 * 1.0 + 1 * 10)
    assert row.rounds_seconds == pytest.approx(0.5 + 3 * 0.25 + 100 * 1.0 + 10 * 10)
    assert row.final_seconds == pytest.approx(0.25 + 100 * 1.0)


def test_three_sources_are_trained_on_twice_per_epoch(levels):
    row = plan_race([A, B, V], chosen("erm-mlp"), "cpu").candidates[0]
    assert row.epoch_seconds == pytest.approx(2.0)
    assert row.final_epoch_seconds == pytest.approx(1.0)


def test_a_first_round_lasts_until_an_evaluation(levels):
    row = plan_race([A, B], chosen("erm-mlp", epochs=25), "cpu").candidates[0]
    assert row.first_seconds == pytest.approx(0.75 + 10 * 1.0 + 10)  # 3 epochs, rounded up to 10
    assert row.rounds_seconds == pytest.approx(1.25 + 25 * 1.0 + 3 * 10)


def test_there_is_no_final_training_if_the_scored_training_uses_all_sources(levels):
    for sources, validation, rule in (([A, B], [V], "validation"), ([A], [], "source-val")):
        planned = plan_race(sources, chosen("erm-mlp"), "cpu", validation=validation)
        assert planned.rule == f"auto, {rule}"
        assert planned.candidates[0].epoch_seconds == pytest.approx(1.0)
        assert planned.candidates[0].final_seconds == 0.0


def test_totals_are_the_sums_of_the_rows(levels):
    planned = plan_race([A, B], chosen(), "cpu", max_members=2)
    rows, once = planned.candidates, planned.start_seconds + planned.enrich_seconds
    assert planned.enrich_seconds == pytest.approx(2 * 3.0)  # both sources, once for all candidates
    assert planned.least_seconds == pytest.approx(once + sum(c.first_seconds for c in rows))
    finals = 2 * max(c.final_seconds for c in rows)
    assert planned.most_seconds == pytest.approx(once + sum(c.rounds_seconds for c in rows) + finals)
    assert planned.peak_mib == pytest.approx(4000 + 4 * 1000 * 4 * 4 / 2**20)


def test_candidates_with_other_neighbours_are_enriched_apart(levels):
    planned = plan_race([A, B], chosen("erm-gcn-enriched", "erm-gcn-enriched:k=5"), "cpu")
    assert planned.enrich_seconds == pytest.approx(2 * 2 * 3.0)


# ---- failures ----------------------------------------------------------------------------------------------


def test_a_candidate_that_fails_says_why_and_the_others_are_planned(levels):
    planned = plan_race([A, B], chosen("erm-gat", "erm-mlp", "edgemask-dg:backbone=mlp"), "cpu")
    reasons = [c.failed for c in planned.candidates]
    assert reasons[0] == "it does not run on a small part of these graphs: no attention today"
    assert reasons[1] == ""
    assert "ignores edges" in reasons[2]
    assert planned.least_seconds == pytest.approx(4 + planned.candidates[1].first_seconds)
    names, notes = fitting(planned)
    assert names == ["erm-mlp"]
    assert notes[0] == f"erm-gat is left out: {reasons[0]}"


def test_if_every_candidate_fails_each_is_named(levels):
    with pytest.raises(InputError, match=r"every candidate fails: erm-gat: .*no attention today; edgemask-dg:backbone"):
        plan_race([A, B], chosen("erm-gat", "edgemask-dg:backbone=mlp"), "cpu")
    with pytest.raises(InputError, match="every candidate fails: erm-mlp: patience needs a rule"):
        plan_race([A, B], chosen("erm-mlp", patience=3), "cpu")


def test_parameters_are_checked_as_in_a_race(levels):
    with pytest.raises(InputError, match="at least one candidate"):
        plan_race([A, B], [], "cpu")
    with pytest.raises(InputError, match="budget must be a positive number"):
        plan_race([A, B], chosen(), "cpu", budget=0)
    with pytest.raises(InputError, match="max_members must be at least 1"):
        plan_race([A, B], chosen(), "cpu", max_members=0)
    with pytest.raises(GraphError, match="no source graphs"):
        plan_race([], chosen(), "cpu")
    assert not levels


# ---- budget ------------------------------------------------------------------------------------------------


def test_a_budget_leaves_out_candidates_whose_first_score_takes_too_long(levels):
    def left_out(budget: float | None) -> list[str]:
        return list(plan_race([A, B], chosen(), "cpu", budget=budget).beyond_budget())

    # Three tenths of the budget are for the first round. The steps to the first score take 10, 20, 40 and 40 s, and the
    # first two candidates use 21 and 37 s. A candidate that is left out leaves its time to those after it. Its first
    # score may use an equal share or half of the time that is left; the very first score half of the budget.
    assert left_out(None) == left_out(500) == []  # the third may use (150 - 58) / 2 s
    assert left_out(400) == [NAMES[2]]  # the third may use (120 - 57) / 2 s, and the fourth 58 s
    assert left_out(250) == [NAMES[2], NAMES[3]]  # the second may use (75 - 21) / 2 s
    assert left_out(20) == list(NAMES[1:])  # the first may use 20 / 2 s
    assert left_out(15) == list(NAMES)


def test_enrichment_is_not_started_if_the_budget_does_not_allow_it(levels, monkeypatch):
    monkeypatch.setattr(race_planning, "ENRICHING_SECONDS", 1.0)  # 1000 s for these graphs
    planned = plan_race([A, B], chosen(), "cpu", budget=1000)
    assert planned.beyond_budget() == {"erm-gcn-enriched": pytest.approx(6 + 20)}


# ---- memory ------------------------------------------------------------------------------------------------


def test_candidates_that_do_not_fit_into_memory_are_left_out(levels, monkeypatch):
    monkeypatch.setattr(race_planning, "LARGE", 1000)
    kept, notes = shortened(chosen(), [A, B], [], "cpu", None)
    assert [c.name for c in kept] == list(NAMES)
    assert notes == []
    monkeypatch.setattr(planning, "free_memory", lambda: 3000.0)
    kept, notes = shortened(chosen(), [A, B], [], "cpu", None)
    assert [c.name for c in kept] == list(NAMES[:2])
    assert notes == [f"{n} is left out: it needs about 3.9 GiB of memory, and 2.9 GiB are free" for n in NAMES[2:]]
    monkeypatch.setattr(planning, "free_memory", lambda: 500.0)
    with pytest.raises(
        InputError, match=r"the smallest one, erm-mlp, needs about 1\.0 GiB of memory, and 0\.5 GiB are"
    ):
        shortened(chosen(), [A, B], [], "cpu", None)


@pytest.mark.parametrize(("free", "budget", "waited"), [(8000, None, 1), (3000, None, 2), (3000, 1800, 2)])
def test_larger_stand_ins_are_measured_if_not_all_candidates_seem_to_fit(levels, monkeypatch, free, budget, waited):
    patience = []

    def planned(*arguments, **options):
        patience.append(options["patience"])
        return race_planning.replace(plan_race(*arguments, **options), whole=False, host_free_mib=float(free))

    monkeypatch.setattr(race_planning, "LARGE", 1000)
    monkeypatch.setattr(race_planning, "plan_race", planned)
    kept, _ = shortened(chosen(), [A, B], [], "cpu", budget)
    assert len(kept) == (4 if free == 8000 else 2)
    assert patience == [40.0, 150.0][:waited]


def test_small_graphs_are_not_measured(levels, monkeypatch):
    monkeypatch.setattr(planning, "free_memory", lambda: 1.0)
    candidates = chosen()
    assert shortened(candidates, [A, B], [V], "cpu", 60.0) == (candidates, [])
    assert not levels


def test_a_gpu_and_its_host_have_memory_of_their_own(levels):
    planned = plan_race([A, B], chosen("erm-mlp", "erm-gcn"), "cpu")
    on_gpu = race_planning.replace(planned, device=torch.device("cuda"), free_mib=1500.0)
    names, notes = fitting(on_gpu)
    assert names == ["erm-mlp"]
    assert notes == ["erm-gcn is left out: it needs about 2.0 GiB of GPU memory, and 1.5 GiB are free"]
    assert on_gpu.peak_mib == pytest.approx(2000)
    assert on_gpu.host_mib > 2000
    names, notes = fitting(race_planning.replace(on_gpu, free_mib=1e6, host_free_mib=1500.0))
    assert names == ["erm-mlp"]
    assert notes == ["erm-gcn is left out: it needs about 2.0 GiB of memory, and 1.5 GiB are free"]


def test_the_need_of_a_recorded_race_is_its_longest_time(levels):
    protocol = benchmark("synthetic").protocol("alpha+beta→gamma")
    task = AutoRun("synthetic", {"nodes": 80}, protocol, 0, AUTO_RECIPE.replace(epochs=20), ("erm-mlp",))
    need = needs.need(task, Settings(device="cpu"))
    assert need.gpus == 0.0
    assert need.memory_mib == pytest.approx(needs.MARGIN * 1000, rel=0.01)
    assert need.seconds == pytest.approx(4 + 0.5 + 3 * 0.25 + 20 + 2 * 10 + 0.25 + 20)


# ---- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path: Path, monkeypatch):
    """Run `edgemask plan` on two graphs."""
    monkeypatch.setenv("COLUMNS", "200")
    paths = [str(tmp_path / f"{g.name}.npz") for g in (A, B)]
    for g, path in zip((A, B), paths, strict=True):
        write_graph(g, path)

    def run(*options: str) -> str:
        arguments = ["plan", *paths, "--device", "cpu", *options]
        return CliRunner().invoke(app, arguments, catch_exceptions=False).output

    return run


def test_the_command_prints_a_row_per_candidate_and_the_totals(levels, command):
    output = command("--candidates", ",".join(NAMES), "--set", "epochs=100", "--max-members", "2")
    rows = {line.split()[1]: line for line in output.splitlines() if line.startswith("│")}
    assert list(rows) == list(NAMES)
    assert [cell.strip() for cell in rows["erm-mlp"].split("│")[2:-1]] == [
        "20.8 s", "3 min 21 s", "1 min 40 s", "0.98 GiB", "yes",
    ]  # fmt: skip
    for words in (
        "enrichment 6.0 s, once for all candidates",
        # 4 + 6 + 20.75 + 30.75 + 2 · 50.75, and 4 + 6 + 201.25 + 301.25 + 2 · 501.25 + 2 · 400.25 seconds
        "total between 2 min 43 s (only the first round of all candidates) and 38 min 35 s (all rounds of all "
        "candidates and the final training of 2 members)",
        "peak memory 3.91 GiB of 7.8 GiB free (cpu",
        "selection rule: auto, leave-one-source-out",
        "estimate: measured on these graphs",
    ):
        assert words in output
    assert "budget" not in output
    assert "note" not in output


def test_the_command_says_what_a_budget_and_the_memory_leave_out(levels, command, monkeypatch):
    options = ("--candidates", ",".join(NAMES), "--set", "epochs=100", "--budget")
    output = command(*options, "250")
    assert f"the budget of 4 min 10 s leaves out {NAMES[2]}: its first score would take about 40.0 s" in output
    assert "the budget may end the race before all candidates have trained for all epochs" in output
    assert "leaves out no candidate" in command(*options, "2h")
    assert "the budget of 15.0 s is too small for any candidate" in command(*options, "15s")
    monkeypatch.setattr(planning, "free_memory", lambda: 3000.0)
    output = command(*options, "2h")
    assert f"note: {NAMES[2]} is left out: it needs about 3.9 GiB of memory, and 2.9 GiB are free" in output


def test_a_failed_candidate_and_a_fit_without_final_training_are_shown(levels, command, tmp_path: Path):
    write_graph(V, tmp_path / "v.npz")
    output = command("--candidates", "erm-mlp,erm-gat", "--validation", str(tmp_path / "v.npz"))
    assert "with no final training" in output
    assert "note: erm-gat is left out: it does not run on a small part of these graphs: no attention today" in output


def test_the_command_accepts_recipes_and_methods(levels, command):
    for method in ("robust", "erm-mlp"):
        assert "train, all sources" in command("--method", method, "--set", "epochs=3")
    assert [level["method"] for level in levels] == ["edgemask-dg-star"] * 2 + ["erm-mlp"] * 2
    assert all(level["shared"] is None for level in levels)
    assert levels[0]["recipe"]["bound"] == "budget"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--candidates", "magic"), "candidate 'magic': no method 'magic'"),
        (("--candidates=-magic",), "no default candidate 'magic'"),
        (("--method", "magic"), "no method 'magic'"),
        (("--method", "erm-gcn", "--candidates", "erm-mlp"), "--candidates needs method 'auto', got method 'erm-gcn'"),
        (("--method", "paper", "--budget", "5m"), "--budget needs method 'auto', got method 'paper'"),
        (("--recipe", "paper"), "--recipe needs a single method, got method 'auto'"),
        (("--set", "budget=5"), "no setting 'budget': use the option --budget"),
        (("--set", "backbone=gcn", "--candidates", "erm-mlp"), "backbone defines the candidates"),
        (("--budget", "soon"), "budget must be a time such as 90s, 10m or 2h, or a positive number of seconds"),
    ],
)
def test_bad_options_are_refused_before_anything_is_measured(levels, command, options, message):
    with pytest.raises(InputError, match=message):
        command(*options)
    assert not levels


# ---- real measurements -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_probe_trains_a_candidate_as_a_race_does(tmp_path: Path):
    shared: dict[str, probe.Level] = {}
    (enriched, plain), cpu = chosen("erm-gcn-enriched", "erm-gcn"), torch.device("cpu")

    def measured(candidate: Candidate, validation: list[Graph]) -> dict:
        method = candidate.name.partition(":")[0]
        level = write_level(1000, [A, B], validation, method, candidate.recipe, tmp_path, race=True)
        return probe.answer(level, cpu, shared)

    first, again = measured(enriched, []), measured(enriched, [])
    assert first["enrich"] == again["enrich"]  # enriched once for all candidates
    assert len(first["enrich"]) == 2
    assert len(shared) == 1
    assert all(first[name] > 0 for name in ("build", "heat", "score", "round", "first"))
    assert first["nodes"] == [500, 500]
    assert first["edges"][0] > first["original"][0]
    other = measured(plain, [])
    assert other["enrich"] == []
    assert other["edges"] == other["original"]


@pytest.mark.slow
def test_a_level_that_fails_does_not_end_the_process(tmp_path: Path):
    (candidate,) = chosen("erm-mlp")
    level = write_level(1000, [A, B], [], "erm-mlp", candidate.recipe, tmp_path, race=True)
    with planning.Probe(torch.device("cpu"), tmp_path) as process:
        assert process.measure(level | {"method": "magic"})["failed"].startswith("no method 'magic'")
        assert process.measure(level | {"sources": []})["failed"]
        assert process.measure(level)["round"] > 0


@pytest.mark.slow
def test_a_plan_is_close_to_the_time_of_the_race(monkeypatch):
    """Other work on the machine can slow down the plan or the race, so one of three attempts has to be close."""
    monkeypatch.setattr(racing, "BEHIND", np.inf)  # no candidate is stopped, and all are members
    monkeypatch.setattr(racing, "TIE_LEAST", 1.0)
    monkeypatch.setattr(racing, "TIE_MOST", 1.0)
    candidates = chosen("erm-mlp", "erm-gcn", "edgemask-dg:backbone=sage", epochs=60)
    Race(chosen("erm-mlp", "erm-gcn", "edgemask-dg:backbone=sage", epochs=2), [A, B]).run()  # loads and compiles
    ratios = list[float]()
    while len(ratios) < 3 and not any(1 / 3 < ratio < 3 for ratio in ratios):
        planned = plan_race([A, B], candidates, "cpu")
        start = time.perf_counter()
        Race(candidates, [A, B]).run()
        ratios.append((planned.most_seconds - planned.start_seconds) / (time.perf_counter() - start))
    assert any(1 / 3 < ratio < 3 for ratio in ratios), ratios
    assert 100 < planned.peak_mib < 4000
