"""No command sends control characters or markup of files, names or arguments to a terminal."""

from __future__ import annotations

import csv
import io
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import ColorSystem

from edgemask import EdgeMaskClassifier
from edgemask.cli import common, main
from edgemask.cli.tables import Predictions, write_csv, write_guarded
from edgemask.data import write_graph
from edgemask.data.synthetic import demo_family
from edgemask.experiments.local import InProcess
from edgemask.graph import Graph
from edgemask.model import Expected
from edgemask.report.comparison import Cell, Comparison
from edgemask.report.render import csv_text, statistics_csv
from edgemask.report.statistics import Versus

Screen = Callable[..., tuple[int, str]]

EVIL = "\x1b[2J\x1b]0;t\x07\x9b1m\x9dx\x08\rzz\u202e\x7f[red]a[/nope][link=https://b]:bomb:"
IN_PATH = EVIL.replace("/", "|")
OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[2K|\x1b\[1A|\x1b\[\?25[lh]|\r(?!zz)")  # colours and live tables of rich
SET = [part for s in ("epochs=2", "hidden=8") for part in ("--set", s)] + ["--device", "cpu"]


class Terminal(io.TextIOWrapper):
    """A terminal that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode("utf-8")


def hostile(graph: Graph) -> Graph:
    """Return a graph whose texts all hold terminal codes and markup."""
    return graph.replace(
        name=graph.name + EVIL,
        classes=tuple(f"{name}{EVIL}" for name in graph.classes),
        node_ids=np.array([f"{i}{EVIL}" for i in range(graph.num_nodes)]),
        feature_names=tuple(f"{i}{EVIL}" for i in range(graph.num_features)),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write hostile graphs, models and data."""
    folder = tmp_path_factory.mktemp("hostile") / f"folder{IN_PATH}"
    (folder / f"data{IN_PATH}" / "citation").mkdir(parents=True)
    (folder / f"data{IN_PATH}" / "citation" / "acmv9.mat").write_text("altered")
    (folder / "records" / "citation" / IN_PATH).mkdir(parents=True)
    (folder / "records" / "citation" / IN_PATH / f"stray{IN_PATH}.json").write_text('{"key": "\\u001b[2J"}')
    graphs = [hostile(g) for g in demo_family(80).values()]
    for name, graph in zip("abc", graphs, strict=True):
        write_graph(graph, folder / f"{name}.npz")
    (folder / "csv").mkdir()
    (folder / "csv" / "nodes.csv").write_text(f"id,label,{EVIL}\n1,a,0\n1,b,{EVIL}\n")
    (folder / "csv" / "edges.csv").write_text(f"source,destination\n1,{EVIL}\n")
    fast: dict[str, Any] = {"epochs": 2, "hidden": 8, "device": "cpu"}
    for name, method in (("mlp", "erm-mlp"), ("game", "edgemask-dg")):
        estimator = EdgeMaskClassifier(method, **fast).fit(graphs[:2])
        estimator.save(folder / f"{name}.model")
    score = Expected(0.5, 0.4, 0.6, {EVIL: 0.5})
    summaries = [replace(one, name=EVIL) for one in estimator.model_.summaries]
    estimator.model_ = replace(estimator.model_, rule=EVIL, notes=[EVIL], expected=score, summaries=summaries)
    estimator.save(folder / "hostile.model")
    return folder


@pytest.fixture
def screen(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Return a function that runs a command on a terminal, and returns its exit status and what the terminal got."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EDGEMASK_OFFLINE", "1")
    monkeypatch.setenv("EDGEMASK_DATA", str(folder / f"data{IN_PATH}"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("edgemask.cli.running.Local", lambda settings, jobs: InProcess(settings))
    for console in (common.out, common.err):
        monkeypatch.setattr(console, "_color_system", ColorSystem.STANDARD)

    def run(*arguments: str) -> tuple[int, str]:
        terminal = Terminal()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["edgemask", *arguments])
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            with pytest.raises(SystemExit) as ended:
                main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, terminal.text

    return run


def check_safe(text: str) -> None:
    """Check that a terminal got no control characters except those of rich, and that markup was not interpreted."""
    found = re.findall(r".{0,30}[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e].{0,30}", OWN.sub("", text))
    assert found == []
    assert "\U0001f4a3" not in text  # :bomb:


WORK = {
    "fit": ["fit", "a.npz", "b.npz", "-m", f"new{IN_PATH}.model", "--method", "erm-mlp", *SET],
    "fit auto": ["fit", "a.npz", "b.npz", "-m", "auto.model", "--candidates", "erm-mlp,erm-gcn", *SET],
    "fit in processes": [
        *("fit", "a.npz", "b.npz", "-m", "jobs.model", "--candidates", "erm-mlp,erm-gcn", "--jobs", "2", *SET),
    ],
    "predict": ["predict", "hostile.model", "c.npz"],
    "predict to a file": ["predict", "mlp.model", "c.npz", "-o", f"p{IN_PATH}.csv"],
    "predict several": ["predict", "mlp.model", "a.npz", "c.npz", "-o", f"p{IN_PATH}"],
    "evaluate": ["evaluate", "hostile.model", "c.npz"],
    "explain": ["explain", "mlp.model", "c.npz", "--node", f"3{EVIL}", "-o", f"e{IN_PATH}.csv"],
    "explain the adversary": ["explain", "hostile.model", "c.npz", "--adversary"],
    "theory": ["theory", "hostile.model", "c.npz", "--steps", "1"],
    "plan": ["plan", "a.npz", "b.npz", "--method", "erm-mlp", *SET],
    "plan auto": ["plan", "a.npz", "b.npz", "--candidates", "erm-mlp", *SET],
    "compare": ["compare", "a.npz", "b.npz", "c.npz", "--method", "erm-mlp", "--no-references", "--seeds", "2", *SET],
    "tune": ["tune", "a.npz", "b.npz", "--method", "erm-mlp", "--trials", "1", *SET],
    "methods": ["methods"],
    "a method": ["methods", "irm"],
    "data list": ["data", "list"],
    "data info": ["data", "info", "citation"],
    "report": ["report", "--results", "edgemask-compare", "-o", f"r{IN_PATH}.html"],
    "results check": ["results", "check", "edgemask-compare"],
    "results pack": ["results", "pack", "edgemask-compare"],
    "version": ["version"],
}


@pytest.mark.slow
def test_commands_that_succeed(screen: Screen) -> None:
    for arguments in WORK.values():
        status, text = screen(*arguments)
        check_safe(text)
        assert status == 0, text
    for name in (f"p{IN_PATH}.csv", f"e{IN_PATH}.csv"):
        assert "zz" in Path(name).read_text("utf-8")


FAULTS = [
    [EVIL], ["--" + EVIL], ["fit", EVIL, "-m", "m"], ["fit", "a.npz", "-m", f"a.npz/{IN_PATH}"], ["data", EVIL],
    *(["fit", "a.npz", "-m", "m", *more] for more in (
        ["--method", EVIL], ["--candidates", EVIL], ["--budget", EVIL], ["--recipe", EVIL], ["--metric", EVIL],
        ["--set", EVIL], ["--set", EVIL + "=1"], ["--set", "epochs=" + EVIL], ["--read", EVIL],
        ["--read", "label=" + EVIL], ["--seed", EVIL], ["--device", EVIL], ["--checkpoint", f"a.npz/{IN_PATH}"],
    )),
    ["fit", "csv", "-m", "m"], ["fit", "csv", "-m", "m", "--read", f"features={EVIL}"],
    ["fit", "csv/nodes.csv,csv/edges.csv", "-m", "m"], ["predict", "mlp.model", "csv"],
    ["predict", EVIL, "a.npz"], ["predict", "a.npz", "a.npz"], ["predict", "mlp.model", EVIL],
    ["predict", "mlp.model", "mlp.model"], ["predict", "mlp.model", "c.npz", "-o", IN_PATH],
    ["evaluate", "mlp.model", "c.npz", "--metric", EVIL], ["explain", "mlp.model", "c.npz", "--node", EVIL],
    ["explain", "mlp.model", "c.npz", "--adversary"], ["theory", "mlp.model", "c.npz"],
    ["methods", EVIL], ["bench", EVIL], ["bench", "citation", "--method", EVIL],
    ["bench", "citation", "--protocol", EVIL], ["bench", "citation", "--option", EVIL + "=1"],
    ["compare", EVIL], ["compare", "a.npz", "b.npz", "--method", EVIL], ["tune", EVIL, "--method", "irm"],
    ["data", "info", EVIL], ["reproduce", EVIL], ["reproduce", "--shard", EVIL, "flow"], ["slurm", EVIL],
    ["report", "--results", EVIL], ["report", "--results", "records"], ["results", "check", EVIL], ["plan", EVIL],
    ["demo", "--seed", EVIL], ["--debug", "predict", "mlp.model", EVIL], ["--debug", "fit", "csv", "-m", "m"],
]  # fmt: skip


def test_commands_that_fail(screen: Screen) -> None:
    for arguments in FAULTS:
        status, text = screen(*arguments)
        check_safe(text)
        assert status == 2, text
    for arguments in (
        ["bench", "citation", "--method", "erm-mlp"],
        *(["data", name, "citation"] for name in ("verify", "fetch")),
        ["results", "check", "records"],
    ):
        status, text = screen(*arguments)
        check_safe(text)
        assert status == 1, text


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_a_bug(screen: Screen, monkeypatch: pytest.MonkeyPatch, debug: list[str]) -> None:
    monkeypatch.setattr("edgemask.cli.bench.method_spec", lambda name: {}[name])
    status, text = screen(*debug, "methods", EVIL)
    check_safe(text)
    assert status == 70
    assert ("Traceback" in text) is bool(debug)


def test_a_warning_of_another_library(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgemask.cli.bench.method_spec", lambda name: warnings.warn(name, stacklevel=1) or {}[""])
    status, text = screen("methods", EVIL)
    check_safe(text)
    assert (status, "UserWarning" in text) == (70, True)


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "@SUM(A1)", "\tx", "a\r=1+1", "\n=1", "＝1+1", "-1+2"])
def test_no_cell_of_a_csv_file_is_run(folder: Path, tmp_path: Path, name: str) -> None:
    classes, p = np.array([name, "other"]), np.array([[1.0, 0.0]])
    write_csv(Predictions(np.array([name]), classes, p), tmp_path / "p.csv")
    frame = pd.DataFrame({"node": [name], "change": [0.5]})
    write_guarded(frame, tmp_path / "e.csv", ["node"])
    versus = Versus(name, name, name)
    cell = Cell({("p", 0): 1.0}, rules=(name,), absent=name)
    texts = [csv_text(Comparison("t", "t", "", (name,), (name,), {(name, name): cell})), statistics_csv([versus])]
    for text in (*texts, (tmp_path / "p.csv").read_text("utf-8"), (tmp_path / "e.csv").read_text("utf-8")):
        for line in csv.reader(io.StringIO(text, newline="")):
            for value in line:
                assert not re.match(r"[=+\-@\t\r\n＝](?![0-9.e]*$)", value), value
        assert not re.search(r"(^|\r)\s*[=+@＝]", re.sub(r'"[^"]*"', "", text), re.MULTILINE)
    assert pd.read_csv(tmp_path / "p.csv").columns.tolist() == ["node", "class", f"p:{name}", "p:other"]
