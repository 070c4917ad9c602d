"""The report page without a browser: it embeds what the records hold, escapes all, loads nothing, stays small."""

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
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.experiments.extras import pack, unpack
from edgemask.experiments.records import ResultStore
from edgemask.experiments.run import Run
from edgemask.report import page as report
from edgemask.report.comparison import Cell, Comparison
from edgemask.report.page import page, write_report
from edgemask.report.page.data import ROOM, coded, compact, curves, decoded, packed, plain, views
from paper.suites import SUITES, all_tasks, suite

HOSTILE = "</script><script>alert('owned')</script><img src=x onerror=alert(1)>"
SHOWN = ("erm-gcn", "grm", "edgemask-dg-star")


def fake(task, level=0.7, epochs=20, names=("loss a", "mask original a", "select 0"), **more):
    """A record of a task as `perform` would return it, with made-up numbers that its seed decides."""
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
    """Some of the suites, for speed; the page of all of them is made once, at the end."""
    names = ("results_citations", "results_elliptic_arxiv_sorted", "complexity", "explorer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "SUITES", {name: SUITES[name] for name in names})
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
    held = ResultStore(tmp_path_factory.mktemp("results"))
    for task in suite("results_citations").tasks():
        if task.method in SHOWN and task.seed < 3:
            more = {"failed": {"kind": "DivergenceError", "message": HOSTILE}, "metrics": {}, "curves": {}}
            held.add(task, fake(task, **(more if task.method == "grm" and task.seed == 2 else {})))
    held.add(*explored)
    (held.root / "citation" / "erm-gcn" / "broken.json").write_text("{")
    return ResultStore(held.root)


@pytest.fixture(scope="module")
def text(store):
    return page(store, absent=("elliptic", "arxiv"))


class Tags(HTMLParser):
    """Every tag with its attributes, the text of every script, and all other text."""

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
            raise ValueError(f"a browser does not read {constant}")

        return json.loads(zlib.decompress(base64.b64decode(self.blocks[name])), parse_constant=refuse)


# ---- what is embedded ------------------------------------------------------------------------------------


def test_every_record_is_embedded_as_it_is_but_for_curves_views_and_defaults(store, text):
    tags = Tags(text)
    index = tags.block("index")
    held = [r for n in range(math.ceil(len(store) / index["per_block"])) for r in tags.block(f"records-{n}")]
    assert len(held) == len(store)
    for record, embedded in zip(store, held, strict=True):
        whole = {k: v for k, v in record.items() if k not in ("curves", "explorer", "recipe")}
        assert {k: v for k, v in embedded.items() if k not in ("file", "recipe")} == whole
        assert embedded["recipe"] == Recipe.from_json(record["recipe"]).changes()
        assert store.root / embedded["file"] == store.path_of(record)


def test_curves_are_embedded_to_four_digits_and_found_by_the_index(store, text):
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
        found = {name: decoded(*c) for name, c in tags.block(f"curves-{block}")[place].items()}
        assert found.keys() == record["curves"].keys()
        for name, curve in record["curves"].items():
            assert [v is None for v in found[name]] == [v is None for v in curve]
            real = [v for v in curve if v is not None]
            np.testing.assert_allclose(
                [v for v in found[name] if v is not None], real, atol=5.01e-4 * max(map(abs, real))
            )


@given(st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=30))
def test_a_coded_curve_is_right_to_four_digits_of_its_largest_value(curve):
    found = decoded(*coded(curve))
    real = [v for v in curve if v is not None and math.isfinite(v)]
    assert [v is not None for v in found] == [v is not None and math.isfinite(v) for v in curve]
    allowed = 5.01e-4 * max(map(abs, real), default=0)
    assert all(abs(a - b) <= allowed for a, b in zip((v for v in found if v is not None), real, strict=True))
    json.loads(json.dumps(coded(curve), allow_nan=False))


def test_a_known_curve_is_coded_as_steps():
    assert coded([1.5, None, 1.25, 1.2504]) == [3, [1500, None, -250, 0]]
    assert coded([0.0, 0.0]) == [0, [0, 0]]
    assert coded([]) == [0, []]


def test_a_view_is_embedded_whole(store, text, explored):
    tags = Tags(text)
    (graph, view), *others = explored[1]["explorer"].items()
    assert not others
    found = tags.block("view-0")
    for name in ("nodes", "classes", "origins", "alpha"):
        assert found[name] == view[name]
    for name in ("true", "before", "after"):
        assert (unpack(found[name], np.int16) == unpack(view[name], np.int16)).all()
    degree = unpack(found["degree"], np.uint32).astype(int)
    gaps = sum(unpack(plane, np.uint8).astype(int) << 8 * i for i, plane in enumerate(found["gaps"]))
    rows = np.split(gaps, np.cumsum(degree)[:-1])
    edges = [(int(s), v) for v, row in enumerate(rows) for s in np.cumsum(row)]
    held = list(zip(unpack(view["src"], np.uint32).tolist(), unpack(view["dst"], np.uint32).tolist(), strict=True))
    assert sorted(edges) == sorted(held)
    for name in ("origin", "mask"):
        there = dict(zip(edges, unpack(found[name], np.uint8).tolist(), strict=True))
        assert there == dict(zip(held, unpack(view[name], np.uint8).tolist(), strict=True))
    assert f"{graph} (synthetic" in text


def test_a_view_of_edges_in_any_order_and_of_large_numbers_is_the_same_view():
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
    (found,) = Tags(text).block("suite-results_citations")
    (comparison,) = SUITES["results_citations"].comparisons(store)
    assert tuple(found["rows"]), tuple(found["columns"]) == (comparison.rows, comparison.columns)
    cells = {(r, c): cell for r, c, cell in found["cells"]}
    row, column = comparison.rows.index("grm (GRM)"), comparison.columns.index("AC→D micro")
    opened = cells[row, column]
    held = comparison.cell("grm (GRM)", "AC→D micro")
    assert opened["failed"] == 1
    assert [tuple(u[:2]) for u in opened["units"]] == [("citation AC→D", seed) for seed in range(3)]
    assert opened["units"][2][2] == "failed"
    assert np.mean([u[2] for u in opened["units"][:2]]) == pytest.approx(held.mean, abs=1e-4)
    keys = [store.records[n]["key"] for u in opened["units"] for n in u[3]]
    assert keys == list(held.keys)
    assert {v["other"] for v in found["versus"] if v["family"] == "reference"} == {"erm-gcn (ERM)"}


def test_numbers_that_json_has_not_become_text():
    odd, text = {"a": [math.nan, 1.5, {"b": -math.inf}], "c": "nan"}, {"a": ["nan", 1.5, {"b": "-inf"}], "c": "nan"}
    assert plain(odd) == text
    assert json.loads(zlib.decompress(base64.b64decode(packed(odd)))) == text


# ---- what is shown ---------------------------------------------------------------------------------------


def test_a_table_shows_ours_the_papers_and_the_difference(store, text):
    (comparison,) = SUITES["results_citations"].comparisons(store)
    held = comparison.cell("edgemask-dg-star (EDG*)", "average")
    ours = f"{held.mean:.1f} ± {held.std:.1f}"
    row = re.search(r'<th scope="row">edgemask-dg-star \(EDG\*\)</th>.*?</tr>', text, re.DOTALL).group()
    assert ours in row
    assert "73.8" in row
    assert f"{held.difference:+.1f}".replace("-", "−") in row
    assert "1 failed" in text
    assert "Nothing of ours is here (data not available)" in text


def test_findings_may_mark_strong_words_and_code():
    shown = report.markdown(r"**DG\* wins, `**kw` too.** A <b> of `a*b`; 2 * 3.")
    assert shown == "<strong>DG* wins, <code>**kw</code> too.</strong> A &lt;b&gt; of <code>a*b</code>; 2 * 3."


def test_the_head_says_where_the_records_come_from(store, text):
    head = text[: text.index("<main")]
    assert f"<dd>{len(store)}, of which 3 failed</dd>" in head
    assert "cuda, NVIDIA H200" in head
    assert store.records[0]["code"] in head
    assert "<code>citation/erm-gcn/broken.json</code> is not a result record" in head
    assert str(store.root) not in text


def test_a_store_without_records_has_a_page(tmp_path):
    text = page(ResultStore(tmp_path))
    assert "No record of this store has curves." in text
    assert "edgemask reproduce explorer" in text


def test_the_same_records_give_the_same_page_and_it_is_written_whole(store, text, tmp_path):
    path = write_report(ResultStore(store.root), tmp_path / "new" / "report.html", absent=("elliptic", "arxiv"))
    assert path == tmp_path / "new" / "report.html"
    assert path.read_text(encoding="utf-8") == text
    assert list(path.parent.iterdir()) == [path]


def test_without_the_extra_the_error_names_it(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"edgemask\[report\]"):
        page(store)


# ---- nothing runs and nothing loads but its own ------------------------------------------------------------


def test_text_from_records_files_and_tables_never_becomes_markup(tmp_path, monkeypatch):
    task = suite("results_citations").tasks()[0]
    store = ResultStore(tmp_path)
    path = store.add(task, fake(task, machine={"device": HOSTILE}, method=task.method))
    wrong = tmp_path / "<script>alert(1)<" / "script><img src=x onerror=alert(2)>"
    wrong.mkdir(parents=True)
    (wrong / "x.json").write_text(HOSTILE)
    store = ResultStore(tmp_path)
    named = store.records[0]["key"]
    cells = {(HOSTILE, HOSTILE): Cell({(HOSTILE, 0): 1.0}, (1.0,), (HOSTILE,), (named,), absent=HOSTILE)}
    bad = Comparison(
        "x", HOSTILE, f"`{HOSTILE}` {HOSTILE}", (HOSTILE,), (HOSTILE,), cells, reference=HOSTILE, findings=(HOSTILE,)
    )
    monkeypatch.setattr(
        report, "SUITES", {"x": SimpleNamespace(title=HOSTILE, comparisons=lambda store, absent: [bad])}
    )
    tags = Tags(page(store))
    assert len([a for a, _ in tags.scripts if "id" not in a]) == 1  # the page's own, and blocks
    assert all(a["type"] == "application/octet-stream" for a, _ in tags.scripts if "id" in a)
    assert not any(tag == "img" for tag, _ in tags.tags)
    assert not any(name.startswith("on") for _, attributes in tags.tags for name in attributes)
    seen = "".join(tags.text)
    assert seen.count(HOSTILE) >= 8
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


def test_the_policy_lets_only_the_pages_own_scripts_run(text):
    tags = Tags(text)
    (policy,) = [a["content"] for t, a in tags.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    (script,) = [t for a, t in tags.scripts if "id" not in a]
    library = zlib.decompress(base64.b64decode(tags.blocks["library"]))
    hashes = [base64.b64encode(hashlib.sha256(t).digest()).decode() for t in (script.encode(), library)]
    assert rules["script-src"].split() == [f"'sha256-{h}'" for h in hashes]


# ---- size and speed --------------------------------------------------------------------------------------


def test_curves_that_do_not_fit_are_left_out_from_the_last_seed_on():
    records = [{"seed": n % 3, "curves": {"loss": list(np.random.default_rng(n).random(200))}} for n in range(300)]
    everything, where = curves(records, 10**9)
    assert all(where)
    room = sum(len(b) for b in everything.values()) // 2
    some, where = curves(records, room)
    assert sum(map(len, some.values())) <= room
    there = [[w is not None for w, r in zip(where, records, strict=True) if r["seed"] == s] for s in range(3)]
    assert all(there[0])
    assert not any(there[2])


def test_views_that_do_not_fit_are_counted(explored):
    records = [explored[1]] * 3
    one = len(next(iter(views(records[:1], 10**9)[0].values())))
    blocks, about, left_out = views(records, 2 * one)
    assert (len(blocks), len(about), left_out) == (2, 2, 1)


@pytest.mark.slow
def test_a_page_of_every_citation_run_is_small(tmp_path, monkeypatch):
    """2,500 runs of 15 noisy curves of 200 epochs, and views of 600,000 edges: every block at its worst."""
    monkeypatch.setattr(report, "SUITES", SUITES)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # what is measured is the page
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
    text = page(store)
    assert len(text.encode()) < 8 * 2**20
    assert len(text.encode()) > ROOM * 0.7, "the room is used"
    assert "are in their files of the store" in text
