"""Tests of the report page in headless Chromium: loading, sorting, filtering, dialogs, explorer, keyboard use.

If EDGEMASK_SHOTS names a folder, the tests write screenshots of the page to it.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.experiments.record_schema import unpack
from edgemask.experiments.records import ResultStore
from edgemask.experiments.run import Run
from edgemask.report.page import write_report
from paper.suites import sections, suite

pytestmark = pytest.mark.browser
CHROMIUM = "/usr/bin/chromium"
ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SHOWN = ("erm-gcn", "grm", "edgemask-dg", "edgemask-dg-star")
TABLE = "#t-results_citations-0"
ABSENT = ("elliptic", "arxiv")


def fake(task):
    """Return a record with made-up numbers. The last method of `SHOWN` is the best."""
    rng = np.random.default_rng([task.seed, *task.label.encode()])
    level = 0.6 + 0.05 * SHOWN.index(task.method)
    scores = {t: {m: level + 0.01 * rng.random() for m in task.protocol.metrics} for t in task.protocol.targets}
    epochs = np.arange(1, 41)
    curves = {f"loss {d}": 1.5 * np.exp(-epochs / 15) + 0.02 * rng.random(40) for d in task.protocol.sources}
    curves |= {f"mask original {d}": 0.9 + 0.02 * rng.random(40) for d in task.protocol.sources}
    curves |= {"select 0.5": np.where(epochs % 5, np.nan, 0.6 + epochs / 200)}
    return {
        **task.describe(),
        "data": dict.fromkeys(task.protocol.domains, "0" * 64),
        "select": {"rule": "source-val", "alpha": 0.5, "epoch": 35, "scores": {}},
        "metrics": scores,
        "rules": {rule: {"epoch": 35, "alpha": 0.5, "metrics": scores} for rule in ("source-val", "last")},
        "missing": [],
        "curves": {n: [None if np.isnan(v) else float(f"{v:.5g}") for v in c] for n, c in curves.items()},
        "seconds": {"train": 1.25, "predict": 0.01},
        "peak_memory_mib": 120.5,
        "machine": {"device": "cuda, NVIDIA H200", "torch": "2.13.0"},
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with fake runs of four methods, a real run with a view of the mask, timings and an invalid file."""
    filled = ResultStore(tmp_path_factory.mktemp("results"))
    for task in suite("results_citations").tasks():
        if task.method in SHOWN and task.seed < 3:
            filled.add(task, fake(task))
    source = benchmark("synthetic")
    options = dict(source.options) | {"nodes": 400}
    split = source.protocols[0]
    recipe = Recipe(backbone="gcn", hidden=8, epochs=20, mask_projection=8, mask_hidden=8, k=5, clusters=10, lr=0.02,
                    knn_ratio=1.0, mask_lr=0.05, bound="budget", rho=0.6)  # fmt: skip
    run = Run("synthetic", options, split, "edgemask-dg-star", recipe, 0, also=("explorer",))
    filled.add(run, run.perform(source.load(split.domains, **options), device=torch.device("cpu")))
    (filled.root / "speed").mkdir()
    points = [
        {"nodes": n, "peak": {"process": {"host": 100.0, "device": 0.0}}}
        | {name: n**p / 1e5 for name, p in (("knn", 1.9), ("spectral", 1.1), ("enrich", 1.8), ("epoch", 1.0))}
        for n in (1000, 10_000, 100_000)
    ]
    figures = {"points": points, "exponents": {"knn": 1.9, "spectral": 1.1, "enrich": 1.8, "epoch": 1.0}}
    growth = {"machine": {"device": "2 cores", "kind": "cpu"}, "figures": figures}
    (filled.root / "speed" / "growth-2-cores.json").write_text(json.dumps(growth))
    (filled.root / "citation" / "erm-gcn" / "<b>.json").write_text("{")
    return ResultStore(filled.root)


@pytest.fixture(scope="module")
def address(store, tmp_path_factory):
    path = write_report(store, sections(store, ABSENT), tmp_path_factory.mktemp("page") / "report.html")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, address):
    """Return a function that opens the page in a new window. Requests, console messages and errors fail the test."""
    contexts, messages = [], []

    def opener(width=1360, height=900, address=address, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: messages.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: messages.append(f"error: {error}"))
        page.on("request", lambda request: request.url == address or messages.append(f"request: {request.url[:100]}"))
        page.goto(address)
        page.wait_for_function("performance.getEntriesByName('interactive').length > 0")
        return page

    yield opener
    for context in contexts:
        context.close()
    assert messages == []


@pytest.fixture
def page(opened):
    return opened()


def shot(page, name):
    if folder := os.environ.get("EDGEMASK_SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def rows(page, table=TABLE):
    return page.locator(f"{table} tbody tr:not([hidden]) th").all_inner_texts()


def explore(page):
    page.locator("#explorer").scroll_into_view_if_needed()
    page.wait_for_selector("#graph .focal")


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


# ---- the page as a whole ---------------------------------------------------------------------------------


def test_the_page_is_interactive_within_three_seconds_and_loads_nothing_else(page):
    shot(page, "desktop-light")
    assert page.evaluate("performance.getEntriesByName('interactive')[0].startTime") < 3000
    assert page.locator("html").evaluate("() => typeof window.Plotly") == "undefined"  # unpacked only when needed
    assert page.locator("h1").inner_text() == "edgemask results"
    page.locator(".rejected summary").click()
    assert "citation/erm-gcn/<b>.json is not a result record" in page.locator(".rejected").inner_text()


def test_the_page_of_all_committed_records_is_small_and_interactive_within_three_seconds(opened, tmp_path):
    store = ResultStore(ROOT / "results")
    path = write_report(store, sections(store, ABSENT), tmp_path / "report.html")
    assert path.stat().st_size < 8 * 2**20
    page = opened(address=path.as_uri())
    assert page.evaluate("performance.getEntriesByName('interactive')[0].startTime") < 3000
    assert page.locator(f"{TABLE} tbody tr").count() > 30  # every method's row


def test_only_the_scripts_of_the_page_can_run(opened, browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.owned = 1'}))")
    page.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))")
    page.wait_for_timeout(200)
    assert page.evaluate("window.owned") is None
    assert len(complaints) >= 2
    assert all("Content Security Policy" in text for text in complaints)
    context.close()


def test_the_page_follows_the_colour_scheme_and_is_readable(opened):
    def luminance(colour):
        rgb = [int(c) / 255 for c in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    grounds = {}
    for scheme in ("light", "dark"):
        page = opened(color_scheme=scheme)
        shot(page, f"desktop-{scheme}")
        style = "e => [getComputedStyle(e).color, getComputedStyle(document.body).backgroundColor]"
        for selector in ("body", ".muted", ".paper", "nav a", "summary", ".ours", ".caption"):
            ink, ground = map(luminance, page.locator(selector).first.evaluate(style))
            grounds[scheme] = ground
            assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 4.5, (scheme, selector)
    assert grounds["dark"] < 0.1 < 0.8 < grounds["light"]


def test_on_a_phone_the_tables_scroll_and_not_the_page(opened):
    page = opened(390, 844, is_mobile=True, has_touch=True)
    assert overflow(page) <= 0
    shot(page, "phone")
    page.locator(TABLE).scroll_into_view_if_needed()
    shot(page, "phone-table")
    assert page.locator(f"{TABLE} .scroll").evaluate("e => e.scrollWidth > e.clientWidth")
    page.locator(f"{TABLE} button.ours").first.click()
    page.wait_for_selector("#dialog[open] td button")
    assert overflow(page) <= 0
    page.locator("#dialog td button").first.click()
    page.wait_for_selector("#dialog pre", state="attached")
    box = page.locator("#dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    page.keyboard.press("Escape")
    page.locator("#curves").scroll_into_view_if_needed()
    page.wait_for_selector("#plots .main-svg")
    explore(page)
    shot(page, "phone-explorer")
    assert overflow(page) <= 0
    assert not page.locator("#contents").evaluate("e => e.open")


def test_with_reduced_motion_the_contents_jump_to_their_sections(opened):
    page = opened(reduced_motion="reduce")
    for link in page.locator("nav a").all():
        name = link.get_attribute("href")
        link.click()
        place = "e => [e.getBoundingClientRect().top, document.documentElement.scrollHeight - scrollY - innerHeight]"
        top, below = page.locator(name).evaluate(place)
        assert abs(top - 16) < 4 or below < 4, f"{name} is {top} px below the top of the window"


def test_headings_landmarks_and_names_of_controls_exist(page):
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    for landmark in ("main", "nav[aria-label]", "body > header", "body > footer"):
        assert page.locator(landmark).count() == 1
    nameless = (
        "all => all.filter(e => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel).map(e => e.outerHTML)"
    )
    assert page.locator("button:not(dialog *), input, select").evaluate_all(nameless) == []


# ---- tables ----------------------------------------------------------------------------------------------


def means(page, column):
    texts = page.locator(f"{TABLE} tbody tr:not([hidden]) td:nth-child({column + 1}) .ours").all_inner_texts()
    return [float(t.split(" ")[0]) for t in texts if t[0].isdigit()]


def test_a_table_sorts_by_any_column_both_ways_and_back(page):
    original = rows(page)
    header = page.locator(f"{TABLE} thead th").nth(1)
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    down = means(page, 1)
    assert len(down) == len(SHOWN)
    assert down == sorted(down, reverse=True)
    assert rows(page)[0].startswith("edgemask-dg-star")
    assert not page.locator(f"{TABLE} tbody tr").last.locator("td .ours").first.inner_text()[0].isdigit()
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert means(page, 1) == sorted(down)  # rows without a value stay last
    name = page.locator(f"{TABLE} thead th").nth(0)
    name.locator("button").click()
    assert (name.get_attribute("aria-sort"), header.get_attribute("aria-sort")) == ("ascending", "none")
    assert rows(page) == sorted(original)
    name.locator("button").click()
    name.locator("button").click()
    assert rows(page) == original


def test_columns_also_sort_by_the_papers_figures_and_the_difference(page):
    page.locator(f"{TABLE} thead th").nth(7).locator("button").click()
    page.locator(f"{TABLE} .sort-by").select_option("1")
    assert rows(page)[:2] == ["edgemask-dg-star (EDG*)", "grm (GRM)"]  # 73.81 and 73.28 in the paper
    page.locator(f"{TABLE} .sort-by").select_option("2")
    differences = page.locator(f"{TABLE} tbody tr td:nth-child(8) .paper b").all_inner_texts()
    numbers = [float(d.replace("−", "-")) for d in differences]
    assert numbers == sorted(numbers, reverse=True)


def test_a_table_filters_by_text(page):
    everything = len(rows(page))
    page.locator(f"{TABLE} .filter").fill("EDGEMASK star")
    shown = rows(page)
    assert shown
    assert all("edgemask" in r and "star" in r for r in shown)
    assert page.locator(f"{TABLE} .count").inner_text() == f"{len(shown)} of {everything} rows"
    page.locator(f"{TABLE} .filter").fill("")
    assert len(rows(page)) == everything


def test_a_cell_opens_its_runs_and_a_run_its_record(page, store):
    row = page.locator(f"{TABLE} tbody tr", has=page.locator("th", has_text="edgemask-dg-star (EDG*)"))
    cell = row.locator("button.ours").first
    shown = cell.inner_text()
    cell.click()
    page.wait_for_selector("#dialog td button")
    assert page.locator("#dialog-title").inner_text() == "edgemask-dg-star (EDG*): AC→D micro"
    assert "difference from erm-gcn (erm):" in page.locator("#dialog").inner_text().lower()
    values = [float(v) for v in page.locator("#dialog tbody td:nth-child(3)").all_inner_texts()]
    assert len(values) == 3
    assert shown == f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
    shot(page, "cell")
    page.locator("#dialog td button").nth(1).click()
    page.wait_for_selector("#dialog pre", state="attached")
    raw = json.loads(page.locator("#dialog pre").text_content())
    (record,) = [r for r in store if r["key"] == raw["key"]]
    assert record["seed"] == 1
    assert raw["metrics"] == record["metrics"]
    assert raw["digest"] == record["digest"]
    assert raw["recipe"] == Recipe.from_json(record["recipe"]).changes()
    text = page.locator("#dialog").inner_text()
    assert all(word in text for word in ("source-val", "121 MiB", "cuda, NVIDIA H200", "torch 2.13.0", "train 1.25 s"))
    shot(page, "record")
    page.locator("#dialog-back").click()
    assert page.locator("#dialog tbody tr").count() == 3
    page.locator("#dialog-close").click()
    assert not page.locator("#dialog").is_visible()


# ---- curves ----------------------------------------------------------------------------------------------


def test_choosing_a_run_shows_its_curves(page, store):
    page.locator("#curves").scroll_into_view_if_needed()
    page.wait_for_selector("#plots .main-svg")
    page.locator("#pick-row").select_option(label="grm (GRM)")
    page.locator("#pick-run").select_option(label="citation AD→C, seed 2")
    page.wait_for_function("document.querySelectorAll('#plots .plot').length === 3")
    titles = page.locator("#plots figcaption").all_inner_texts()
    assert titles == ["Losses", "Mean mask by origin", "Selection scores by strength α"]
    page.locator("#curves-table summary").click()
    (record,) = [
        r for r in store if (r["method"], r["protocol"]["name"], r["seed"]) == ("grm", "AD→C", 2)
    ]  # fmt: skip
    table = page.locator("#curves-table tbody tr")
    assert table.count() == len(record["curves"])
    for name, curve in record["curves"].items():
        cells = table.filter(has=page.get_by_text(name, exact=True)).locator("td").all_inner_texts()
        values = [v for v in curve if v is not None]
        expected = [values[0], values[-1], min(values), max(values)]
        assert [float(c.replace("−", "-")) for c in cells[1:]] == pytest.approx(expected, abs=6e-4 * max(values))
    shot(page, "curves")
    page.locator("#pick-record").click()
    page.wait_for_selector("#dialog pre", state="attached")
    assert "grm on citation AD→C, seed 2" in page.locator("#dialog-title").inner_text()


def test_a_record_links_to_its_curves(page):
    row = page.locator(f"{TABLE} tbody tr", has=page.locator("th", has_text="grm (GRM)"))
    row.locator("button.ours").last.click()
    page.locator("#dialog td button").last.click()
    page.locator("#dialog button", has_text="Show curves").click()
    page.wait_for_selector("#plots .main-svg")
    assert page.locator("#pick-run option:checked").inner_text() == "citation CD→A, seed 2"
    assert page.locator("#pick-row option:checked").inner_text() == "grm (GRM)"


def test_growth_is_drawn_with_its_exponents(page):
    page.locator(".growth").scroll_into_view_if_needed()
    page.wait_for_selector(".growth .main-svg .legendtext")
    names = page.locator(".growth .legendtext").all_text_contents()
    assert names[0] == "kNN: N^1.90, paper N^2"
    assert len(names) == 4


# ---- the mask explorer -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def view(store):
    (record,) = [r for r in store if "explorer" in r]
    (packed,) = record["explorer"].values()
    kinds = {"src": np.uint32, "dst": np.uint32, "origin": np.uint8, "mask": np.uint8}
    kinds |= dict.fromkeys(("true", "before", "after"), np.int16)
    return packed | {name: unpack(packed[name], kind).astype(int) for name, kind in kinds.items()}


def neighbours(page):
    return [tuple(r.split("\t")) for r in page.locator("#neighbours tbody tr").all_inner_texts()]


def test_the_edges_used_by_the_prediction_are_shown_first(page, view):
    explore(page)
    page.locator("#node").fill("7")
    page.locator("#explore button[type=submit]").click()
    used = np.flatnonzero((view["dst"] == 7) & (view["origin"] == 0))  # the recipe predicts on the original graph
    assert {tuple(n[:3]) for n in neighbours(page)} == {(str(view["src"][i]), "original", "1.00") for i in used}
    assert page.locator("#graph .edge").count() == len(used) < (view["dst"] == 7).sum()
    assert "Weight" in page.locator("#neighbours thead").inner_text()
    shot(page, "explorer-used")


def test_a_node_shows_its_edges_by_origin_and_mask(page, view):
    explore(page)
    page.locator("#explore input[value=mask]").check()
    page.locator("#node").fill("7")
    page.locator("#explore button[type=submit]").click()
    shot(page, "explorer")
    into = np.flatnonzero(view["dst"] == 7)
    origins = {"original": "original", "knn": "kNN", "spectral": "spectral"}
    expected = {
        (str(view["src"][i]), origins[view["origins"][view["origin"][i]]], f"{view['mask'][i] / 255:.2f}") for i in into
    }
    assert {tuple(n[:3]) for n in neighbours(page)} == expected
    assert page.locator("#graph .edge").count() == len(into)
    for moment in ("before", "after"):
        page.locator(f"#explore input[value={moment}]").check()
        predicted = {n[0]: n[4].removesuffix(" ✗") for n in neighbours(page)}
        assert predicted == {str(view["src"][i]): view["classes"][view[moment][view["src"][i]]] for i in into}
    about = page.locator("#node-about").inner_text()
    assert f"true class {view['classes'][view['true'][7]]}" in about
    verdict = "right" if view["after"][7] == view["true"][7] else "wrong"
    assert f"after it: {view['classes'][view['after'][7]]} ({verdict})" in about


def test_a_view_opens_its_record(page):
    explore(page)
    page.locator("#view-record").click()
    page.wait_for_selector("#dialog pre", state="attached")
    assert page.locator("#dialog-title").inner_text().startswith("edgemask-dg-star on synthetic")


def test_weights_and_masks_are_drawn_differently(page):
    explore(page)
    widths = "all => all.map(e => Number(e.getAttribute('stroke-width')))"
    used = page.locator("#graph .edge").evaluate_all(widths)
    assert set(used) == {4.8}  # every weight is 1
    assert {n[2] for n in neighbours(page)} == {"1.00"}
    page.locator("#explore input[value=mask]").check()
    masks = page.locator("#graph .edge").evaluate_all(widths)
    assert max(masks) <= 4.8
    assert np.mean(masks) < 4.7


def test_nodes_can_be_chosen_by_change_at_random_and_by_neighbour(page, view):
    explore(page)
    number = page.locator("#node")
    changed = np.flatnonzero(view["before"] != view["after"])
    assert len(changed) > 1
    assert int(number.input_value()) in changed  # the explorer starts at the most changed node
    first = number.input_value()
    page.locator("#changed").click()
    assert number.input_value() != first
    assert int(number.input_value()) in changed
    seen = set()
    for _ in range(8):
        page.locator("#random").click()
        seen.add(number.input_value())
    assert len(seen) > 2
    assert all(0 <= int(n) < view["nodes"] for n in seen)
    page.locator("#graph .node").first.click()
    assert number.input_value() not in ("", first)
    wanted = page.locator("#neighbours td button").nth(1).inner_text()
    page.locator("#neighbours td button").nth(1).click()
    assert number.input_value() == wanted
    number.fill("999999")
    page.locator("#explore button[type=submit]").click()
    assert int(number.input_value()) <= view["nodes"] - 1 or not number.evaluate("e => e.validity.valid")


def test_two_hops_draw_more_nodes_up_to_a_cap(page):
    explore(page)
    page.locator("#explore input[value=mask]").check()
    page.locator("#explore input[name=hops][value='2']").check()
    count = page.locator("#graph .node").count()
    assert 16 < count <= 16 + 16 * 3
    shot(page, "explorer-two-hops")


def test_origins_and_classes_differ_in_more_than_colour(page, view):
    explore(page)
    dashes = page.locator("#legend .edge").evaluate_all("all => all.map(e => e.getAttribute('stroke-dasharray'))")
    assert len(set(dashes[:3])) == 3
    shapes = page.locator("#legend .glyph").evaluate_all("all => all.map(e => e.getAttribute('d'))")
    assert len(set(shapes)) == len(view["classes"])
    assert page.locator("#legend text").all_text_contents() == view["classes"]


# ---- by keyboard -----------------------------------------------------------------------------------------


def focused(page, selector):
    return page.evaluate("s => document.activeElement.matches(s)", selector)


def tab_to(page, selector, most=60):
    for _ in range(most):
        page.keyboard.press("Tab")
        if focused(page, selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"the focus on {selector} is not visible"
            return
    raise AssertionError(f"{most} presses of the Tab key did not reach {selector}")


def test_the_page_works_with_the_keyboard_alone(page):
    page.keyboard.press("Tab")
    assert focused(page, ".skip")
    page.keyboard.press("Enter")
    tab_to(page, f"{TABLE} .filter")
    page.keyboard.type("edgemask")
    assert all("edgemask" in r for r in rows(page))
    tab_to(page, f"{TABLE} thead th:nth-child(2) button")
    page.keyboard.press("Space")
    assert page.locator(f"{TABLE} th:nth-child(2)").first.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Enter")
    assert page.locator(f"{TABLE} th:nth-child(2)").first.get_attribute("aria-sort") == "ascending"
    tab_to(page, f"{TABLE} button.ours")
    label = page.evaluate("document.activeElement.dataset.cell")
    page.keyboard.press("Enter")
    page.wait_for_selector("#dialog[open] td button")
    assert focused(page, "#dialog-title")
    tab_to(page, "#dialog td button")
    page.keyboard.press("Space")
    page.wait_for_selector("#dialog pre", state="attached")
    for _ in range(12):  # the focus stays in the dialog
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    assert not page.locator("#dialog").is_visible()
    assert page.evaluate("document.activeElement.dataset.cell") == label  # the focus returns to the cell


def test_the_explorer_works_with_the_keyboard_alone(page):
    explore(page)
    page.locator("#view").focus()
    tab_to(page, "#node")
    page.keyboard.press("Control+A")
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    assert "Node 12," in page.locator("#node-about").inner_text()
    tab_to(page, "#explore input[name=moment]")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#explore input[value=before]").is_checked()
    tab_to(page, "#graph")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    wanted = page.locator("#graph .cursor").get_attribute("data-node")
    assert page.locator("#graph").get_attribute("aria-activedescendant") == "n-1"
    page.keyboard.press("Enter")
    assert page.locator("#node").input_value() == wanted
    tab_to(page, "#neighbours td button")
    page.keyboard.press("Enter")
    assert page.locator("#node").input_value() != wanted
