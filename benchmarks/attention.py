"""Speed and memory of masked attention: python benchmarks/attention.py --data-root …

One descent step (forward, backward, Adam) of a two-layer GAT, 8 heads of 64, on ACMv9 enriched to about 150,000 edges,
three ways on the same inputs: this package, this package on its plain torch operator, and the stock route (PyTorch
Geometric's GATConv with the mask as edge attribute, dense features). The gate is "attention": the one all three share.
Each runs in a fresh process, which gives its peak memory: of the whole process, imports and inputs among it, and over
what it held before the first step. Beside them: the matrix products no implementation can do without, and the operator
alone against the plain torch one, the two taking turns.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.data.citation import CITATION
from edgemask.data.store import Store
from edgemask.enrich import enrich
from edgemask.nn import kernels, masked_gat
from edgemask.nn.kernels import cpu, reference
from edgemask.nn.tensors import Edges, SparseMatrix
from edgemask.seeds import torch_stream

HEADS, WIDTH, CLASSES = 8, 64, 5
DROPOUT, ATTENTION_DROPOUT = 0.5, 0.6
MODELS = {"ours": "edgemask", "reference": "edgemask, plain torch operators", "stock": "torch_geometric GATConv, dense"}


class Stock(nn.Module):
    """The same network of stock layers."""

    def __init__(self, inputs: int):
        from torch_geometric.nn import GATConv  # here: what it imports is no part of our memory

        super().__init__()
        settings = {"heads": HEADS, "edge_dim": 1, "fill_value": 1.0, "dropout": ATTENTION_DROPOUT}
        self.first = GATConv(inputs, WIDTH, **settings)
        self.second = GATConv(HEADS * WIDTH, WIDTH, concat=False, **settings)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, s: Tensor) -> Tensor:
        h = F.dropout(F.elu(self.first(x, edge_index, s)), DROPOUT)
        h = F.dropout(F.elu(self.second(h, edge_index, s)), DROPOUT)
        out: Tensor = self.out(h)
        return out


def step_of(variant: str, x: sp.csr_array, src: Tensor, dst: Tensor) -> Callable[[], None]:
    """One descent step of a fresh model of this kind on these inputs."""
    torch.manual_seed(0)
    nodes, inputs = x.shape
    s, y = torch.rand(len(src)), torch.randint(CLASSES, (nodes,))
    if variant == "stock":
        model: nn.Module = Stock(inputs)
        arguments: tuple[Any, ...] = torch.from_numpy(x.toarray()), torch.stack([src, dst]), s.unsqueeze(1)
    else:
        model = masked_gat.MaskedGAT(
            inputs, WIDTH, CLASSES, 2, DROPOUT, heads=HEADS, attention_dropout=ATTENTION_DROPOUT, gate="attention"
        )
        arguments = SparseMatrix(x, torch.device("cpu")), Edges.build(src, dst, nodes), s
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=5e-4)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(*arguments), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak() -> float:
    """The most memory this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_step(variant: str, x: sp.csr_array, src: Tensor, dst: Tensor, repeats: int) -> dict[str, float]:
    with patch.object(kernels, "backend", (lambda _: reference) if variant == "reference" else kernels.backend):
        few = torch.arange(2)
        step_of(variant, x[:2], few, 1 - few)()  # what is loaded or compiled on first use
        step = step_of(variant, x, src, dst)
        before = peak()
        step()
        taken = median(seconds(step) for _ in range(repeats))
        return {"seconds": taken, "process": peak(), "step": peak() - before}


def measure_products(x: sp.csr_array, repeats: int) -> dict[str, float]:
    """The first layer's two sparse products and the second layer's three dense ones."""
    nodes, inputs = x.shape
    columns = HEADS * WIDTH
    matrix = SparseMatrix(x, torch.device("cpu"))
    h, grad, weight, first = (torch.randn(n, columns) for n in (nodes, nodes, columns, inputs))
    first.requires_grad_()

    def sparse() -> None:
        torch.autograd.grad(matrix @ first, first, grad)

    def dense() -> None:
        h @ weight
        grad @ weight.T
        h.T @ grad

    return {f.__name__: median(seconds(f) for _ in range(repeats)) for f in (sparse, dense)}


def measure_operator(src: Tensor, dst: Tensor, nodes: int, repeats: int) -> dict[str, list[float]]:
    """Forward and backward of one layer's operator, both implementations in turn: [ours, reference] by dropout."""
    edges = Edges.build(src, dst, nodes)
    z, up = torch.randn(nodes, HEADS, WIDTH, requires_grad=True), torch.randn(nodes, HEADS, WIDTH)
    a, b = (torch.randn(nodes, HEADS, requires_grad=True) for _ in range(2))
    s, c = torch.rand(edges.num_real), torch.randn(HEADS, requires_grad=True)
    record = {}
    for dropout in (0.0, ATTENTION_DROPOUT):
        times: dict[str, list[float]] = {}
        for _ in range(repeats + 1):
            for module in (cpu, reference):

                def call() -> None:
                    out = module.attend(edges, z, a, b, s, c, gate="message", dropout=dropout)  # noqa: B023
                    torch.autograd.grad(out, (z, a, b, c), up)

                times.setdefault(module.__name__, []).append(seconds(call))
        record[str(dropout)] = [median(t[1:]) for t in times.values()]
    return record


def prepare(data_root: Path | None, folder: Path) -> Path:
    """ACMv9's features and a sample of its enriched edges, as a file."""
    graph = CITATION.load(["acmv9"], store=Store(data_root))["acmv9"]
    drawn = enrich(graph).sampler().sample(torch_stream(0, "sample"), knn_ratio=0.5, spectral_ratio=0.06)
    path, x = folder / "inputs.npz", graph.x
    np.savez(path, src=drawn.src, dst=drawn.dst, data=x.data, indices=x.indices, indptr=x.indptr, shape=x.shape)
    return path


def measure(variant: str, inputs: Path, repeats: int) -> None:
    """What `--variant` runs in a process of its own: prints one JSON record."""
    torch.manual_seed(0)
    with np.load(inputs) as file:
        x = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        src, dst = torch.tensor(file["src"]), torch.tensor(file["dst"])
    if variant == "products":
        record: dict[str, float] | dict[str, list[float]] = measure_products(x, repeats)
    elif variant == "operator":
        record = measure_operator(src, dst, x.shape[0], repeats)
    else:
        record = measure_step(variant, x, src, dst, repeats)
    print(json.dumps(record))


def report(data_root: Path | None, repeats: int) -> None:
    """Measures every variant in a process of its own and prints the tables."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = prepare(data_root, Path(folder))
        with np.load(inputs) as file:
            sizes = f"{file['shape'][0]:,} nodes, {len(file['src']):,} edges"

        def record(variant: str) -> Any:
            command = [sys.executable, __file__, "--variant", variant, "--inputs", str(inputs)]
            command += ["--repeats", str(repeats)]
            return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)

        print(f"acmv9, enriched: {sizes}; {HEADS} × {WIDTH}, 2 layers; {torch.get_num_threads()} threads")
        print(f"\n{'one descent step':34}{'ms':>8}{'× ours':>8}{'peak MB':>10}{'of a step':>11}")
        ours: dict[str, float] = {}
        for variant, title in MODELS.items():
            taken = record(variant)
            ours = ours or taken
            ratio = taken["seconds"] / ours["seconds"]
            print(f"{title:34}{1e3 * taken['seconds']:8.0f}{ratio:8.1f}{taken['process']:10.0f}{taken['step']:11.0f}")
        products = record("products")
        print(f"{'of which sparse products':34}{1e3 * products['sparse']:8.0f}")
        print(f"{'of which dense products':34}{1e3 * products['dense']:8.0f}")
        print(f"\n{'operator, forward and backward':34}{'ms':>8}{'torch':>8}{'ratio':>10}")
        for dropout, (fused, plain) in record("operator").items():
            print(f"{'attention dropout ' + dropout:34}{1e3 * fused:8.0f}{1e3 * plain:8.0f}{plain / fused:10.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="where the benchmark data is (default: $EDGEMASK_DATA)")
    parser.add_argument("--repeats", type=int, default=10, help="measurements of each, of which the median is shown")
    parser.add_argument("--variant", choices=[*MODELS, "products", "operator"], help="measure this one, in here")
    parser.add_argument("--inputs", type=Path, help="with --variant: the prepared inputs")
    options = parser.parse_args()
    if options.variant:
        measure(options.variant, options.inputs, options.repeats)
    else:
        report(options.data_root, options.repeats)


if __name__ == "__main__":
    main()
