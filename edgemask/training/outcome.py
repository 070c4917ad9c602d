"""The result of a race: members, leaderboard and the score to expect on an unseen graph."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgemask.inference import Member


@dataclass(frozen=True)
class Standing:
    """A row of the leaderboard.

    Attributes:
        name: Name of the candidate.
        score: Its best score: the mean over the scored graphs. None if it was never scored.
        error: Standard error of the score.
        epoch: Chosen epoch.
        propagation: Chosen propagation, as text.
        rounds: Number of rounds that the candidate took part in.
        weight: Its weight in the average, 0 if it is not a member.
        seconds: Time it took.
        note: Why it stopped; empty for members.
    """

    name: str
    score: float | None = None
    error: float | None = None
    epoch: int = 0
    propagation: str = ""
    rounds: int = 0
    weight: float = 0.0
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Expected:
    """The score to expect on an unseen graph: that of the members' average on the scored graphs.

    Attributes:
        score: Mean over the scored graphs.
        low: Lowest score of a scored graph, minus two standard errors.
        high: Highest score of a scored graph, plus two standard errors.
        by_graph: Score of each scored graph.
    """

    score: float
    low: float
    high: float
    by_graph: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """The result of a race.

    Attributes:
        rule: Name of the selection rule; `none` if nothing could be scored.
        members: Trained members. Their probabilities are averaged with equal weights.
        leaderboard: All candidates and the majority class, best first.
        expected: The score to expect on an unseen graph; None if nothing could be scored.
        histories: Training history of each member by name.
        notes: What a user should know: candidates that failed, a budget that ended the race.
    """

    rule: str
    members: list[Member]
    leaderboard: list[Standing]
    expected: Expected | None
    histories: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
