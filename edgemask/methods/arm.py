"""Adaptive risk minimisation by contextual meta-learning (ARM-CML).

M. Zhang, H. Marklund, N. Dhawan, A. Gupta, S. Levine and C. Finn, "Adaptive Risk Minimization: Learning to Adapt to
Domain Shift", NeurIPS 2021.

    min_{θ,φ} (1/M) Σ_i ℓ(f_θ([X_i ‖ c_i], G_i), Y_i),    c_i = mean_v φ(x_v)

Besides the features of a node, the classifier sees a context c that summarises the whole batch.

From the paper: the context network φ, its mean over a batch of one domain, the context appended to the input, and joint
training of both networks on the loss after this adaptation.

The paper is about images and leaves open:

- what a batch is. Here it is all nodes of a graph (labelled or not), or of a mini-batch of it.
- the network φ. The paper uses three convolutional layers with 64 channels in between; here φ is an MLP with three
  layers, as wide as the classifier.
- the width of the context. The paper uses 1 to 12 channels of the image's size; here it is 64 numbers.

On whole graphs a source has one context per step, so two sources give two contexts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.methods.erm import ERM
from edgemask.nn.backbone import Backbone
from edgemask.nn.blocks import logits_in_blocks
from edgemask.nn.inputs import Appended
from edgemask.nn.mlp import MLP
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Edges, GraphTensors, SparseMatrix, features
from edgemask.runtime.precision import precision


class Contextual(nn.Module):
    """A classifier of [x ‖ c], and the context network that computes c."""

    def __init__(self, classifier: nn.Module, context: MLP):
        super().__init__()
        self.classifier, self.context = classifier, context

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, mask: Tensor | None = None) -> Tensor:
        """Return the N × C logits, under the context of these nodes.

        Args:
            x: N × d features.
            edges: Edges of the graph.
            mask: Mask of the real edges. None means ones.
        """
        logits: Tensor = self.classifier(Appended(x, self.context.at_nodes(0, x).mean(0)), edges, mask=mask)
        return logits


class FixedContext(Backbone):
    """A classifier under a known context, so that a graph can be classified block by block."""

    def __init__(self, classifier: Backbone, context: Tensor):
        super().__init__()
        self.classifier, self.context = classifier, context
        self.rounds, self.depth = classifier.rounds, classifier.depth
        self.weigh, self.send, self.collect = classifier.weigh, classifier.send, classifier.collect  # type: ignore[method-assign]

    def receive(self, i: int, h: Any) -> Tensor:
        """Append the context to the features before the first layer."""
        return self.classifier.receive(i, Appended(h, self.context) if i == 0 else h)


class ARM(ERM):
    """Risk minimisation of a classifier that sees a learned summary of the whole graph."""

    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "context": HyperParameter(64, 1, law="int", search=(8, 128), about="width of the context")
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier together with its context network."""
        width = int(self.hparams["context"])
        classifier = tasknet(self.recipe, self.num_features + width, self.num_classes)
        context = MLP(self.num_features, self.recipe.hidden, width, layers=3, dropout=0.0)
        return {"task": Contextual(classifier, context)}

    def logits_in_blocks(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Compute the context of the whole graph first, then the logits under it, both in blocks."""
        task, size = self.networks["task"].eval(), self.recipe.inference_batch or domain.num_nodes
        assert isinstance(task, Contextual)
        assert isinstance(task.classifier, Backbone)
        with torch.no_grad(), precision(self.recipe.precision, self.device):
            nodes = torch.arange(domain.num_nodes, device=self.device)
            sums = [task.context.at_nodes(0, features(domain.graph, part)).sum(0) for part in torch.split(nodes, size)]
            contextual = FixedContext(task.classifier, torch.stack(sums).sum(0) / domain.num_nodes).eval()
            out = logits_in_blocks(contextual, domain.graph, edges, s, size)
        return out.float() if out.dtype == torch.bfloat16 else out


STATUS = "full"
CITATION = "Zhang et al., Adaptive Risk Minimization, NeurIPS 2021"
SUMMARY = "the classifier also sees a context, the mean of a learned summary over the graph's nodes (ARM-CML)"
