"""Train on a list of PyTorch Geometric graphs and predict another one."""

import torch
from torch_geometric.data import Data

from edgemask import EdgeMaskClassifier


def school(seed):
    torch.manual_seed(seed)
    y = torch.randint(3, (200,))
    return Data(x=torch.randn(200, 3) + 2 * torch.eye(3)[y], edge_index=torch.randint(200, (2, 600)), y=y)


model = EdgeMaskClassifier("erm-sage", epochs=30, read={"self_loops": "drop", "duplicates": "merge"})
model.fit([school(0), school(1)])
print(f"accuracy {model.score(school(2)):.2f}, classes {model.predict(school(2))[:3]}")
