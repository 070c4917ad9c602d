"""Statistics of paired differences: bootstrap intervals, sign-flip tests, Holm's correction, comparison of table rows.

All results are deterministic: they depend only on the input and a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.stats

from edgemask.errors import InputError
from edgemask.report.comparison import Comparison, Unit

Floats = npt.NDArray[np.float64]

LEVEL = 0.95  # of the intervals
EXACT_UP_TO = 16  # number of pairs up to which all 2^n sign patterns are counted
DRAWS = 2**16 - 1  # random patterns for more pairs; with the observed pattern there are 2^16
BLOCK = 1 << 20  # random signs in memory at a time
TIE = 1e-9  # relative tolerance: sums of the same differences in another order differ by rounding
REFERENCE, BEST = "reference", "best other"


def bootstrap(
    differences: Sequence[float] | Floats, level: float = LEVEL, draws: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Return the bootstrap interval (low, high) of the mean of paired differences.

    This is a percentile interval with widened levels Φ(∓ √(n/(n-1)) t), where t is the quantile of Student's t
    distribution with n - 1 degrees of freedom at the given level. Plain percentile intervals miss the mean too often,
    because the resamples of n values have only (n-1)/n of their variance. On 5 normal pairs, these 95 % intervals cover
    the mean in 92 % of cases, plain intervals in 84 % and BCa intervals in 84 %, because 5 pairs are too few to
    estimate the acceleration of BCa. On 10 pairs the coverage is 95, 91 and 90 %. An interval never leaves the range of
    the data, so with 3 pairs the coverage is 75 % at any level.

    Args:
        differences: One difference per pair.
        level: Level of the interval, between 0 and 1.
        draws: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        The interval, or (NaN, NaN) for a single pair.

    Raises:
        InputError: The differences are not a list of finite numbers, or the level is not between 0 and 1.

    >>> bootstrap([1.0, 3.0])
    (1.0, 3.0)
    """
    d = _checked(differences)
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1, got {level}")
    if (n := len(d)) == 1:
        return float("nan"), float("nan")
    tail = scipy.stats.norm.cdf(np.sqrt(n / (n - 1)) * scipy.stats.t.ppf((1 - level) / 2, n - 1))
    means = d[np.random.default_rng(seed).integers(n, size=(draws, n))].mean(1)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def paired_test(differences: Sequence[float] | Floats, seed: int = 0) -> float:
    """Return the two-sided p-value of the hypothesis that the mean difference is 0, by a sign-flip test.

    The p-value is the share of sign patterns whose sum is at least as far from 0 as the observed sum. Up to 16 pairs
    all patterns are counted. For more pairs the share is taken over 65,535 random patterns and the observed one. The
    test assumes that, under the null hypothesis, a difference and its opposite are equally likely. `smallest_p` is the
    smallest possible p-value.

    Args:
        differences: One difference per pair.
        seed: Seed of the random patterns.

    Raises:
        InputError: The differences are not a list of finite numbers.

    >>> paired_test([1.0, 2.0, 0.5, 1.0, 3.0])
    0.0625
    """
    d = _checked(differences)
    n = len(d)
    least = abs(d.sum()) - TIE * np.abs(d).sum()
    if n <= EXACT_UP_TO:
        sums = np.zeros(1)
        for value in d:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= least))
    stream, count, block = np.random.default_rng(seed), 1, max(1, BLOCK // n)
    for start in range(0, DRAWS, block):
        flips = stream.integers(2, size=(min(block, DRAWS - start), n), dtype=np.int8)
        count += int((np.abs(d.sum() - 2 * (flips @ d)) >= least).sum())
    return count / (DRAWS + 1)


def smallest_p(pairs: int) -> float:
    """Return the smallest p-value that `paired_test` can give: 2 of 2^n patterns, 0.0625 for 5 pairs, 1 for none."""
    if pairs > EXACT_UP_TO:
        return 1 / (DRAWS + 1)
    return min(1.0, 2.0 ** (1 - pairs))


def holm(p_values: Sequence[float] | Floats) -> list[float]:
    """Return p-values adjusted by Holm's method, in the given order.

    If all hypotheses with an adjusted p-value below α are rejected, the probability of any false rejection is at most
    α.

    Raises:
        InputError: A value is not in [0, 1].

    >>> holm([0.01, 0.5])
    [0.02, 0.5]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"p-values must be in [0, 1], got {p[~((p >= 0) & (p <= 1))][0]}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]), 1)
    return [float(a) for a in adjusted]


def _checked(differences: Sequence[float] | Floats) -> Floats:
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or len(d) == 0:
        raise InputError(f"differences must be a list of at least one number, got shape {d.shape}")
    if not np.isfinite(d).all():
        raise InputError(f"differences must be finite, got {d[~np.isfinite(d)][0]}")
    return d


# ---- the rows of a table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Versus:
    """The comparison of one row with another.

    Args:
        family: "reference" or "best other".
        row: Name of the row.
        other: Name of the row it is compared with.
        pairs: Number of common runs. If it is 0, the numbers are NaN.
        difference: Mean of the row's value minus the other row's value.
        low: Lower end of the bootstrap interval.
        high: Upper end of the bootstrap interval.
        p: p-value of the paired test.
        adjusted: p-value adjusted over all comparisons of the family.
    """

    family: str
    row: str
    other: str
    pairs: int = 0
    difference: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    p: float = float("nan")
    adjusted: float = float("nan")

    @property
    def smallest_p(self) -> float:
        """The smallest p-value that this number of pairs allows."""
        return smallest_p(self.pairs)


def compare(comparison: Comparison) -> list[Versus]:
    """Compare every row of a table with the reference row and with the best other row, on the tested columns.

    A pair is one protocol and seed that both rows ran. The tested columns of one run, such as its micro- and macro-F1,
    are not independent, so their differences are averaged into one pair. The best row has the best mean over the tested
    columns; rows without a column that another row has are not considered. Holm's correction is applied to each of the
    two families separately. In the second family, the best row against the runner-up and the runner-up against the best
    row are one hypothesis. A row without a common run is listed with 0 pairs and does not enter the correction.

    Raises:
        InputError: The reference row or a tested column is not in the table.
    """
    for kind, names, legal in (
        ("tested column", comparison.tested, comparison.columns),
        ("reference row", [comparison.reference] if comparison.reference else [], comparison.rows),
    ):
        for name in names:
            if name not in legal:
                raise InputError(f"table {comparison.name!r} has no {kind} {name!r} (known: {', '.join(legal)})")
    if not comparison.tested:
        return []
    rows, reference = comparison.rows, comparison.reference
    families = [[(REFERENCE, row, reference) for row in rows if reference and row != reference]]
    ranked = _ranking(comparison)
    if len(ranked) > 1:
        families.append([(BEST, row, ranked[row == ranked[0]]) for row in rows])
    return [v for family in families for v in _corrected(_versus(comparison, *names) for names in family)]


def _ranking(comparison: Comparison) -> list[str]:
    """Return the rows by their mean over the tested columns, best first.

    Rows without a column that another row has are left out. The list is empty if neither end of a column is better.
    """
    means = {row: {c: comparison.cell(row, c).mean for c in comparison.tested} for row in comparison.rows}
    full = [c for c in comparison.tested if any(np.isfinite(m[c]) for m in means.values())]
    score = {row: float(np.mean([m[c] for c in full])) for row, m in means.items() if full}
    complete = [row for row in score if np.isfinite(score[row])]
    sign = {"high": -1, "low": 1}.get(comparison.best)
    return [] if sign is None else sorted(complete, key=lambda row: sign * score[row])


def _versus(comparison: Comparison, family: str, row: str, other: str) -> Versus:
    """Return one comparison without the correction."""
    units: dict[Unit, list[float]] = {}
    for column in comparison.tested:
        values, other_values = (comparison.cell(r, column).values for r in (row, other))
        for unit in sorted(values.keys() & other_values.keys()):
            units.setdefault(unit, []).append(values[unit] - other_values[unit])
    if not units:
        return Versus(family, row, other)
    d = np.array([np.mean(values) for _, values in sorted(units.items())])
    return Versus(family, row, other, len(d), float(d.mean()), *bootstrap(d), paired_test(d))


def _corrected(family: Iterable[Versus]) -> list[Versus]:
    """Return a family with Holm's correction over its hypotheses. Each unordered pair of rows is one hypothesis."""
    members = list(family)
    p: Mapping[frozenset[str], float] = {frozenset((v.row, v.other)): v.p for v in members if v.pairs}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    return [replace(v, adjusted=adjusted[frozenset((v.row, v.other))]) if v.pairs else v for v in members]
