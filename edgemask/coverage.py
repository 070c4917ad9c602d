"""Coverage: does an unlabelled graph lie inside what the training sources cover?

A `GraphSummary` describes a graph in a few kilobytes, so that a model file can hold the summaries of its sources.
`compare` compares a new graph with them in four aspects: its features, its degrees, and the homophily and the
confidence of the predictions on it. No label is used.

Two kinds of quantities are compared:

- Numbers, such as the mean degree (`NUMBERS`). The sources span a range. A graph is outside if it is below or above
  this range by more than a tolerance: the larger of a fixed one and the standard deviation among the sources. With one
  source there is only a fixed tolerance, which is larger.
- Distances between the columns of the features: the difference of their profiles and the shift of their means. The
  distance of a graph is that to the nearest source. A graph is outside if its distance is more than a limit: 1.4 times
  the largest distance between a source and the source nearest to it, but no less than a fixed limit. With one source
  there is only a fixed limit, which is larger.

Averages over few nodes vary by chance. The expected effect on distances is subtracted, and two standard errors are
added to tolerances and limits.

The fixed values were chosen on the benchmarks without labels of targets: a domain of a benchmark is rarely outside what
its other domains cover, while a domain with permuted columns or without edges is outside.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgemask.errors import InputError
from edgemask.graph import Array, Graph
from edgemask.legal import Legal
from edgemask.schema import TEXT, Fields, Items, Maybe, check

SIZE = 128  # longest description of the columns; longer ones are projected to this size
DIGITS = 6  # significant digits of the numbers in a summary
RIDGE = 0.05  # share of the mean square that keeps the profile of nearly equal columns small
NOISIEST = 4.0  # a profile with more sampling noise than this is not used
CONSTANT = 1e-3  # smallest standard deviation of a column, as a share of its mean
LARGEST = 1e60  # largest number that a summary may hold; its square is finite
ASPECTS = ("features", "degrees", "homophily", "confidence")
BLOCK = 1 << 20  # dense values that are converted to float64 at a time

# Limits of distances: with one source; the smallest limit with several sources.
DIFFERENCE_LIMITS = (0.7, 0.3)
SHIFT_LIMITS = (1.0, 0.5)
WIDER = 1.4  # with several sources: factor of the largest distance between a source and the source nearest to it

REAL = Legal(-LARGEST, LARGEST)
POSITIVE, SHARE = Legal(0, LARGEST), Legal(0, 1)
SUMMARY = Fields(
    {
        "name": TEXT,
        "nodes": Legal(1, 2**62, whole=True),
        "width": Legal(1, 2**62, whole=True),
        "degree": POSITIVE,
        "log_degree": Legal(0, 100),
        "isolated": SHARE,
        "nonzeros": POSITIVE,
        "norm": POSITIVE,
        "means": Items(REAL, 1),
        "deviations": Items(POSITIVE, 1),
        "profile": Maybe(Items(REAL, 1)),
        "noise": Maybe(POSITIVE),
        "confidence": Maybe(SHARE),
        "homophily": Maybe(SHARE),
        "class_shares": Maybe(Items(SHARE, 1)),
    }
)


@dataclass(frozen=True)
class GraphSummary:
    """A summary of one graph. It consists of JSON values and takes a few kilobytes.

    It does not depend on the order of the nodes and edges, nor on labels.

    Attributes:
        name: Name of the graph.
        nodes: Number of nodes.
        width: Number of feature columns.
        degree: Mean in-degree. In an undirected graph this is the mean number of neighbours.
        log_degree: Mean of log(1 + in-degree).
        isolated: Share of the nodes with in-degree 0.
        nonzeros: Mean number of non-zero features of a node.
        norm: Mean Euclidean norm of a node's features.
        means: Mean of each column. More than 128 columns are projected to 128 numbers by a fixed random matrix of
            signs, which nearly keeps distances.
        deviations: Standard deviation of each column. For more than 128 columns, the root of the total variance.
        profile: Means of the positive and of the negative parts of the columns, centred, scaled to a length of about 1
            and projected if there are more than 128. None if they cannot be told from sampling noise, because the graph
            has too few nodes, or if all features are zero.
        noise: Expected squared distance between the profile and that of an infinite sample of nodes. None if there is
            no profile.
        confidence: Mean of the largest class probability. None if probabilities are not known.
        homophily: Share of the edges whose two ends have the same predicted class. None if probabilities are not known
            or the graph has no edges.
        class_shares: Share of the nodes that are predicted to be of each class. None if probabilities are not known.
    """

    name: str
    nodes: int
    width: int
    degree: float
    log_degree: float
    isolated: float
    nonzeros: float
    norm: float
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    profile: tuple[float, ...] | None
    noise: float | None
    confidence: float | None = None
    homophily: float | None = None
    class_shares: tuple[float, ...] | None = None

    @property
    def typical_degree(self) -> float:
        """Geometric mean of 1 + in-degree, minus 1. A few nodes of very high degree hardly change it."""
        return math.expm1(self.log_degree)

    @classmethod
    def of(cls, graph: Graph, probabilities: Array | None = None) -> GraphSummary:
        """Return the summary of a graph. Time and memory are linear in the size of the graph.

        Args:
            graph: The graph. Its labels are not used.
            probabilities: N × C class probabilities of its nodes, if they are known. For a source, use predictions of
                models that were not trained on it, because confidence and homophily are higher on training nodes.

        Raises:
            InputError: The probabilities do not have one row per node, or are not numbers from 0 to 1.

        >>> path = Graph("path", [[1.0], [2.0], [4.0]], [[0, 1], [1, 2]], undirected=True)
        >>> summary = GraphSummary.of(path, [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> summary.degree, summary.confidence, summary.homophily
        (1.33333, 0.8, 0.5)
        """
        degrees = graph.degrees
        return cls(
            name=graph.name,
            nodes=graph.num_nodes,
            width=graph.num_features,
            degree=_rounded(degrees.mean()),
            log_degree=_rounded(np.log1p(degrees).mean()),
            isolated=_rounded((degrees == 0).mean()),
            **_describe_features(graph),
            **({} if probabilities is None else _describe_predictions(graph, probabilities)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> GraphSummary:
        """Return the summary that `to_json` wrote.

        Raises:
            SchemaError: A value is missing, unknown, not finite, or has the wrong type or length.
        """
        check(values, SUMMARY, "graph summary")
        width = values["width"]
        deviations = width if width <= SIZE else 1
        for name, size in ("means", min(width, SIZE)), ("deviations", deviations), ("profile", min(2 * width, SIZE)):
            check(values[name], Maybe(Items(REAL, size, size)), f"graph summary, {name}")
        return cls(**{k: tuple(map(float, v)) if isinstance(v, list) else v for k, v in values.items()})


@dataclass(frozen=True)
class Finding:
    """The result of the comparison of one aspect.

    An aspect may have several quantities. The finding is about the one in which the graph is furthest outside.

    Attributes:
        aspect: `features`, `degrees`, `homophily` or `confidence`.
        value: The value of the graph.
        low: Lowest value of the sources.
        high: Highest value of the sources. If the value is a distance to the nearest source, `low` and `high` are those
            of the sources to each other, and 0 if there is only one source.
        outside: Whether the value is below `low` or above `high` by more than the tolerance.
        message: A sentence about the graph ("its nodes …") with these numbers.
    """

    aspect: str
    value: float
    low: float
    high: float
    outside: bool
    message: str


def compare(sources: Sequence[GraphSummary], graph: GraphSummary) -> list[Finding]:
    """Compare a graph with the sources.

    Args:
        sources: Summaries of the graphs that a model was trained on, or was validated on.
        graph: Summary of a new graph.

    Returns:
        One finding for each of the aspects features, degrees, homophily and confidence. An aspect that is not known for
        the graph, or for none of the sources, is left out.

    Raises:
        InputError: There is no source, or the graphs do not have the same number of features.

    >>> ring = Graph("ring", [[1.0]] * 400, [range(400), [*range(1, 400), 0]], undirected=True)
    >>> ring = GraphSummary.of(ring)
    >>> edgeless = GraphSummary.of(Graph("edgeless", [[1.0]] * 400, []))
    >>> [finding.message for finding in compare([ring], edgeless) if finding.outside]
    ['100.0% of its nodes have no neighbours, compared with 0.0% in the source']
    """
    if not sources:
        raise InputError("at least one source is needed, got none")
    for source in sources:
        if source.width != graph.width:
            raise InputError(
                f"graph {graph.name!r} has {graph.width} features, but source {source.name!r} has {source.width}"
            )
    chance = math.sqrt(1 / graph.nodes + 1 / sum(s.nodes for s in sources))
    rated = [
        *_distances(sources, graph, chance),
        *(r for number in NUMBERS for r in number.rate(sources, graph, chance)),
    ]
    findings = []
    for aspect in ASPECTS:
        own = [(excess, finding) for excess, finding in rated if finding.aspect == aspect]
        if own:
            findings.append(max(own, key=lambda pair: pair[0])[1])
    return findings


# ---- numbers ---------------------------------------------------------------------------------------------------------

_Rated = tuple[float, Finding]  # how far a graph is outside, as a multiple of the tolerance; and the finding


@dataclass(frozen=True)
class _Number:
    """A number that is compared with the range of the sources.

    Attributes:
        aspect: The aspect it belongs to.
        field: Attribute of a summary.
        scale: Function under which values are compared: a logarithm to compare ratios.
        tolerances: How far outside the range of the sources the scaled value may be: with one source; with several
            that hardly differ.
        chance: Factor of the sampling error that is added to the tolerance. The standard deviation over nodes is about
            1 for a logarithm, and at most 1/2 for a share; two of them are allowed.
        form: Format of the number.
        text: The message, with places for the number of the graph, the range of the sources, and "the sources".
    """

    aspect: str
    field: str
    scale: Callable[[float], float]
    tolerances: tuple[float, float]
    chance: float
    form: str
    text: str

    def rate(self, sources: Sequence[GraphSummary], graph: GraphSummary, chance: float) -> Iterable[_Rated]:
        """Yield the finding, unless the number is not known."""
        value = getattr(graph, self.field)
        known = [v for v in (getattr(s, self.field) for s in sources) if v is not None]
        if value is None or not known:
            return
        scaled, scales = self.scale(value), [self.scale(v) for v in known]
        alone, least = self.tolerances
        tolerance = alone if len(scales) == 1 else max(least, float(np.std(scales, ddof=1)))
        tolerance += self.chance * chance
        excess = max(min(scales) - scaled, scaled - max(scales), 0.0) / tolerance
        message = self.text.format(
            value=format(value, self.form), range=_range(min(known), max(known), self.form), sources=_named(sources)
        )
        yield excess, Finding(self.aspect, value, min(known), max(known), excess > 1, message)


def _log(value: float) -> float:
    return math.log(max(value, 1 / LARGEST))


NUMBERS = (
    _Number(
        "features",
        "nonzeros",
        math.log1p,
        (math.log(2.0), math.log(1.5)),
        2.0,
        ".1f",
        "its nodes have {value} non-zero features on average, those of {sources} {range}",
    ),
    _Number(
        "features",
        "norm",
        _log,
        (math.log(2.0), math.log(1.5)),
        2.0,
        ".3g",
        "the features of its nodes have a norm of {value} on average, those of {sources} {range}",
    ),
    _Number(
        "degrees",
        "degree",
        math.log1p,
        (math.log(3.0), math.log(2.0)),
        2.0,
        ".1f",
        "its nodes have {value} neighbours on average, those of {sources} {range}",
    ),
    _Number(
        "degrees",
        "typical_degree",
        math.log1p,
        (math.log(3.0), math.log(2.0)),
        2.0,
        ".1f",
        "its nodes have {value} neighbours in the geometric mean, those of {sources} {range}",
    ),
    _Number(
        "degrees",
        "isolated",
        float,
        (0.3, 0.3),
        1.0,
        ".1%",
        "{value} of its nodes have no neighbours, compared with {range} in {sources}",
    ),
    _Number(
        "homophily",
        "homophily",
        float,
        (0.25, 0.15),
        1.0,
        ".1%",
        "{value} of its edges join nodes of the same predicted class, compared with {range} in {sources}",
    ),
    _Number(
        "confidence",
        "confidence",
        float,
        (0.15, 0.1),
        1.0,
        ".1%",
        "the mean confidence of its predictions is {value}, compared with {range} in {sources}",
    ),
)


def _named(sources: Sequence[GraphSummary]) -> str:
    return "the source" if len(sources) == 1 else "the sources"


def _range(low: float, high: float, form: str) -> str:
    """Return a range as text. It is one number if both ends look the same."""
    first, last = format(low, form), format(high, form)
    return first if first == last else f"{first} to {last}"


# ---- distances -------------------------------------------------------------------------------------------------------


def _distances(sources: Sequence[GraphSummary], graph: GraphSummary, chance: float) -> Iterable[_Rated]:
    """Yield the findings about the columns of the features."""
    nearest = "the source" if len(sources) == 1 else "the nearest source"
    text = f"its features differ by {{}} (on a scale from 0 to 1) from those of {nearest}"
    yield from _rate_distance(_difference, sources, graph, DIFFERENCE_LIMITS, chance, text)
    text = f"its features are shifted by {{}} standard deviations from those of {nearest}"
    yield from _rate_distance(_shift, sources, graph, SHIFT_LIMITS, 2 * chance, text)


def _rate_distance(
    distance: Callable[[GraphSummary, GraphSummary], float | None],
    sources: Sequence[GraphSummary],
    graph: GraphSummary,
    limits: tuple[float, float],
    chance: float,
    text: str,
) -> Iterable[_Rated]:
    """Yield the finding about a distance to the nearest source, unless it is not known."""

    def to_nearest(one: GraphSummary, others: Iterable[GraphSummary]) -> list[float]:
        known = [d for d in (distance(one, other) for other in others) if d is not None]
        return [min(known)] if known else []

    alone, least = limits
    for value in to_nearest(graph, sources):
        among = [d for i, s in enumerate(sources) for d in to_nearest(s, [*sources[:i], *sources[i + 1 :]])]
        low, high = (min(among), max(among)) if among else (0.0, 0.0)
        limit = (max(least, WIDER * high) if among else alone) + chance
        excess = max(value - high, 0.0) / (limit - high)
        message = text.format(f"{value:.2f}")
        if among:
            message += f", and the sources by {_range(low, high, '.2f')} from each other"
        yield excess, Finding("features", value, low, high, excess > 1, message)


def _difference(one: GraphSummary, other: GraphSummary) -> float | None:
    """Return the difference of two profiles: about 0 for samples of the same nodes, about 1 for unrelated columns."""
    if one.profile is None or other.profile is None or one.noise is None or other.noise is None:
        return None
    square = float(np.square(np.subtract(one.profile, other.profile)).sum()) - one.noise - other.noise
    return _rounded(math.sqrt(min(max(square / 2, 0.0), 1.0)))


def _shift(one: GraphSummary, other: GraphSummary) -> float:
    """Return the distance between the mean rows of two graphs, in standard deviations per column."""
    first, second = np.array(one.means), np.array(other.means)
    variances = one.nodes * np.square(one.deviations) + other.nodes * np.square(other.deviations)
    variances /= one.nodes + other.nodes
    moved, magnitudes = np.square(first - second), (np.square(first) + np.square(second)) / 2
    if one.width > SIZE:  # projected columns have no variances of their own
        moved, magnitudes = moved.sum(keepdims=True), magnitudes.sum(keepdims=True)
    variances = np.maximum(variances, CONSTANT**2 * magnitudes)
    ratios = np.divide(moved, variances, out=np.zeros_like(moved), where=variances > 0)
    return _rounded(math.sqrt(max(float(ratios.mean()) - 1 / one.nodes - 1 / other.nodes, 0.0)))


# ---- descriptions ----------------------------------------------------------------------------------------------------


def _describe_features(graph: Graph) -> dict[str, Any]:
    """Return the fields of a summary that describe the features."""
    n = graph.num_nodes
    sums, positive, squares, norms, nonzeros = _sparse_sums(graph.x) if graph.is_sparse else _dense_sums(graph.x)
    means, upper, total = sums / n, positive / n, float(squares.sum()) / n
    variances = squares / n - np.square(means)
    variances[variances < CONSTANT**4 * squares / n] = 0.0  # rounding errors of constant columns
    lower = np.maximum(upper - means, 0.0)
    parts = np.concatenate([upper - upper.mean(), lower - lower.mean()])
    level = float(np.square(upper).sum() + np.square(lower).sum())
    noise = max(total - level, 0.0) / (n - 1) if n > 1 else math.inf
    length = max(float(np.square(parts).sum()) - noise, 0.0) + RIDGE * max(level - noise, 0.0)
    usable = length > 0 and noise <= NOISIEST * length
    exact = len(means) <= SIZE
    return {
        "nonzeros": _rounded(nonzeros / n),
        "norm": _rounded(norms / n),
        "means": _projected(means),
        "deviations": _vector(np.sqrt(variances if exact else variances.sum(keepdims=True))),
        "profile": _projected(parts / math.sqrt(length)) if usable else None,
        "noise": _rounded(noise / length) if usable else None,
    }


def _sparse_sums(x: Any) -> tuple[Array, Array, Array, float, int]:
    """Return sums of a CSR matrix: see `_dense_sums`."""
    n, d = x.shape
    values, columns = x.data.astype(np.float64), x.indices
    rows = np.repeat(np.arange(n), np.diff(x.indptr))
    return (
        np.bincount(columns, values, d),
        np.bincount(columns, np.maximum(values, 0.0), d),
        np.bincount(columns, np.square(values), d),
        float(np.sqrt(np.bincount(rows, np.square(values), n)).sum()),
        int(np.count_nonzero(values)),
    )


def _dense_sums(x: Array) -> tuple[Array, Array, Array, float, int]:
    """Return the sums of the values, their positive parts and their squares by column; of the norms; of non-zeros."""
    sums, positive, squares = (np.zeros(x.shape[1]) for _ in range(3))
    norms, nonzeros = 0.0, 0
    step = max(1, BLOCK // x.shape[1])
    for start in range(0, len(x), step):
        block = x[start : start + step].astype(np.float64)
        sums += block.sum(0)
        positive += np.maximum(block, 0.0).sum(0)
        nonzeros += int(np.count_nonzero(block))
        block *= block
        squares += block.sum(0)
        norms += float(np.sqrt(block.sum(1)).sum())
    return sums, positive, squares, norms, nonzeros


def _describe_predictions(graph: Graph, probabilities: Array) -> dict[str, Any]:
    """Return the fields of a summary that describe predictions."""
    p = np.asarray(probabilities)
    if p.ndim != 2 or len(p) != graph.num_nodes or p.shape[1] == 0 or p.dtype.kind not in "fiu":
        raise InputError(
            f"probabilities must be numbers of shape ({graph.num_nodes}, classes), got {p.dtype} of shape {p.shape}"
        )
    if not ((p >= 0) & (p <= 1 + 1e-6)).all():
        raise InputError("probabilities must be from 0 to 1")
    predicted, (src, dst) = p.argmax(1), graph.edges
    return {
        "confidence": _rounded(min(p.max(1).mean(dtype=np.float64), 1.0)),
        "homophily": _rounded((predicted[src] == predicted[dst]).mean()) if graph.num_edges else None,
        "class_shares": _vector(np.bincount(predicted, minlength=p.shape[1]) / len(p)),
    }


def _projected(vector: Array) -> tuple[float, ...]:
    """Return a vector, or its product with a fixed random matrix of signs / √SIZE if it is longer than SIZE.

    The signs are the bits of a hash, so that they are the same on every machine and in every version of NumPy.
    """
    if len(vector) <= SIZE:
        return _vector(vector)
    result, step = np.zeros(SIZE), 8192
    bits = np.frombuffer(hashlib.shake_128(b"edgemask-coverage-1").digest(len(vector) * SIZE // 8), np.uint8)
    bits = bits.reshape(len(vector), SIZE // 8)
    for start in range(0, len(vector), step):
        signs = 2.0 * np.unpackbits(bits[start : start + step], axis=1) - 1.0
        result += vector[start : start + step] @ signs
    return _vector(result / math.sqrt(SIZE))


def _rounded(value: Any) -> float:
    return float(f"{float(value):.{DIGITS}g}")


def _vector(values: Array) -> tuple[float, ...]:
    return tuple(_rounded(v) for v in values)
