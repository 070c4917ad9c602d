"""Train on the CSV exports of two years, and predict the third year."""

from pathlib import Path

import pandas as pd

from edgemask import EdgeMaskClassifier

folder = Path(__file__).parent / "customers"
years = [[pd.read_csv(folder / f"{table}_{year}.csv") for table in ("people", "calls")] for year in (2021, 2022, 2023)]
options = {"id": "customer", "label": "plan", "source": "caller", "destination": "callee", "weight": "hours"}
model = EdgeMaskClassifier("erm-sage", epochs=60, read=options | {"undirected": True})
model.fit([tuple(year) for year in years[:2]])
people, calls = years[2]
print(people.assign(predicted=model.predict((people, calls))).head(3))
print(f"accuracy {model.score((people, calls)):.2f}")
