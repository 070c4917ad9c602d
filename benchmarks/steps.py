"""One descent and one ascent step on ACMv9: edgemask, edgemask on plain torch operators, and the stock implementation.

The steps of edgemask are timed inside training: the time of an epoch with extra steps, minus the time of an epoch
without them, divided by the number of extra steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import torch

from benchmarks.common import Figures, Setup, isolated, peaks, plain_operators, repeated
from edgemask.config import Recipe, recipe
from edgemask.data.synthetic import demo_family
from edgemask.enrich import Cache
from edgemask.graph import Graph
from edgemask.methods.edgemask import Game
from edgemask.methods.sources import Source, make_sampler
from edgemask.nn.tensors import GraphTensors, SparseMatrix
from edgemask.training.trainer import Trainer

Step = Literal["descent", "ascent"]
# Two layers with 8 heads of 64, the gate of the stock layer, and ratios that give ACMv9 about 150,000 edges.
RECIPE = recipe("paper", gate="attention", knn_ratio=0.5, spectral_ratio=0.0533)
EXTRA = {"cpu": 3, "cuda": 10}  # extra steps of the longer epoch
WITHIN = 20.0  # seconds for all repeats
REPLAYED = 4  # epochs before replays are measured: two to warm up, one to capture, one to be sure


def part(setup: Setup, step: Step) -> Figures:
    """Measure all variants, each in its own process. On a CPU the products alternate with edgemask in one process."""
    inputs, fused = isolated(setup, prepare), isolated(setup, ours, step=step, plain=False)
    product_times = fused.pop("products") if setup.where.type == "cpu" else isolated(setup, products, step=step)
    return {
        "inputs": inputs,
        "variants": {
            "edgemask": fused,
            "plain torch": isolated(setup, ours, step=step, plain=True),
            "stock": isolated(setup, stock, step=step),
        },
        "products": product_times,
    }


def prepare(setup: Setup) -> Figures:
    """Write the graph and its enrichment to the folder that all processes share."""
    graph = setup.graph()
    edges = source_of(setup, graph, RECIPE).domain.edges
    return {"nodes": graph.num_nodes, "edges": edges.num_real, "features": graph.num_features}


def source_of(setup: Setup, graph: Graph, settings: Recipe) -> Source:
    """Return a source whose original edges are one sample of its enrichment, so that epochs draw no edges.

    Args:
        setup: Device, threads and data of the measurement.
        graph: The graph.
        settings: The recipe.
    """
    domain = GraphTensors.of(graph, setup.where)
    sampler = make_sampler(settings, graph, setup.where, Cache(Path(setup.folder) / "cache"))
    edges = game(setup, graph, settings).sample(Source(domain, domain.labelled, sampler), 0)
    return Source(replace(domain, edges=edges), domain.labelled, None)


def game(setup: Setup, graph: Graph, settings: Recipe) -> Game:
    """Return a game for a graph.

    Args:
        setup: Device, threads and data of the measurement.
        graph: The graph, for its numbers of features and classes.
        settings: The recipe.
    """
    return Game(settings, graph.num_features, graph.num_classes, 0, setup.where)


def ours(setup: Setup, step: Step, plain: bool) -> Figures:
    """Measure a step of edgemask, on plain torch operators if `plain`.

    Args:
        setup: Device, threads and data of the measurement.
        step: `descent` or `ascent`.
        plain: Use plain torch operators instead of the kernels.
    """
    device, extra = setup.where, EXTRA[setup.where.type]
    few, many = ((1, 0), (1 + extra, 0)) if step == "descent" else ((1, 1), (1, 1 + extra))
    with plain_operators(plain):
        small = demo_family(100)["alpha"]  # for loading and compiling on first use
        settings = RECIPE.replace(clusters=5, n_ascent=1)
        Trainer(game(setup, small, settings), [source_of(setup, small, settings)]).step()
        graph = setup.graph()
        source = source_of(setup, graph, RECIPE)
        longer, shorter = (
            lambda d=d, a=a: Trainer(game(setup, graph, RECIPE.replace(n_descent=d, n_ascent=a)), [source])
            for d, a in (many, few)
        )
        trainer, warm_up = longer(), REPLAYED if device.type == "cuda" else 1
        with peaks(device) as peak:
            replays = [count_replays(trainer.step) for _ in range(warm_up)]
        calls = {"longer": trainer.step, "shorter": shorter().step}
        extra_calls = {} if plain or device.type == "cuda" else product_calls(setup, step)
        taken = repeated(calls | extra_calls, device, warm_up=warm_up, within=WITHIN)
    return {
        "seconds": (taken["longer"]["seconds"] - taken["shorter"]["seconds"]) / extra,
        "repeats": taken["longer"]["repeats"],
        "peak": peak,
        "replayed": replays[-1] > 0,
        **({"products": {name: taken[name] for name in extra_calls}} if extra_calls else {}),
    }


def count_replays(call: Callable[[], object]) -> int:
    """Return the number of captured CUDA graphs that a call replays."""
    replay, count = torch.cuda.CUDAGraph.replay, 0

    def counted(graph: Any) -> None:
        nonlocal count
        count += 1
        replay(graph)

    with patch.object(torch.cuda.CUDAGraph, "replay", counted):
        call()
    return count


def stock(setup: Setup, step: Step) -> Figures:
    """Measure a step of the stock implementation."""
    device = setup.where
    torch.backends.cuda.matmul.allow_tf32 = True  # as in edgemask
    small, graph = demo_family(100)["alpha"], setup.graph()
    getattr(stock_game(source_of(setup, small, RECIPE.replace(clusters=5))), step)()
    rival = stock_game(source_of(setup, graph, RECIPE))
    del graph
    with peaks(device) as peak:
        taken = repeated({"stock": getattr(rival, step)}, device, least=3, within=WITHIN)["stock"]
    return taken | {"peak": peak, "replayed": False}


def stock_game(source: Source) -> Any:
    """Return the stock game on a source's tensors, with dense features and plain edges."""
    from benchmarks.stock import StockGame  # imported here so that it does not count as memory of edgemask

    domain, edges, graph = source.domain, source.domain.edges, source.domain.graph
    dense = torch.tensor(graph.x.toarray() if graph.is_sparse else graph.x, device=edges.src.device)
    pairs = torch.stack([edges.src[edges.real], edges.dst[edges.real]])
    return StockGame(RECIPE, dense, pairs, domain.labels(), source.train, graph.num_classes)


def products(setup: Setup, step: Step) -> Figures:
    """Measure the matrix products of a step."""
    torch.backends.cuda.matmul.allow_tf32 = True
    return repeated(product_calls(setup, step), setup.where, within=5.0, inner=10)


def product_calls(setup: Setup, step: Step) -> dict[str, Callable[[], object]]:
    """Return the matrix products that every implementation of a step needs.

    These are the products with the sparse features, forward and, for a network that learns, transposed; and the
    products with the dense weights of the second layer, forward and backward.
    """
    device, graph = setup.where, setup.graph()
    matrix = SparseMatrix(graph.x, device)
    (nodes, inputs), columns, width = matrix.shape, RECIPE.heads * RECIPE.hidden, RECIPE.mask_projection
    h, up, weight, first = (torch.randn(n, columns, device=device) for n in (nodes, nodes, columns, inputs))
    projection, grad = (torch.randn(n, width, device=device) for n in (inputs, nodes))

    def product_and_gradient(w: torch.Tensor, g: torch.Tensor) -> None:
        w.requires_grad_(True)
        torch.autograd.grad(matrix @ w, w, g)

    def sparse() -> None:
        if step == "descent":
            product_and_gradient(first, up)
        else:
            with torch.no_grad():
                matrix @ first  # for the frozen TaskNet
            product_and_gradient(projection, grad)

    def dense() -> None:
        h @ weight
        up @ weight.T
        if step == "descent":
            h.T @ up

    return {"sparse": sparse, "dense": dense}
