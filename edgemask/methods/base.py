"""The interface of every method.

A method has networks, optimisers and a `joint_step`: one update on a batch of every source. The smallest method is

    class ERM(Method):
        def joint_step(self, pairs):
            losses = {f"loss {source.domain.name}": self.risk(source, edges) for source, edges in pairs}
            self.step("task", torch.stack(list(losses.values())).mean())
            return {name: loss.detach() for name, loss in losses.items()}

Everything else has a default. Override `build` to add networks, `make_optimisers` to train them, `update` to do
something at the start of an epoch, and `state` and `load_state` if an epoch leaves anything else behind.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import BACKBONES, HyperParameter, Recipe, resolve_hparams
from edgemask.errors import InputError
from edgemask.methods.execution import Execution, Means, Record, floats, seeded
from edgemask.methods.sources import Pairs, Source
from edgemask.nn.backbone import Backbone
from edgemask.nn.blocks import logits_in_blocks
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Edges, GraphTensors
from edgemask.runtime import checkpoint
from edgemask.runtime.precision import precision
from edgemask.seeds import derive

__all__ = ["Method", "Pairs", "Record", "Source"]


class Method(Execution, ABC):
    """A way to train a node classifier on several source graphs.

    All randomness of an epoch is derived from the seed and the epoch's number, so a run that is resumed continues as
    if it had not stopped.

    Args:
        recipe: All settings.
        num_features: Feature columns of every graph.
        num_classes: Number of classes.
        seed: Seed of the initial weights and of every epoch.
        device: Where to train.

    Attributes:
        hparams: Values of the hyper-parameters declared in `hyper`.
    """

    hyper: ClassVar[Mapping[str, HyperParameter]] = {}
    any_loss: ClassVar[bool] = False  # whether all losses go through `classification_loss`

    def __init__(self, recipe: Recipe, num_features: int, num_classes: int, seed: int, device: torch.device):
        if recipe.loss != "cross-entropy" and not self.any_loss:
            raise InputError(f"{type(self).__name__} supports only loss = 'cross-entropy', got {recipe.loss!r}")
        if recipe.batch_size is not None and BACKBONES[recipe.backbone].batch_norm:
            raise InputError(
                f"backbone = {recipe.backbone!r} normalises with statistics of all nodes: batch_size must be None, got "
                f"{recipe.batch_size}"
            )
        self.recipe, self.seed, self.device = recipe, seed, device
        self.hparams = resolve_hparams(self.hyper, dict(recipe.hyper))
        self.num_features, self.num_classes = num_features, num_classes
        with seeded(derive(seed, "init"), device):
            self.networks = nn.ModuleDict(self.build()).to(device)
        self.optimisers = self.make_optimisers()
        self.prepare_execution()

    def build(self) -> dict[str, nn.Module]:
        """Return the networks by name. `task` is the classifier."""
        return {"task": tasknet(self.recipe, self.num_features, self.num_classes)}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """Return the optimisers by the name of the network that `step` updates."""
        return {"task": self.adam(self.networks["task"], self.recipe.lr, self.recipe.weight_decay)}

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Train for one epoch and return the losses and other quantities to record.

        Args:
            sources: The sources.
            epoch: Number of the epoch. It decides all random draws.

        Returns:
            The values by name. Names that start with `loss` are checked for NaN and infinity.
        """
        means = Means()
        for pairs in self.iter_batches(sources, epoch):
            means.add(self.replayed(self.joint_step, pairs))
        return floats(means.record())

    def joint_step(self, pairs: Pairs) -> Record:
        """Update the networks once on a batch of every source, and return what to record.

        Names that start with `loss` are checked for NaN and infinity.

        Args:
            pairs: A source and the edges of its batch, for every source.

        Returns:
            The values to record by name, as detached tensors.

        Raises:
            NotImplementedError: The class defines neither `joint_step` nor `update`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define joint_step or update")

    def risk(self, source: Source, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Return the classifier's loss on the training nodes of one source, in training mode.

        Args:
            source: The source.
            edges: Edges to propagate along: this epoch's edges, or those of a batch.
            s: Mask of the real edges. None means ones.
        """
        self.networks["task"].train()
        logits = self.wrapped["task"](source.domain.x, edges, mask=s)
        return self.classification_loss(logits, source)

    def classification_loss(self, logits: Tensor, source: Source) -> Tensor:
        """Return the loss of the logits on the training nodes of a source.

        It is the cross-entropy on the first label of each node or, with `loss = "binary"`, the binary cross-entropy on
        all labels: the sum over the classes, averaged over the nodes. With the mean over the classes, the gradients
        would be so small that weight decay dominates.

        Args:
            logits: N × C logits of the source's nodes.
            source: The source.
        """
        trained = logits.index_select(0, source.train)
        if self.recipe.loss == "binary":
            truth = source.domain.indicators[source.train].to(trained.dtype)
            return F.binary_cross_entropy_with_logits(trained, truth, reduction="none").sum(1).mean()
        return F.cross_entropy(trained, source.domain.labels()[source.train])

    def logits(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Return the classifier's N × C logits in evaluation mode, without gradients.

        Args:
            domain: Tensors of the graph.
            edges: Edges to propagate along.
            s: Mask of the real edges. None means ones.
        """
        task = self.networks["task"].eval()
        with torch.no_grad(), precision(self.recipe.precision, self.device):
            out: Tensor = task(domain.x, edges, mask=s)
        return out.float() if out.dtype == torch.bfloat16 else out

    def logits_in_blocks(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Return the same result as `logits`, computed layer by layer in blocks of `inference_batch` nodes.

        Args:
            domain: Tensors of the graph. The features are read from `domain.graph`, one block at a time.
            edges: Edges to propagate along.
            s: Mask of the real edges. None means ones.
        """
        task, size = self.networks["task"].eval(), self.recipe.inference_batch or domain.num_nodes
        with torch.no_grad(), precision(self.recipe.precision, self.device):
            out = logits_in_blocks(cast(Backbone, task), domain.graph, edges, s, size)
        return out.float() if out.dtype == torch.bfloat16 else out

    @property
    def finite_weights(self) -> bool:
        """Whether no weight of the networks is NaN or infinite."""
        return all(bool(t.isfinite().all()) for t in self.networks.state_dict().values())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything the next epoch depends on: tensors, and plain numbers."""
        tensors = checkpoint.pack_module("networks", self.networks)
        for name, optimiser in self.optimisers.items():
            tensors |= checkpoint.pack_optimiser(f"optimiser-{name}", optimiser)
        return tensors, {}

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state` returned.

        Raises:
            CheckpointError: A tensor is missing, or has another type or shape.
        """
        checkpoint.load_module("networks", tensors, self.networks)
        for name, optimiser in self.optimisers.items():
            checkpoint.unpack_optimiser(f"optimiser-{name}", tensors, optimiser)

    def check_state(self, sources: Sequence[Source]) -> None:
        """Raise a `CheckpointError` if the restored state does not fit the sources. By default it always does."""
