"""The demo on small graphs: scores of every method, the table, the picture."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgemask.cli import app, demo
from edgemask.errors import InputError
from edgemask.methods.registry import method_spec
from edgemask.report.render import rich_table
from edgemask.runtime.safe_text import SafeConsole


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return text, records and picture of one short demo."""
    console, picture = SafeConsole(file=io.StringIO(), width=100), tmp_path_factory.mktemp("demo") / "out" / "demo.png"

    def short(name: str):
        r = method_spec(name).recipe
        return r.replace(epochs=3, hidden=8, k=min(r.k, 3), clusters=min(r.clusters, 5), alpha=r.alpha[:2])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "demo_recipe", short)
        groups, table = demo.run_demo(console, picture, seed=1, nodes=150)
    console.print(rich_table(table))
    return console.file.getvalue(), groups, picture


def test_every_method_is_scored_only_on_the_unseen_domain(shown):
    _, groups, _ = shown
    assert tuple(groups) == demo.METHODS
    for name, (record,) in groups.items():
        assert record["method"] == name
        assert record["protocol"]["sources"] == ("alpha", "beta")
        assert list(record["metrics"]) == ["gamma"]
        assert record["seed"] == record["options"]["seed"] == 1


def test_the_table_names_the_selection_rules(shown):
    text, groups, _ = shown
    for name in groups:
        assert f"trained {name}" in text
    assert "the unseen domain gamma" in text
    assert "last" in text
    assert "leave-one-source-out" in text


def test_the_picture_is_written(shown):
    picture: Path = shown[2]
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_picture_of_an_unknown_format_is_refused_before_the_work():
    result = CliRunner().invoke(app, ["demo", "--picture", "out/demo.txt"])
    assert isinstance(result.exception, InputError)
    assert "out/demo.txt: the file name of the picture must end in .png, .svg, .pdf" in str(result.exception)


def test_the_demo_trains_half_as_many_epochs_as_a_benchmark():
    for name in demo.METHODS:
        assert demo.demo_recipe(name) == method_spec(name).recipe.replace(epochs=method_spec(name).recipe.epochs // 2)
