"""Tests of the report page without a browser: embedded data, displayed text, escaping, security policy and size."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import sys
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.experiments.record_schema import pack, unpack
from edgemask.experiments.records import ResultStore
from edgemask.experiments.run import Run
from edgemask.report import page as report
from edgemask.report.comparison import Cell, Comparison
from edgemask.report.page import Section, benchmark_sections, page, write_report
from edgemask.report.page.data import ROOM, coded, compact, curves, decoded, packed, plain, views
from paper import suites
from paper.suites import SUITES, all_tasks, sections, suite

HOSTILE = "</script><script>alert('owned')</script><img src=x onerror=alert(1)>"
SHOWN = ("erm-gcn", "grm", "edgemask-dg-star")
ABSENT = ("elliptic", "arxiv")


def fake(task, level=0.7, epochs=20, names=("loss a", "mask original a", "select 0"), **more):
    """Return a record of a task as `perform` would, with made-up numbers that depend on the seed."""
    rng = np.random.default_rng([task.seed, *task.label.encode()])
    scores = {t: {m: level + 0.1 * rng.random() for m in task.protocol.metrics} for t in task.protocol.targets}
    walk = np.cumsum(rng.normal(size=(len(names), epochs)), 1)
    drawn = {name: [float(f"{v:.5g}") for v in line] for name, line in zip(names, walk, strict=True)}
    drawn = {n: [v if n[:6] != "select" or i % 5 == 4 else None for i, v in enumerate(c)] for n, c in drawn.items()}
    return {
        **task.describe(),
        "data": dict.fromkeys(task.protocol.domains, "0" * 64),
        "select": {"rule": "last", "alpha": 0.0, "epoch": epochs, "scores": {}},
        "metrics": scores,
        "rules": {"last": {"epoch": epochs, "alpha": 0.0, "metrics": scores}},
        "missing": [],
        "curves": {"epoch": [float(i + 1) for i in range(epochs)], **drawn},
        "seconds": {"train": 1.25, "predict": 0.01},
        "peak_memory_mib": 120.5,
        "machine": {"device": "cuda, NVIDIA H200", "torch": "2.13.0"},
    } | more


@pytest.fixture(scope="module", autouse=True)
def few_suites():
    """Use only some of the suites, for speed. The last test makes the page of all suites."""
    names = ("results_citations", "results_elliptic_arxiv_sorted", "complexity", "explorer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suites, "SUITES", {name: SUITES[name] for name in names})
        yield


@pytest.fixture(scope="module")
def explored():
    """A real run with views of the mask, on small generated graphs."""
    source = benchmark("synthetic")
    options = dict(source.options) | {"nodes": 120}
    split = source.protocols[0]
    recipe = Recipe(
        backbone="gcn", hidden=8, epochs=3, mask_projection=4, mask_hidden=4, k=3, clusters=5, bound="budget"
    )
    run = Run("synthetic", options, split, "edgemask-dg-star", recipe, 0, also=("explorer",))
    graphs = source.load(split.domains, **options)
    return run, run.perform(graphs, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def store(tmp_path_factory, explored):
    filled = ResultStore(tmp_path_factory.mktemp("results"))
    for task in suite("results_citations").tasks():
        if task.method in SHOWN and task.seed < 3:
            more = {"failed": {"kind": "DivergenceError", "message": HOSTILE}, "metrics": {}, "curves": {}}
            filled.add(task, fake(task, **(more if task.method == "grm" and task.seed == 2 else {})))
    filled.add(*explored)
    (filled.root / "citation" / "erm-gcn" / "broken.json").write_text("{")
    return ResultStore(filled.root)


@pytest.fixture(scope="module")
def text(store):
    return page(store, sections(store, ABSENT))


class Tags(HTMLParser):
    """A parser that collects all tags with attributes, the text of the scripts, and all other text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.text, self.inside = [], [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append([dict(attrs), ""])
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1][1] += data
        elif self.inside != "style":
            self.text.append(data)

    @property
    def blocks(self):
        return {a["id"].removeprefix("block-"): t for a, t in self.scripts if "id" in a}

    def block(self, name):
        def refuse(constant):
            raise ValueError(f"browsers cannot read {constant}")

        return json.loads(zlib.decompress(base64.b64decode(self.blocks[name])), parse_constant=refuse)


# ---- embedded data ---------------------------------------------------------------------------------------


def test_every_record_is_embedded_without_curves_views_and_default_settings(store, text):
    tags = Tags(text)
    index = tags.block("index")
    records = [r for n in range(math.ceil(len(store) / index["per_block"])) for r in tags.block(f"records-{n}")]
    assert len(records) == len(store)
    for record, embedded in zip(store, records, strict=True):
        whole = {k: v for k, v in record.items() if k not in ("curves", "explorer", "recipe")}
        assert {k: v for k, v in embedded.items() if k not in ("file", "recipe")} == whole
        assert embedded["recipe"] == Recipe.from_json(record["recipe"]).changes()
        assert store.root / embedded["file"] == store.path_of(record)


def test_curves_are_embedded_with_four_digits_and_the_index_locates_them(store, text):
    tags = Tags(text)
    index = tags.block("index")
    for n, record in enumerate(store):
        assert index["runs"][n] == [record[k] for k in ("benchmark", "method")] + [
            record["protocol"]["name"], record["seed"],
        ]  # fmt: skip
        if not record["curves"]:
            assert index["curves"][n] is None
            continue
        block, place = index["curves"][n]
        embedded = {name: decoded(*c) for name, c in tags.block(f"curves-{block}")[place].items()}
        assert embedded.keys() == record["curves"].keys()
        for name, curve in record["curves"].items():
            assert [v is None for v in embedded[name]] == [v is None for v in curve]
            real = [v for v in curve if v is not None]
            np.testing.assert_allclose(
                [v for v in embedded[name] if v is not None], real, atol=5.01e-4 * max(map(abs, real))
            )


@given(st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=30))
def test_a_coded_curve_is_exact_to_four_digits_of_its_largest_value(curve):
    restored = decoded(*coded(curve))
    real = [v for v in curve if v is not None and math.isfinite(v)]
    assert [v is not None for v in restored] == [v is not None and math.isfinite(v) for v in curve]
    allowed = 5.01e-4 * max(map(abs, real), default=0)
    assert all(abs(a - b) <= allowed for a, b in zip((v for v in restored if v is not None), real, strict=True))
    json.loads(json.dumps(coded(curve), allow_nan=False))


def test_a_known_curve_is_coded_as_steps():
    assert coded([1.5, None, 1.25, 1.2504]) == [3, [1500, None, -250, 0]]
    assert coded([0.0, 0.0]) == [0, [0, 0]]
    assert coded([]) == [0, []]


def test_a_view_is_embedded_completely(store, text, explored):
    tags = Tags(text)
    (graph, view), *others = explored[1]["explorer"].items()
    assert not others
    embedded = tags.block("view-0")
    for name in ("nodes", "classes", "origins", "alpha"):
        assert embedded[name] == view[name]
    for name in ("true", "before", "after"):
        assert (unpack(embedded[name], np.int16) == unpack(view[name], np.int16)).all()
    degree = unpack(embedded["degree"], np.uint32).astype(int)
    gaps = sum(unpack(plane, np.uint8).astype(int) << 8 * i for i, plane in enumerate(embedded["gaps"]))
    rows = np.split(gaps, np.cumsum(degree)[:-1])
    edges = [(int(s), v) for v, row in enumerate(rows) for s in np.cumsum(row)]
    expected = list(zip(unpack(view["src"], np.uint32).tolist(), unpack(view["dst"], np.uint32).tolist(), strict=True))
    assert sorted(edges) == sorted(expected)
    for name in ("origin", "mask"):
        by_edge = dict(zip(edges, unpack(embedded[name], np.uint8).tolist(), strict=True))
        assert by_edge == dict(zip(expected, unpack(view[name], np.uint8).tolist(), strict=True))
    assert f"{graph} (synthetic" in text


def test_the_order_of_the_edges_does_not_change_a_view_and_large_node_numbers_work():
    rng = np.random.default_rng(0)
    src, dst = np.array([70_000, 3, 99_999, 0, 5]), np.array([2, 99_998, 2, 2, 99_998])
    order = rng.permutation(5)
    one, other = (
        compact({"nodes": 100_000, "src": pack(src[o], np.uint32), "dst": pack(dst[o], np.uint32),
                 "origin": pack(np.arange(5)[o], np.uint8), "mask": pack(50 * np.arange(5)[o], np.uint8),
                 **dict.fromkeys(("classes", "origins", "alpha", "true", "before", "after"))})
        for o in (np.arange(5), order)
    )  # fmt: skip
    assert one == other
    gaps = sum(unpack(plane, np.uint8).astype(int) << 8 * i for i, plane in enumerate(one["gaps"]))
    assert gaps.tolist() == [0, 70_000, 29_999, 3, 2]
    assert unpack(one["origin"], np.uint8).tolist() == [3, 0, 2, 1, 4]


def test_a_cell_opens_the_runs_of_its_mean(store, text):
    (table,) = Tags(text).block("suite-results_citations")
    (comparison,) = SUITES["results_citations"].comparisons(store)
    assert (tuple(table["rows"]), tuple(table["columns"])) == (comparison.rows, comparison.columns)
    cells = {(r, c): cell for r, c, cell in table["cells"]}
    row, column = comparison.rows.index("grm (GRM)"), comparison.columns.index("AC→D micro")
    opened = cells[row, column]
    cell = comparison.cell("grm (GRM)", "AC→D micro")
    assert opened["failed"] == 1
    assert [tuple(u[:2]) for u in opened["units"]] == [("citation AC→D", seed) for seed in range(3)]
    assert opened["units"][2][2] == "failed"
    assert np.mean([u[2] for u in opened["units"][:2]]) == pytest.approx(cell.mean, abs=1e-4)
    keys = [store.records[n]["key"] for u in opened["units"] for n in u[3]]
    assert keys == list(cell.keys)
    assert {v["other"] for v in table["versus"] if v["family"] == "reference"} == {"erm-gcn (ERM)"}


def test_nan_and_infinity_become_strings():
    odd, text = {"a": [math.nan, 1.5, {"b": -math.inf}], "c": "nan"}, {"a": ["nan", 1.5, {"b": "-inf"}], "c": "nan"}
    assert plain(odd) == text
    assert json.loads(zlib.decompress(base64.b64decode(packed(odd)))) == text


# ---- displayed text --------------------------------------------------------------------------------------


def test_a_table_shows_our_result_the_papers_and_the_difference(store, text):
    (comparison,) = SUITES["results_citations"].comparisons(store)
    cell = comparison.cell("edgemask-dg-star (EDG*)", "average")
    ours = f"{cell.mean:.1f} ± {cell.std:.1f}"
    row = re.search(r'<th scope="row">edgemask-dg-star \(EDG\*\)</th>.*?</tr>', text, re.DOTALL).group()
    assert ours in row
    assert "73.8" in row
    assert f"{cell.difference:+.1f}".replace("-", "−") in row
    assert "1 failed" in text
    assert "No results of ours (data not available)" in text
    assert "<code>edgemask reproduce results_citations</code>" in text


def test_findings_may_contain_bold_text_and_code():
    shown = report.markdown(r"**DG\* wins, `**kw` too.** A <b> of `a*b`; 2 * 3.")
    assert shown == "<strong>DG* wins, <code>**kw</code> too.</strong> A &lt;b&gt; of <code>a*b</code>; 2 * 3."


def test_the_head_shows_the_origin_of_the_records(store, text):
    head = text[: text.index("<main")]
    assert f"<dd>{len(store)}, of which 3 failed</dd>" in head
    assert "cuda, NVIDIA H200" in head
    assert store.records[0]["code"] in head
    assert "<code>citation/erm-gcn/broken.json</code> is not a result record" in head
    assert str(store.root) not in text


def test_a_store_without_records_has_a_page(tmp_path):
    store = ResultStore(tmp_path)
    text = page(store, sections(store))
    assert "No record in this store has curves." in text
    assert "edgemask reproduce explorer" in text


def test_the_same_records_give_the_same_page_and_one_complete_file(store, text, tmp_path):
    again = ResultStore(store.root)
    path = write_report(again, sections(again, ABSENT), tmp_path / "new" / "report.html")
    assert path == tmp_path / "new" / "report.html"
    assert path.read_text(encoding="utf-8") == text
    assert list(path.parent.iterdir()) == [path]


def test_benchmark_sections_show_every_method_and_its_runs(store):
    text = page(store, benchmark_sections(store))
    tags = Tags(text)
    assert [a["id"] for t, a in tags.tags if t == "section" and a.get("class")] == ["citation", "synthetic"]
    assert "edgemask reproduce citation" not in text
    (table,) = tags.block("suite-citation")
    assert table["rows"] == sorted(SHOWN)
    records = [r for r in store if r["method"] == "erm-gcn" and r["protocol"]["name"] == "AC→D"]
    cells = {(table["rows"][r], table["columns"][c]): cell for r, c, cell in table["cells"]}
    (target,) = records[0]["metrics"]
    units = [(u[0], u[1], pytest.approx(u[2], abs=1e-4)) for u in cells["erm-gcn", "AC→D micro_f1"]["units"]]
    assert [("citation AC→D", r["seed"], 100 * r["metrics"][target]["micro_f1"]) for r in records] == units
    assert '<span class="paper">3 failed</span>' in text  # in the average column


def test_without_the_extra_the_error_names_it(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"edgemask\[report\]"):
        page(store, [])


# ---- security ----------------------------------------------------------------------------------------------


def test_text_from_records_files_and_tables_never_becomes_markup(tmp_path):
    task = suite("results_citations").tasks()[0]
    store = ResultStore(tmp_path)
    path = store.add(task, fake(task, machine={"device": HOSTILE}, method=task.method))
    wrong = tmp_path / "<script>alert(1)<" / "script><img src=x onerror=alert(2)>"
    wrong.mkdir(parents=True)
    (wrong / "x.json").write_text(HOSTILE)
    store = ResultStore(tmp_path)
    key = store.records[0]["key"]
    cells = {(HOSTILE, HOSTILE): Cell({(HOSTILE, 0): 1.0}, (1.0,), (HOSTILE,), (key,), absent=HOSTILE)}
    bad = Comparison(
        "x", HOSTILE, f"`{HOSTILE}` {HOSTILE}", (HOSTILE,), (HOSTILE,), cells, reference=HOSTILE, findings=(HOSTILE,)
    )
    tags = Tags(page(store, [Section("x", HOSTILE, [bad], HOSTILE)]))
    assert len([a for a, _ in tags.scripts if "id" not in a]) == 1  # one script; the others are data blocks
    assert all(a["type"] == "application/octet-stream" for a, _ in tags.scripts if "id" in a)
    assert not any(tag == "img" for tag, _ in tags.tags)
    assert not any(name.startswith("on") for _, attributes in tags.tags for name in attributes)
    seen = "".join(tags.text)
    assert seen.count(HOSTILE) >= 9
    assert "<script>alert(1)</script><img src=x onerror=alert(2)>/x.json" in seen
    assert path.exists()


def test_the_page_loads_nothing(text):
    tags = Tags(text)
    links = [v for _, attributes in tags.tags for k, v in attributes.items() if k in ("src", "href", "action", "data")]
    assert links
    assert all(link == "data:," or link.startswith("#") for link in links)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    (script,) = [t for a, t in tags.scripts if "id" not in a]
    assert not re.search(r"url\(|@import", style)
    assert not re.search(r"\bfetch\(|XMLHttpRequest|\bimport\b|WebSocket|innerHTML|\beval\(", script)
    shell = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"https?://", shell)


def test_the_policy_allows_only_the_scripts_of_the_page(text):
    tags = Tags(text)
    (policy,) = [a["content"] for t, a in tags.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    (script,) = [t for a, t in tags.scripts if "id" not in a]
    library = zlib.decompress(base64.b64decode(tags.blocks["library"]))
    hashes = [base64.b64encode(hashlib.sha256(t).digest()).decode() for t in (script.encode(), library)]
    assert rules["script-src"].split() == [f"'sha256-{h}'" for h in hashes]


# ---- size and speed --------------------------------------------------------------------------------------


def test_if_curves_do_not_fit_those_of_the_last_seeds_are_left_out():
    records = [{"seed": n % 3, "curves": {"loss": list(np.random.default_rng(n).random(200))}} for n in range(300)]
    everything, where = curves(records, 10**9)
    assert all(where)
    room = sum(len(b) for b in everything.values()) // 2
    some, where = curves(records, room)
    assert sum(map(len, some.values())) <= room
    embedded = [[w is not None for w, r in zip(where, records, strict=True) if r["seed"] == s] for s in range(3)]
    assert all(embedded[0])
    assert not any(embedded[2])


def test_views_that_do_not_fit_are_counted(explored):
    records = [explored[1]] * 3
    one = len(next(iter(views(records[:1], 10**9)[0].values())))
    blocks, about, left_out = views(records, 2 * one)
    assert (len(blocks), len(about), left_out) == (2, 2, 1)


@pytest.mark.slow
def test_a_page_of_every_citation_run_is_small(tmp_path, monkeypatch):
    """2,500 runs with 15 noisy curves of 200 epochs, and views of 600,000 edges: the worst case for every block."""
    monkeypatch.setattr(suites, "SUITES", SUITES)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # for speed: the test measures the page
    store, rng = ResultStore(tmp_path), np.random.default_rng(0)
    names = [f"{what} {i}" for i in range(3) for what in ("loss", "adversary", "mask original", "mask knn", "select")]
    noisy = [{n: rng.normal(size=200).tolist() for n in names} for _ in range(40)]
    for task in [t for t in all_tasks(list(SUITES)) if isinstance(t, Run)][:2500]:
        store.add(task, fake(task, epochs=1, names=names))
        store.records[-1]["curves"] = noisy[len(store) % 40]
    edges = np.sort(rng.integers(0, 9000, (2, 200_000)).astype(np.uint32))
    numbers = {n: pack(rng.integers(0, 5, 9000), np.int16) for n in ("true", "before", "after")}
    view = {
        "nodes": 9000, "classes": list("abcde"), "origins": ["original", "knn", "spectral"], "alpha": 0.0, **numbers,
        "src": pack(edges[0], np.uint32), "dst": pack(edges[1], np.uint32),
        "origin": pack(rng.integers(0, 3, 200_000), np.uint8), "mask": pack(rng.integers(0, 256, 200_000), np.uint8),
    }  # fmt: skip
    store.records[0]["explorer"] = {"a": view, "b": view, "c": view}
    text = page(store, sections(store))
    assert len(text.encode()) < 8 * 2**20
    assert len(text.encode()) > ROOM * 0.7, "the available room is not used"
    assert "did not fit; they are in the record files" in text
