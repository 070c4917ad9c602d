"""The performance page matches the records and compares them with the requirements."""

from __future__ import annotations

import copy
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.common import read_record
from benchmarks.page import PLOT, SECTIONS, page, plot, section
from benchmarks.plot import growth_plot
from benchmarks.required import checks
from benchmarks.scale import exponent
from benchmarks.show import size, time

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results" / "speed"


def record(part: str, figures: object, kind: str = "cpu") -> dict:
    device = "2 cores" if kind == "cpu" else "NVIDIA H200"
    versions = {"python": "3.12", "torch": "2.11"}
    machine = {"device": device, "kind": kind, "threads": 2, "system": "Linux x86_64", "versions": versions}
    return {"part": part, "machine": machine, "figures": figures}


def peak(mib: float) -> dict:
    return {name: {"host": mib, "device": mib} for name in ("inputs", "block", "process")}


def steps(part: str, kind: str, ours: float, stock: float, products: float, mib: float) -> dict:
    variants = {
        name: {"seconds": seconds, "repeats": 3, "replayed": False, "peak": peak(mib)}
        for name, seconds in (("edgemask", ours), ("plain torch", 2 * ours), ("stock", stock))
    }
    halves = {name: {"seconds": products / 2, "repeats": 3} for name in ("sparse", "dense")}
    inputs = {"nodes": 9360, "edges": 151_000, "features": 6775}
    return record(part, {"inputs": inputs, "variants": variants, "products": halves}, kind)


def growth(seconds: list[float], kind: str = "cpu") -> dict:
    sizes = (10_000, 100_000, 1_000_000)
    points = [
        {"nodes": n, "edges": 10 * n, "epoch_edges": 30 * n, "knn_recall": 0.97, "peak": peak(500)}
        | dict.fromkeys(("knn", "spectral", "enrich", "epoch"), t)
        for n, t in zip(sizes, seconds, strict=True)
    ]
    fitted = dict.fromkeys(("enrich", "knn", "spectral", "epoch"), exponent(sizes, seconds))
    return record("growth", {"search": "index", "points": points, "exponents": fitted}, kind)


@pytest.mark.paper
def test_the_page_matches_the_records():
    assert (ROOT / "docs" / "performance.md").read_text(encoding="utf-8") == page(RESULTS)


@pytest.mark.paper
def test_the_plot_matches_the_records():
    assert PLOT.read_text(encoding="utf-8") == plot(RESULTS)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_every_record_is_named_by_its_part_and_machine_and_can_be_shown(path):
    record = read_record(path)
    assert path.stem == f"{record['part']}-{record['machine']['device'].lower().replace(' ', '-')}"
    assert record["part"] in SECTIONS
    assert "| --- |" in section(record)
    assert all(check.measured for check in checks(record))


def test_requirements_of_a_step_on_a_cpu():
    good = checks(steps("descent", "cpu", ours=0.4, stock=6.0, products=0.2, mib=700))
    assert [c.measured for c in good] == ["15.0 ×", "0.68 GiB", "2.00 ×"]
    assert all(c.met for c in good)
    bad = checks(steps("descent", "cpu", ours=1.0, stock=6.0, products=0.2, mib=900))
    assert [c.met for c in bad] == [False, False, False]
    assert not checks(steps("ascent", "cpu", 1.0, 1.0, 1.0, 1.0))  # it has no requirements


def test_requirements_of_a_step_on_a_gpu():
    good, bad = (checks(steps("ascent", "cuda", t, 15e-3, 1e-4, mib)) for t, mib in ((1.4e-3, 500), (1.6e-3, 700)))
    assert [c.met for c in good] == [True, True]
    assert [c.met for c in bad] == [False, False]


def test_a_table_says_whether_launches_are_part_of_its_times():
    assert "launch" not in section(steps("descent", "cpu", 0.4, 6.0, 0.2, 700)).splitlines()[2]
    alone = steps("descent", "cuda", 1e-3, 15e-3, 1e-4, 500)
    assert "products were launched one by one" in section(alone)
    ahead = copy.deepcopy(alone)
    ahead["figures"]["products"]["sparse"]["in_a_row"] = 10
    assert "products were launched ahead, 10 in a row" in section(ahead)


def test_requirements_of_growth():
    steady, steep = growth([1.0, 10.0, 100.0]), growth([1.0, 100.0, 10_000.0])
    assert [c.measured for c in checks(steady)] == ["1.00", "1.00"]
    assert [c.met for c in checks(steep)] == [False, False]


def test_requirements_of_enrichment_and_of_a_run():
    who = {"edgemask": {"seconds": 0.7, "repeats": 1, "peak": peak(1)}, "scikit-learn": {}}
    quality = {"purity": {"edgemask": 0.47, "scikit-learn": 0.32}, "same_similarity": 1.0}
    enrich = record("enrich", {"knn": who, "spectral": who, "quality": quality})
    assert [c.met for c in checks(enrich)] == [True, True]
    worse = copy.deepcopy(enrich)
    worse["figures"]["quality"]["purity"]["edgemask"] = 0.2
    assert [c.met for c in checks(worse)] == [True, False]
    run = {"transfer": "AC→D", "seconds": 100.0}
    assert [checks(record("run", run, kind))[0].met for kind in ("cpu", "cuda")] == [True, False]


def test_a_page_of_other_records_matches_them(tmp_path):
    for written in (steps("descent", "cpu", 0.4, 6.0, 0.2, 700), growth([1, 11, 120]), growth([0.1, 1, 11], "cuda")):
        (tmp_path / f"{written['part']}-{written['machine']['kind']}.json").write_text(json.dumps(written))
    text = page(tmp_path)
    assert "| 2 cores | descent step, ACMv9 | 10 × the speed of the stock implementation | 15.0 × | yes |" in text
    assert "| stock | 6 s | 15.0 × |" in text
    assert "NVIDIA H200: 2 threads" in text
    assert text.count("Not measured yet.") == len(SECTIONS) - 2
    assert "{" not in text


def test_there_is_no_plot_without_a_record_of_growth(tmp_path):
    with pytest.raises(ValueError, match="no record of growth"):
        plot(tmp_path)


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match=r"x\.json is not a record of a speed measurement: record: 'part' is missing"):
        page(tmp_path)


def test_an_exponent_is_the_power_of_a_power_law():
    sizes = (10, 100, 1000)
    assert exponent(sizes, [3 * n**1.3 for n in sizes]) == pytest.approx(1.3)


def test_the_plot_has_a_rising_line_for_each_machine_and_cost():
    root = ET.fromstring(growth_plot([growth([1, 11, 120]), growth([0.1, 1, 11], "cuda")]))
    name = "{http://www.w3.org/2000/svg}"
    circles = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(f"{name}circle")]
    assert len(circles) == 4 * 3
    for line in (circles[i : i + 3] for i in range(0, 12, 3)):
        assert sorted(line) == line
        assert sorted(line, key=lambda point: -point[1]) == line  # upwards
    texts = [t.text for t in root.iter(f"{name}text")]
    assert {"10⁴", "10⁶", "enrichment, NVIDIA H200", "epoch, 2 cores"} <= set(texts)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.00123, "1.23 ms"), (0.5, "500 ms"), (1.5, "1.5 s"), (119, "119 s"), (300, "5.0 min")]
)
def test_times_are_shown_in_a_fitting_unit(seconds, shown):
    assert time(seconds) == shown


def test_sizes_are_shown_in_a_fitting_unit():
    assert [size(mib) for mib in (12.3, 512, 2048)] == ["12 MiB", "0.50 GiB", "2.00 GiB"]


def test_requirements_of_using_a_model():
    def one(seconds: float) -> dict:
        return {"seconds": 2 * seconds, "spread": [seconds, 3 * seconds], "first": 1.0, "repeats": 9}

    figures = {
        "predict": {"nodes": 10_000, "edges": 100_000, "models": {"a": one(0.03), "b": one(0.2)}},
        "threads": {"2": {"a": one(1.2)}, "1": {"a": one(1.0)}},
    }
    used = record("deploy", figures)
    assert [(c.measured, c.met) for c in checks(used)] == [("30 ms", True), ("200 ms", False), ("1.20 ×", False)]
    assert "| b | 1 s | 400 ms | 200 ms | 9 |" in section(used)
    assert not checks(record("deploy", figures, "cuda"))
