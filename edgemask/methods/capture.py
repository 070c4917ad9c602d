"""Training steps captured as CUDA graphs: recorded once, then replayed on the edges of every epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from edgemask.nn.backend import backend
from edgemask.nn.tensors import Edges

WARM_UP = 2  # calls before the capture, which compile kernels and create the state of the optimisers
LARGEST_CAPTURE = 1 << 21  # edges; on larger graphs the kernel launches that a capture saves do not matter
ROOM = 32  # a capture has room for 1/32 more edges than the sample it is made from


def captures(networks: nn.Module) -> bool:
    """Return whether these networks' kernels can be captured. Triton's can, which support float32 only."""
    return all(p.dtype == torch.float32 and backend(p).__name__.endswith(".gpu") for p in networks.parameters())


def _fits(captured: Edges, edges: Edges) -> bool:
    """Return whether `edges` can be used by a capture made with the edges `captured`.

    They can if they are the same object, or if they are unpadded and fit into padded captured edges.
    """
    return edges is captured or (
        captured.count is not None and edges.count is None and len(edges.src) <= len(captured.src)
    )


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which everything of a device is captured.

    One stream is shared because every stream that multiplies matrices holds its own workspace.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Replay:
    """A callable that runs `step(*edges)` as a captured CUDA graph.

    `step` takes one or more training steps and returns scalars by name. It must not read values on the host, and must
    change everything it changes in place. It may draw from the device's default generator, whose seed at the time of
    a replay counts.

    The edges may be the same objects in every call, either because the graph does not change or because they are
    padded and have new content. Other edges are copied into padded ones. A sample that does not fit is captured again.
    """

    def __init__(self, step: Callable[..., dict[str, Tensor]]):
        self.step, self.calls = step, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.edges: list[Edges] = []
        self.names: list[str] = []
        self.values = torch.empty(0)

    def __call__(self, *edges: Edges) -> dict[str, Tensor]:
        """Run the step on the given edges and return what it measured."""
        if not self.edges:
            self.edges, self.calls = list(edges), 0
        elif not all(map(_fits, self.edges, edges)):  # the edges change: copy them into padded ones from now on
            self.edges = [e if e.count is not None else e.padded(len(e.src) + len(e.src) // ROOM) for e in edges]
            self.graph, self.calls = None, 0
        else:
            for captured, e in zip(self.edges, edges, strict=True):
                if e is not captured:
                    captured.copy_(e.padded(len(captured.src)))
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._run_uncaptured()
        if self.graph is None:
            self._capture()
        assert self.graph is not None
        self.graph.replay()
        return dict(zip(self.names, self.values.clone().unbind(), strict=True))

    def _run_uncaptured(self) -> dict[str, Tensor]:
        """Run the step without a capture, on the stream that a capture uses."""
        current, side = torch.cuda.current_stream(), capture_stream(self.edges[0].src.device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            record = self.step(*self.edges)
        current.wait_stream(side)
        return record

    def _capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=capture_stream(self.edges[0].src.device)):
            record = self.step(*self.edges)
            self.names, self.values = list(record), torch.stack([v.detach().float() for v in record.values()])
