"""Steps of training as captured CUDA graphs: recorded once, replayed every epoch on that epoch's edges."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from edgemask.nn.backend import backend
from edgemask.nn.tensors import Edges

WARM_UP = 2  # calls before the capture, in which kernels are compiled and optimisers make their state
LARGEST_CAPTURE = 1 << 21  # edges; beyond, the launches that a capture saves do not matter
ROOM = 32  # a capture has room for 1/32 more edges than the first sample had


def captures(networks: nn.Module) -> bool:
    """Whether the kernels these networks run on can be captured: Triton's, which are for float32."""
    return all(p.dtype == torch.float32 and backend(p).__name__.endswith(".gpu") for p in networks.parameters())


def _takes(held: Edges, edges: Edges) -> bool:
    """Whether captured edges can take over these: they are the very same, or fit in without filling of their own."""
    return edges is held or (held.count is not None and edges.count is None and len(edges.src) <= len(held.src))


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all captures of a device: every stream that multiplies matrices holds a workspace of its own."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Replay:
    """`step(*edges)`, one or more steps of training without a look from the host, returning scalars by name.

    Edges may be the same object every time, of a graph that does not change or padded ones with new content; others are
    copied. All that a step changes must be changed in place; its randomness may come from the device's default
    generator, whose seed at the time of a replay counts. A sample too large for the capture is captured anew.
    """

    def __init__(self, step: Callable[..., dict[str, Tensor]]):
        self.step, self.calls = step, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.edges: list[Edges] = []
        self.names: list[str] = []
        self.values = torch.empty(0)

    def __call__(self, *edges: Edges) -> dict[str, Tensor]:
        if not self.edges:
            self.edges, self.calls = list(edges), 0
        elif not all(map(_takes, self.edges, edges)):  # they change: from now on they are copied to where there is room
            self.edges = [e if e.count is not None else e.padded(len(e.src) + len(e.src) // ROOM) for e in edges]
            self.graph, self.calls = None, 0
        else:
            for held, e in zip(self.edges, edges, strict=True):
                if e is not held:
                    held.copy_(e.padded(len(held.src)))
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._aside()
        if self.graph is None:
            self._capture()
        assert self.graph is not None
        self.graph.replay()
        return dict(zip(self.names, self.values.clone().unbind(), strict=True))

    def _aside(self) -> dict[str, Tensor]:
        """Run the step as it is, on a stream of its own, as a capture will."""
        here, aside = torch.cuda.current_stream(), capture_stream(self.edges[0].src.device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            record = self.step(*self.edges)
        here.wait_stream(aside)
        return record

    def _capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=capture_stream(self.edges[0].src.device)):
            record = self.step(*self.edges)
            self.names, self.values = list(record), torch.stack([v.detach().float() for v in record.values()])
