"""Figures of made-up records: plotted values, reproducible bytes, and legibility on white and dark backgrounds."""

from __future__ import annotations

import functools
import json
import re
import zlib
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from edgemask.experiments.enrichment import Enrichment
from edgemask.experiments.records import Record, ResultStore, Task
from edgemask.experiments.run import ORACLE
from edgemask.report.comparison import Cell
from edgemask.report.figure_style import LOOKS, RC, not_run, printed, svg
from edgemask.report.statistics import bootstrap, ranking
from paper import figures
from paper.figures import FIGURES, draw, save
from paper.suites import SUITES, all_tasks

LEVEL = {"citation": 0.72, "cora": 0.8, "photo": 0.9, "twitch": 0.6, "facebook100": 0.53, "airports": 0.5}


def fake(task: Task) -> Record:
    """Return a small but valid record of a task. The task determines its numbers."""
    kind = repr((task.benchmark, task.folder, task.recipe.changes(), getattr(task, "candidates", ())))
    kind_rng, seed_rng = (np.random.default_rng(zlib.crc32(text.encode())) for text in (kind, repr(task)))
    shared = {
        **task.describe(),
        "data": {name: f"hash of {name}" for name in task.protocol.domains},
        "select": {"rule": "none: nothing is trained", "alpha": 0.0, "epoch": 100, "scores": {}},
        "missing": [],
        "seconds": {"train": 30 * (1 + kind_rng.random()), "predict": 0.1},
        "peak_memory_mib": 500.0,
        "machine": {"device": "cpu, 2 cores"},
    }
    if isinstance(task, Enrichment):
        values = {
            "edge increase %": 50,
            "avg degree gain": 2,
            "spectral entropy": 0.2,
            "feature Laplacian smoothness": 0.1,
        }
        return shared | {
            "metrics": {
                d: {n: v * (1 + 0.1 * seed_rng.random()) for n, v in values.items()} for d in task.protocol.domains
            }
        }
    level = LEVEL[task.benchmark] + 0.06 * kind_rng.standard_normal()
    metrics = {
        target: {m: float(np.clip(level + 0.01 * seed_rng.standard_normal(), 0, 1)) for m in task.protocol.metrics}
        for target in task.protocol.targets
    }
    rule = "validation" if task.protocol.validation else "last"
    record = shared | {
        "select": {"rule": rule, "alpha": 0.0, "epoch": 100, "scores": {}},
        "metrics": metrics,
        "rules": {rule: {"epoch": 100, "alpha": 0.0, "metrics": metrics}},
        "curves": {"epoch": list(range(1, 101))},
    }
    if task.folder.startswith("edgemask"):
        share = [
            0.5 + 0.3 * kind_rng.random() + 0.02 * seed_rng.random(),
            0.1 + 0.2 * kind_rng.random() + 0.02 * seed_rng.random(),
        ]
        shares = {
            o: {"edges": 10, "mean": 0.5, "pruned": p} for o, p in zip(("augmented", "original"), share, strict=True)
        }
        record["mask"] = dict.fromkeys(task.protocol.sources, shares)
        fall = 0.5 * np.exp(-np.arange(100) / (3 + 100 * kind_rng.random())) + 0.01 * seed_rng.random()
        for number, source in enumerate(task.protocol.sources):
            record["curves"][f"mask original {source}"] = [float(v) + 0.01 * number for v in fall]
    if candidates := getattr(task, "candidates", ()):
        record["select"] |= {"members": candidates[:1], "scores": {}, "expected": None}
    also = getattr(task, "also", ())
    if "oracle" in also:
        epochs = list(range(5, 101, 5))
        curve = {
            "epoch": epochs,
            "micro_f1": [float(level - 0.3 * np.exp(-e / 20) + 0.01 * seed_rng.random()) for e in epochs],
        }
        record["rules"][ORACLE] = {"epoch": 50, "alpha": 0.0, "metrics": metrics, "curve": curve}
    if "theory" in also:
        names = ("learned", "random", "ascent, best")
        record["theory"] = {
            "masks": {n: {"loss": 1 + seed_rng.random(), "kkt": {"gap": seed_rng.random()}} for n in names},
            "surrogate_primal": 1.0,
            "surrogate_dual": 1.0 + 1e-7 * seed_rng.random(),
            "agreement": {"surrogate, ρ": {"auc": 0.5 + 0.4 * seed_rng.random()}},
            "duality": [{"gap": 0.01 * seed_rng.random()}, {"gap": 0.0}],
            "gradients": {"task_difference": 1e-6 * seed_rng.random(), "mask_difference": 1e-5 * seed_rng.random()},
        }
    return record


def growth(root: Path, device: str, sizes: tuple[int, ...]) -> None:
    figures = {
        "points": [
            {"nodes": n, "knn": 1e-4 * n, "spectral": 7e-5 * n, "enrich": 2e-4 * n, "epoch": 3e-5 * n}
            | {"peak": {"process": {"host": 700.0, "device": 700.0}}}
            for n in sizes
        ],
        "exponents": {} if len(sizes) == 1 else {"knn": 1.02, "spectral": 0.95, "enrich": 1.01, "epoch": 0.98},
    }
    path = root / "speed" / f"growth-{device.replace(' ', '-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": {"device": device, "kind": "cpu"}, "figures": figures}), encoding="utf-8")


def fill(root: Path, names: Iterable[str], keep: Callable[[Task], bool] = lambda task: task.seed < 2) -> ResultStore:
    store = ResultStore(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)  # there are a thousand small files
        for task in all_tasks(list(names)):
            if task.benchmark in LEVEL and keep(task):
                store.add(task, fake(task))
    return store


@pytest.fixture(scope="module", autouse=True)
def tables_made_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "tables", functools.cache(figures.tables))
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> ResultStore:
    root = tmp_path_factory.mktemp("results")
    growth(root, "2 cores", (10_000, 30_000, 100_000))
    growth(root, "NVIDIA H200", (10_000, 100_000, 1_000_000))
    return fill(root, FIGURES.keys() & SUITES.keys())


@pytest.fixture(scope="module", params=FIGURES)
def drawn(request, store) -> tuple[str, Figure, str]:
    """The name of each figure, the figure after layout, and its SVG."""
    figure = FIGURES[request.param](store)
    return request.param, figure, svg(figure, request.param, request.param)


def texts(figure: Figure) -> list[Text]:
    """Return all text that is drawn. Tick labels outside the view are left out."""
    visible = [tick for a in figure.axes if a.axison for axis in (a.xaxis, a.yaxis) for tick in axis._update_ticks()]
    ticks = {label for a in figure.axes for axis in (a.xaxis, a.yaxis) for label in axis.findobj(Text)} - {
        axis.label for a in figure.axes for axis in (a.xaxis, a.yaxis)
    }
    every = [*(t for t in figure.findobj(Text) if t not in ticks), *(tick.label1 for tick in visible)]
    return [t for t in every if t.get_visible() and t.get_text().strip()]


def at_svg_size(figure: Figure) -> RendererBase:
    """Return a renderer that measures a figure laid out for an SVG, at 72 dots per inch."""
    figure.set_dpi(72)
    return FigureCanvasAgg(figure).get_renderer()


def marks(figure: Figure, opened: bool, along: str = "x") -> list[float]:
    """Return the values of all open or all filled marks, without the legend."""
    lines = [line for axes in figure.axes for line in axes.lines if line.get_marker() not in ("None", "", "none", None)]
    chosen = [line for line in lines if (line.get_markerfacecolor() == "none") == opened]
    return [float(v) for line in chosen for v in getattr(line, f"get_{along}data")() if np.isfinite(v)]


def caption_of(figure: Figure) -> str:
    return " ".join(figure._supxlabel.get_text().split())


# ---- every figure ----------------------------------------------------------------------------------------


def test_every_expected_figure_exists():
    assert set(FIGURES) == {
        "flow", "knn_k_ablation", "spectral_k_ablation", "ablation_lambda", "results_citations",
        "results_cora_photo_fb_twitch", "two_by_two_ablation", "aug_effect_baselines", "subspace_enrichment",
        "mask_prune_stats", "recipes", "collapse", "inference", "complexity", "theory", "adaptive",
    }  # fmt: skip


def test_an_svg_is_well_formed_and_has_a_title_and_unique_ids(drawn):
    name, _, text = drawn
    root = ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title").text == name
    assert root.get("class") == "edgemask-figure"
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    referred = set(re.findall(r'(?:url\(|href=")#([^)"]+)', text))
    assert referred <= set(ids)


def test_every_colour_is_visible_on_white_and_on_dark(drawn):
    _, _, text = drawn
    body = re.sub(r"<style>.*?</style>", "", text)
    colours = {colour.strip() for colour in re.findall(r"(?:fill|stroke|color)\s*[:=]\s*\"?([^;\"]+)", body)}
    assert colours <= {
        "currentColor",
        "none",
        "#8c8c8c",
        *(f"#{c}" for c in ["0072b2", "d55e00", "009e73", "cc79a7", "e69f00", "56b4e9"]),
    }
    labels = re.findall(r"<text [^>]*>", body)
    assert labels
    assert all("fill: currentColor" in label for label in labels)  # text without a fill would be black
    assert "prefers-color-scheme: dark" in text


def test_text_is_large_enough_inside_the_figure_and_without_overlaps(drawn):
    _, figure, _ = drawn
    with matplotlib.rc_context(RC):
        renderer = at_svg_size(figure)
        labels = texts(figure)
        boxes = [t.get_window_extent(renderer).extents for t in labels]
    assert figure.get_figwidth() == 6.5
    assert all(t.get_fontsize() >= 8 for t in labels)
    (wide, high) = figure.bbox.size
    for text, (x0, y0, x1, y1) in zip(labels, boxes, strict=True):
        assert min(x0, y0, wide - x1, high - y1) > -0.5, f"{text.get_text()!r} is cut off"
    for (one, a), (other, b) in combinations(zip(labels, boxes, strict=True), 2):
        shared = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
        assert min(shared) < 1, f"{one.get_text()!r} overlaps {other.get_text()!r}"


def test_legends_and_captions_are_outside_the_panels(drawn):
    _, figure, _ = drawn
    renderer = at_svg_size(figure)
    for beside in (*figure.legends, figure._supxlabel):
        assert not any(beside.get_window_extent(renderer).overlaps(axes.bbox) for axes in figure.axes if axes.axison)


def test_series_differ_by_more_than_colour():
    assert len({look.marker for look in LOOKS}) == len({look.colour for look in LOOKS}) == len(LOOKS)
    assert len({str(look.line) for look in LOOKS}) == len(LOOKS)


@pytest.mark.slow
def test_equal_records_give_equal_bytes(tmp_path, monkeypatch):
    growth(tmp_path, "2 cores", (10_000, 100_000))
    names = ("flow", "complexity", "theory", "ablation_lambda")
    small = fill(tmp_path, (n for n in names if n in SUITES))
    once = [draw(name, small) for name in names]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    again = ResultStore(tmp_path)
    assert [draw(name, again) for name in names] == once
    assert not any(re.search(r"\b20\d\d-\d\d-\d\d", text) for text in once)


def test_drawing_does_not_change_the_settings_of_matplotlib(store):
    before = dict(matplotlib.rcParams)
    draw("complexity", store)
    assert dict(matplotlib.rcParams) == before


# ---- plotted values -------------------------------------------------------------------------------------

AVERAGES = ("Cora avg", "Photo avg", "FB-100 avg", "Twitch avg")
SHOWN = {  # the columns of a suite's tables that its figure shows, and the axis they lie along
    "results_citations": (("average",), "x"),
    "results_cora_photo_fb_twitch": ((*AVERAGES, *(a.replace("avg", "min") for a in AVERAGES)), "x"),
    "recipes": (("average", *AVERAGES), "x"),
    "inference": (("α = 0", "α = 0.9"), "x"),
    "subspace_enrichment": ((), "x"),
    "mask_prune_stats": (("pruned from augmented %", "pruned from original %"), "x"),
    "aug_effect_baselines": ((), "x"),
    "theory": ((), "x"),
    "two_by_two_ablation": ((), "y"),
    "ablation_lambda": ((), "y"),
    "knn_k_ablation": ((), "y"),
    "spectral_k_ablation": ((), "y"),
}


def test_filled_marks_are_the_means_of_the_tables_and_open_marks_the_papers_figures(drawn, store):
    name, figure, _ = drawn
    if name not in SHOWN:
        pytest.skip("another test covers this figure")
    columns, along = SHOWN[name]
    cells = [
        c for t in figures.tables(name, store) for (_, column), c in t.cells.items() if not columns or column in columns
    ]
    means = sorted(c.mean for c in cells if c.values)
    assert means
    assert sorted(marks(figure, False, along)) == pytest.approx(means)
    quoted = {c.paper[0] for c in cells if c.paper and (c.values or name.endswith("k_ablation"))}
    assert set(marks(figure, True, along)) == quoted


def test_mean_ranks_are_plotted_with_a_bar_per_group(store):
    found = ranking(figures.tables("adaptive", store)[0])
    figure = FIGURES["adaptive"](store)
    assert marks(figure, False) == [rank.mean for rank in found.ranks]
    assert len(slopes(figure.axes[0])) == len(found.cliques)
    assert f"difference, {found.critical_difference:.2f} ranks" in caption_of(figure)


def test_growth_is_plotted_as_measured(store):
    figure = FIGURES["complexity"](store)
    points = [
        (n, f * n) for sizes in ((1e4, 3e4, 1e5), (1e4, 1e5, 1e6)) for n in sizes for f in (1e-4, 7e-5, 2e-4, 3e-5)
    ]
    assert sorted(marks(figure, False)) == sorted(n for n, _ in points)
    assert sorted(marks(figure, False, "y")) == pytest.approx(sorted(s for _, s in points))
    assert [axes.get_title() for axes in figure.axes] == [
        f"{device}\nkNN 1.02, clusters 0.95\nenrichment 1.01, epoch 0.98" for device in ("2 cores", "NVIDIA H200")
    ]
    first, second = (
        sorted(float(np.log(y[-1] / y[0]) / np.log(x[-1] / x[0])) for x, y in slopes(a)) for a in figure.axes
    )
    assert [*first, *second] == pytest.approx([2, 3, 2, 3])


def slopes(axes: Axes) -> list[tuple[np.ndarray, np.ndarray]]:
    return [line.get_data() for line in axes.lines if line.get_marker() == "None"]


def test_the_collapse_is_plotted_by_epoch(store):
    figure = FIGURES["collapse"](store)
    (table,) = figures.tables("collapse", store)
    for number, gate in enumerate(("message", "attention", "softmax")):
        above, below = figure.axes[number], figure.axes[number + 3]
        for line, score, bound in zip(above.lines, below.lines, ("penalty", "dual", "budget"), strict=True):
            curve = dict(zip(*line.get_data(), strict=True))
            assert len(curve) == 100
            for epoch in (1, 5, 20, 100):
                assert curve[epoch] == pytest.approx(
                    table.cell(f"{gate} gate, {bound}", f"mean mask, epoch {epoch}").mean
                )
            records = [
                r["rules"][ORACLE]["curve"] for r in store
                if r.get("also") == ["oracle"] and (r["recipe"]["gate"], r["recipe"]["bound"]) == (gate, bound)
            ]  # fmt: skip
            assert len(records) == 4
            assert list(score.get_xdata()) == records[0]["epoch"]
            assert list(score.get_ydata()) == pytest.approx(100 * np.mean([r["micro_f1"] for r in records], axis=0))


def test_bands_show_deviations_and_the_bars_of_results_show_intervals(store):
    table = figures.tables("knn_k_ablation", store)[0]
    corners = FIGURES["knn_k_ablation"](store).axes[0].collections[0].get_paths()[0].vertices
    for x, row in enumerate(table.rows):
        cell = table.cell(row, "micro")
        ends = {round(float(y), 9) for at, y in corners if at == x}
        assert ends == {round(cell.mean - cell.std, 9), round(cell.mean + cell.std, 9)}
    (results,) = figures.tables("results_citations", store)
    figure = FIGURES["results_citations"](store)
    bars = figure.axes[0].containers[0][2][0].get_segments()
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    for row, bar in zip(rows, bars, strict=True):
        assert tuple(bar[:, 0]) == pytest.approx(bootstrap(list(results.cell(row, "average").by_seed.values())))
    assert rows == sorted(rows, key=lambda row: -results.cell(row, "average").mean)
    assert "95 % bootstrap interval over 2 seeds (selection rule: last)" in caption_of(figure)


# ---- missing runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FIGURES.keys() - {"flow"}))
def test_the_error_for_a_suite_without_records_names_the_command(name, tmp_path, monkeypatch):
    monkeypatch.setattr(ResultStore, "find", lambda store, task: None)  # the store is empty; this is faster
    command = "python -m benchmarks --part growth" if name == "complexity" else f"edgemask reproduce {name}"
    with pytest.raises(ValueError, match=rf"^{name}: .* has no finished run of this suite.*`{command}`"):
        draw(name, ResultStore(tmp_path))


def test_the_flow_chart_needs_no_record(tmp_path):
    assert "MaskNet" in draw("flow", ResultStore(tmp_path))


def test_rows_and_panels_without_runs_are_omitted_and_named_in_the_caption(tmp_path):
    partial = fill(
        tmp_path, ["recipes"], lambda t: t.seed < 2 and t.benchmark != "photo" and t.folder != "erm-gcn-enriched"
    )
    figure = FIGURES["recipes"](partial)
    assert [axes.get_title() for axes in figure.axes] == ["Citation, F1", "Cora, acc.", "FB-100, acc.", "Twitch, AUC"]
    assert len(figure.axes[0].get_yticks()) == 3
    assert "Not run: Photo, acc.; no game: GCN on the enriched graph." in caption_of(figure)
    assert 0 not in marks(figure, False)


def test_a_cell_without_runs_is_marked_in_the_panel(tmp_path):
    partial = fill(
        tmp_path, ["recipes"], lambda t: t.seed == 0 and (t.benchmark != "twitch" or t.folder != "edgemask-dg-star")
    )
    figure = FIGURES["recipes"](partial)
    places = [(axes.get_title(), t.get_position()[1]) for axes in figure.axes for t in axes.texts]
    assert places == [("Twitch, AUC", row) for row in range(3)]
    assert caption_of(figure).startswith("Filled: ours, one seed (selection rule: last, validation).")
    assert "paper, Twitch, AUC, ours" in caption_of(figure)


def test_a_line_has_a_gap_at_a_value_that_was_not_run(tmp_path):
    partial = fill(tmp_path, ["knn_k_ablation"], lambda t: t.seed < 2 and t.recipe.k != 10)
    line = FIGURES["knn_k_ablation"](partial).axes[0].lines[0]
    assert np.isnan(line.get_ydata()).tolist() == [False, False, True, False, False]
    assert "Not run: 10." in caption_of(FIGURES["knn_k_ablation"](partial))


def test_failed_and_missing_runs_are_excluded_from_means_and_counted(tmp_path):
    partial = fill(tmp_path, ["knn_k_ablation"], lambda t: t.seed < 2 and (t.recipe.k, t.seed) != (3, 0))
    task = next(t for t in SUITES["knn_k_ablation"].tasks() if (t.recipe.k, t.seed) == (3, 0))
    record = fake(task) | {"metrics": {}, "failed": {"kind": "DivergenceError", "message": "loss"}}
    partial.add(task, {k: v for k, v in record.items() if k != "rules"})
    figure = FIGURES["knn_k_ablation"](partial)
    assert figure.axes[0].lines[0].get_ydata()[0] == pytest.approx(
        figures.tables("knn_k_ablation", partial)[0].cell("3", "micro").mean
    )
    assert "over 1–2 seeds" in caption_of(figure)
    assert "The means exclude failed runs (2)." in caption_of(figure)  # micro and macro
    assert "Some runs are missing behind 20 of the 20 values." in caption_of(figure)


def test_missing_runs_are_named_as_briefly_as_possible():
    full, gap = Cell({("", 0): 1.0}), Cell()
    cells = {(r, p, s): full for r in "ab" for p in "xy" for s in ("one", "two")}
    assert not_run(cells) == []
    assert not_run(cells | {("a", "x", "one"): gap}) == ["a, x, one"]
    assert not_run(cells | {("a", p, s): gap for p in "xy" for s in ("one", "two")}) == ["a"]
    assert not_run(cells | {(r, p, "two"): Cell({("", 0): float("nan")}) for r in "ab" for p in "xy"}) == ["two"]


def test_a_single_graph_size_has_no_exponent(tmp_path):
    growth(tmp_path, "2 cores", (10_000,))
    figure = FIGURES["complexity"](ResultStore(tmp_path))
    assert figure.axes[0].get_title() == "2 cores"
    assert len(marks(figure, False)) == 4


# ---- files -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_file_name_determines_the_format(store, tmp_path):
    save("complexity", store, tmp_path / "new" / "a.svg")
    assert (tmp_path / "new" / "a.svg").read_text(encoding="utf-8") == draw("complexity", store)
    save("complexity", store, tmp_path / "a.png")
    picture = imread(tmp_path / "a.png")
    assert picture.shape[1] == 1300
    assert picture[0, 0].tolist() == [1, 1, 1, 1]
    save("complexity", store, str(tmp_path / "a.pdf"))
    assert (tmp_path / "a.pdf").read_bytes() == printed(FIGURES["complexity"](store), "pdf")
    assert (tmp_path / "a.pdf").read_bytes()[:5] == b"%PDF-"


def test_an_unknown_name_or_format_is_an_error(store, tmp_path):
    with pytest.raises(ValueError, match=r"no figure 'explorer' \(there are: results_citations, "):
        draw("explorer", store)
    with pytest.raises(ValueError, match=r"a\.gif: the file name of a figure must end in \.svg, \.png, \.pdf"):
        save("flow", store, tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())
