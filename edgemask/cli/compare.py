"""The command `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.table import Table

from edgemask.cli.common import (
    GRAPH_FORMS,
    Candidates,
    Device,
    Jobs,
    Ray,
    Reading,
    Settings,
    check_inputs,
    out,
    reading,
    split_names,
    wide,
    writable_folder,
)
from edgemask.cli.comparisons import described
from edgemask.cli.completion import FIT_METHODS, METRIC_NAMES
from edgemask.cli.json_output import Json, output
from edgemask.cli.running import open_store, run_tasks
from edgemask.config import parse_settings
from edgemask.estimator import AUTO
from edgemask.experiments import runner
from edgemask.experiments.own import check_values, task_frame
from edgemask.experiments.records import ResultStore
from edgemask.experiments.study import Study, makers
from edgemask.report.own import paired, table
from edgemask.report.page import Section, write_report
from edgemask.report.render import p_text, rich_table
from edgemask.runtime.atomic import writable
from edgemask.runtime.device import resolve_device

app = typer.Typer()


@app.command()
def compare(
    graphs: Annotated[list[Path], typer.Argument(help=f"Labelled graphs, each {GRAPH_FORMS}.", metavar="GRAPH...")],
    target: Annotated[
        list[Path] | None,
        typer.Option(help="A labelled graph to score (default: each GRAPH is left out in turn). Can be repeated."),
    ] = None,
    validation: Annotated[
        list[Path] | None, typer.Option(help="A labelled graph that is used for selection only. Can be repeated.")
    ] = None,
    method: Annotated[
        list[str],
        typer.Option(
            help="`auto`, a method (`edgemask methods` lists them), or a recipe of edgemask-dg-star: robust, paper or "
            "released. Settings may follow, as in `edgemask-dg:rho=0.7`. Can be repeated.",
            autocompletion=FIT_METHODS,
        ),
    ] = [AUTO],  # noqa: B006
    seeds: Annotated[int, typer.Option(min=1, help="Run each method with the seeds 0 to SEEDS - 1.")] = 5,
    metric: Annotated[
        list[str],
        typer.Option(help="A metric. Selection maximises the first one. Can be repeated.", autocompletion=METRIC_NAMES),
    ] = ["micro_f1"],  # noqa: B006
    settings: Settings = [],  # noqa: B006
    candidates: Candidates = None,
    read: Reading = [],  # noqa: B006
    scale: Annotated[
        bool, typer.Option("--scale/--no-scale", help="Standardise numeric feature columns that have names.")
    ] = True,
    references: Annotated[
        bool,
        typer.Option(
            "--references/--no-references",
            help="Also run the references: the majority class, erm-mlp and erm-gcn-enriched.",
        ),
    ] = True,
    results: Annotated[Path, typer.Option(help="Folder in which graphs and records are stored.")] = Path(
        "edgemask-compare"
    ),
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write an HTML page with the table, runs and curves.")
    ] = None,
    jobs: Jobs = None,
    ray: Ray = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Compare methods on your own graphs.

    Without a target, each graph is left out in turn: methods are trained on the others and scored on this one. Training
    and selection never see a label of the graph that is scored. Every run is stored as one record. A run that already
    has a record is not run again.
    """
    check_values(metric, seeds)
    made = makers(method, parse_settings(settings), candidates=split_names(candidates), references=references)
    options = reading(read)
    if ray is None:
        resolve_device(device)
    check_inputs([*graphs, *(target or ()), *(validation or ())])
    writable_folder(results)
    if report is not None:
        writable(report)
    with output("compare", json) as result:
        study = Study.of(
            graphs, target or None, validation or None, metrics=metric, seeds=seeds, read=options, scale=scale
        )
        study.store(results)
        tasks = study.tasks(made)
        everything = [task for own in tasks.values() for task in own]
        code = run_tasks(everything, open_store(results), runner.Settings(results, True, device), jobs, ray)
        store = ResultStore(results)
        frame = task_frame(tasks, store)
        title = f"{study.options['split']}: {', '.join(study.graphs)}"
        tables = [table(frame, title=f"{title}; {m}, percent", metric=m) for m in metric]
        tests = {m: paired(frame, metric=m) for m in metric}
        if report is not None:
            write_report(store, [Section("own", "own graphs", tables)], report)
        failures = frame[frame["failed"] != ""].drop_duplicates(["method", "protocol", "seed"])
        fields: dict[str, Any] = {
            "graphs": study.options["graphs"],
            "split": study.options["split"],
            "results": results,
            "report": report,
            "runs": frame.to_dict("records"),
            "tables": [described(t) for t in tables],
            "tests": [row | {"metric": m} for m, own in tests.items() for row in own.to_dict("records")],
            "failures": [
                f"{r['method']} {r['protocol']} seed {r['seed']}: {r['failed']}" for _, r in failures.iterrows()
            ],
        }

        def print_text() -> None:
            for own, name in zip(tables, metric, strict=True):
                wide().print(rich_table(own))
                if len(tests[name]):
                    wide().print(_tests(tests[name]))
            _print_lines(fields)

        result.show(fields, print_text)
    if code:
        raise typer.Exit(code)


def _tests(tests: pd.DataFrame) -> Table:
    """Return the paired tests as a table."""
    shown = Table(title=f"difference to {tests['reference'].iloc[0]}, percentage points", title_justify="left")
    for column in ("method", "difference", "95 % interval", "p", "adjusted p", "pairs"):
        shown.add_column(column, justify="left" if column == "method" else "right", overflow="fold")
    for row in tests.to_dict("records"):
        interval = "–" if pd.isna(row["low"]) else f"{row['low']:.1f} to {row['high']:.1f}"
        numbers = [f"{row['difference']:+.1f}", interval, p_text(row["p"]), p_text(row["adjusted"])]
        shown.add_row(row["method"], *(numbers if row["pairs"] else ["–"] * 4), str(row["pairs"]))
    return shown


def _print_lines(fields: Mapping[str, Any]) -> None:
    """Print failures and the places of records and report."""
    lines: Sequence[str] = [*fields["failures"], f"records: {fields['results']}"]
    for line in [*lines, *([f"report: {fields['report']}"] if fields["report"] else [])]:
        out.print(line, soft_wrap=True)
