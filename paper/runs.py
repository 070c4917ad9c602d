"""The runs that suites share: protocols, recipes, and methods with their defaults."""

from __future__ import annotations

from edgemask.config import Recipe, recipe
from edgemask.data import benchmark
from edgemask.methods.registry import method_spec
from edgemask.report.suite import SEEDS, RunSet

STAR, BASE, PLAIN = "edgemask-dg-star", "edgemask-dg", "erm-gcn-enriched"
HEADLINE = 10  # number of seeds of the headline methods on the citation networks and on Twitch
CITATION = ("AC→D", "AD→C", "CD→A")
PROTOCOLS = {
    "citation": CITATION,
    "cora": ("env0→env2-9",),
    "photo": ("env0→env2-9",),
    "facebook100": ("triple1→available",),
    "twitch": ("DE→ES,FR,PTBR,RU,TW",),
    "elliptic": ("t07–t11→t17–t49",),
    "arxiv": ("2011→2016,2018,2020",),
    "airports": ("brazil+europe→usa", "usa+europe→brazil", "usa+brazil→europe"),
}
OTHERS = {"cora": "Cora", "photo": "Photo", "facebook100": "FB-100", "twitch": "Twitch"}
# Every ablation runs in two forms of the game: our recipe, and the paper's networks in the variant that does not
# collapse and comes closest to the paper's figures.
ROBUST = recipe("robust")
ATTENTION = recipe("paper", gate="attention", knn_ratio=0.5, spectral_ratio=0.02, epochs=100, average=0.05)
FORMS = {"`robust`": ROBUST, "GAT, attention gate, averaged weights": ATTENTION}


def run_set(
    where: str,
    method: str,
    recipe: Recipe,
    protocols: tuple[str, ...] = (),
    seeds: int = SEEDS,
    also: tuple[str, ...] = (),
) -> RunSet:
    """Return the runs of a method on a benchmark.

    If the benchmark has a validation domain, every method chooses its epoch on it.

    Args:
        where: Name of the benchmark.
        method: Name of the method, or `auto`, `majority` or `enrichment`, as in `RunSet`.
        recipe: All settings.
        protocols: Names of the protocols; those in `PROTOCOLS` if empty.
        seeds: Number of seeds, starting at 0.
        also: Extras to record.
    """
    protocols = protocols or PROTOCOLS[where]
    validated = bool(benchmark(where).protocol(protocols[0]).validation)
    if method != "enrichment" and validated and recipe.select == "last":
        recipe = recipe.replace(select="validation")
    return RunSet(where, method, recipe, protocols, seeds, also)


def headline_seeds(where: str) -> int:
    """Return the number of seeds of a headline method on a benchmark."""
    return HEADLINE if where in ("citation", "twitch") else SEEDS


def default(name: str, where: str, protocols: tuple[str, ...] = ()) -> RunSet:
    """Return the runs of a method with its default recipe.

    The former default and the strong simple baseline are headline methods with more seeds.

    Args:
        name: Name of the method.
        where: Name of the benchmark.
        protocols: Names of the protocols; those in `PROTOCOLS` if empty.
    """
    seeds = headline_seeds(where) if name in (STAR, PLAIN) else SEEDS
    return run_set(where, name, method_spec(name).recipe, protocols, seeds)
