"""The min-max game in plain PyTorch: a MaskNet hides edges, and a GCN learns to stay accurate without them."""

import torch
import torch.nn.functional as F

from edgemask import benchmark
from edgemask.nn import GCN, Edges, MaskNet, budget_mask

RHO, EPOCHS = 0.6, 60  # the mean mask that the adversary must keep; epochs
torch.manual_seed(0)


def load(graph):
    x, edge_index, y = (torch.tensor(values) for values in (graph.x, graph.edges, graph.y))
    return x, Edges.of(edge_index, graph.num_nodes), y


*sources, target = map(load, benchmark("synthetic").load(nodes=500).values())
classes = int(max(y.max() for _, _, y in sources)) + 1
task, masknet = GCN(target[0].shape[1], 32, classes), MaskNet(target[0].shape[1])
task_adam, mask_adam = torch.optim.Adam(task.parameters(), 0.01), torch.optim.Adam(masknet.parameters(), 0.001)

for _ in range(EPOCHS):
    for x, edges, y in sources:
        mask = budget_mask(masknet(x, edges), RHO)
        loss = F.cross_entropy(task(x, edges, mask=mask.detach()), y)  # the GCN descends
        task_adam.zero_grad()
        loss.backward()
        task_adam.step()
        gain = F.cross_entropy(task(x, edges, mask=mask), y)  # the MaskNet ascends
        mask_adam.zero_grad()
        (-gain).backward()
        mask_adam.step()

x, edges, y = target
with torch.no_grad():
    accuracy = (task.eval()(x, edges).argmax(1) == y).float().mean()
print(f"loss {loss:.3f}, mean mask {mask.mean():.3f}, accuracy on the unseen graph {accuracy:.3f}")
