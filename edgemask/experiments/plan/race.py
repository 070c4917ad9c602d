"""`plan` for a race between candidates (`auto`): predict its time and memory before it runs.

Candidates are measured as a race trains them: all trainings of a candidate together, with an evaluation of all scored
graphs. They share prepared graphs and enrichment. Candidates that differ only in settings without influence on the
cost are measured once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import torch

from edgemask.config import Recipe
from edgemask.errors import InputError
from edgemask.experiments.plan import Prediction, enrichment_seconds, free_mib, measure, whole_sizes
from edgemask.experiments.plan.costs import Costs
from edgemask.experiments.plan.standins import enrichment_key
from edgemask.graph import Graph
from edgemask.runtime.device import resolve_device
from edgemask.training.candidates import AUTO_RECIPE, Candidate
from edgemask.training.heat import ENRICHING_SECONDS
from edgemask.training.race import BUDGET_SHARES, FIRST_SHARE, MAX_MEMBERS, ROUNDS, Race
from edgemask.training.selection import resolve_rule

# Seconds. A third or later level of all candidates is measured only if it is expected to end within this time.
PATIENCE = 150.0
# The same for `shortened`, with the share of a budget that it may use. The second pair is used if candidates do not
# seem to fit: for 10⁶ nodes, levels of up to 18,000 nodes predicted up to 1.9 times the memory that levels of up to
# 162,000 nodes did.
SHORTENING = ((40.0, 0.03), (PATIENCE, 0.1))
LARGE = 2_000_000  # nodes and edges of all sources from which on a race is planned before it runs
# Settings that do not influence the cost of an epoch or of an evaluation, with the value that groups compare.
_FREE: dict[str, Any] = {
    "rho": 0.5, "loss": "cross-entropy", "lr": 1e-3, "weight_decay": 0.0, "epochs": 1, "eval_every": 1,
}  # fmt: skip


@dataclass(frozen=True)
class CandidatePlan:
    """The predicted time and memory of one candidate of a race.

    Attributes:
        name: Name of the candidate.
        recipe: Its settings.
        build_seconds: Time to prepare the graphs and networks of all its trainings, once they are enriched.
        heat_seconds: Time to start and end a round: to read and write the state and to estimate the error of the score.
        first_epoch_seconds: Time of the first epoch of all its trainings, from which the race predicts the time until
            the first score.
        epoch_seconds: Time of a later epoch of all its trainings.
        score_seconds: Time of one evaluation of all scored graphs.
        final_epoch_seconds: Time of one epoch on all sources; 0 if there is no final training, because the trainings
            that are scored already use all sources.
        peak_mib: Peak memory on the device in MiB.
        host_mib: Peak memory of the process on the host in MiB. On a CPU it equals `peak_mib`.
        failed: Why the candidate cannot be trained; empty if it can.
    """

    name: str
    recipe: Recipe
    build_seconds: float = 0.0
    heat_seconds: float = 0.0
    first_epoch_seconds: float = 0.0
    epoch_seconds: float = 0.0
    score_seconds: float = 0.0
    final_epoch_seconds: float = 0.0
    peak_mib: float = 0.0
    host_mib: float = 0.0
    failed: str = ""

    @property
    def first_seconds(self) -> float:
        """Time of the first round."""
        return self.build_seconds + self.heat_seconds + self._train_seconds(ROUNDS[0])

    @property
    def rounds_seconds(self) -> float:
        """Time of all rounds, if the candidate is never stopped."""
        return self.build_seconds + len(ROUNDS) * self.heat_seconds + self._train_seconds(ROUNDS[-1])

    @property
    def final_seconds(self) -> float:
        """Time of the final training on all sources, if it runs for all epochs."""
        if not self.final_epoch_seconds:
            return 0.0
        return self.heat_seconds + self.recipe.epochs * self.final_epoch_seconds

    @property
    def first_score_seconds(self) -> float:
        """Time until the first score as the race predicts it after the first epoch."""
        return min(self.recipe.eval_every, self.recipe.epochs) * self.first_epoch_seconds

    def _train_seconds(self, share: float) -> float:
        """Return the time of training and evaluation up to a share of the epochs, rounded up to an evaluation."""
        every, epochs = self.recipe.eval_every, self.recipe.epochs
        evaluations = ceil(ceil(share * epochs) / every)
        return min(evaluations * every, epochs) * self.epoch_seconds + evaluations * self.score_seconds


@dataclass(frozen=True)
class RacePlan(Prediction):
    """The predicted time and memory of a race.

    Attributes:
        candidates: The candidates, in the order of the race.
        predictions_mib: Memory of the predictions that the race keeps of every candidate, in MiB. Trained states are
            kept on disk.
        budget: Seconds that the race may take; None for no limit.
        max_members: Largest number of candidates that are averaged.
    """

    candidates: tuple[CandidatePlan, ...]
    predictions_mib: float
    budget: float | None
    max_members: int

    @property
    def running(self) -> list[CandidatePlan]:
        """The candidates that can be trained."""
        return [c for c in self.candidates if not c.failed]

    @property
    def least_seconds(self) -> float:
        """Time of the fit up to the end of the first round of all candidates."""
        return self.start_seconds + self.enrich_seconds + sum(c.first_seconds for c in self.running)

    @property
    def most_seconds(self) -> float:
        """Time of the fit if no candidate is stopped and the members are those with the longest final training."""
        finals = sorted((c.final_seconds for c in self.running), reverse=True)[: self.max_members]
        return self.start_seconds + self.enrich_seconds + sum(c.rounds_seconds for c in self.running) + sum(finals)

    @property
    def peak_mib(self) -> float:
        """Peak memory on the device in MiB: that of the largest candidate."""
        on_host = self.predictions_mib if self.device.type == "cpu" else 0.0
        return max(c.peak_mib for c in self.running) + on_host

    @property
    def host_mib(self) -> float:
        """Peak memory of the process on the host in MiB."""
        return max(c.host_mib for c in self.running) + self.predictions_mib

    def shortage(self, candidate: CandidatePlan) -> tuple[str, float, float] | None:
        """Return which memory a candidate lacks, how much it needs and how much is free, in MiB; None if it fits."""
        if self.device.type != "cpu" and candidate.peak_mib > self.free_mib:
            return "GPU memory", candidate.peak_mib, self.free_mib
        needed = candidate.host_mib + self.predictions_mib
        return ("memory", needed, self.host_free_mib) if needed > self.host_free_mib else None

    def beyond_budget(self) -> dict[str, float]:
        """Return the candidates that the budget leaves out in the first round, with the time until their first score.

        As in the race, each candidate may use an equal share of the time that is left for it and those after it, and
        more until its first score.
        """
        found: dict[str, float] = {}
        if self.budget is None:
            return found
        allowed, spent, enriched, scored = BUDGET_SHARES[0] * self.budget, 0.0, False, False
        for i, c in enumerate(self.running):
            left = max(0.0, allowed - spent)
            share = left / (len(self.running) - i)
            first = max(share, FIRST_SHARE * (left if scored else self.budget - spent))
            opening = c.build_seconds
            if c.recipe.enriched and not enriched:
                if ENRICHING_SECONDS * self.nodes > first:
                    found[c.name] = self.enrich_seconds + c.first_score_seconds
                    continue
                opening, enriched = opening + self.enrich_seconds, True
            if c.first_score_seconds > first:
                found[c.name] = c.first_score_seconds
                spent += opening + c.first_epoch_seconds
                continue
            every = min(c.recipe.eval_every, c.recipe.epochs)
            until_score = opening + c.first_epoch_seconds + (every - 1) * c.epoch_seconds + c.score_seconds
            whole = opening + c.first_seconds - c.build_seconds
            spent, scored = spent + max(until_score, min(whole, share)), True
        return found


def plan_race(
    graphs: Sequence[Graph],
    candidates: Sequence[Candidate],
    device: str | torch.device = "auto",
    *,
    validation: Sequence[Graph] = (),
    budget: float | None = None,
    max_members: int = MAX_MEMBERS,
    patience: float = PATIENCE,
) -> RacePlan:
    """Predict the time and memory of a race between candidates.

    Args:
        graphs: Labelled source graphs of the fit.
        candidates: The candidates, as `choose_candidates` returns them.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` (cuda if there is one, else cpu).
        validation: Labelled graphs used only for model selection.
        budget: Seconds that the race may take; None for no limit.
        max_members: Largest number of candidates that are averaged.
        patience: Seconds. Larger stand-ins are measured if they are expected to end within this time.

    Raises:
        GraphError: The graphs do not fit together or have no labels.
        InputError: A parameter is not legal, or every candidate fails on these graphs. The message says why.
    """
    torch_device, sources, validation = resolve_device(str(device)), list(graphs), list(validation)
    # The race itself checks the parameters.
    Race(candidates, sources, validation, device=torch_device, budget=budget, max_members=max_members)
    rule = resolve_rule(AUTO_RECIPE, sources, validation)
    left_out = [stage for stage in rule.stages(sources) if stage is not None]
    failed = {c.name: why for c in candidates if (why := _unusable(c, sources, validation, torch_device))}
    groups = _groups([c for c in candidates if c.name not in failed])
    configurations = [(group[0].name.partition(":")[0], group[0].recipe) for group in groups]
    start, measured, reasons = (
        measure(sources, validation, configurations, torch_device, race=True, patience=patience)
        if groups
        else (0.0, [], {})
    )
    rows: dict[str, CandidatePlan] = {}
    enriching: dict[tuple[Any, ...], float] = {}
    for i, group in enumerate(groups):
        try:
            if i in reasons:
                raise InputError(f"it does not run on a small part of these graphs: {reasons[i]}")
            row = _row(group[0], sources, measured[i], left_out)
        except InputError as error:
            failed |= {c.name: str(error) for c in group}
            continue
        rows |= {c.name: replace(row, name=c.name, recipe=c.recipe) for c in group}
        if (key := enrichment_key(row.recipe)) and key not in enriching:
            enriching[key] = enrichment_seconds(row.recipe, sources, validation, measured[i])
    if not rows:
        raise InputError("every candidate fails: " + "; ".join(f"{c.name}: {failed[c.name]}" for c in candidates))
    free, host_free = free_mib(torch_device)
    levels = next(own for i, own in enumerate(measured) if i not in reasons)
    nodes = sum(g.num_nodes for g in sources)
    scored = sum(g.num_nodes for g in validation) or nodes
    return RacePlan(
        device=torch_device,
        rule=f"auto, {rule.name}",
        nodes=nodes,
        edges=sum(g.num_edges for g in sources),
        start_seconds=start,
        enrich_seconds=sum(enriching.values()),
        free_mib=free,
        host_free_mib=host_free,
        measured=tuple(sum(m["nodes"]) for m in levels),
        whole=sum(levels[-1]["nodes"]) == nodes and all(row.recipe.batch_size is None for row in rows.values()),
        candidates=tuple(
            rows.get(c.name) or CandidatePlan(c.name, c.recipe, failed=failed[c.name]) for c in candidates
        ),
        predictions_mib=len(rows) * scored * sources[0].num_classes * 4 / 2**20,
        budget=budget,
        max_members=max_members,
    )


def _groups(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Return the candidates in groups that have the same cost, in the order of their first members."""
    groups: dict[tuple[Any, ...], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.make, candidate.recipe.replace(**_FREE)), []).append(candidate)
    return list(groups.values())


def _unusable(candidate: Candidate, sources: Sequence[Graph], validation: Sequence[Graph], device: torch.device) -> str:
    """Return why a candidate cannot be trained on these graphs; empty if nothing is known against it."""
    try:
        resolve_rule(candidate.recipe, sources, validation)
        candidate.make(candidate.recipe, sources[0].num_features, sources[0].num_classes, 0, device)
    except InputError as error:
        return str(error)
    return ""


def _row(
    candidate: Candidate, sources: Sequence[Graph], measured: Sequence[dict[str, Any]], left_out: Sequence[str]
) -> CandidatePlan:
    """Extrapolate the costs of a candidate to the whole graphs.

    Args:
        candidate: The candidate.
        sources: The whole source graphs.
        measured: Measurements of each level.
        left_out: Names of the sources that are left out in turn; empty if the scored training uses all sources.

    Raises:
        InputError: The spectral ratio would draw too many pairs per node.
    """
    cost, sizes = Costs(candidate.recipe, measured), whole_sizes(candidate.recipe, sources, measured)
    parts = [sizes.only(np.array([g.name != name for g in sources])) for name in left_out] or [sizes]
    return CandidatePlan(
        candidate.name,
        candidate.recipe,
        build_seconds=cost.of("build", sizes),
        heat_seconds=cost.of("heat", sizes),
        first_epoch_seconds=cost.of("first", sizes),
        epoch_seconds=sum(cost.epoch(part) for part in parts),
        score_seconds=cost.of("score", sizes),
        final_epoch_seconds=cost.epoch(sizes) if left_out else 0.0,
        peak_mib=cost.peak("device", sizes),
        host_mib=cost.peak("host", sizes),
    )


# ---- memory ----------------------------------------------------------------------------------------------------


def fitting(race_plan: RacePlan) -> tuple[list[str], list[str]]:
    """Return the names of the candidates that fit into the free memory, and a note for each of the others."""
    names, notes = [], []
    for candidate in race_plan.candidates:
        if candidate.failed:
            notes.append(f"{candidate.name} is left out: {candidate.failed}")
        elif shortage := race_plan.shortage(candidate):
            kind, needed, free = shortage
            notes.append(
                f"{candidate.name} is left out: it needs about {gib(needed)} of {kind}, and {gib(free)} are free"
            )
        else:
            names.append(candidate.name)
    return names, notes


def shortened(
    candidates: Sequence[Candidate],
    sources: Sequence[Graph],
    validation: Sequence[Graph],
    device: str | torch.device,
    budget: float | None = None,
) -> tuple[list[Candidate], list[str]]:
    """Leave out the candidates of a race that do not fit into memory.

    Small graphs (fewer than `LARGE` nodes and edges together) are not measured, and no candidate is left out.

    Args:
        candidates: The candidates.
        sources: Labelled graphs to train on.
        validation: Labelled graphs used only for selection.
        device: Where to train.
        budget: Seconds that the race may take; None for no limit. A small part of it is spent here.

    Returns:
        The candidates that remain, and a note for each one that is left out.

    Raises:
        GraphError: The graphs do not fit together or have no labels.
        InputError: No candidate is left. The message says what the smallest one needs.
    """
    if sum(g.num_nodes + g.num_edges for g in sources) < LARGE:
        return list(candidates), []
    limits = [seconds if budget is None else min(seconds, share * budget) for seconds, share in SHORTENING]
    for patience in dict.fromkeys(limits):
        planned = plan_race(sources, candidates, device, validation=validation, budget=budget, patience=patience)
        if planned.whole or not any(planned.shortage(c) for c in planned.running):
            break
    names, notes = fitting(planned)
    if not names:
        smallest = min(planned.running, key=lambda c: max(c.peak_mib, c.host_mib))
        shortage = planned.shortage(smallest)
        assert shortage is not None
        kind, needed, free = shortage
        raise InputError(
            f"no candidate fits into memory: the smallest one, {smallest.name}, needs about {gib(needed)} of {kind}, "
            f"and {gib(free)} are free; batch_size=1024 with fan_out=10 trains on sampled neighbourhoods, and "
            "inference_batch=65536 predicts in blocks of nodes"
        )
    return [c for c in candidates if c.name in names], notes


def gib(mib: float) -> str:
    """Return an amount of memory as text.

    >>> gib(512), gib(31_900)
    ('0.5 GiB', '31.2 GiB')
    """
    return f"{mib / 1024:.1f} GiB"
