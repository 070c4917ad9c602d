"""Print one table of the paper from the records of this repository, with its figure, without running anything.

`python -m examples.one_table` runs it from the root of a checkout, where the folder `paper` is.
"""

from pathlib import Path

from edgemask.experiments.records import ResultStore
from edgemask.report.render import markdown, statistics_markdown
from edgemask.report.statistics import compare
from paper.figures import draw
from paper.suites import suite

NAME = "ablation_lambda"  # `edgemask reproduce` lists the names
store = ResultStore(Path("results"))
for table in suite(NAME).comparisons(store):
    print(markdown(table))
    if table.tested:
        print(statistics_markdown(compare(table)))
Path("out").mkdir(exist_ok=True)
Path("out", f"{NAME}.svg").write_text(draw(NAME, store), encoding="utf-8")
