"""A race: train several candidates in rounds, stop those that fall behind, and average those that cannot be told apart.

Every candidate is scored on graphs that it is not trained on: validation graphs, else each source when it is left out,
else withheld nodes of the single source. No label of a target is used.

The result depends neither on the names of the sources nor on their order: they are sorted by content and renamed for
training.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgemask._version import __version__
from edgemask.coverage import GraphSummary
from edgemask.enrich import Cache
from edgemask.errors import (
    CheckpointError,
    InputError,
    MetricError,
    RaceWarning,
    SchemaError,
    WorkerLostError,
    warn,
)  # fmt: skip
from edgemask.graph import Array, Graph
from edgemask.inference import Member, Propagation, tempered
from edgemask.legal import Legal
from edgemask.methods.edgemask import Game
from edgemask.metrics import score, scored_nodes
from edgemask.model import PROPAGATION, STANDING, Expected, Model, Standing
from edgemask.runtime import checkpoint
from edgemask.runtime.atomic import remove_leftovers, replacing, temporary_folder
from edgemask.runtime.distributed import started
from edgemask.runtime.processes import Inline
from edgemask.schema import ANYTHING, FLAG, NUMBER, TEXT, Fields, Items, Table, check
from edgemask.training.calibration import fit_temperature
from edgemask.training.candidates import AUTO_RECIPE, Candidate
from edgemask.training.fit import Fit
from edgemask.training.heat import Heat, OnEpoch, Result, Task, forget_graphs, run_heat
from edgemask.training.naming import Canonical
from edgemask.training.selection import SOURCE_VAL, SelectionRule, Split, check_sources, resolve_rule
from edgemask.training.trainer import Trainer
from edgemask.training.uncertainty import GROUPS, replicates, standard_error

ROUNDS = (0.1, 0.3, 1.0)  # share of the epochs at the end of each round
# A candidate stops if it is behind by more than both, standard errors and score, even if its score goes on rising.
BEHIND_ERRORS, BEHIND = 3.0, 0.01
TIE_ERRORS, TIE_LEAST, TIE_MOST = 2.0, 0.005, 0.05  # candidates this close to the best one are averaged
MAX_MEMBERS = 7
BUDGET_SHARES = (0.3, 0.5, 1.0)  # share of the time left that each round may use
FIRST_SHARE = 0.5  # share of a round's time left that a candidate may use until its first score
RESERVE = 1.5  # safety factor of the predicted time of the final training
MAJORITY = "majority class"
FEWEST = 30  # a race needs at least this many scored nodes
FALLBACK = "erm-sage:epochs=200"  # the candidate that is trained if scores mean nothing

RESULT = Fields(
    {"score": Legal(), "epoch": Legal(1, 2**62, whole=True), "propagation": PROPAGATION, "gain": NUMBER}
    | {"trained": Legal(1, 2**62, whole=True), "ended": FLAG, "seconds": Legal(0), "held": FLAG}
)
STATE = Fields(
    {
        "task": ANYTHING,
        "round": Legal(1, len(ROUNDS), whole=True),
        "racing": Items(TEXT),
        "standings": Items(STANDING),
        "results": Table(RESULT),
        "notes": Items(TEXT),
        "spent": Legal(0),
    }
)


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
        on_epoch: Called after every epoch with the trainer and the name of the candidate and its stage, if the race
            runs in this process.
        on_heat: Called when a candidate has finished a round, with its name and the number of the round from 1.
        executor: Runs the candidates of a round side by side, for example in processes. By default they run one after
            the other in this process. Without a budget, the result is the same on the same CPU and number of threads.
        jobs: Number of candidates that the executor runs at a time.
        shared_disk: Whether the executor's processes can read and write `folder`.

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
        on_heat: Callable[[str, int], None] | None = None,
        executor: Executor | None = None,
        jobs: int = 1,
        shared_disk: bool = True,
    ):
        if not candidates:
            raise InputError("a race needs at least one candidate")
        if max_members < 1:
            raise InputError(f"max_members must be at least 1, got {max_members}")
        if budget is not None and not budget > 0:
            raise InputError(f"budget must be a positive number of seconds, got {budget}")
        if jobs < 1:
            raise InputError(f"jobs must be at least 1, got {jobs}")
        for candidate in candidates:
            if candidate.recipe.select != "auto":
                raise InputError(f"candidate {candidate.name!r}: a race sets select = 'auto' itself")
        if started().size > 1:
            raise InputError("a race trains in one process: with torchrun, choose one method")
        check_sources(sources, validation, one_class=True)
        self.graphs = Canonical(sources, validation)
        self.given_sources = {g.name: g.hash for g in sources}
        self.candidates = {c.name: c for c in candidates}
        self.budget, self.max_members = budget, max_members
        self.on_epoch, self.on_heat = on_epoch, on_heat
        self.executor, self.jobs, self.shared_disk = executor or Inline(), jobs, shared_disk
        self.keep_graphs = executor is not None
        self.folder = None if folder is None else Path(folder)
        self.standings = {name: Standing(name) for name in self.candidates}
        self.results: dict[str, Result] = {}
        self.notes: list[str] = []
        self.round, self.spent, self.start = 0, 0.0, time.monotonic()
        folder_of_cache = None if cache is None else cache.folder
        self.task = Task(self.graphs.sources, self.graphs.validation, metric, seed, str(device), folder_of_cache)

    # ---- the race ------------------------------------------------------------------------------------------------

    def run(self) -> Model:
        """Run the race to the end and train the members.

        Raises:
            InputError: Every candidate failed, or the budget is too small for any of them. The message says why.
            WorkerLostError: A process of the executor died.
            CheckpointError: The folder holds the state of another race.
        """
        self.start = time.monotonic()
        try:
            if self.folder is not None:
                return self._run(self.folder)
            with temporary_folder("edgemask-race") as folder:
                return self._run(folder)
        finally:
            if not self.keep_graphs:
                forget_graphs()

    def _run(self, folder: Path) -> Model:
        self.folder = folder
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
        for graph in self.graphs.sources:
            if len(np.unique(graph.first_labels[graph.first_labels >= 0])) < 2:
                raise MetricError(f"all labels of graph {self.graphs.given[graph.name]!r} are the same")
        scored = self.graphs.validation or self.graphs.sources
        share = SOURCE_VAL if len(self.graphs.sources) == 1 and not self.graphs.validation else 1.0
        nodes = int(share * sum(scored_nodes(g).sum() for g in scored))
        if nodes < FEWEST:
            raise MetricError(f"candidates would be scored on only {nodes} nodes")

    def _fall_back(self, reason: str) -> Model:
        """Train a fixed candidate without selection."""
        message = f"no race was run, because scores would mean nothing ({reason}): {FALLBACK} was trained instead"
        self.notes.append(message)
        warn(message, RaceWarning)
        candidate, settings = Candidate.parse(FALLBACK), {"select": "last", "alpha": (0.0,), "eval_every": 10}
        fit = Fit(
            candidate.make,
            candidate.recipe.replace(**settings),
            self.task.sources,
            metric=self.task.metric,
            seed=self.task.seed,
            device=self.task.device,
            cache=None if self.task.cache is None else Cache(self.task.cache),
            one_class=True,
            on_epoch=self._report(FALLBACK),
        )
        trainer, choice = fit.run()
        board = [Standing(FALLBACK, epoch=choice.epoch, propagation="0", weight=1.0, note="not scored")]
        members = [Member(FALLBACK, trainer.method, Propagation())]
        return self._model("none", members, board, {FALLBACK: trainer.history})

    def _race(self) -> Model:
        """Run all rounds and train the members."""
        racing = self._restore()
        while self.round < len(ROUNDS) and racing:
            racing = self._run_round(racing)
            self.round += 1
            self._save(racing)
            for name in self.candidates.keys() - set(racing):
                self._path(name).unlink(missing_ok=True)
        if not racing:
            reasons = "; ".join(f"{s.name}: {s.note}" for s in self.standings.values())
            raise InputError(f"every candidate failed: {reasons}")
        return self._finish(racing)

    def _run_round(self, racing: list[str]) -> list[str]:
        """Advance all candidates by one round, and return those that go on."""
        allowed = BUDGET_SHARES[self.round] * (self._time_left() - self._reserve(racing))
        begin, needs, waiting = time.monotonic(), dict[str, float](), len(racing)

        def heat(name: str) -> Heat:
            nonlocal waiting
            seconds = first = math.inf
            if self.budget is not None:
                left = max(0.0, allowed - (time.monotonic() - begin))
                seconds = left * min(self.jobs, waiting) / waiting
                first = max(seconds, FIRST_SHARE * (left if self.results else self._time_left()))
            waiting -= 1
            epochs = self.candidates[name].recipe.epochs
            return self._heat(name, math.ceil(ROUNDS[self.round] * epochs), seconds, first)

        scored = []
        for name, result in self._run_heats(racing, heat):
            if result.needs is not None:
                needs[name] = result.needs
                note = f"left out: its first score would take about {result.needs:.0f} s, more than the budget allows"
                self._update(name, note=note)
            elif self._succeeded(name, result):
                self.results[name] = result
                scored.append(name)
                if result.short_of_time:
                    self._note_once("the budget ended the race before all candidates had trained for all epochs")
            if self.on_heat:
                self.on_heat(name, self.round + 1)
        if needs and not scored:
            name = min(needs, key=lambda n: needs[n])
            raise InputError(
                f"budget = {self.budget:g} s is too small for any candidate: the cheapest one, {name}, needs about "
                f"{needs[name]:.0f} s until its first score"
            )
        return self._keep([name for name in racing if name in scored])

    def _run_heats(self, names: Sequence[str], make: Callable[[str], Heat]) -> Iterator[tuple[str, Result]]:
        """Run a heat of each candidate, `jobs` at a time, and yield the results as they arrive.

        Raises:
            WorkerLostError: A process of the executor died.
        """
        waiting, running = deque(names), dict[Future[Result], str]()
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    name = waiting.popleft()
                    inline = {"on_epoch": self._report(name)} if isinstance(self.executor, Inline) else {}
                    running[self.executor.submit(run_heat, make(name), **inline)] = name
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    name, result = running.pop(future), future.result()
                    if result.state is not None:
                        with replacing(self._path(name)) as sink:
                            sink.write(result.state)
                    yield name, result
        except BrokenExecutor as error:
            raise WorkerLostError(
                "a process of the race died, perhaps because the memory was not enough: use fewer jobs; if the race "
                "has a checkpoint folder, the same command continues it"
            ) from error
        finally:
            for future in running:
                future.cancel()

    def _heat(self, name: str, until: int | None, seconds: float = math.inf, first: float = math.inf) -> Heat:
        path, candidate = self._path(name), self.candidates[name]
        if self.shared_disk:
            return Heat(self.task, candidate, until, seconds, first, path)
        state = path.read_bytes() if path.exists() else None
        return Heat(self.task, candidate, until, seconds, first, None, state)

    def _succeeded(self, name: str, result: Result) -> bool:
        """Tell whether a heat succeeded. If not, take the candidate out of the race and note the reason."""
        if not result.failed:
            return True
        self._update(name, note=f"failed: {result.failed}", seconds=result.seconds)
        self.notes.append(f"{name} left the race: {result.failed}")
        return False

    def _note_once(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _keep(self, scored: list[str]) -> list[str]:
        """Update the standings, and return the candidates that are not clearly behind the best one."""
        for name in scored:
            result = self.results[name]
            error = standard_error(result.replicates)
            self.standings[name] = Standing(
                name, result.score, error, result.epoch, str(result.propagation), self.round + 1, 0.0, result.seconds
            )
        if self.round + 1 == len(ROUNDS) or not scored:
            return scored
        leader, kept = max(scored, key=self._score), []
        for name in scored:
            gap, error = self._gap(leader, name)
            if gap - self._hope(name) > max(BEHIND_ERRORS * error, BEHIND):
                self._update(name, note=f"stopped: {100 * gap:.1f} points behind {leader}")
            else:
                kept.append(name)
        return kept

    def _hope(self, name: str) -> float:
        """Return how much a candidate's score may still rise: its gain in the last doubling of the epochs, repeated.

        Some candidates learn slowly. A tenth of the epochs does not show what they can reach.
        """
        result = self.results[name]
        if result.ended:
            return 0.0
        doublings = math.log2(self.candidates[name].recipe.epochs / result.trained)
        return doublings * result.gain if doublings else 0.0

    def _score(self, name: str) -> float:
        result = self.results.get(name)
        return -math.inf if result is None or result.score is None else result.score

    def _gap(self, leader: str, other: str) -> tuple[float, float]:
        """Return how far a candidate is behind the leader, and the standard error of the difference."""
        error = standard_error(self.results[leader].replicates, self.results[other].replicates)
        return self._score(leader) - self._score(other), error

    def _update(self, name: str, **changes: Any) -> None:
        self.standings[name] = replace(self.standings[name], **changes)

    # ---- the end -------------------------------------------------------------------------------------------------

    def _finish(self, racing: list[str]) -> Model:
        """Choose the members, train them on all sources and calibrate them."""
        chosen, scored = self._members(racing), self._scored_graphs()
        finals = dict(self._run_heats(self._affordable(chosen), lambda name: self._heat(name, None)))
        members: list[Member] = []
        histories, held_out = {}, []
        for name in chosen:
            if name not in finals or not self._succeeded(name, finals[name]):
                continue
            result = self.results[name]
            temperature = fit_temperature(scored, result.predictions)
            members.append(Member(name, self._method(name, finals[name]), result.propagation, temperature))
            histories[name] = finals[name].history
            held_out.append({n: tempered(p.astype(np.float64), temperature) for n, p in result.predictions.items()})
        if not members:
            reasons = "; ".join(f"{s.name}: {s.note}" for s in self.standings.values() if s.note)
            raise InputError(f"every member failed in its final training: {reasons}")
        for member in members:
            self._update(member.name, weight=1 / len(members))
        means = {n: np.asarray(np.mean([own[n] for own in held_out], axis=0)) for n in scored}
        majority, majority_replicates = self._majority()
        board = sorted(
            [*self.standings.values(), majority],
            key=lambda s: (-s.weight, -math.inf if s.score is None else -s.score, s.name),
        )
        self._warn(majority, majority_replicates, members[0].name)
        return self._model(self.rule.name, members, board, histories, self._expected(scored, means), means)

    def _affordable(self, chosen: Sequence[str]) -> list[str]:
        """Return the members whose final training fits into the budget, at least the first one."""
        if self.budget is None:
            return list(chosen)
        kept, needed = list[str](), 0.0
        for name in chosen:
            needed += self._final_time(name)
            if kept and needed / min(self.jobs, len(kept) + 1) > self._time_left():
                self._update(name, note="left out: the budget does not allow its final training")
                self.notes.append(f"the budget ended before {name} could be trained on all sources")
                needed -= self._final_time(name)
            else:
                kept.append(name)
        return kept

    def _method(self, name: str, final: Result) -> Any:
        """Return the trained method of a member."""
        candidate, first, device = self.candidates[name], self.task.sources[0], torch.device(self.task.device)
        make, recipe = candidate.make, candidate.recipe
        method = make(recipe, first.num_features, first.num_classes, self.task.seed, device)
        method.networks.load_state_dict({name: torch.from_numpy(array) for name, array in final.weights.items()})
        if isinstance(method, Game):
            method.lam.fill_(final.numbers["lam"])
        return method

    def _model(
        self,
        rule: str,
        members: list[Member],
        board: list[Standing],
        histories: Mapping[str, list[dict[str, float]]],
        expected: Expected | None = None,
        means: Mapping[str, Array] | None = None,
    ) -> Model:
        """Return the fitted model, with the user's names of the graphs."""
        means, given = means or {}, self.graphs.given
        graphs = {g.name: g for g in (*self.task.sources, *self.task.validation)}
        return Model(
            members=members,
            classes=self.task.sources[0].classes,
            rule=f"auto, {rule}",
            leaderboard=board,
            metric=self.task.metric,
            seed=self.task.seed,
            expected=expected,
            histories={name: self.graphs.history(h) for name, h in histories.items()},
            sources=self.given_sources,
            summaries=[GraphSummary.of(g.replace(name=given[n]), means.get(n)) for n, g in graphs.items()],
            notes=self.notes,
        )

    def _members(self, racing: list[str]) -> list[str]:
        """Return the best candidate and those that cannot be told from it, best first."""
        order = list(self.candidates)
        ranked = sorted(racing, key=lambda name: (-self._score(name), order.index(name)))
        members = []
        for name in ranked:
            gap, error = self._gap(ranked[0], name)
            if gap <= min(max(TIE_ERRORS * error, TIE_LEAST), TIE_MOST):
                members.append(name)
            else:
                self._update(name, note=f"{100 * gap:.1f} points behind {ranked[0]}")
        for name in members[self.max_members :]:
            self._update(name, note=f"left out: more than {self.max_members} members")
        return members[: self.max_members]

    @property
    def rule(self) -> SelectionRule:
        """The rule that decides which graphs candidates are scored on."""
        return resolve_rule(AUTO_RECIPE, self.task.sources, self.task.validation)

    def _scored_graphs(self) -> dict[str, Graph]:
        """Return the graphs that candidates are scored on, by name."""
        return {g.name: g for split in self._splits() for g in split.score_on}

    def _splits(self) -> list[Split]:
        """Return the data of every training that is scored."""
        rule, task = self.rule, self.task
        stages: list[str | None] = [s for s in rule.stages(task.sources) if s is not None]
        return [rule.split(task.sources, task.validation, stage, task.seed) for stage in stages or [None]]

    def _expected(self, graphs: Mapping[str, Graph], means: Mapping[str, Array]) -> Expected:
        """Score the average of the members' predictions on the scored graphs."""
        values, ends, metric = {}, [], self.task.metric
        for name, graph in graphs.items():
            values[self.graphs.given[name]] = value = score((metric,), graph, means[name])[metric]
            reach = 2 * standard_error({name: replicates(metric, graph, means[name])})
            ends += [value - reach, value + reach]
        return Expected(float(np.mean(list(values.values()))), max(0.0, min(ends)), min(1.0, max(ends)), values)

    def _majority(self) -> tuple[Standing, dict[str, Array]]:
        """Return the standing of the most frequent class of the training nodes, and its replicates."""
        task, values, errors = self.task, [], {}
        for split in self._splits():
            pairs = zip(split.train, split.nodes, strict=True)
            counts = sum(np.bincount(g.first_labels[nodes], minlength=g.num_classes) for g, nodes in pairs)
            for graph in split.score_on:
                p = np.tile(counts / np.sum(counts), (graph.num_nodes, 1))
                values.append(score((task.metric,), graph, p)[task.metric])
                errors[graph.name] = replicates(task.metric, graph, p)
        return Standing(MAJORITY, float(np.mean(values)), standard_error(errors), note="reference"), errors

    def _warn(self, majority: Standing, majority_replicates: Mapping[str, Array], best: str) -> None:
        """Warn if the best candidate is not clearly better than the majority class."""
        assert majority.score is not None
        error = standard_error(self.results[best].replicates, majority_replicates)
        if self._score(best) - majority.score <= 2 * error:
            message = (
                f"the best candidate, {best}, scores {100 * self._score(best):.1f} on nodes it was not "
                f"trained on, hardly more than the most frequent class ({100 * majority.score:.1f}): do not expect the "
                "model to be better than a guess"
            )
            self.notes.append(message)
            warn(message, RaceWarning)

    # ---- time ----------------------------------------------------------------------------------------------------

    def _time_left(self) -> float:
        """Return the seconds of the budget that are left."""
        return math.inf if self.budget is None else self.budget - self.spent - (time.monotonic() - self.start)

    def _reserve(self, racing: Sequence[str]) -> float:
        """Return the time to keep for the final training of the best candidate so far."""
        if self.budget is None:
            return 0.0
        scored = [name for name in racing if name in self.results]
        return RESERVE * self._final_time(max(scored, key=self._score)) if scored else 0.0

    def _final_time(self, name: str) -> float:
        """Predict the seconds of the final training of a candidate."""
        result = self.results[name]
        if result.held:
            return 0.0
        # Leaving out each of M sources in turn trains every source M - 1 times per epoch.
        return result.seconds / result.trained * result.epoch / max(1, len(self.task.sources) - 1)

    # ---- saved state ---------------------------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"race-{list(self.candidates).index(name):02d}.ckpt"

    def _described(self) -> dict[str, Any]:
        """Return everything that makes two races the same."""
        return {
            "candidates": {c.name: c.recipe.to_json() for c in self.candidates.values()},
            "sources": [g.hash for g in self.task.sources],
            "validation": [g.hash for g in self.task.validation],
            "metric": self.task.metric,
            "seed": self.task.seed,
            "version": __version__,
        }

    def _save(self, racing: list[str]) -> None:
        """Save the state between two rounds."""
        assert self.folder is not None
        tensors, results = dict[str, torch.Tensor](), dict[str, Any]()
        for name, result in self.results.items():
            how = result.propagation
            results[name] = {
                "score": result.score, "epoch": result.epoch, "propagation": [how.alpha, how.of],
                "trained": result.trained, "gain": result.gain, "ended": result.ended, "seconds": result.seconds,
                "held": result.held,
            }  # fmt: skip
            for kind in ("predictions", "replicates"):
                arrays: Mapping[str, Array] = getattr(result, kind)
                tensors |= {f"{name}/{kind}/{graph}": torch.tensor(a) for graph, a in arrays.items()}
        meta = {
            "task": self._described(),
            "round": self.round,
            "racing": racing,
            "standings": [asdict(s) for s in self.standings.values()],
            "results": results,
            "notes": self.notes,
            "spent": self.spent + time.monotonic() - self.start,
        }
        checkpoint.write(self.folder / "race.ckpt", "race", tensors, meta)

    def _restore(self) -> list[str]:
        """Return the candidates that are still racing, after restoring the state that the folder holds.

        Raises:
            CheckpointError: It is the state of another race.
        """
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)
        path = self.folder / "race.ckpt"
        if not path.exists():
            return list(self.candidates)
        tensors, meta = checkpoint.read(path, "race", STATE)
        if meta["task"] != self._described():
            raise CheckpointError(f"{path} is the state of another race: use another folder, or remove it")
        with checkpoint.unusable(path, "race"):
            return self._load(tensors, meta)

    def _load(self, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> list[str]:
        self.round, self.notes, self.spent = meta["round"], meta["notes"], meta["spent"]
        self.standings = {s["name"]: Standing(**s) for s in meta["standings"]}
        if list(self.standings) != list(self.candidates):
            raise SchemaError("standings: expected one of each candidate")
        if not meta["results"].keys() <= self.candidates.keys():
            raise SchemaError("results: expected names of candidates")
        for name, own in meta["results"].items():
            arrays = {kind: self._arrays(name, kind, tensors) for kind in ("predictions", "replicates")}
            alpha, of = own["propagation"]
            self.results[name] = Result(**own | arrays | {"propagation": Propagation(alpha, of)})
        check(meta["racing"], Items(Legal(choices=(*self.results,)), most=len(self.results)), "racing")
        racing: list[str] = meta["racing"]
        for name in racing:
            if not self._path(name).exists():
                raise SchemaError(f"racing: {self._path(name)}, the state of {name}, is missing")
        return racing

    def _arrays(self, name: str, kind: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
        """Return the saved predictions or replicates of a candidate by graph."""
        found, expected = checkpoint.unpack(f"{name}/{kind}", tensors), dict[str, torch.Tensor]()
        for graph, own in self._scored_graphs().items():
            groups = min(GROUPS, int(scored_nodes(own).sum()))
            shape, dtype = {
                "predictions": ((own.num_nodes, own.num_classes), torch.float32),
                "replicates": ((groups,), torch.float64),
            }[kind]
            expected[graph] = torch.empty(shape, dtype=dtype)
        checkpoint.check_tensors(found, expected)
        return {graph: t.numpy() for graph, t in found.items()}

    # ---- names ---------------------------------------------------------------------------------------------------

    def _report(self, name: str) -> OnEpoch | None:
        """Return a callback for a candidate that calls the user's with the given names of the sources."""
        if self.on_epoch is None:
            return None
        user = self.on_epoch

        def on_epoch(trainer: Trainer, stage: str) -> None:
            user(trainer, f"{name}, {self.graphs.text(stage)}")

        return on_epoch
