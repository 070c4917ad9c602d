"""The demo on small graphs: the choice of the default, the scores, the verdict and the picture."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from edgemask import EdgeMaskClassifier, benchmark
from edgemask.cli import app, demo
from edgemask.errors import InputError
from edgemask.metrics import score
from edgemask.runtime.safe_text import SafeConsole

SMALL = {"epochs": 3, "hidden": 8, "k": 3, "clusters": 5, "mask_projection": 8, "mask_hidden": 8}


@pytest.fixture(scope="module")
def shown():
    """Return the fields of a short demo."""
    return demo.run_demo(SafeConsole(file=io.StringIO()), seed=1, nodes=80, **SMALL)


def test_the_default_and_its_references_are_scored_on_the_unseen_graph(shown):
    assert list(shown["scores"]) == ["auto", "erm-mlp", "erm-gcn", "majority class"]
    graphs = benchmark("synthetic").load(nodes=80, seed=1)
    mlp = EdgeMaskClassifier("erm-mlp", seed=1, device="cpu", **SMALL).fit([graphs["alpha"], graphs["beta"]])
    assert shown["scores"]["erm-mlp"] == mlp.score(graphs["gamma"])


def test_the_majority_class_is_that_of_the_sources():
    graphs = benchmark("synthetic").load(nodes=80, seed=1)
    a, b, target = graphs["alpha"], graphs["beta"], graphs["gamma"]
    labels = [*a.first_labels, *b.first_labels]
    most = max(set(labels), key=labels.count)
    p = [[float(c == most) for c in range(target.num_classes)]] * target.num_nodes
    assert demo.majority([a, b], target) == score(["micro_f1"], target, np.array(p))["micro_f1"]


def test_the_verdict_has_every_score(shown):
    for value in shown["scores"].values():
        assert f"{100 * value:.1f}" in shown["verdict"]
    own, expected = shown["scores"]["auto"], shown["expected"]
    inside = expected["low"] <= own <= expected["high"]
    assert ("as expected" in shown["verdict"]) == inside


def test_the_picture_is_written(shown, tmp_path: Path):
    demo.draw(shown, tmp_path / "out" / "demo.png")
    assert (tmp_path / "out" / "demo.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_picture_of_an_unknown_format_is_refused_before_the_work():
    result = CliRunner().invoke(app, ["demo", "--picture", "out/demo.txt"])
    assert isinstance(result.exception, InputError)
    assert "out/demo.txt: the file name of the picture must end in .png, .svg, .pdf" in str(result.exception)


def test_the_text_ends_with_what_to_type_next(shown, capsys):
    demo.print_demo(shown | {"picture": Path("out/demo.png")})
    text = capsys.readouterr().out
    assert "majority class" in text
    assert "leave-one-source-out" in text
    assert shown["verdict"] in text
    assert text.strip().splitlines()[-1] == demo.NEXT
