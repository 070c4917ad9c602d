"""Statistics of paired differences: bootstrap intervals, sign-flip tests, Holm's correction, and a table's comparisons.

Everything is decided by its input and a seed.
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

LEVEL = 0.95
EXACT_UP_TO = 16  # pairs all of whose 2^n sign patterns are counted
DRAWS = 2**16 - 1  # random patterns above that: with the one that was observed, as many
BLOCK = 1 << 20  # random signs held at a time
TIE = 1e-9  # sums of the same differences in another order differ by rounding alone
REFERENCE, BEST = "reference", "best other"


def bootstrap(
    differences: Sequence[float] | Floats, level: float = LEVEL, draws: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval (low, high) of the mean difference of n pairs; (NaN, NaN) of a single pair.

    A percentile interval at the widened levels Φ(∓ √(n/(n-1)) t), t the level's quantile of Student's t with n - 1
    degrees of freedom: resamples of n values have (n-1)/n of their variance, and the plain percentiles then miss the
    mean too often. On 5 normal pairs 95 % intervals cover it in 92 % of cases, plain ones in 84 %, BCa ones, whose
    acceleration so few pairs cannot tell, in 84 %; on 10 in 95, 91 and 90 %. No interval leaves the range of the data,
    so that 3 pairs cover the mean in 75 % whatever the level.
    """
    d = checked(differences)
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level}")
    if (n := len(d)) == 1:
        return float("nan"), float("nan")
    tail = scipy.stats.norm.cdf(np.sqrt(n / (n - 1)) * scipy.stats.t.ppf((1 - level) / 2, n - 1))
    means = d[np.random.default_rng(seed).integers(n, size=(draws, n))].mean(1)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def paired_test(differences: Sequence[float] | Floats, seed: int = 0) -> float:
    """Two-sided p of a mean difference of 0: the share of sign patterns with a sum as far from 0 as the observed.

    Exact up to 16 pairs; above, of 65,535 random patterns and the observed one, which the share counts in. It supposes
    that under the null a difference is as likely as its opposite. `smallest_p` says how small it can get.
    """
    d = checked(differences)
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
    """The smallest p that `paired_test` can give: 2 of 2^n patterns, 0.0625 with 5 pairs; 1 without any."""
    if pairs > EXACT_UP_TO:
        return 1 / (DRAWS + 1)
    return min(1.0, 2.0 ** (1 - pairs))


def holm(p_values: Sequence[float] | Floats) -> list[float]:
    """Holm's adjusted p-values, in the given order: rejecting those below α errs at all with a chance of α at most."""
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"p-values lie in [0, 1], got {p[~((p >= 0) & (p <= 1))][0]}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]), 1)
    return [float(a) for a in adjusted]


def checked(differences: Sequence[float] | Floats) -> Floats:
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or len(d) == 0:
        raise InputError(f"differences must be a list of at least one number, got shape {d.shape}")
    if not np.isfinite(d).all():
        raise InputError(f"differences must be finite, got {d[~np.isfinite(d)][0]}")
    return d


# ---- the rows of a table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Versus:
    """One row against another. `difference` is the row's less the other's; without common runs `pairs` is 0 and the
    numbers are NaN."""

    family: str  # "reference", or "best other"
    row: str
    other: str
    pairs: int = 0
    difference: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    p: float = float("nan")
    adjusted: float = float("nan")  # p over all comparisons of the family

    @property
    def smallest_p(self) -> float:
        return smallest_p(self.pairs)


def compare(comparison: Comparison) -> list[Versus]:
    """Every row of a table against its reference row, and against the best of the other rows, on the tested columns.

    A pair is one protocol and seed that both rows ran. Tested columns of the same run, such as its micro- and macro-F1,
    are not independent: their differences are averaged into that one pair. The best is that of the means over tested
    columns, among the rows that lack none which another row has. Each of the two families is corrected by itself; in
    the second, the best row against the runner-up and the reverse are one hypothesis. Rows that share no run with the
    other stay in the list with 0 pairs, outside the correction.
    """
    for kind, names, legal in (
        ("tested column", comparison.tested, comparison.columns),
        ("reference row", [comparison.reference] if comparison.reference else [], comparison.rows),
    ):
        for name in names:
            if name not in legal:
                raise InputError(f"table {comparison.name!r} has no {kind} {name!r} (there are: {', '.join(legal)})")
    if not comparison.tested:
        return []
    rows, reference = comparison.rows, comparison.reference
    families = [[(REFERENCE, row, reference) for row in rows if reference and row != reference]]
    ranked = ranking(comparison)
    if len(ranked) > 1:
        families.append([(BEST, row, ranked[row == ranked[0]]) for row in rows])
    return [v for family in families for v in corrected(versus(comparison, *names) for names in family)]


def ranking(comparison: Comparison) -> list[str]:
    """Rows by their mean over the tested columns, best first, of those that lack none which another row has; none
    where the table has no better end."""
    means = {row: {c: comparison.cell(row, c).mean for c in comparison.tested} for row in comparison.rows}
    full = [c for c in comparison.tested if any(np.isfinite(m[c]) for m in means.values())]
    score = {row: float(np.mean([m[c] for c in full])) for row, m in means.items() if full}
    able = [row for row in score if np.isfinite(score[row])]
    sign = {"high": -1, "low": 1}.get(comparison.best)
    return [] if sign is None else sorted(able, key=lambda row: sign * score[row])


def versus(comparison: Comparison, family: str, row: str, other: str) -> Versus:
    """One comparison, not yet corrected."""
    units: dict[Unit, list[float]] = {}
    for column in comparison.tested:
        ours, theirs = (comparison.cell(r, column).values for r in (row, other))
        for unit in sorted(ours.keys() & theirs.keys()):
            units.setdefault(unit, []).append(ours[unit] - theirs[unit])
    if not units:
        return Versus(family, row, other)
    d = np.array([np.mean(values) for _, values in sorted(units.items())])
    return Versus(family, row, other, len(d), float(d.mean()), *bootstrap(d), paired_test(d))


def corrected(family: Iterable[Versus]) -> list[Versus]:
    """The family with Holm's correction over its hypotheses, each pair of rows one."""
    held = list(family)
    p: Mapping[frozenset[str], float] = {frozenset((v.row, v.other)): v.p for v in held if v.pairs}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    return [replace(v, adjusted=adjusted[frozenset((v.row, v.other))]) if v.pairs else v for v in held]
