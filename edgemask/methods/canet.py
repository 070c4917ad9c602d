"""CaNet: a mixture of propagation networks, weighted for each node and layer by an estimated pseudo environment.

Q. Wu, F. Nie, C. Yang, T. Bao and J. Yan, "Graph Out-of-Distribution Generalization via Causal Intervention", WWW 2024.

    min_{θ,φ} (1/M) Σ_i E_q[ℓ(f_θ(G_i, E), Y_i)] + λ mean_{v,l} KL(q_φ(e_v^l | G_v) ‖ uniform over K environments)

    h_v ← ReLU(h_v + Σ_k e_{v,k} W_k [(Â(s) h)_v ‖ h_v]),    e_v a Gumbel-softmax sample of q_φ, temperature τ

From the paper and its public code: the objective; the layer (each environment has its own weights for the aggregated
features and for the node's own features, with a residual sum); one estimator per layer; samples in training and q
itself at inference; a linear map before the first layer and after the last. The defaults are those that the code uses
for citation networks: K = 3, τ = 1, λ = 1, and an estimator that sees the neighbours (`estimator` = graph; the equation
in the paper is `node`).

Choices made here:

- The KL divergence is computed in closed form; the code uses one sample of it and omits its constant.
- Â includes self-loops.
- There is no dropout on the features themselves, which are sparse and constant.
- The loss is the cross-entropy for any number of classes.
- Only the GCN form is implemented; the paper also has one with attention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.erm import ERM
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs
from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.tensors import Edges, SparseMatrix


class MixtureNet(Backbone):
    """The classifier: in every layer, a mixture of K propagation networks with weights that depend on the node.

    Args:
        inputs: Number of input features.
        hidden: Width of the states.
        classes: Number of classes.
        layers: Number of layers.
        dropout: Dropout rate of the states.
        environments: Number of pseudo environments K.
        tau: Temperature τ of the Gumbel-softmax.
        neighbours: Whether the estimator of the environments sees the aggregated neighbours.

    Attributes:
        log_q: For each layer, the N × K log-probabilities that the last forward pass in training mode inferred.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        classes: int,
        layers: int = 2,
        dropout: float = 0.5,
        *,
        environments: int = 3,
        tau: float = 1.0,
        neighbours: bool = True,
    ):
        super().__init__()
        self.rounds, self.depth, self.dropout = layers, layers, dropout
        self.environments, self.tau, self.neighbours = environments, tau, neighbours
        self.first, self.out = InputLinear(inputs, hidden), nn.Linear(hidden, classes)
        seen = 2 * hidden if neighbours else hidden
        self.estimators = nn.ModuleList(nn.Linear(seen, environments) for _ in range(layers))
        self.experts = nn.ModuleList(nn.Linear(2 * hidden, environments * hidden, bias=False) for _ in range(layers))
        self.log_q: list[Tensor] = []

    def forward(
        self,
        x: Tensor | SparseMatrix,
        edge_index: Tensor | Edges,
        edge_weight: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the N × C logits, and forget the environments of the last pass; see `Backbone.forward`."""
        self.log_q = []
        return super().forward(x, edge_index, edge_weight, mask)

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the weights of a GCN for all edges."""
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        """Apply the input map (i = 0) or layer i - 1, then dropout."""
        h = F.relu(self.first(h)) if i == 0 else self.mix(i - 1, h)
        return F.dropout(h, self.dropout, self.training)

    def mix(self, i: int, both: Tensor) -> Tensor:
        """Apply layer i to [Âh ‖ h]: sum the environments' networks with the node's weights."""
        own = both[:, both.shape[1] // 2 :]
        outputs = self.experts[i](both).unflatten(1, (self.environments, -1))
        return F.relu(own + (self.infer(i, both).unsqueeze(1) @ outputs).squeeze(1))

    def infer(self, i: int, both: Tensor) -> Tensor:
        """Return the environments' weights in layer i: q itself, or a sample of q in training mode."""
        logits = self.estimators[i](both if self.neighbours else both[:, both.shape[1] // 2 :])
        if not self.training:
            return logits.softmax(1)  # type: ignore[no-any-return]
        self.log_q.append(logits.log_softmax(1))
        return F.gumbel_softmax(logits, self.tau)

    def send(self, i: int, h: Any) -> Tensor:
        """Return the messages of round i, or the logits after the last round."""
        z: Tensor = h if i < self.rounds else self.out(h)
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Return [Âz ‖ z]."""
        return torch.cat([aggregate(edges, weight, z), z], dim=1)


class CaNet(ERM):
    """Risk minimisation with a KL term that keeps the inferred environments close to uniform."""

    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "environments": HyperParameter(3, 1, law="int", search=(2, 10), about="K, number of pseudo environments"),
        "tau": HyperParameter(1.0, 0.01, law="log", search=(0.5, 5), about="τ, temperature of the Gumbel-softmax"),
        "weight": HyperParameter(1.0, 0, law="log", search=(0.01, 10), about="λ, weight of the KL term"),
        "estimator": HyperParameter(
            "graph",
            law="choice",
            choices=("graph", "node"),
            about="graph: the estimator sees the neighbours; node: it does not",
        ),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the mixture network.

        Raises:
            InputError: The recipe's backbone is not `gcn`.
        """
        r = self.recipe
        if r.backbone != "gcn":
            raise InputError(
                f"canet has its own network, which is based on a GCN: backbone must be gcn, got {r.backbone}"
            )
        network = MixtureNet(
            *(self.num_features, r.hidden, self.num_classes, r.layers, r.dropout),
            environments=int(self.hparams["environments"]),
            tau=float(self.hparams["tau"]),
            neighbours=self.hparams["estimator"] == "graph",
        )
        return {"task": network}

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the mean over the sources of risk and weighted KL term."""
        goals, record = [], Record()
        for source, edges in pairs:
            name, risk = source.domain.name, self.risk(source, edges)
            kl = from_uniform(torch.cat(self.log_q))
            goals.append(risk + float(self.hparams["weight"]) * kl)
            record |= {f"loss {name}": risk.detach(), f"kl {name}": kl.detach()}
        self.step("task", torch.stack(goals).mean())
        return record

    @property
    def log_q(self) -> list[Tensor]:
        """Log-probabilities of the environments, as inferred by the last forward pass, one tensor per layer."""
        task = self.networks["task"]
        assert isinstance(task, MixtureNet)
        return task.log_q


def from_uniform(log_q: Tensor) -> Tensor:
    """Return the mean of KL(q ‖ uniform) over the rows of log q."""
    return (log_q.exp() * log_q).sum(1).mean() + math.log(log_q.shape[1])


STATUS = "full"
CITATION = "Wu et al., Graph Out-of-Distribution Generalization via Causal Intervention, WWW 2024"
SUMMARY = "mixes propagation networks per node by inferred environments, which a KL term keeps near uniform (GCN form)"
