"""Compare methods on your own graphs: a table, paired tests, and a plot with intervals."""

from pathlib import Path

import matplotlib.pyplot as plt

from edgemask import compare
from edgemask.report.own import paired

folder = Path(__file__).parent / "customers"
years = [f"{folder}/people_{year}.csv,{folder}/calls_{year}.csv" for year in (2021, 2022, 2023)]
read = {"id": "customer", "label": "plan", "source": "caller", "destination": "callee", "weight": "hours"}
read["undirected"] = True
frame = compare(years, ["erm-sage", "erm-gcn"], seeds=3, settings={"epochs": 30, "clusters": 20}, read=read)
tests = paired(frame)
print(frame.groupby("method")["micro_f1"].agg(["mean", "std"]).sort_values("mean", ascending=False).round(3))
print(tests.round(3).to_string(index=False))

means = frame.groupby(["method", "seed"])["micro_f1"].mean().unstack().T
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
order = means.mean().sort_values().index
axes.errorbar(means[order].mean(), range(len(order)), xerr=means[order].std(), fmt="o", color="#0072b2")
axes.set_yticks(range(len(order)), order)
axes.set(xlabel="micro-F1 on the year that is left out, mean ± standard deviation over seeds")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/compare_methods.png", dpi=150)
