"""The operators alone, forward and backward: those for the device and those of plain torch, alternating in one process.

For each time the corresponding bandwidth is computed, counting one gathered row per edge and all other data once. It is
compared with the bandwidth of a plain copy on the same device.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import Figures, Setup, isolated, repeated
from benchmarks.steps import RECIPE, prepare, source_of
from edgemask.nn.kernels import reference
from edgemask.nn.tensors import Edges

HEADS, WIDTH = RECIPE.heads, RECIPE.hidden
LARGE = (300_000, 3_000_000)  # nodes and edges of a graph whose rows do not fit into a cache
FLOAT, INDEX = 4, 8  # bytes
INNER = 10  # calls in a row on a GPU: a single call takes longer to launch than to run


def part(setup: Setup) -> Figures:
    """Measure the copy and the operators, on ACMv9 and on a GPU also on a large random graph."""
    isolated(setup, prepare)
    sizes = ["acmv9", "large"] if setup.where.type == "cuda" else ["acmv9"]
    return {"copy": isolated(setup, copy), **{size: isolated(setup, operators, size=size) for size in sizes}}


def copy(setup: Setup) -> Figures:
    """Measure the bytes per second that a copy of 1 GiB (CPU: 256 MiB) reads and writes."""
    size = 2**30 if setup.where.type == "cuda" else 2**28
    a, b = (torch.ones(size // FLOAT, device=setup.where) for _ in range(2))
    taken = repeated({"copy": lambda: b.copy_(a)}, setup.where, within=2.0, inner=INNER)["copy"]
    return taken | {"bandwidth": 2 * size / taken["seconds"]}


def operators(setup: Setup, size: str) -> Figures:
    """Time each operator forward and backward, in both implementations."""
    device = setup.where
    module = import_module(f"edgemask.nn.kernels.{'gpu' if device.type == 'cuda' else 'cpu'}")
    torch.manual_seed(0)
    edges = source_of(setup, setup.graph(), RECIPE).domain.edges if size == "acmv9" else random_edges(*LARGE, device)
    figures: Figures = {"nodes": edges.num_nodes, "edges": edges.num_real, "operators": {}}
    for name, (inputs, call) in cases(edges, device).items():
        taken = passes({"edgemask": module, "plain torch": reference}, inputs, call, device)
        moved = traffic(name, edges)
        for direction, times in taken.items():
            figures["operators"][f"{name}, {direction}"] = times | {"bytes": moved[direction]}
    return figures


def random_edges(nodes: int, count: int, device: torch.device) -> Edges:
    """Return about `count` distinct random edges without self-loops."""
    key = torch.randint(nodes * nodes, (count,), device=device).unique()
    src, dst = key % nodes, key // nodes
    return Edges.build(src[src != dst], dst[src != dst], nodes)


def cases(edges: Edges, device: torch.device) -> dict[str, tuple[list[Tensor], Callable[..., Tensor]]]:
    """Return, for each operator, the inputs with gradients and a function that calls it in a given module."""
    nodes, real = edges.num_nodes, edges.num_real

    def random(*shape: int) -> Tensor:
        return torch.rand(shape, device=device).requires_grad_()

    z, a, b, c, s = random(nodes, HEADS, WIDTH), random(nodes, HEADS), random(nodes, HEADS), random(HEADS), random(real)
    weight, h, w = random(len(edges.src)), random(nodes, WIDTH), random(WIDTH)
    return {
        "attend": (
            [z, a, b, s, c],
            lambda m, z, a, b, s, c: m.attend(edges, z, a, b, s, c, gate="message", dropout=RECIPE.attention_dropout),
        ),
        "aggregate": ([weight, h], lambda m, weight, h: m.aggregate(edges, weight, h)),
        "gcn_weights": ([s], lambda m, s: m.gcn_weights(edges, s)),
        "edge_mlp": ([h, random(nodes, WIDTH), w], lambda m, src, dst, w: m.edge_mlp(edges, src, dst, None, w)),
    }


def passes(
    modules: dict[str, Any],
    inputs: list[Tensor],
    call: Callable[..., Tensor],
    device: torch.device,
    within: float = 3.0,
) -> dict[str, dict[str, Figures]]:
    """Time the forward pass, and the backward pass to all inputs, of the implementations, which alternate."""
    outputs = {who: call(module, *inputs) for who, module in modules.items()}
    up = torch.rand_like(next(iter(outputs.values())))
    forward = {who: (lambda m=module: call(m, *inputs)) for who, module in modules.items()}
    backward = {
        who: (lambda out=out: torch.autograd.grad(out, inputs, up, retain_graph=True)) for who, out in outputs.items()
    }
    return {
        "forward": repeated(forward, device, warm_up=3, within=within, inner=INNER),
        "backward": repeated(backward, device, warm_up=3, within=within, inner=INNER),
    }


def traffic(name: str, edges: Edges) -> dict[str, int]:
    """Return the bytes that each pass must move: one row per edge if rows are gathered, and all other data once."""
    nodes, real, entries = edges.num_nodes, edges.num_real, len(edges.src)
    row = {
        "attend": HEADS * WIDTH * FLOAT,
        "aggregate": WIDTH * FLOAT,
        "edge_mlp": WIDTH * FLOAT,
        "gcn_weights": FLOAT,
    }[name]
    per_edge = {"attend": HEADS * FLOAT + FLOAT, "aggregate": FLOAT, "edge_mlp": FLOAT, "gcn_weights": FLOAT}[name]
    count = real if name == "edge_mlp" else entries
    forward = count * (row + per_edge + INDEX) + nodes * (row + INDEX)
    # The backward pass gathers by destination for the gradients of edges, and by source for the gradients of rows.
    backward = 2 * count * (row + per_edge + INDEX) + 2 * nodes * (row + INDEX)
    return {"forward": forward, "backward": backward}
