"""Every command on small data, and the errors that users can make."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from edgemask import EdgeMaskClassifier, __version__
from edgemask.cli import app, main
from edgemask.config import parse_settings
from edgemask.data import BENCHMARKS, Store, write_graph
from edgemask.data.synthetic import demo_family
from edgemask.errors import DataError
from edgemask.methods.registry import METHODS
from edgemask.metrics import micro_f1

TINY = ("epochs=3", "clusters=5", "k=3", "hidden=8", "mask_projection=8", "mask_hidden=8", "alpha=0,0.5")
SETS = [part for setting in TINY for part in ("--set", setting)]
ROBUST = ["--method", "robust", *SETS]
A, B, C = demo_family(80).values()


@pytest.fixture(autouse=True)
def _private(tmp_path: Path, monkeypatch):
    """Keep the tests away from the user's data and cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EDGEMASK_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")


def call(*arguments: object, status: int = 0):
    """Run a command in this process. Its exceptions are raised here."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def complaint(monkeypatch, capsys, *arguments: object) -> str:
    """Return the one line that `main` prints to stderr when a call fails."""
    monkeypatch.setattr(sys, "argv", ["edgemask", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


# ---- data, methods, version ------------------------------------------------------------------------------


def test_version():
    assert call("version").stdout.strip() == __version__


def test_methods_are_listed():
    text = call("methods").stdout
    assert all(name in text for name in METHODS)


def test_benchmarks_are_listed_with_available_domains_and_missing_files(tmp_path: Path):
    lines = call("data", "list").stdout.splitlines()
    (citation,) = (line for line in lines if "citation" in line and "ACMv9" in line)
    assert "0 of 3" in citation
    assert "citation/acmv9.mat" in citation
    (synthetic,) = (line for line in lines if "│ synthetic" in line)
    assert "3 of 3" in synthetic


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_card_of_a_benchmark_names_protocols_options_files_and_missing_data(name):
    text = " ".join(call("data", "info", name).stdout.split())
    bench = BENCHMARKS[name]
    assert all(protocol.name.split(",")[0] in text for protocol in bench.protocols)
    assert all(f"option {option} = " in text for option in bench.options)
    assert all(file.path in text for domain in bench.domains for file in bench.files(domain))
    assert ("data not available" in text) == (name != "synthetic")


def test_verify_lists_missing_files_and_does_not_fail_on_them(tmp_path: Path):
    text = call("data", "verify", "citation").stdout
    assert [line.split() for line in text.splitlines()] == [
        ["missing", f"citation/{name}.mat"] for name in ("acmv9", "citationv1", "dblpv7")
    ]


def test_verify_reports_the_expected_and_actual_checksum_of_an_altered_file(tmp_path: Path):
    path = tmp_path / "data" / "citation" / "acmv9.mat"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"other bytes")
    text = call("data", "verify", "citation", status=1).stdout
    file = next(f for f in BENCHMARKS["citation"].files("acmv9"))
    assert "altered  citation/acmv9.mat" in text
    assert f"expected {file.checksum}" in text
    kind = file.checksum.partition(":")[0]
    assert f"got {kind}:" in text
    assert path.read_bytes() == b"other bytes"


def test_an_offline_fetch_names_file_url_and_destination(tmp_path: Path):
    result = call("data", "fetch", "citation", "--offline", "--data-root", tmp_path / "[root]", status=1)
    for domain in BENCHMARKS["citation"].domains:
        (file,) = BENCHMARKS["citation"].files(domain)
        assert f"{file.path} is missing and the store is offline" in result.stderr
        assert f"download {file.url} to {tmp_path / '[root]' / file.path}" in result.stderr


def test_a_fetch_reports_files_that_are_present(data_root: Path):
    text = call("data", "fetch", "citation", "--offline", "--data-root", data_root).stdout
    assert text.count("present") == 3


# ---- bench -----------------------------------------------------------------------------------------------


BENCH = ("bench", "synthetic", "--option", "nodes=80", "--protocol", "alpha+beta→gamma", *SETS, "--device", "cpu")


@pytest.mark.slow
def test_a_benchmark_without_data_reports_the_missing_files(tmp_path: Path):
    result = call("bench", "elliptic", "--method", "erm-mlp", "--data-root", tmp_path, "--offline", status=1)
    assert "data not available" in result.stdout
    assert "elliptic/elliptic_txs_features.csv" in result.stdout
    assert "edgemask data fetch elliptic" in result.stdout


@pytest.mark.slow
def test_a_failed_download_is_reported_and_the_table_is_still_printed(tmp_path: Path, monkeypatch):
    def out_of_reach(self, file):
        raise DataError(f"{file.path}: the origin does not answer")

    monkeypatch.setattr(Store, "fetch", out_of_reach)
    result = call("bench", "elliptic", "--method", "erm-mlp", "--data-root", tmp_path, status=1)
    assert "elliptic/elliptic_txs_features.csv: the origin does not answer" in result.stderr
    assert "data not available" in result.stdout


@pytest.mark.slow
def test_a_benchmark_run_prints_its_table_and_keeps_a_record_per_seed(tmp_path: Path):
    result = call(*BENCH, "--method", "edgemask-dg-star", "--seeds", 2)
    assert "edgemask-dg-star epochs=3" in result.stdout
    assert "over 2 seeds" in result.stdout
    assert "leave-one-source-out" in result.stdout
    assert "2 of 2 recorded" in result.stderr
    records = [json.loads(p.read_text("utf-8")) for p in (tmp_path / "results").rglob("*.json")]
    assert sorted(r["seed"] for r in records) == [0, 1]
    assert all(r["options"]["nodes"] == 80 and r["recipe"]["epochs"] == 3 for r in records)


@pytest.mark.slow
def test_a_second_call_reuses_the_records_and_a_larger_one_adds_to_them(tmp_path: Path, monkeypatch):
    few = ("--method", "erm-mlp", "--set", "select=source-val", "--results", "kept")
    first = call(*BENCH, *few, "--seeds", 1)
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in (tmp_path / "kept").rglob("*.json")}
    assert len(before) == 1
    with monkeypatch.context() as patch:
        patch.setattr("edgemask.experiments.local.Local.run", lambda *_, **__: pytest.fail("it was run again"))
        assert call(*BENCH, *few, "--seeds", 1).stdout == first.stdout
    call(*BENCH, *few, "--seeds", 2)
    after = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in (tmp_path / "kept").rglob("*.json")}
    assert len(after) == 2
    assert before.items() <= after.items()


@pytest.mark.slow
def test_a_stock_recipe_may_replace_a_methods_own(tmp_path: Path):
    small = [*SETS[:-2], "--set", "alpha=0"]
    text = call(
        "bench", "synthetic", "--option", "nodes=80", "--protocol", "alpha+beta→gamma", "--seeds", 1,
        "--method", "edgemask-dg-star", "--recipe", "paper", *small, "--set", "heads=2",
    ).stdout  # fmt: skip
    assert "edgemask-dg-star (paper)" in text
    assert "last" in text


def test_bad_names_are_found_before_any_data_is_loaded(monkeypatch, capsys):
    monkeypatch.setattr("edgemask.experiments.records.load_domains", lambda *_: pytest.fail("data was loaded"))
    for extra in ([], ["--recipe", "robust"]):
        message = complaint(monkeypatch, capsys, "bench", "synthetic", "--method", "magic", *extra)
        assert message.startswith("error: no method 'magic' (methods: erm-mlp,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "cake", "--method", "erm-mlp"], "no benchmark 'cake' (benchmarks: citation,"),
        (["bench", "synthetic", "--method", "erm-mlp", "--recipe", "cake"], "no recipe 'cake' (recipes: paper,"),
        (["bench", "synthetic", "--method", "erm-mlp", "--set", "epoch=3"], "no setting 'epoch' (settings: k,"),
        (["bench", "synthetic", "--method", "erm-mlp", "--set", "epochs=0"], "epochs must be an integer in [1, inf)"),
        (["bench", "synthetic", "--method", "erm-mlp", "--set", "gate=[red]"], "got '[red]'"),
        (["bench", "synthetic", "--method", "erm-mlp", "--set", "gate=[/red]"], "got '[/red]'"),
        (["bench", "synthetic", "--method", "erm-mlp", "--set", "epochs"], "expected NAME=VALUE, got 'epochs'"),
        (["bench", "synthetic", "--method", "erm-mlp", "--option", "node=3"], "synthetic: no option 'node'"),
        (["bench", "synthetic", "--method", "erm-mlp", "--protocol", "a→b"], "synthetic: no protocol 'a→b'"),
        (["data", "info", "cake"], "no benchmark 'cake'"),
        (["fit", "nowhere.npz", "--model", "m"], "nowhere.npz"),
        (["fit", "graph.txt", "--model", "m"], "graph.txt: no such file or folder"),
        (["predict", "nowhere", "graph.npz"], "nowhere: no such file"),
        (["bench", "synthtic"], "; did you mean 'synthetic'?"),
        (["bench", "synthetic", "--method", "erm-gnc"], "; did you mean 'erm-gcn'?"),
        (["bench", "synthetic", "--method", "irm", "--recipe", "robus"], "; did you mean 'robust'?"),
        (["bench", "synthetic", "--method", "irm", "--set", "epoch=3"], "; did you mean 'epochs'?"),
        (["bench", "synthetic", "--method", "irm", "--set", "backbone=gnc"], "; did you mean 'gcn'?"),
        (["bench", "synthetic", "--method", "irm", "--option", "node=3"], "; did you mean 'nodes'?"),
        (["bench", "synthetic", "--method", "irm", "--protocol", "alpha+beta→gama"], "mean 'alpha+beta→gamma'?"),
        (["bench", "synthetic", "--candidates=-erm-gnc"], "; did you mean 'erm-gcn'?"),
        (["evaluate", "m", "g.npz", "--metric", "makro_f1"], "; did you mean 'macro_f1'?"),
        (["fit", "g.npz", "--model", "m", "--read", "lable=grade"], "; did you mean 'label'?"),
    ],
)
def test_a_user_error_is_one_line_with_status_2(monkeypatch, capsys, arguments, message):
    said = complaint(monkeypatch, capsys, *arguments)
    assert said.startswith("error: ")
    assert message in said


# ---- --set -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("epochs=3", 3),
        ("lr=1e-3", 1e-3),
        ("rho=0.5", 0.5),
        ("mask=false", False),
        ("mask=True", True),
        ("spectral_budget=none", None),
        ("gate=attention", "attention"),
        ("alpha=0,0.5", (0, 0.5)),
        ("alpha=[0,0.5]", (0, 0.5)),
        ("alpha=0.9", (0.9,)),
        ("mask_inputs=origin", ("origin",)),
        ("mask_inputs=origin,predictions", ("origin", "predictions")),
        ("name=a=b", "a=b"),
    ],
)
def test_a_pair_is_parsed(text, value):
    assert parse_settings([text]) == {text.partition("=")[0]: value}


@pytest.mark.parametrize("text", ["epochs", "=3", ""])
def test_a_text_that_is_not_a_pair_is_refused(text):
    with pytest.raises(ValueError, match=f"expected NAME=VALUE, got '{text}'"):
        parse_settings([text])


# ---- fit, predict, evaluate, explain ---------------------------------------------------------------------


@pytest.fixture(params=["npz", "csv"])
def graphs(request, tmp_path: Path) -> list[Path]:
    """Write three graphs in one of the file formats."""
    paths = [tmp_path / (g.name + (".npz" if request.param == "npz" else "")) for g in (A, B, C)]
    for graph, path in zip((A, B, C), paths, strict=True):
        write_graph(graph, path)
    return paths


def test_fit_predict_evaluate_explain(graphs: list[Path], tmp_path: Path):
    a, b, c = graphs
    model = tmp_path / "[models]" / "model"
    fitted = call("fit", a, b, "--model", model, *ROBUST, "--seed", 2, "--device", "cpu")
    assert "selection rule: leave-one-source-out" in fitted.stdout
    assert "edgemask-dg-star" in fitted.stdout
    assert f"model: {model}" in fitted.stdout
    assert fitted.stderr == ""

    estimator = EdgeMaskClassifier.load(model, device="cpu")
    assert estimator.get_params()["epochs"] == 3
    p = estimator.predict_proba(C)

    call("predict", model, c, "--output", tmp_path / "p.csv", "--device", "cpu")
    frame = pd.read_csv(tmp_path / "p.csv")
    assert list(frame.columns) == ["node", "class", *(f"p:{k}" for k in range(5))]
    np.testing.assert_allclose(frame.iloc[:, 2:], p, rtol=1e-12)
    assert frame["class"].tolist() == p.argmax(1).tolist()
    assert call("predict", model, c, "--device", "cpu").stdout == (tmp_path / "p.csv").read_text()

    text = call("evaluate", model, c, "--metric", "micro_f1", "--device", "cpu").stdout
    guess = np.bincount(C.y).max() / C.num_nodes
    assert text.splitlines()[0] == f"micro_f1 {100 * micro_f1(C.y, p):.2f} (most frequent class: {100 * guess:.2f})"
    assert "selection rule leave-one-source-out" in text

    explained = ("explain", model, c, "--node", 3, "--node", 5, "--output", tmp_path / "edges.csv", "--device", "cpu")
    assert "change if removed" in call(*explained).stdout
    edges = pd.read_csv(tmp_path / "edges.csv")
    assert set(edges["node"]) == {3, 5}
    assert len(edges) == np.isin(C.edges[1], [3, 5]).sum()

    text = call("explain", model, c, "--adversary", "--output", tmp_path / "mask.csv", "--device", "cpu").stdout
    edges = pd.read_csv(tmp_path / "mask.csv")
    assert list(edges.columns) == ["source", "destination", "origin", "mask"]
    assert (edges["origin"] == "original").sum() == C.num_edges
    assert edges["mask"].between(0, 1).all()
    for origin, part in edges.groupby("origin"):
        assert f"│ {origin}" in text
        assert f"{part['mask'].mean():.3f}" in text


def test_by_default_several_models_compete(tmp_path: Path):
    for graph in (A, B, C):
        write_graph(graph, tmp_path / f"{graph.name}.npz")
    few = ("--candidates", "erm-mlp,erm-gcn", "--set", "epochs=20", "--set", "hidden=8", "--device", "cpu")
    fit = ("fit", "alpha.npz", "beta.npz", "--model", "model", *few, "--checkpoint", "race")
    text = call(*fit).stdout
    for part in ("leaderboard", "erm-mlp", "erm-gcn", "majority class", "selection rule: auto, leave-one-source-out"):
        assert part in text
    assert "expect a micro_f1 of about" in " ".join(text.split())
    assert (tmp_path / "race" / "race.ckpt").exists()
    assert call(*fit).stdout.splitlines()[3] == text.splitlines()[3]  # continues from the saved state
    assert "expected micro_f1 on an unseen graph" in call("evaluate", "model", "gamma.npz", "--device", "cpu").stdout


def test_candidates_that_do_not_fit_into_memory_are_left_out_with_a_note(tmp_path: Path, monkeypatch):
    def without_gcn(candidates, sources, validation, device, budget):
        return [c for c in candidates if c.name != "erm-gcn"], ["erm-gcn is left out: it needs 31 GiB of memory"]

    monkeypatch.setattr("edgemask.cli.fit.shortened", without_gcn)
    for graph in (A, B):
        write_graph(graph, tmp_path / f"{graph.name}.npz")
    few = ("--candidates", "erm-mlp,erm-gcn", "--set", "epochs=4", "--set", "hidden=8", "--device", "cpu")
    result = call("fit", "alpha.npz", "beta.npz", "--model", "model", *few)
    assert "note: erm-gcn is left out: it needs 31 GiB of memory" in result.stderr
    assert "note:" not in result.stdout
    model = EdgeMaskClassifier.load("model", device="cpu")
    assert model.leaderboard_["candidate"].tolist() == ["erm-mlp", "majority class"]
    assert model.notes_[0].startswith("erm-gcn is left out")


@pytest.mark.slow
def test_training_in_batches_and_inference_in_blocks(tmp_path: Path):
    for graph in (A, B, C):
        write_graph(graph, tmp_path / f"{graph.name}.npz")
    batches = ("--set", "batch_size=30", "--set", "fan_out=5,4,3", "--set", "shards=2")
    call("fit", "alpha.npz", "beta.npz", "--model", "model", *ROBUST, *batches, "--device", "cpu")
    recipe = EdgeMaskClassifier.load("model", device="cpu").members_[0].method.recipe
    assert (recipe.batch_size, recipe.fan_out, recipe.shards) == (30, (5, 4, 3), 2)
    whole, blocks = (
        call("evaluate", "model", "gamma.npz", "--device", "cpu", *extra).stdout
        for extra in ([], ["--inference-batch", 20])
    )
    assert blocks == whole
    call("predict", "model", "gamma.npz", "-o", "p.csv", "--inference-batch", 20, "--device", "cpu")
    call("explain", "model", "gamma.npz", "--adversary", "-o", "mask.csv", "--inference-batch", 20, "--device", "cpu")
    assert len(pd.read_csv("p.csv")) == C.num_nodes


def test_nodes_of_a_folder_keep_their_ids(tmp_path: Path):
    for graph in (A, B, C):
        write_graph(graph, tmp_path / graph.name)
        nodes = (tmp_path / graph.name / "nodes.csv").read_text().splitlines()
        renamed = [nodes[0], *(f"node-{line}" for line in nodes[1:])]
        (tmp_path / graph.name / "nodes.csv").write_text("\n".join(renamed) + "\n")
        edges = (tmp_path / graph.name / "edges.csv").read_text().splitlines()
        renamed = [edges[0], *(f"node-{a},node-{b}" for a, b in (line.split(",") for line in edges[1:]))]
        (tmp_path / graph.name / "edges.csv").write_text("\n".join(renamed) + "\n")
    call("fit", "alpha", "beta", "--model", "model", *ROBUST, "--device", "cpu")
    call("predict", "model", "gamma", "--output", "p.csv", "--device", "cpu")
    assert pd.read_csv("p.csv")["node"].tolist() == [f"node-{i}" for i in range(C.num_nodes)]
    call("explain", "model", "gamma", "--node", "node-7", "--output", "edges.csv", "--device", "cpu")
    assert set(pd.read_csv("edges.csv")["node"]) == {"node-7"}
    call("explain", "model", "gamma", "--adversary", "--output", "mask.csv", "--device", "cpu")
    assert pd.read_csv("mask.csv")["source"].str.startswith("node-").all()


def test_read_options_apply_to_every_graph(tmp_path: Path, monkeypatch, capsys):
    for graph in (A, B):
        write_graph(graph, tmp_path / graph.name)
    with (tmp_path / "beta" / "edges.csv").open("a") as file:
        file.write("3,3\n")
    said = complaint(monkeypatch, capsys, "fit", "alpha", "beta", "--model", "m", *ROBUST)
    assert "beta/edges.csv, row 242: '3' → '3' is a self-loop" in said
    assert "--read self_loops=drop" in said
    call("fit", "alpha", "beta", "--model", "m", *ROBUST, "--read", "self_loops=drop", "--device", "cpu")


def test_theory_prints_every_check(tmp_path: Path):
    for graph in (A, B, C):
        write_graph(graph, tmp_path / f"{graph.name}.npz")
    call("fit", "alpha.npz", "beta.npz", "--model", "model", *ROBUST, "--device", "cpu")
    text = call("theory", "model", "gamma.npz", "--steps", 2, "--output", "theory.json", "--device", "cpu").stdout
    assert EdgeMaskClassifier.load("model", device="cpu").theory(C, steps=2).verdict().split(".")[0] in text
    for title in ("KKT residuals", "agreement of the learned mask", "weak duality", "gradient formulas"):
        assert title in text
    report = json.loads((tmp_path / "theory.json").read_text())
    assert all(row["dual"] >= row["primal"] for row in report["duality"])
    assert f"{report['masks']['learned']['loss']:.3g}" in text


def test_predictions_name_the_users_classes(tmp_path: Path):
    for graph in (A, B, C):
        write_graph(graph.replace(classes=("ant", "bee", "cat", "dog", "eel")), tmp_path / f"{graph.name}.npz")
    call("fit", "alpha.npz", "beta.npz", "--model", "model", *ROBUST, "--device", "cpu")
    call("predict", "model", "gamma.npz", "--output", "p.csv", "--device", "cpu")
    frame = pd.read_csv(tmp_path / "p.csv")
    assert list(frame.columns[2:]) == ["p:ant", "p:bee", "p:cat", "p:dog", "p:eel"]
    assert set(frame["class"]) <= {"ant", "bee", "cat", "dog", "eel"}


def test_validation_graphs_are_used_for_selection(graphs: list[Path]):
    a, b, c = graphs
    text = call("fit", a, "--validation", b, "--validation", c, "--model", "model", *ROBUST, "--device", "cpu").stdout
    assert "selection rule: validation" in text


def test_a_checkpoint_of_another_fit_is_refused(monkeypatch, capsys, tmp_path: Path):
    write_graph(A, tmp_path / "a.npz")
    fit = ("fit", "a.npz", "--model", "model", "--checkpoint", "state", *ROBUST, "--device", "cpu")
    call(*fit)
    said = complaint(monkeypatch, capsys, *fit, "--seed", 1)
    assert said == "error: state is a checkpoint of another task: its seed is 0, here 1"


def test_a_graph_that_does_not_match_the_model_is_reported(monkeypatch, capsys, tmp_path: Path):
    write_graph(A, tmp_path / "a.npz")
    write_graph(A.replace(x=np.ones((80, 9))), tmp_path / "narrow.npz")
    write_graph(A.without_labels(), tmp_path / "bare.npz")
    call("fit", "a.npz", "--model", "model", *ROBUST, "--device", "cpu")
    assert "graph 'alpha', x: 9 features" in complaint(monkeypatch, capsys, "predict", "model", "narrow.npz")
    assert "graph 'alpha' has no labels" in complaint(monkeypatch, capsys, "evaluate", "model", "bare.npz")
    write_graph(A.replace(classes=tuple(f"other {c}" for c in A.classes)), tmp_path / "renamed.npz")
    assert "the model does not know 'other 0'" in complaint(monkeypatch, capsys, "evaluate", "model", "renamed.npz")
    assert "training needs labels" in complaint(monkeypatch, capsys, "fit", "bare.npz", "--model", "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--read", "undirected=no"], "--read undirected: must be true or false, got 'no'"),
        (["--read", "nope=1"], "no option 'nope' for reading a graph"),
        (["--model", "."], ". is a folder, not a file to write"),
        (["--model", "a.npz/model"], "a.npz/model cannot be written"),
        (["--checkpoint", "a.npz/state"], "a.npz/state/race.ckpt cannot be written"),
        (["--checkpoint", "a.npz/state", "--method", "robust"], "a.npz/state cannot be written"),
        (["--set", "seed=3"], "no setting 'seed': use the option --seed"),
        (["--set", "max_members=3"], "no setting 'max_members': use the option --max-members"),
        (["--read", "path=b.npz"], "no option 'path' for reading a graph"),
        (
            ["--budget", "soon"],
            "budget must be a time such as 90s, 10m or 2h, or a positive number of seconds, got 'soon'",
        ),
        (["--method", "cake"], "no method 'cake'"),
        (["--candidates", "erm-gcn,cake"], "candidate 'cake': no method 'cake'"),
        (["--method", "erm-gcn", "--candidates", "erm-gcn"], "--candidates needs method 'auto'"),
        (["--method", "erm-gcn", "--ray", "auto"], "--ray needs method auto"),
    ],
)
def test_input_and_output_problems_are_reported_before_training(monkeypatch, capsys, tmp_path: Path, given, why):
    monkeypatch.setattr("edgemask.training.fit.Fit.run", lambda fit: pytest.fail("it trained"))
    write_graph(A, tmp_path / "a.npz")
    assert why in complaint(monkeypatch, capsys, "fit", "a.npz", "--model", "model", *given)
    assert not (tmp_path / "model").exists()


def test_a_file_that_is_not_a_model_is_refused(monkeypatch, capsys, tmp_path: Path):
    (tmp_path / "model").write_bytes(b"not a model")
    write_graph(A, tmp_path / "a.npz")
    assert "error: model is damaged or not a safetensors file" in complaint(
        monkeypatch, capsys, "predict", "model", "a.npz"
    )
