"""The suite `mask_worth`: what the adversary adds to no mask and to a random mask, by backbone and benchmark."""

from __future__ import annotations

from collections.abc import Iterator

from edgemask.methods.registry import method_spec
from edgemask.report.suite import CellSpec, RunSet, Suite, TableSpec
from paper.cells import Score
from paper.runs import BASE, OTHERS, PROTOCOLS, run_set

RANDOM = "random-mask"
BACKBONES = ("gcn", "mix", "sage")
BUDGETS = (0.9, 0.7, 0.5)  # ρ: the mean of the adversary's mask, and the expected share of edges of a random mask
TITLES = {"citation": "Citation", **OTHERS, "airports": "Airports"}
ZERO = "no difference"
SCHEDULE = (
    "Every run trains on the original graph for 200 epochs with one step per source and epoch, averages the weights as "
    "`robust` does and predicts without propagation. A validation domain chooses the epoch if there is one, otherwise "
    "the last epoch is used. ρ is the mean of the mask: the adversary distributes it over the edges, a random mask "
    "keeps each edge with this probability in every step."
)


def runs(where: str, mask: str, backbone: str, rho: float | None = None) -> RunSet:
    """Return the runs of one kind of mask on a benchmark.

    Args:
        where: Name of the benchmark.
        mask: `none`, `random` or `adversary`.
        backbone: Name of the backbone.
        rho: Budget of the mask; None for no mask.
    """
    name = RANDOM if mask == "random" else BASE
    budget = {} if rho is None else {"rho": rho}
    settings = {"backbone": backbone, "mask": mask == "adversary", "epochs": 200, "alpha": (0.0,), "select": "last"}
    return run_set(where, name, method_spec(name).under(None, **settings, **budget))


def score(where: str) -> Score:
    """Return the score of a run in percent, as an average over its targets."""
    return Score(("micro_f1", "macro_f1")) if where == "citation" else Score()


def score_cells(row: str, mask: str, backbone: str, rho: float | None = None) -> Iterator[CellSpec]:
    """Yield the cells of a row of scores: the average of every benchmark, and the minimum over several targets.

    Args:
        row: Name of the row.
        mask: `none`, `random` or `adversary`.
        backbone: Name of the backbone.
        rho: Budget of the mask; None for no mask.
    """
    for where, title in TITLES.items():
        own = runs(where, mask, backbone, rho)
        if where in OTHERS:
            yield CellSpec(row, f"{title} avg", own, score(where))
            yield CellSpec(row, f"{title} min", own, Score(how="min"))
        else:
            yield CellSpec(row, title, own, score(where))


def scores() -> Iterator[CellSpec]:
    """Yield the cells of all scores."""
    for backbone in BACKBONES:
        yield from score_cells(f"{backbone}, no mask", "none", backbone)
        for mask in ("random", "adversary"):
            for rho in BUDGETS:
                yield from score_cells(f"{backbone}, {mask}, ρ = {rho:g}", mask, backbone, rho)


def difference_cells(where: str, row: str, own: RunSet, other: RunSet) -> Iterator[CellSpec]:
    """Yield the cells of a row of differences: each protocol or the minimum over the targets, and the average.

    Args:
        where: Name of the benchmark.
        row: Name of the row.
        own: The runs with the adversary.
        other: The runs whose scores are subtracted, paired by protocol and seed.
    """
    if where in OTHERS:
        yield CellSpec(row, "minimum", own, Score(how="min"), minus=other)
    for protocol in () if where in OTHERS else PROTOCOLS[where]:
        one, subtracted = (run_set(where, r.method, r.recipe, (protocol,)) for r in (own, other))
        yield CellSpec(row, protocol, one, score(where), minus=subtracted)
    yield CellSpec(row, "average", own, score(where), minus=other)


def differences(where: str) -> Iterator[CellSpec]:
    """Yield the cells of the adversary's score minus the score without a mask and under a random mask."""
    for against in ("no mask", "random mask"):
        for backbone in BACKBONES:
            for rho in BUDGETS:
                other = ("none", backbone, None) if against == "no mask" else ("random", backbone, rho)
                row = f"{backbone}, ρ = {rho:g}: adversary − {against}"
                yield from difference_cells(where, row, runs(where, "adversary", backbone, rho), runs(where, *other))
    plain = runs(where, "none", BACKBONES[0])
    yield from difference_cells(where, ZERO, plain, plain)


MASK_WORTH = Suite(
    "mask_worth",
    "Worth of the mask",
    (
        TableSpec(
            "No mask, random mask and adversary",
            "Average over transfers or targets and minimum over targets, in percent: micro- and macro-F1 on Citation, "
            f"ROC-AUC on Twitch, accuracy elsewhere. {SCHEDULE}",
            tuple(scores()),
        ),
        *(
            TableSpec(
                f"Points that the adversary adds, {title}",
                "Score with the adversary minus the score without a mask, or under a random mask with the same ρ, with "
                "the same backbone, paired by protocol and seed. The tests compare the average with 0, which is the "
                f"row “{ZERO}”.",
                tuple(differences(where)),
                best="",
                reference=ZERO,
                tested=("average",),
            )
            for where, title in TITLES.items()
        ),
    ),
)
