"""The stock implementation: PyTorch Geometric's GATConv with the mask as edge attribute, and dense features.

Its MaskNet concatenates the features of both ends of every edge.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from edgemask.config import Recipe


class StockTaskNet(nn.Module):
    """The recipe's two-layer GAT, built from stock layers.

    Args:
        recipe: The settings.
        inputs: Number of input features.
        classes: Number of classes.
    """

    def __init__(self, recipe: Recipe, inputs: int, classes: int):
        super().__init__()
        settings = {"heads": recipe.heads, "edge_dim": 1, "fill_value": 1.0, "dropout": recipe.attention_dropout}
        self.first = GATConv(inputs, recipe.hidden, **settings)
        self.second = GATConv(recipe.heads * recipe.hidden, recipe.hidden, concat=False, **settings)
        self.out = nn.Linear(recipe.hidden, classes)
        self.dropout = recipe.dropout

    def forward(self, x: Tensor, edge_index: Tensor, s: Tensor) -> Tensor:
        """Return the logits of all nodes under the mask `s`.

        Args:
            x: Features of the nodes.
            edge_index: Edges of the graph (2 × M).
            s: Mask, one value per edge.
        """
        h = F.dropout(F.elu(self.first(x, edge_index, s)), self.dropout, self.training)
        h = F.dropout(F.elu(self.second(h, edge_index, s)), self.dropout, self.training)
        logits: Tensor = self.out(h)
        return logits


class StockMaskNet(nn.Module):
    """s_uv = σ(g([z_u, z_v])), computed literally with an edges × 2d' matrix."""

    def __init__(self, recipe: Recipe, inputs: int):
        super().__init__()
        self.project = nn.Linear(inputs, recipe.mask_projection)
        self.score = nn.Sequential(
            nn.Linear(2 * recipe.mask_projection, recipe.mask_hidden), nn.ReLU(), nn.Linear(recipe.mask_hidden, 1)
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the mask of all edges."""
        z = F.relu(self.project(x))
        s: Tensor = self.score(torch.cat([z[edge_index[0]], z[edge_index[1]]], dim=1)).sigmoid()
        return s


class StockGame:
    """Both networks and their optimisers on one graph, with the same steps as `edgemask.methods.edgemask.Game`.

    Args:
        recipe: The settings.
        x: Features of the nodes.
        edge_index: Edges of the graph (2 × M).
        y: Class of each node.
        train: Nodes that the loss uses.
        classes: Number of classes.
    """

    def __init__(self, recipe: Recipe, x: Tensor, edge_index: Tensor, y: Tensor, train: Tensor, classes: int):
        torch.manual_seed(0)
        self.recipe, self.x, self.edge_index, self.y, self.train = recipe, x, edge_index, y[train], train
        self.task = StockTaskNet(recipe, x.shape[1], classes).to(x.device)
        self.mask = StockMaskNet(recipe, x.shape[1]).to(x.device)
        self.task_optimiser = torch.optim.Adam(self.task.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
        self.mask_optimiser = torch.optim.Adam(self.mask.parameters(), recipe.mask_lr)
        with torch.no_grad():
            self.s = self.mask(x, edge_index)

    def descent(self) -> None:
        """Take one step of the TaskNet."""
        loss = F.cross_entropy(self.task.train()(self.x, self.edge_index, self.s)[self.train], self.y)
        self.task_optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.task_optimiser.step()

    def ascent(self) -> None:
        """Take one step of the MaskNet."""
        s = self.mask(self.x, self.edge_index)
        task = self.task.eval().requires_grad_(False)
        loss = F.cross_entropy(task(self.x, self.edge_index, s)[self.train], self.y)
        task.requires_grad_(True)
        self.mask_optimiser.zero_grad(set_to_none=True)
        (-loss + self.recipe.lam * s.mean()).backward()
        self.mask_optimiser.step()
