"""IS-GIB: individual and structural graph information bottlenecks.

L. Yang, J. Zheng, H. Wang, Z. Liu, Z. Huang, S. Hong, W. Zhang and B. Cui, "Individual and Structural Graph
Information Bottlenecks for Out-of-Distribution Generalization", IEEE TKDE 2023.

    min_θ (1/M) Σ_i ℓ_i + α I(X; Z) + β I(XX; ZZ) - γ I(ZZ; YY)

X are the features and Z the representation of nodes drawn from all sources; XX, ZZ and YY are the relations of their
pairs. α weighs the individual bottleneck, which removes information that the label does not need. β and γ weigh the
structural one: the relation of two nodes should follow from their labels, within and across domains, and not from their
features.

From the paper: the four terms, and that the pairs consist of nodes drawn in every step (128 of each source in the
authors' code). Only the abstract of the paper was available, so its bounds of the mutual information are not known. The
measures were chosen here:

- I(X; Z): HSIC with Gaussian kernels, which is 0 only for independent variables, unbiased and normalised to [-1, 1].
- I(XX; ZZ): the same with cosines as kernels, which is the correlation between the relations in X and those in Z.
  (The authors' code pulls the two matrices of inner products together instead, with a weight of 1e-11.)
- -I(ZZ; YY): as in the authors' code, -log of the probability σ(⟨z_i, z_j⟩) that two nodes have the same class, or of
  its complement. Here it is the mean over pairs of the same class plus the mean over the other pairs; the code uses
  weighted sums.

X is a fixed random projection of the features, which approximately preserves inner products and works with sparse
features; the code uses the output of its first, learnt, linear map. The weights were chosen here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs, Source
from edgemask.methods.views import backbone, representation_width
from edgemask.seeds import torch_stream

WIDTH = 128  # columns of the projected features


class ISGIB(Method):
    """Risk minimisation with individual and structural information bottlenecks."""

    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "individual": HyperParameter(
            0.1, 0, law="log", search=(1e-3, 10), about="α, weight of HSIC(features, representation)"
        ),
        "structural": HyperParameter(
            0.1, 0, law="log", search=(1e-3, 10), about="β, weight of the correlation between their relations"
        ),
        "relations": HyperParameter(
            0.1, 0, law="log", search=(1e-3, 10), about="γ, weight of predicting whether pairs share a class"
        ),
        "nodes": HyperParameter(
            128, 4, law="int", search=(64, 512), about="nodes drawn from each source for the pairs"
        ),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier, and draw the random projection of the features."""
        stream = torch_stream(self.seed, "projection")
        self.projection = torch.randn(self.num_features, WIDTH, generator=stream).to(self.device) / WIDTH**0.5
        self.projected: dict[str, Tensor] = {}
        networks = super().build()
        representation_width(networks["task"], self.num_features)  # raises an error if there is no representation
        return networks

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the mean risk plus the three weighted bottleneck terms."""
        task = backbone(self.networks["task"].train())
        losses, xs, zs, ys = {}, [], [], []
        for source, edges in pairs:
            z, y = task.embed(source.domain.x, edges), source.domain.labels()
            logits = task.read(z, edges).index_select(0, source.train)
            losses[f"loss {source.domain.name}"] = F.cross_entropy(logits, y[source.train])
            drawn = source.train[
                torch.rand(len(source.train), device=self.device).argsort()[: int(self.hparams["nodes"])]
            ]
            xs.append(self.inputs(source)[drawn])
            zs.append(z[drawn])
            ys.append(y[drawn])
        x, z, y = torch.cat(xs), torch.cat(zs), torch.cat(ys)
        terms = {
            "individual": dependence(gaussian(x), gaussian(z)),
            "structural": dependence(cosine(x), cosine(z)),
            "relations": relation_loss(z, y),
        }
        bottleneck = sum(float(self.hparams[name]) * term for name, term in terms.items())
        self.step("task", torch.stack(list(losses.values())).mean() + bottleneck)
        return {name: value.detach() for name, value in (losses | terms).items()}

    def inputs(self, source: Source) -> Tensor:
        """Return the projected features of a source's nodes. Those of whole graphs are cached."""
        name = source.domain.name
        if not source.batch and name in self.projected:
            return self.projected[name]
        with torch.no_grad():
            out: Tensor = source.domain.x @ self.projection
        if not source.batch:
            self.projected[name] = out
        return out


def gaussian(x: Tensor) -> Tensor:
    """Return the Gaussian kernel matrix of the rows of x.

    k_ij = exp(-‖x_i - x_j‖² / m), where m is the mean of all ‖x_i - x_j‖² with i ≠ j. It does not depend on the scale
    of x.
    """
    inner = x @ x.T
    squares = inner.diagonal()
    distance = (squares[:, None] + squares - 2 * inner).clamp_min(0)
    mean = distance.sum() / (len(x) * (len(x) - 1))
    return torch.exp(-distance / mean.clamp_min(1e-12))


def cosine(x: Tensor) -> Tensor:
    """Return the cosine similarities of the rows of x."""
    unit = F.normalize(x, dim=1)
    return unit @ unit.T


def centred(kernel: Tensor) -> Tensor:
    """Return a kernel matrix with a zero diagonal, centred for the unbiased estimate of HSIC.

    Raises:
        InputError: The matrix has fewer than 4 rows.
    """
    n = len(kernel)
    if n < 4:
        raise InputError(f"HSIC needs at least 4 nodes, got {n}")
    off = 1 - torch.eye(n, dtype=kernel.dtype, device=kernel.device)
    kernel = kernel * off
    rows = kernel.sum(1) / (n - 2)
    return (kernel - rows[:, None] - rows + kernel.sum() / ((n - 1) * (n - 2))) * off


def hsic(k: Tensor, l: Tensor) -> Tensor:  # noqa: E741
    """Return the unbiased estimate of HSIC from two kernel matrices of the same nodes (Song et al., JMLR 2012)."""
    return (centred(k) * centred(l)).sum() / (len(k) * (len(k) - 3))


def dependence(k: Tensor, l: Tensor) -> Tensor:  # noqa: E741
    """Return HSIC(k, l) / √(HSIC(k, k) HSIC(l, l)): about 0 for independent variables, 1 for equal ones."""
    k, l = centred(k), centred(l)  # noqa: E741
    size = torch.sqrt((k.square().sum() * l.square().sum()).clamp_min(1e-12))
    return (k * l).sum() / size


def relation_loss(z: Tensor, y: Tensor) -> Tensor:
    """Return the loss of predicting from z whether pairs of nodes have the same class.

    The probability of the same class is σ(⟨z_i, z_j⟩), i ≠ j. The loss is the mean of its -log over the pairs of the
    same class, plus the mean of -log of its complement over the other pairs.
    """
    inner = z @ z.T
    alike = y[:, None] == y
    itself = torch.eye(len(y), dtype=torch.bool, device=y.device)

    def mean(values: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, values, 0).sum() / mask.sum().clamp_min(1)

    return mean(F.softplus(-inner), alike & ~itself) + mean(F.softplus(inner), ~alike)


STATUS = "partial: the four terms of the paper; measuring compression by HSIC and the weights are our own choices"
CITATION = "Yang et al., Individual and Structural Graph Information Bottlenecks, TKDE 2023"
SUMMARY = "compresses features and their relations (HSIC) and keeps whether pairs share a class"
