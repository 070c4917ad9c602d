"""Explain a prediction: the edges that it depends on, and what happens if each is removed."""

from pathlib import Path

import matplotlib.pyplot as plt

from edgemask import EdgeMaskClassifier, benchmark

graphs = benchmark("synthetic").load(nodes=300)
model = EdgeMaskClassifier("erm-gcn", epochs=60).fit([graphs["alpha"], graphs["beta"]])
node = 7
edges = model.explain(graphs["gamma"], nodes=[node]).dropna(subset="change").sort_values("change")  # the strongest
print(edges[["neighbour", "class", "probability", "derivative", "change"]].round(4).to_string(index=False))

figure, axes = plt.subplots(figsize=(6, 0.3 * len(edges) + 1.2), layout="constrained")
axes.barh(edges["neighbour"].astype(str), 100 * edges["change"], color="#0072b2")
axes.axvline(0, color="#1b1b1b", linewidth=0.8)
axes.set(
    xlabel="change of the predicted probability if the edge is removed, points", ylabel=f"neighbour of node {node}"
)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/explain.png", dpi=150)
