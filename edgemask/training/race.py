"""A race: train several candidates in rounds, stop those that fall behind, and average those that cannot be told apart.

Every candidate is scored on graphs that it is not trained on: validation graphs, else each source when it is left out,
else withheld nodes of the single source. No label of a target is used.

The result depends neither on the names of the sources nor on their order: they are sorted by content and renamed for
training.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgemask.enrich import Cache
from edgemask.errors import CheckpointError, DivergenceError, InputError, MetricError, RaceWarning
from edgemask.graph import Array, Graph
from edgemask.inference import Member, Propagation, tempered
from edgemask.methods.sources import Prepared
from edgemask.metrics import score, scored_nodes
from edgemask.runtime import checkpoint
from edgemask.runtime.device import out_of_memory
from edgemask.runtime.distributed import started
from edgemask.training.calibration import fit_temperature
from edgemask.training.candidates import Candidate
from edgemask.training.contender import Contender
from edgemask.training.fit import Fit
from edgemask.training.outcome import Expected, Outcome, Standing
from edgemask.training.selection import SOURCE_VAL, check_sources
from edgemask.training.trainer import Trainer
from edgemask.training.uncertainty import replicates, standard_error

ROUNDS = (0.1, 0.3, 1.0)  # share of the epochs at the end of each round
BEHIND_ERRORS, BEHIND = 3.0, 0.01  # a candidate stops if it is behind by more than both: standard errors, and score
TIE_ERRORS, TIE_LEAST, TIE_MOST = 2.0, 0.005, 0.05  # candidates this close to the best one are averaged
MAX_MEMBERS = 7
BUDGET_SHARES = (0.3, 0.5, 1.0)  # share of the time left that each round may use
RESERVE = 1.5  # safety factor of the predicted time of the final training
MAJORITY = "majority class"
FEWEST = 30  # a race needs at least this many scored nodes
FALLBACK = "erm-sage:epochs=200"  # the candidate that is trained if scores mean nothing
ENRICHING_SECONDS = 2.5e-4  # rough time to enrich one node on two cores, to decide whether a budget allows it

OnEpoch = Callable[[Trainer, str], None]


def canonical(graphs: Sequence[Graph], kind: str) -> dict[str, Graph]:
    """Return graphs in an order and with names that depend on their content only, by their original names."""
    ordered = sorted(graphs, key=lambda g: g.hash)
    return {g.name: g.replace(name=f"{kind}-{i}") for i, g in enumerate(ordered)}


class Race:
    """A race between candidates.

    Args:
        candidates: The candidates, from cheap to expensive.
        sources: Labelled graphs to train on.
        validation: Labelled graphs used only for selection.
        metric: The metric to maximise.
        seed: All randomness is derived from it.
        device: Where to train.
        cache: Where enrichment is cached.
        budget: Seconds that the whole race may take, final training included. None for no limit.
        max_members: Largest number of candidates that are averaged.
        folder: Where the state is saved. A race that finds the state of the same race there continues it.
        on_epoch: Called after every epoch with the trainer and the name of the candidate and its stage.

    Raises:
        GraphError: The graphs do not fit together or have no labels.
        InputError: There is no candidate, or a parameter is not legal.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        sources: Sequence[Graph],
        validation: Sequence[Graph] = (),
        *,
        metric: str = "micro_f1",
        seed: int = 0,
        device: str | torch.device = "cpu",
        cache: Cache | None = None,
        budget: float | None = None,
        max_members: int = MAX_MEMBERS,
        folder: str | Path | None = None,
        on_epoch: OnEpoch | None = None,
    ):
        if not candidates:
            raise InputError("a race needs at least one candidate")
        if max_members < 1:
            raise InputError(f"max_members must be at least 1, got {max_members}")
        if budget is not None and not budget > 0:
            raise InputError(f"budget must be a positive number of seconds, got {budget}")
        if started().size > 1:
            raise InputError("a race trains in one process: with torchrun, choose one method")
        check_sources(sources, validation, one_class=True)
        self.sources, self.validation = canonical(sources, "source"), canonical(validation, "validation")
        self.given_names = {g.name: name for name, g in (self.sources | self.validation).items()}
        self.candidates, self.metric, self.seed = list(candidates), metric, seed
        self.device, self.budget, self.max_members = torch.device(device), budget, max_members
        self.prepared, self.on_epoch = Prepared(cache, keep=True), on_epoch
        self.folder = None if folder is None else Path(folder)
        self.standings = {c.name: Standing(c.name) for c in candidates}
        self.notes: list[str] = []
        self.replicates: dict[str, dict[str, Array]] = {}
        self.round, self.spent, self.start = 0, 0.0, time.monotonic()

    # ---- the race ------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run the race to the end and train the members.

        Raises:
            InputError: Every candidate failed, or the budget is too small for any of them. The message says why.
        """
        self.start = time.monotonic()
        try:
            self._check_scores()
            return self._race()
        except MetricError as error:
            return self._fall_back(str(error))

    def _check_scores(self) -> None:
        """Check that scores on these graphs can tell candidates apart.

        Raises:
            MetricError: They cannot. The message says why.
        """
        for name, graph in self.sources.items():
            if len(np.unique(graph.first_labels[graph.first_labels >= 0])) < 2:
                raise MetricError(f"all labels of graph {name!r} are the same")
        scored = self.validation or self.sources
        share = SOURCE_VAL if len(self.sources) == 1 and not self.validation else 1.0
        nodes = int(share * sum(scored_nodes(g).sum() for g in scored.values()))
        if nodes < FEWEST:
            raise MetricError(f"candidates would be scored on only {nodes} nodes")

    def _fall_back(self, reason: str) -> Outcome:
        """Train a fixed candidate without selection."""
        message = f"no race was run, because scores would mean nothing ({reason}): {FALLBACK} was trained instead"
        self.notes.append(message)
        warnings.warn(message, RaceWarning, stacklevel=4)
        candidate, settings = Candidate.parse(FALLBACK), {"select": "last", "alpha": (0.0,), "eval_every": 10}
        fit = Fit(
            candidate.make,
            candidate.recipe.replace(**settings),
            tuple(self.sources.values()),
            metric=self.metric,
            seed=self.seed,
            device=self.device,
            prepared=self.prepared,
            one_class=True,
            on_epoch=self._report(FALLBACK),
        )
        trainer, choice = fit.run()
        member = Member(FALLBACK, trainer.method, Propagation())
        board = [Standing(FALLBACK, epoch=choice.epoch, propagation="0", weight=1.0, note="not scored")]
        return Outcome("none", [member], board, None, {FALLBACK: self._named(trainer.history)}, self.notes)

    def _race(self) -> Outcome:
        """Run all rounds and train the members."""
        racing = self._restore()
        while self.round < len(ROUNDS) and racing:
            racing = self._run_round(racing)
            self.round += 1
            self._save_race(racing)
        if not racing:
            reasons = "; ".join(f"{s.name}: {s.note}" for s in self.standings.values())
            raise InputError(f"every candidate failed: {reasons}")
        return self._finish(racing)

    def _run_round(self, racing: list[Contender]) -> list[Contender]:
        """Advance all contenders by one round, and return those that go on."""
        allowed = BUDGET_SHARES[self.round] * (self._time_left() - self._reserve(racing))
        begin, scored, needs = time.monotonic(), [], dict[str, float]()
        for i, contender in enumerate(racing):
            seconds = math.inf
            if self.budget is not None:
                seconds = max(0.0, (allowed - (time.monotonic() - begin)) / (len(racing) - i))
                if contender.best is None and not self._affordable(contender, seconds, needs):
                    continue
            if self._attempt(contender, partial(self._advance, seconds=seconds)):
                scored.append(contender)
        if needs and not scored:
            name = min(needs, key=lambda n: needs[n])
            raise InputError(
                f"budget = {self.budget:g} s is too small for any candidate: the cheapest one, {name}, needs about "
                f"{needs[name]:.0f} s until its first score"
            )
        return self._keep(scored)

    def _affordable(self, contender: Contender, seconds: float, needs: dict[str, float]) -> bool:
        """Predict whether a contender reaches its first score in time. If not, take it out of the race."""
        predicted = 0.0
        if contender.candidate.recipe.enriched and not self.prepared.has_enriched:
            predicted = ENRICHING_SECONDS * sum(g.num_nodes for g in self.sources.values())
        if predicted <= seconds:
            predictions: list[float] = []
            if not self._attempt(contender, lambda c: predictions.append(c.predict_seconds())):
                return False
            predicted = predictions[0]
        if predicted <= seconds:
            return True
        needs[contender.name] = predicted
        note = f"left out: its first score would take about {predicted:.0f} s, and the budget allows {seconds:.0f} s"
        self._update(contender.name, note=note)
        contender.trainers.clear()
        return False

    def _advance(self, contender: Contender, seconds: float) -> None:
        """Train a contender until the end of the round or of its time, and score it."""
        recipe, end = contender.candidate.recipe, time.monotonic() + seconds
        target = math.ceil(ROUNDS[self.round] * recipe.epochs)
        while contender.epoch < target and not contender.ended:
            begin = time.monotonic()
            if contender.best is not None and begin + contender.seconds / contender.epoch * recipe.eval_every > end:
                self._note_once("the budget ended the race before all candidates had trained for all epochs")
                break
            contender.advance(self._report(contender.name))
            if self.folder is not None:
                contender.save(self._path(contender), self._task(contender))
        contender.rest()
        self.replicates[contender.name] = contender.replicates()

    def _note_once(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _keep(self, scored: list[Contender]) -> list[Contender]:
        """Update the standings, and return the contenders that are not clearly behind the best one."""
        for contender in scored:
            best = contender.best
            assert best is not None
            self.standings[contender.name] = Standing(
                contender.name,
                best.score,
                standard_error(self.replicates[contender.name]),
                best.epoch,
                str(best.propagation),
                self.round + 1,
                0.0,
                contender.seconds,
            )
        if self.round + 1 == len(ROUNDS):
            return scored
        if not scored:
            return []
        leader, kept = max(scored, key=self._score), []
        for contender in scored:
            gap, error = self._gap(leader, contender)
            if gap > BEHIND_ERRORS * error and gap > BEHIND:
                note = f"stopped: {100 * gap:.1f} points behind {leader.name}"
                self._update(contender.name, note=note)
            else:
                kept.append(contender)
        return kept

    def _score(self, contender: Contender) -> float:
        return contender.best.score if contender.best is not None else -math.inf

    def _gap(self, leader: Contender, other: Contender) -> tuple[float, float]:
        """Return how far a contender is behind the leader, and the standard error of the difference."""
        error = standard_error(self.replicates[leader.name], self.replicates[other.name])
        return self._score(leader) - self._score(other), error

    def _attempt(self, contender: Contender, step: Callable[[Contender], Any]) -> bool:
        """Run a step of a contender. If it diverges or does not fit, note the reason and take it out of the race.

        Returns:
            Whether the step succeeded. Errors that are not the candidate's, such as a full disk, are raised.
        """
        try:
            step(contender)
            return True
        except (DivergenceError, InputError, MemoryError, RuntimeError) as error:
            memory = out_of_memory(error)
            if not memory and not isinstance(error, DivergenceError | InputError):
                raise
            reason = "not enough memory" if memory else str(error)
            self._update(contender.name, note=f"failed: {reason}", seconds=contender.seconds)
            self.notes.append(f"{contender.name} left the race: {reason}")
            contender.trainers.clear()
            return False

    def _update(self, name: str, **changes: Any) -> None:
        self.standings[name] = replace(self.standings[name], **changes)

    # ---- the end -------------------------------------------------------------------------------------------------

    def _finish(self, racing: list[Contender]) -> Outcome:
        """Choose the members, train them on all sources and calibrate them."""
        chosen = self._members(racing)
        members: list[Member] = []
        histories, held_out = {}, []
        for contender in chosen:
            if members and self.budget is not None and self._final_time(contender) > self._time_left():
                self._update(contender.name, note="left out: the budget does not allow its final training")
                self.notes.append(f"the budget ended before {contender.name} could be trained on all sources")
                continue
            trained: list[Trainer] = []
            if not self._attempt(contender, partial(self._train, trained=trained)):
                continue
            best, graphs = contender.best, contender.scored_graphs()
            assert best is not None
            temperature = fit_temperature(graphs, best.predictions)
            members.append(Member(contender.name, trained[0].method, best.propagation, temperature))
            histories[contender.name] = self._named(trained[0].history)
            held_out.append({n: tempered(p.astype(np.float64), temperature) for n, p in best.predictions.items()})
            contender.rest()
        if not members:
            reasons = "; ".join(f"{s.name}: {s.note}" for s in self.standings.values() if s.note)
            raise InputError(f"every member failed in its final training: {reasons}")
        for member in members:
            self._update(member.name, weight=1 / len(members))
        expected = self._expected(chosen[0].scored_graphs(), held_out)
        board = sorted(
            [*self.standings.values(), self._majority(chosen[0])],
            key=lambda s: (-s.weight, -math.inf if s.score is None else -s.score, s.name),
        )
        self._warn(board, chosen)
        return Outcome(chosen[0].rule.name, members, board, expected, histories, self.notes)

    def _members(self, racing: list[Contender]) -> list[Contender]:
        """Return the best contender and those that cannot be told from it, best first."""
        ranked = sorted(racing, key=lambda c: (-self._score(c), self.candidates.index(c.candidate)))
        members = []
        for contender in ranked:
            gap, error = self._gap(ranked[0], contender)
            if gap <= min(max(TIE_ERRORS * error, TIE_LEAST), TIE_MOST):
                members.append(contender)
            else:
                self._update(contender.name, note=f"{100 * gap:.1f} points behind {ranked[0].name}")
        for contender in members[self.max_members :]:
            self._update(contender.name, note=f"left out: more than {self.max_members} members")
        return members[: self.max_members]

    def _train(self, contender: Contender, trained: list[Trainer]) -> None:
        """Append the final trainer of a contender, which continues from its saved state if there is one."""
        path = self._path(contender, "final") if self.folder is not None else None
        trained.append(contender.finish(self._report(contender.name), path, self._task(contender)))

    def _expected(self, graphs: Mapping[str, Graph], held_out: list[dict[str, Array]]) -> Expected:
        """Score the average of the members' predictions on the scored graphs."""
        values, ends = {}, []
        for name, graph in graphs.items():
            p = np.mean([own[name] for own in held_out], axis=0)
            values[self.given_names[name]] = value = score((self.metric,), graph, p)[self.metric]
            reach = 2 * standard_error({name: replicates(self.metric, graph, p)})
            ends += [value - reach, value + reach]
        return Expected(float(np.mean(list(values.values()))), max(0.0, min(ends)), min(1.0, max(ends)), values)

    def _majority(self, contender: Contender) -> Standing:
        """Return the standing of the most frequent class of the training nodes."""
        values, errors = [], {}
        for trainer in contender.trainers:
            counts = sum(
                np.bincount(s.domain.labels()[s.train].cpu().numpy(), minlength=trainer.method.num_classes)
                for s in trainer.sources
            )
            for evaluated in trainer.eval_graphs:
                p = np.tile(counts / np.sum(counts), (evaluated.graph.num_nodes, 1))
                values.append(score((self.metric,), evaluated.graph, p)[self.metric])
                errors[evaluated.graph.name] = replicates(self.metric, evaluated.graph, p)
        self.replicates[MAJORITY] = errors
        return Standing(MAJORITY, float(np.mean(values)), standard_error(errors), note="reference")

    def _warn(self, board: list[Standing], chosen: list[Contender]) -> None:
        """Warn if the best candidate is not clearly better than the majority class."""
        majority = next(s.score for s in board if s.name == MAJORITY)
        assert majority is not None
        error = standard_error(self.replicates[chosen[0].name], self.replicates[MAJORITY])
        if self._score(chosen[0]) - majority <= 2 * error:
            message = (
                f"the best candidate, {chosen[0].name}, scores {100 * self._score(chosen[0]):.1f} on nodes it was not "
                f"trained on, hardly more than the most frequent class ({100 * majority:.1f}): do not expect the model "
                "to be better than a guess"
            )
            self.notes.append(message)
            warnings.warn(message, RaceWarning, stacklevel=4)

    # ---- time ----------------------------------------------------------------------------------------------------

    def _time_left(self) -> float:
        """Return the seconds of the budget that are left."""
        return math.inf if self.budget is None else self.budget - self.spent - (time.monotonic() - self.start)

    def _reserve(self, racing: list[Contender]) -> float:
        """Return the time to keep for the final training of the best contender so far."""
        if self.budget is None:
            return 0.0
        scored = [c for c in racing if c.best is not None]
        return RESERVE * self._final_time(max(scored, key=self._score)) if scored else 0.0

    def _final_time(self, contender: Contender) -> float:
        """Predict the seconds of the final training of a contender."""
        best = contender.best
        if best is None or best.weights:
            return 0.0
        # Leaving out each of M sources in turn trains every source M - 1 times per epoch.
        return contender.seconds / contender.epoch * best.epoch / max(1, len(self.sources) - 1)

    # ---- saved state ---------------------------------------------------------------------------------------------

    def _path(self, contender: Contender, kind: str = "race") -> Path:
        assert self.folder is not None
        return self.folder / f"{kind}-{self.candidates.index(contender.candidate):02d}.ckpt"

    def _task(self, contender: Contender) -> dict[str, Any]:
        return {"candidate": contender.name, **contender.fit._task()}

    def _race_task(self) -> dict[str, Any]:
        """Return everything that makes two races the same."""
        return {
            "candidates": {c.name: c.recipe.to_json() for c in self.candidates},
            "sources": [g.hash for g in self.sources.values()],
            "validation": [g.hash for g in self.validation.values()],
            "metric": self.metric,
            "seed": self.seed,
        }

    def _save_race(self, racing: list[Contender]) -> None:
        if self.folder is None:
            return
        meta = {
            "task": self._race_task(),
            "round": self.round,
            "racing": [c.name for c in racing],
            "standings": [asdict(s) for s in self.standings.values()],
            "notes": self.notes,
            "spent": self.spent + time.monotonic() - self.start,
        }
        checkpoint.write(self.folder / "race.ckpt", "race", {}, meta)

    def _restore(self) -> list[Contender]:
        """Return the contenders that are still racing, in the state that the folder holds."""
        racing = [c.name for c in self.candidates]
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / "race.ckpt"
            if path.exists():
                _, meta = checkpoint.read(path, "race")
                if meta["task"] != self._race_task():
                    raise CheckpointError(f"{path} is the state of another race: use another folder, or remove it")
                racing, self.round, self.notes = meta["racing"], meta["round"], meta["notes"]
                self.standings = {s["name"]: Standing(**s) for s in meta["standings"]}
                self.spent = meta["spent"]
        contenders = []
        for candidate in self.candidates:
            if candidate.name not in racing:
                continue
            contender = self._contender(candidate)
            if contender is not None:
                contenders.append(contender)
        return contenders

    def _contender(self, candidate: Candidate) -> Contender | None:
        """Return a contender, with its saved state if there is one; None if its settings do not suit the graphs."""
        try:
            contender = Contender(
                candidate,
                tuple(self.sources.values()),
                tuple(self.validation.values()),
                metric=self.metric,
                seed=self.seed,
                device=self.device,
                prepared=self.prepared,
            )
        except InputError as error:
            self._update(candidate.name, note=f"failed: {error}")
            self.notes.append(f"{candidate.name} left the race: {error}")
            return None
        if self.folder is not None and (path := self._path(contender)).exists():
            contender.load(path, self._task(contender))
            if contender.best is not None:
                self.replicates[contender.name] = contender.replicates()
        return contender

    # ---- names ---------------------------------------------------------------------------------------------------

    def _report(self, name: str) -> OnEpoch | None:
        """Return a callback for a contender that calls the user's with the given names of the sources."""
        if self.on_epoch is None:
            return None
        user = self.on_epoch

        def on_epoch(trainer: Trainer, stage: str) -> None:
            user(trainer, f"{name}, {self._renamed(stage)}")

        return on_epoch

    def _renamed(self, text: str) -> str:
        """Replace the name of a graph at the end of a text by the name that the user gave it."""
        head, _, last = text.rpartition(" ")
        return f"{head} {self.given_names[last]}" if last in self.given_names else text

    def _named(self, history: list[dict[str, float]]) -> list[dict[str, float]]:
        """Return a history with the user's names of the sources."""
        return [{self._renamed(key): value for key, value in record.items()} for record in history]
