"""What reaches the terminal: encodings, colours, control characters, exit statuses, checks before work."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from edgemask import EdgeMaskClassifier
from edgemask.cli import app
from edgemask.cli.common import check_inputs, reading, writable_folder
from edgemask.cli.fit import how_to_continue
from edgemask.data import write_graph
from edgemask.data.synthetic import demo_family
from edgemask.errors import EdgemaskError, FileError, InputError
from edgemask.runtime.safe_text import SafeConsole, printable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path / "cache"))


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run edgemask in a process of its own."""
    command = [sys.executable, "-m", "edgemask", *arguments]
    path = {"PYTHONPATH": str(ROOT), "EDGEMASK_OFFLINE": "1"}
    return subprocess.run(command, env=os.environ | path | environment, capture_output=True, check=False)


# ---- characters ------------------------------------------------------------------------------------------


def test_control_characters_are_escaped():
    assert printable("a\x1b[2J\x07\x9b\x7f\r") == "a\\x1b[2J\\x07\\x9b\\x7f\\x0d"
    assert printable("α\tβ\nγ") == "α\tβ\nγ"
    assert printable("a\u202ebc\u2066\u2028") == "a\\u202ebc\\u2066\\u2028"


def test_a_console_escapes_control_characters_in_texts_and_tables_but_not_its_own_styles():
    console = SafeConsole(file=io.StringIO(), force_terminal=True, color_system="standard", width=60)
    table = Table("class")
    table.add_row("x\x1b[2J\x9b1m")
    console.print(Text("y\x1b]0;title\x9c", "red"), "[bold]b[/nope] :bomb:", table)
    text = console.file.getvalue()
    assert "\x1b[2J" not in text
    assert "\x1b]" not in text
    assert "\x9b" not in text
    assert "\\x1b]0;title\\x9c" in text
    assert "\x1b[31m" in text  # red
    assert "[bold]b[/nope] :bomb:" in text


@pytest.mark.slow
def test_unencodable_characters_are_replaced(tmp_path: Path):
    graphs = [g.replace(classes=("ä", "β", "c", "d", "e")) for g in demo_family(80).values()]
    for graph in graphs:
        write_graph(graph, tmp_path / f"{graph.name}.npz")
    estimator = EdgeMaskClassifier("erm-mlp", epochs=2, hidden=8, device="cpu", alpha=(0.5,)).fit(graphs[:2])
    estimator.save(tmp_path / "model")
    for environment in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        fitted = start(
            "fit", "alpha.npz", "-m", "m", "--method", "erm-mlp", "--set", "epochs=2", "--device", "cpu", **environment
        )
        assert fitted.returncode == 0, fitted.stderr
        assert b"propagation ?" in fitted.stdout
        assert start("evaluate", "model", "gamma.npz", **environment).returncode == 0
        assert start("data", "info", "citation", **environment).returncode == 0
    predicted = start("predict", "model", "gamma.npz", PYTHONIOENCODING="ascii")
    assert predicted.stdout.decode("utf-8").splitlines()[0] == "node,class,p:ä,p:β,p:c,p:d,p:e"


def test_no_color_is_respected():
    coloured, plain = (start("nope", FORCE_COLOR="1", **more).stderr for more in ({}, {"NO_COLOR": "1"}))
    assert b"31m" in coloured
    assert b"31m" not in plain


# ---- exit statuses ---------------------------------------------------------------------------------------


def test_the_help_documents_the_exit_statuses():
    text = " ".join(start("--help", COLUMNS="200").stdout.decode().split())
    assert "0 success, 1 some runs or files failed, 2 an error in the input, 70 a bug, 130 interrupted" in text


def test_without_arguments_the_help_is_printed_with_status_2():
    result = start()
    assert result.returncode == 2
    assert b"Usage: edgemask" in result.stdout + result.stderr
    assert b"error" not in result.stderr


@pytest.mark.slow
def test_a_reader_that_ends_early_is_not_an_error(tmp_path: Path):
    command = f"{sys.executable} -m edgemask methods | true > /dev/null; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", command], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    assert result.returncode == 141
    assert result.stderr == b""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["version", "version --json", "--help"])
def test_an_output_that_cannot_be_written_is_named_and_a_closed_one_is_no_error(arguments: str):
    """Typer prints the help, on a console of its own."""
    where = "" if arguments == "--help" else "standard output cannot be written: "
    command, environment = f"{sys.executable} -m edgemask {arguments}", os.environ | {"PYTHONPATH": str(ROOT)}
    for streams, expected in (
        ("> /dev/full", (2, f"error: {where}No space left on device\n")),
        ("<&- >&-", (0, "")),
        ("<&- >&- 2>&-", (0, "")),
        ("| true; exit ${PIPESTATUS[0]}", (141, "")),
    ):
        ended = subprocess.run(
            ["bash", "-c", f"{command} {streams}"], env=environment, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stderr) == expected, streams


def test_the_message_after_an_interruption_says_how_to_continue():
    assert "--checkpoint state continues" in how_to_continue(Path("state"))
    assert "with --checkpoint PATH" in how_to_continue(None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checkpoint", "number"), [(True, signal.SIGINT), (False, signal.SIGINT), (True, signal.SIGTERM)]
)
def test_an_interrupted_fit_ends_with_one_line_and_status_130(tmp_path: Path, checkpoint: bool, number: signal.Signals):
    for graph in demo_family(300).values():
        write_graph(graph, tmp_path / f"{graph.name}.npz")
    fit = ["fit", "alpha.npz", "beta.npz", "-m", "model", "--method", "erm-gcn", "--set", "epochs=1000000"]
    fit += (
        ["--checkpoint", "state", "--checkpoint-every", "5", "--device", "cpu"] if checkpoint else ["--device", "cpu"]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.argv = ['edgemask', *{fit!r}]\n" + WATCHED],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background ignores it
    )
    try:
        deadline, begun = time.monotonic() + 120, tmp_path / ("state" if checkpoint else "trains")
        while not begun.exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        time.sleep(1)  # Python drops an interrupt inside some callbacks, which run while libraries are loaded
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, b""), err
    (line,) = err.decode().splitlines()
    assert line == how_to_continue(Path("state") if checkpoint else None)
    assert not (tmp_path / "model").exists()


WATCHED = """
from pathlib import Path
from edgemask.training.fit import Fit
run = Fit.run
def watched(fit):
    Path("trains").touch()
    return run(fit)
Fit.run = watched
from edgemask.cli import main
main()
"""


# ---- checks before work ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("fit", "a.npz", "-m", "m", "--metric", "f3"), "no metric 'f3'"),
        (("fit", "a.npz", "-m", "m", "--method", "irm", "--set", "epoch=3"), "did you mean 'epochs'"),
        (("fit", "a.npz", "-m", "m", "--method", "irm", "--set", "epochs=0"), "epochs must be"),
        (("fit", "a.npz", "-m", "m", "--recipe", "paper"), "--recipe needs a single method"),
        (("fit", "a.npz", "-m", "m", "--device", "tpu0"), "device must be"),
        (("fit", "a.npz", "b.npz", "-m", "m"), "b.npz: no such file or folder"),
        (("fit", "a.npz", "--validation", "b.npz", "-m", "m"), "b.npz: no such file or folder"),
        (("fit", "a.npz", "-m", "a.npz/m"), "a.npz/m cannot be written"),
        (("plan", "a.npz", "b.npz"), "b.npz: no such file or folder"),
        (("plan", "a.npz", "--device", "tpu0"), "device must be"),
        (("evaluate", "a.npz", "a.npz", "--metric", "f3"), "no metric 'f3'"),
        (("explain", "a.npz", "a.npz", "-o", "a.npz/e.csv"), "a.npz/e.csv cannot be written"),
        (("theory", "a.npz", "a.npz", "-o", "a.npz/t.json"), "a.npz/t.json cannot be written"),
        (("bench", "synthetic", "--results", "a.npz/r"), "folder a.npz/r"),
        (("bench", "synthetic", "--device", "tpu0"), "device must be"),
        (("demo", "--picture", "a.npz/p.png"), "a.npz/p.png cannot be written"),
        (("reproduce", "results_citations", "-o", "a.npz/o"), "folder a.npz/o"),
        (("reproduce", "results_citations", "--results", "a.npz"), "a.npz is not a folder of results"),
        (("report", "-o", "a.npz/page.html"), "a.npz/page.html cannot be written"),
        (("slurm", "results_citations", "-o", "a.npz/job"), "a.npz/job cannot be written"),
    ],
)
def test_problems_are_found_before_anything_is_read_or_run(monkeypatch, tmp_path: Path, arguments, why):
    (tmp_path / "a.npz").write_bytes(b"not a graph")
    for place in ("bench.run_tasks", "reproduce.run_tasks", "demo.run_demo"):
        monkeypatch.setattr(f"edgemask.cli.{place}", lambda *_, **__: pytest.fail("it ran"))
    monkeypatch.setattr("edgemask.estimator.EdgeMaskClassifier.load", lambda *_, **__: pytest.fail("it loaded"))
    for place in ("fit", "plan"):
        monkeypatch.setattr(f"edgemask.cli.{place}.read_graph", lambda *_, **__: pytest.fail("a graph was read"))
    with pytest.raises(EdgemaskError, match=why):
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_all_parts_of_a_graph_must_exist(tmp_path: Path):
    (tmp_path / "nodes.csv").touch()
    with pytest.raises(FileError, match=r"^edges.csv: no such file or folder"):
        check_inputs([Path("nodes.csv,edges.csv")])
    (tmp_path / "edges.csv").touch()
    check_inputs([Path("nodes.csv,edges.csv"), tmp_path])
    (tmp_path / "a,b").touch()
    check_inputs([Path("a,b")])


def test_a_writable_folder_is_created_and_left_empty(tmp_path: Path):
    writable_folder(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


# ---- --read ----------------------------------------------------------------------------------------------


def test_column_names_are_texts():
    given = ["label=1", "features=age, 2,income", "text=zip", "id=true", "weight=1e3", "classes=0", "labels=all"]
    assert reading(given) == {
        "label": "1", "features": ("age", "2", "income"), "text": "zip", "id": "true", "weight": "1e3",
        "classes": ("0",), "labels": "all",
    }  # fmt: skip
    assert reading(["undirected=True", "self_loops=drop", "name=a=b"]) == {
        "undirected": True, "self_loops": "drop", "name": "a=b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("label", "expected NAME=VALUE, got 'label'"),
        ("=x", "expected NAME=VALUE"),
        ("undirected=1", "must be true or false, got '1'"),
        ("self_loops=drp", "must be one of error, drop, warn, got 'drp'; did you mean 'drop'?"),
        ("featurs=a", "did you mean 'features'?"),
    ],
)
def test_an_illegal_option_is_refused(option, why):
    with pytest.raises(InputError) as raised:
        reading([option])
    assert why in str(raised.value)
