"""Tests of the statistics: coverage of intervals, p-values against plain enumeration, Holm against a plain version."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.stats

from edgemask.errors import InputError
from edgemask.report import statistics
from edgemask.report.comparison import Cell, Comparison
from edgemask.report.render import csv_text, latex, markdown
from edgemask.report.statistics import (
    Versus,
    bootstrap,
    compare,
    critical_difference,
    friedman,
    holm,
    paired_test,
    ranking,
    ranking_table,
    signed_rank_test,
    smallest_p,
)


@pytest.fixture(autouse=True)
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---- intervals -------------------------------------------------------------------------------------------


def coverage(draw, n: int, level: float, times: int = 500) -> float:
    """Return the share of intervals that contain the true mean, 0."""
    spans = [bootstrap(draw(np.random.default_rng(i), n), level, draws=1000) for i in range(times)]
    return float(np.mean([low <= 0 <= high for low, high in spans]))


@pytest.mark.parametrize(("n", "level"), [(10, 0.95), (15, 0.95), (15, 0.8), (40, 0.95)])
def test_the_coverage_of_intervals_is_close_to_their_level(n, level):
    share = coverage(lambda r, n: r.normal(0, 3, n), n, level)
    assert abs(share - level) < 0.04


def test_with_five_pairs_the_coverage_is_better_than_that_of_plain_percentiles():
    def plain(d):
        means = d[np.random.default_rng(0).integers(len(d), size=(1000, len(d)))].mean(1)
        return np.quantile(means, [0.025, 0.975])

    assert coverage(lambda r, n: r.normal(0, 3, n), 5, 0.95) > 0.89
    spans = [plain(np.random.default_rng(i).normal(0, 3, 5)) for i in range(500)]
    assert np.mean([low <= 0 <= high for low, high in spans]) < 0.88


def test_for_symmetric_differences_the_interval_is_close_to_students_t():
    d = scipy.stats.norm.ppf((np.arange(12) + 0.5) / 12)
    half = scipy.stats.t.ppf(0.975, 11) * d.std(ddof=1) / math.sqrt(12)
    assert bootstrap(d, draws=200_000) == pytest.approx((-half, half), rel=0.02)


def test_skewed_differences_are_covered_too():
    assert coverage(lambda r, n: r.exponential(1, n) - 1, 20, 0.95) > 0.87


def test_an_interval_contains_the_mean_and_shifts_and_scales_with_the_differences():
    d = np.random.default_rng(3).normal(1, 2, 12)
    low, high = bootstrap(d)
    assert low < d.mean() < high
    assert bootstrap(5 + 2 * d) == pytest.approx((5 + 2 * low, 5 + 2 * high))
    assert bootstrap(-d) == pytest.approx((-high, -low))


def test_a_higher_level_gives_a_wider_interval_and_more_pairs_a_narrower_one():
    d = np.random.default_rng(3).normal(1, 2, 12)
    (low, high), (lower, higher) = bootstrap(d, 0.8), bootstrap(d, 0.99)
    assert lower < low < high < higher
    many = bootstrap(np.tile(d, 10))
    assert many[1] - many[0] < (high - low) / 2


def test_an_interval_depends_only_on_the_differences_and_the_seed():
    d = np.random.default_rng(3).normal(1, 2, 12)
    assert bootstrap(d) == bootstrap(list(d))
    assert bootstrap(d, seed=1) != bootstrap(d)


def test_equal_differences_give_a_point_and_a_single_one_has_no_interval():
    assert bootstrap([0.5] * 6) == pytest.approx((0.5, 0.5))
    assert all(math.isnan(v) for v in bootstrap([0.5]))
    assert bootstrap([1.0, 3.0]) == (1, 3)  # two pairs give the range of the data


@pytest.mark.parametrize("what", [bootstrap, paired_test])
@pytest.mark.parametrize("bad", [[], [[1.0], [2.0]], [1.0, math.nan], [1.0, math.inf]])
def test_invalid_differences_are_refused(what, bad):
    with pytest.raises(ValueError, match="differences must be"):
        what(bad)


def test_a_level_outside_0_and_1_is_refused():
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 95"):
        bootstrap([1.0, 2.0], 95)


# ---- tests -----------------------------------------------------------------------------------------------


def by_hand(d) -> float:
    """Return the p-value by enumerating every sign pattern."""
    seen = abs(math.fsum(d))
    sums = [
        abs(math.fsum(s * v for s, v in zip(signs, d, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(d))
    ]
    return sum(s >= seen - 1e-12 for s in sums) / len(sums)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 11])
def test_the_exact_p_equals_that_of_plain_enumeration(n):
    for seed in range(5):
        d = np.random.default_rng(seed).normal(0.4, 1, n)
        assert paired_test(d) == by_hand(d)
        assert paired_test(np.round(d, 1)) == by_hand(np.round(d, 1))  # rounding creates ties and zeros


def test_ties_are_counted_for_any_order_and_scale_of_the_differences():
    d = [0.1, 0.2, 0.3, -0.3, 0.7, 0.1]  # the sum in another order differs in the last bits
    assert {paired_test(list(p)) for p in itertools.permutations(d)} == {by_hand(d)}
    assert {paired_test(np.array(d) * s) for s in (1e-9, 1.0, 1e9)} == {by_hand(d)}


def test_p_is_the_same_for_the_opposite_differences():
    for n in (6, 30):
        d = np.random.default_rng(n).normal(0.3, 1, n)
        assert paired_test(-d) == paired_test(d)


def test_p_is_uniform_under_the_null(monkeypatch):
    monkeypatch.setattr(statistics, "DRAWS", 999)
    for n, grid in ((8, 128), (20, 1000)):
        p = np.array([paired_test(np.random.default_rng(i).standard_cauchy(n)) for i in range(800)])
        for alpha in (0.05, 0.1, 0.25, 0.5, 0.8):
            expected = math.floor(alpha * grid) / grid
            assert abs((p <= alpha).mean() - expected) < 4 * math.sqrt(expected * (1 - expected) / len(p)), (n, alpha)


def test_random_patterns_approximate_the_exact_p(monkeypatch):
    d = np.random.default_rng(5).normal(0.5, 1, 14)
    exact = paired_test(d)
    monkeypatch.setattr(statistics, "EXACT_UP_TO", 4)
    assert 0.001 < exact < 0.9
    assert paired_test(d) == pytest.approx(exact, abs=4 * math.sqrt(exact / statistics.DRAWS))


def test_the_smallest_p_is_reached_and_never_0():
    for n in (1, 5, 16, 40, 2000):
        assert paired_test(np.ones(n)) == smallest_p(n) > 0
    assert smallest_p(5) == 0.0625
    assert smallest_p(0) == 1
    assert smallest_p(17) == 2**-16


def test_differences_of_0_give_a_p_of_1():
    assert paired_test([0.0] * 5) == paired_test([0.0] * 50) == 1


# ---- the correction --------------------------------------------------------------------------------------


def plain_holm(p):
    """Return each p times the number of p-values not yet processed, at least as large as the one before."""
    out, running = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        out[i] = running
    return out


def test_holm_on_known_examples():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.02]) == [0.02]
    assert holm([0.5, 0.9, 0.7]) == [1, 1, 1]
    assert holm([]) == []


def test_holm_equals_the_plain_version_in_any_order():
    for seed in range(50):
        r = np.random.default_rng(seed)
        p = np.round(r.uniform(0, 1, r.integers(1, 12)) ** 3, 2)
        assert holm(p) == pytest.approx(plain_holm(p))
        order = r.permutation(len(p))
        assert holm(p[order]) == pytest.approx(np.array(holm(p))[order])


@pytest.mark.parametrize("bad", [[0.1, math.nan], [1.2], [-0.1]])
def test_invalid_p_values_are_refused(bad):
    with pytest.raises(ValueError, match=r"p-values must be in \[0, 1\], got"):
        holm(bad)


# ---- the rows of a table ---------------------------------------------------------------------------------


def cell(*values, protocol="p", first=0) -> Cell:
    return Cell({(protocol, first + seed): v for seed, v in enumerate(values)})


def table(cells, **settings) -> Comparison:
    rows = tuple(dict.fromkeys(row for row, _ in cells))
    columns = tuple(dict.fromkeys(column for _, column in cells))
    return Comparison("t", "title", "about", rows, columns, cells, **{"tested": columns} | settings)


def comparison(compared, family, row) -> Versus:
    return next(v for v in compared if (v.family, v.row) == (family, row))


LADDER = {
    ("erm", "f1"): cell(50, 52, 51, 50, 53, 51),
    ("mid", "f1"): cell(60, 61, 62, 60, 61, 63),
    ("top", "f1"): cell(70, 72, 71, 69, 70, 72),
}


def test_every_row_is_compared_with_the_reference_and_with_the_best_other():
    compared = compare(table(LADDER, reference="erm"))
    assert [(v.family, v.row, v.other) for v in compared] == [
        ("reference", "mid", "erm"),
        ("reference", "top", "erm"),
        ("best other", "erm", "top"),
        ("best other", "mid", "top"),
        ("best other", "top", "mid"),
    ]
    top = comparison(compared, "reference", "top")
    d = np.array([70, 72, 71, 69, 70, 72]) - [50, 52, 51, 50, 53, 51]
    assert (top.pairs, top.difference, top.p) == (6, pytest.approx(d.mean()), by_hand(d))
    assert (top.low, top.high) == bootstrap(d)
    assert top.adjusted == pytest.approx(2 * top.p)


def test_if_low_is_better_the_lowest_row_is_the_best():
    compared = compare(table(LADDER, best="low"))
    assert [(v.row, v.other) for v in compared] == [("erm", "mid"), ("mid", "erm"), ("top", "erm")]


def test_the_best_against_the_runner_up_and_the_reverse_are_one_hypothesis():
    compared = [v for v in compare(table(LADDER)) if v.family == "best other"]
    p = {v.row: v.p for v in compared}
    assert [v.adjusted for v in compared] == pytest.approx([2 * p["erm"], 2 * p["mid"], 2 * p["top"]])
    top, mid = comparison(compared, "best other", "top"), comparison(compared, "best other", "mid")
    assert (top.difference, top.adjusted) == (-mid.difference, mid.adjusted)


def test_two_metrics_of_one_run_are_one_pair():
    one = {("erm", "micro"): cell(50, 52, 51), ("ours", "micro"): cell(53, 54, 56)}
    two = one | {("erm", "macro"): cell(40, 42, 41), ("ours", "macro"): cell(42, 45, 43)}
    single, both = (compare(table(c, reference="erm"))[0] for c in (one, two))
    assert single.pairs == both.pairs == 3
    assert both.difference == pytest.approx(((3 + 2) + (2 + 3) + (5 + 2)) / 6)


def test_every_transfer_gives_its_own_pairs():
    cells = {
        ("erm", "a→b"): cell(50, 52, protocol="a→b"),
        ("ours", "a→b"): cell(51, 54, protocol="a→b"),
        ("erm", "b→a"): cell(30, 31, protocol="b→a"),
        ("ours", "b→a"): cell(33, 35, protocol="b→a"),
    }
    assert compare(table(cells, reference="erm"))[0].pairs == 4


def test_only_runs_that_both_rows_have_are_paired():
    cells = {("erm", "f1"): cell(50, 51, 52), ("ours", "f1"): cell(60, 99, first=2)}
    v = compare(table(cells, reference="erm"))[0]
    assert (v.pairs, v.difference) == (1, 8)
    assert math.isnan(v.low)


def test_columns_that_are_not_tested_change_nothing():
    more = LADDER | {(row, "seconds"): cell(*range(6)) for row in ("erm", "mid", "top")}
    assert compare(table(more, reference="erm", tested=("f1",))) == compare(table(LADDER, reference="erm"))
    assert compare(table(LADDER, reference="erm", tested=())) == []


def test_rows_without_values_are_listed_and_do_not_enter_the_correction():
    compared = compare(table(LADDER | {("lost", "f1"): Cell(failed=5)}, reference="erm"))
    lost = comparison(compared, "reference", "lost")
    assert lost.pairs == 0
    assert math.isnan(lost.difference)
    assert math.isnan(lost.adjusted)
    assert lost.smallest_p == 1
    assert [v for v in compared if v.row != "lost"] == compare(table(LADDER, reference="erm"))


def test_a_row_without_a_column_is_compared_but_never_the_best():
    cells = {
        ("erm", "easy"): cell(90, 91, protocol="e"), ("erm", "hard"): cell(20, 21, protocol="h"),
        ("ours", "easy"): cell(92, 93, protocol="e"), ("ours", "hard"): cell(22, 23, protocol="h"),
        ("half", "easy"): cell(91, 92, protocol="e"),
    }  # fmt: skip
    compared = compare(table(cells))
    assert {v.row: (v.other, v.pairs) for v in compared} == {
        "erm": ("ours", 4),
        "ours": ("erm", 4),
        "half": ("ours", 2),
    }


def test_a_table_without_a_better_end_has_no_best_row():
    assert {v.family for v in compare(table(LADDER, reference="erm", best=""))} == {"reference"}


def test_identical_rows_differ_by_0_with_a_p_of_1():
    for n in (5, 20):
        values = np.random.default_rng(0).normal(70, 1, n)
        for v in compare(table({("erm", "f1"): cell(*values), ("ours", "f1"): cell(*values)}, reference="erm")):
            assert (v.difference, v.low, v.high, v.p, v.adjusted) == (0, 0, 0, 1, 1)


def test_with_a_reference_that_was_not_run_all_rows_are_listed_without_pairs():
    compared = compare(table(LADDER | {("lost", "f1"): Cell()}, reference="lost"))
    assert [(v.row, v.pairs) for v in compared if v.family == "reference"] == [("erm", 0), ("mid", 0), ("top", 0)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"reference": "gcn"}, "no reference row 'gcn' .*erm, mid, top"), ({"tested": ("f2",)}, "no tested column 'f2'")],
)
def test_a_name_that_is_not_in_the_table_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        compare(table(LADDER, **settings))


# ---- mean ranks --------------------------------------------------------------------------------------------


def ranks_of(values) -> np.ndarray:
    return np.apply_along_axis(scipy.stats.rankdata, 1, np.asarray(values, dtype=float))


@pytest.mark.parametrize("values", [(0, 1000), (0, 4)])  # without and with ties
def test_friedmans_statistic_is_that_of_scipy(values):
    for seed in range(5):
        x = np.random.default_rng(seed).integers(*values, (12, 6))
        expected = scipy.stats.friedmanchisquare(*x.T)
        test = friedman(ranks_of(x))
        assert (test.chi2, test.p_chi2) == pytest.approx((expected.statistic, expected.pvalue))
        assert test.f == pytest.approx(11 * test.chi2 / (12 * 5 - test.chi2))
        assert test.p == pytest.approx(scipy.stats.f.sf(test.f, 5, 55))


def test_the_friedman_test_of_a_published_example():
    # Hollander and Wolfe, rounding first base: 22 blocks, 3 ways, statistic 11.1
    table = [
        *([5.40, 5.50, 5.55], [5.85, 5.70, 5.75], [5.20, 5.60, 5.50], [5.55, 5.50, 5.40], [5.90, 5.85, 5.70]),
        *([5.45, 5.55, 5.60], [5.40, 5.40, 5.35], [5.45, 5.50, 5.35], [5.25, 5.15, 5.00], [5.85, 5.80, 5.70]),
        *([5.25, 5.20, 5.10], [5.65, 5.55, 5.45], [5.60, 5.35, 5.45], [5.05, 5.00, 4.95], [5.50, 5.50, 5.40]),
        *([5.45, 5.55, 5.50], [5.55, 5.55, 5.35], [5.45, 5.50, 5.55], [5.50, 5.45, 5.25], [5.65, 5.60, 5.40]),
        *([5.70, 5.65, 5.55], [6.30, 6.30, 6.25]),
    ]
    test = friedman(ranks_of(table))
    assert (test.chi2, test.p_chi2) == pytest.approx((11.1429, 0.003805), rel=1e-3)


def test_extreme_ranks_have_a_friedman_test():
    assert friedman(np.full((4, 3), 2.0)).p == 1
    same = friedman(np.tile([1.0, 2.0, 3.0], (4, 1)))
    assert same.chi2 == pytest.approx(8)
    assert (same.f, same.p) == (math.inf, 0)
    with pytest.raises(InputError, match=r"at least 2 × 2 ranks, got 1 × 3"):
        friedman(np.ones((1, 3)))


@pytest.mark.parametrize(  # Demšar, JMLR 2006, table 5: q for α = 0.05
    ("treatments", "q"),
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (9, 3.102), (10, 3.164)],
)
def test_the_critical_difference_has_the_published_values(treatments, q):
    expected = q * math.sqrt(treatments * (treatments + 1) / (6 * 14))
    assert critical_difference(treatments, 14) == pytest.approx(expected, rel=5e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 12, 30])
def test_the_signed_rank_test_is_that_of_scipy(n):
    d = np.random.default_rng(n).normal(0.3, 1, n)
    assert signed_rank_test(d) == pytest.approx(scipy.stats.wilcoxon(d, mode="exact").pvalue)


def test_the_signed_rank_test_counts_all_patterns_with_ties_and_zeros():
    d = np.array([1.0, 1.0, -1.0, 2.0, 0.0, 2.0, 3.0])
    ranks = scipy.stats.rankdata(np.abs(d)) * (d != 0)
    observed = abs((np.sign(d) * ranks).sum())
    sums = [abs((np.array(s) * ranks).sum()) for s in itertools.product((-1, 1), repeat=len(d))]
    assert signed_rank_test(d) == pytest.approx(np.mean(np.array(sums) >= observed))
    assert signed_rank_test([0.0, 0.0]) == 1


def ranked_table(values: dict[str, list[float | None]], columns=("a", "b", "c"), **options) -> Comparison:
    cells = {
        (row, column): Cell({(column, 0): value})
        for row, own in values.items()
        for column, value in zip(columns, own, strict=True)
        if value is not None
    }
    return Comparison("t", "Title", "", tuple(values), columns, cells, ranked=columns, **options)


def test_rows_are_ranked_in_every_column_and_ties_share_a_rank():
    found = ranking(ranked_table({"x": [1, 1, 3], "y": [3, 1 + 1e-13, 2], "z": [2, 5, 1]}))
    assert {r.row: (r.mean, dict(r.by_column)) for r in found.ranks} == {
        "y": (pytest.approx(5.5 / 3), {"a": 1, "b": 2.5, "c": 2}),
        "z": (2, {"a": 2, "b": 1, "c": 3}),
        "x": (pytest.approx(6.5 / 3), {"a": 3, "b": 2.5, "c": 1}),
    }
    assert math.isnan(found.ranks[0].p)
    low = ranking(ranked_table({"x": [1, 1, 3], "y": [3, 1, 2], "z": [2, 5, 1]}, best="low"))
    assert [r.row for r in low.ranks] == ["x", "z", "y"]


def test_incomplete_rows_and_rare_columns_are_left_out_and_named():
    table = ranked_table({"x": [1, 2, 9], "y": [2, 1, None], "z": [3, 3, None], "w": [1, None, None], "q": [None] * 3})
    found = ranking(table)
    assert (found.columns, found.columns_left_out, found.rows_left_out) == (("a", "b"), ("c",), ("w",))
    assert [r.row for r in found.ranks] == ["z", "x", "y"]
    about = ranking_table(table).about
    assert "Columns left out, because fewer than half of the rows have them: c." in about
    assert "Rows left out, because they lack some of these columns: w." in about
    more = dict(table.cells) | {("z", "a"): Cell({("a", 0): 3.0, ("other protocol", 0): 3.0})}
    assert ranking(dataclasses.replace(table, cells=more)) is None  # the others lack a protocol of `a`


def test_a_table_without_ranked_columns_or_complete_rows_has_no_ranks():
    assert ranking(dataclasses.replace(ranked_table({"x": [1, 2, 3]}), ranked=())) is None
    assert ranking_table(ranked_table({"x": [1, 2, 3]})) is None
    with pytest.raises(InputError, match="no ranked column 'd'"):
        ranking(dataclasses.replace(ranked_table({"x": [1, 2, 3]}), ranked=("d",)))


def test_the_p_values_of_ranks_are_corrected_over_all_pairs():
    columns = tuple("abcdefgh")
    rng = np.random.default_rng(0)
    rows = {name: list(rng.normal(shift, 1, 8)) for name, shift in (("x", 9), ("y", 4), ("z", 0))}
    first, *others = ranking(ranked_table(rows, columns)).ranks
    pairs = [signed_rank_test(np.subtract(rows[a], rows[b])) for a, b in (("x", "y"), ("x", "z"), ("y", "z"))]
    assert first.row == "x"
    assert [r.p for r in others] == pairs[:2]
    assert [r.adjusted for r in others] == holm(pairs)[:2]


def test_cliques_join_rows_within_the_critical_difference():
    columns = tuple(f"c{i}" for i in range(40))
    found = ranking(ranked_table({str(v): [v] * 40 for v in range(6)}, columns))
    assert found.critical_difference == pytest.approx(critical_difference(6, 40))
    assert 1 < found.critical_difference < 2
    assert found.cliques == [("5", "4"), ("4", "3"), ("3", "2"), ("2", "1"), ("1", "0")]


def test_mean_ranks_are_a_table_in_every_format():
    table = ranking_table(ranked_table({"x": [1, 1, 3], "majority class": [3, 1, 2], "z": [2, 5, 1]}))
    assert table.rows == ("majority class", "z", "x")
    assert "| z | 2.000 | 0.167 | 1.000 | 1.000 | – |" in markdown(table)
    assert "seed" not in markdown(table)
    assert "equals the majority class" not in markdown(table)
    assert r"Iman and Davenport F = 0.06 (p = 0.9403)" in latex(table)
    assert "z,mean rank,2," in csv_text(table)
