"""Suites of variants of the method: recipes, collapse of the mask, inference, theory and growth."""

from __future__ import annotations

from collections.abc import Iterator

from edgemask.config import recipe
from edgemask.methods.registry import method_spec
from edgemask.report.suite import CellSpec, Suite, TableSpec
from paper import cells as value
from paper.growth import growth
from paper.runs import CITATION, FORMS, PLAIN, ROBUST, STAR, default, run_set
from paper.systems import citation_cells, other_benchmark_cells


def recipes() -> Iterator[CellSpec]:
    """Yield the cells of the three recipes and of the enriched GCN."""
    for name in ("paper", "released", "robust"):
        settings = method_spec(STAR).under(name)
        runs = default(STAR, "citation") if name == "robust" else run_set("citation", STAR, settings)
        yield from citation_cells(name, runs, "EDG*")
        yield from other_benchmark_cells(name, STAR, None if name == "robust" else settings, "EDG*")
    yield from citation_cells("no game: GCN on the enriched graph", default(PLAIN, "citation"))
    yield from other_benchmark_cells("no game: GCN on the enriched graph", PLAIN)


def collapse() -> Iterator[CellSpec]:
    """Yield the cells of the mean mask and the scores, by gate and bound."""
    base = recipe("paper", knn_ratio=0.5, spectral_ratio=0.02, epochs=100)
    for gate in ("message", "attention", "softmax"):
        for bound in ("penalty", "dual", "budget"):
            runs = run_set("citation", STAR, base.replace(gate=gate, bound=bound), CITATION[:2], also=("oracle",))
            row = f"{gate} gate, {bound}"
            for epoch in (1, 5, 20, 100):
                yield CellSpec(row, f"mean mask, epoch {epoch}", runs, value.MeanMask(epoch))
            yield CellSpec(row, "micro-F1, last epoch", runs, value.Score(("micro_f1",)))
            yield CellSpec(row, "micro-F1, best epoch (oracle)", runs, value.Score(("micro_f1",), rule="oracle"))


def inference_cells() -> Iterator[CellSpec]:
    """Yield the cells of the ways to classify a target: graph, mask, averaging and propagation."""
    for graph in ("original", "enriched"):
        for mask in ("ones", "masknet"):
            for average in (0.0, 0.05):
                row = f"{graph} graph, {'s = 1' if mask == 'ones' else 'masked'}, "
                row += "averaged weights" if average else "last weights"
                for alpha in (0.0, 0.9):
                    settings = ROBUST.replace(
                        test_graph=graph, test_mask=mask, average=average, alpha=(alpha,), select="last"
                    )
                    both = value.Score(("micro_f1", "macro_f1"))
                    yield CellSpec(row, f"α = {alpha:g}", run_set("citation", STAR, settings, CITATION[:2]), both)


def theory() -> Iterator[CellSpec]:
    """Yield the cells of the theory's quantities, by form of the game and transfer."""
    for row, form in FORMS.items():
        for transfer in CITATION:
            runs = run_set("citation", STAR, form, (transfer,), also=("theory",))
            for column, show in value.THEORY.items():
                yield CellSpec(f"{row}, {transfer}", column, runs, show)


VARIANTS = (
    Suite("complexity", "Time and memory by graph size", made=growth),
    Suite(
        "theory",
        "Checks of the theory on trained networks",
        (
            TableSpec(
                "Theory after training",
                "Measured on the first source of each transfer after training. docs/method.md defines the quantities.",
                tuple(theory()),
                best="",
                decimals=4,
            ),
        ),
    ),
    Suite(
        "recipes",
        "`paper`, `released` and `robust` side by side",
        (
            TableSpec(
                "Recipes",
                "`paper` follows the paper literally, `released` the authors' released code, and `robust` is our own. "
                "The paper's figure is always that of its EdgeMask-DG*. In percent.",
                tuple(recipes()),
            ),
        ),
    ),
    Suite(
        "collapse",
        "Collapse of the mask, by gate and bound",
        (
            TableSpec(
                "Mean mask of the original edges, and accuracy",
                "GAT on the citation networks, 100 epochs, averaged over the sources and the transfers AC→D and AD→C. "
                "The best epoch is chosen on the target, for comparison only.",
                tuple(collapse()),
                best="",
                decimals=2,
            ),
        ),
    ),
    Suite(
        "inference",
        "Inference on the target",
        (
            TableSpec(
                "Graph × mask × averaging × propagation",
                "`robust` on the citation networks at the last epoch. Mean of the four F1 scores of AC→D and AD→C, in "
                "percent.",
                tuple(inference_cells()),
            ),
        ),
    ),
    Suite(
        "explorer",
        "Views of the mask explorer",
        extra=(run_set("citation", STAR, ROBUST, seeds=1, also=("explorer",)),),
    ),
)
