"""The commands `reproduce`, `slurm` and `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from edgemask.cli.common import DataRoot, Device, Jobs, Offline, Ray, err, out, wide
from edgemask.cli.paper import in_checkout, paper
from edgemask.cli.running import open_store, print_rejected, run_tasks
from edgemask.data import benchmark
from edgemask.errors import InputError
from edgemask.experiments.records import ResultStore
from edgemask.experiments.runner import Settings
from edgemask.experiments.slurm import job_file
from edgemask.experiments.slurm import shard as part
from edgemask.report.page import benchmark_sections, write_report
from edgemask.report.render import (
    csv_text,
    latex,
    markdown,
    rich_table,
    statistics_csv,
    statistics_latex,
    statistics_markdown,
)
from edgemask.report.statistics import compare

app = typer.Typer()
Results = Annotated[Path, typer.Option(help="Folder in which the records are stored.")]
TEMPORAL = ("elliptic", "arxiv")
EMPTY = {  # messages for suites that may have no table
    "complexity": "there are no growth records: `python -m benchmarks --part growth` writes them",
    "explorer": "the report page shows its runs",
}


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of tables or figures, or `all`.", metavar="NAME")
    ] = None,
    results: Results = Path("results"),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder in which to write tables and figures.")] = Path(
        "out"
    ),
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Use only the first SEEDS seeds of each run (default: all).")
    ] = None,
    only_show: Annotated[
        bool, typer.Option("--only-show", help="Run nothing. Show only the results that are recorded.")
    ] = False,
    with_report: Annotated[
        bool, typer.Option("--report", help="Also write the report page (`edgemask report`) to the output folder.")
    ] = False,
    jobs: Jobs = None,
    ray: Ray = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Split the runs into N equal parts and run only part I, counted from 0."),
    ] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Reproduce tables and figures of the paper.

    Runs the experiments behind a table or figure and shows the results beside those of the paper. Without a NAME, all
    tables and figures are listed. A run that already has a record is not run again, so after an interruption the same
    command continues.
    """
    suites = paper("suites")
    if not names:
        listing = Table(title="tables and figures", title_justify="left")
        for column in ("name", "description", "runs"):
            listing.add_column(column, justify="right" if column == "runs" else "left", overflow="fold")
        for suite in suites.SUITES.values():
            listing.add_row(suite.name, suite.title, str(len(suite.tasks())))
        wide().print(listing)
        return
    names = list(suites.SUITES) if "all" in names else names
    tasks = [t for t in suites.all_tasks(names) if seeds is None or t.seed < seeds]
    if shard is not None:
        number, _, count = shard.partition("/")
        if not (number.isdigit() and count.isdigit()):
            raise InputError(f"--shard must be I/N with two numbers, for example 0/4, got {shard!r}")
        tasks = part(tasks, int(number), int(count))
    settings = Settings(data_root, offline or None, device)
    store, code = open_store(results), 0
    if not only_show:
        code = run_tasks(tasks, store, settings, jobs, ray)
        store = ResultStore(results)  # other processes may have written records meanwhile
    if shard is None:
        _show(names, store, output, settings)
        if with_report:
            out.print(_page(store, output / "report.html"), highlight=False, soft_wrap=True)
    if code:
        raise typer.Exit(code)


def _show(names: list[str], store: ResultStore, output: Path, settings: Settings) -> None:
    """Print the tables of some suites, and write the tables and figures to files."""
    suites, figures = paper("suites"), paper("figures")
    absent = [name for name in TEMPORAL if not benchmark(name).available(settings.store())]
    output.mkdir(parents=True, exist_ok=True)
    for name in names:
        known = len(store.rejected)
        tables = suites.suite(name).comparisons(store, absent)
        print_rejected(store, known)
        for table in tables:
            wide().print(rich_table(table))
        versus = [v for table in tables for v in (compare(table) if table.tested else [])]
        forms = {
            "md": "\n\n".join([markdown(t) for t in tables] + ([statistics_markdown(versus)] if versus else [])),
            "tex": "\n\n".join([latex(t) for t in tables] + ([statistics_latex(versus)] if versus else [])),
            "csv": "\n".join(csv_text(t) for t in tables),
            "tests.csv": statistics_csv(versus) if versus else "",
        }
        written = {suffix: text for suffix, text in forms.items() if text}
        for suffix, text in written.items():
            (output / f"{name}.{suffix}").write_text(text, encoding="utf-8")
        if name in figures.FIGURES and any(t.keys or name == "complexity" for t in tables):
            figures.save(name, store, output / f"{name}.svg")
        message = f"{output / name}.*" if written else f"{name}: {EMPTY.get(name, 'nothing to show')}"
        out.print(message, markup=False, highlight=False, soft_wrap=True)
    if len(names) == len(suites.SUITES):
        figures.save("flow", store, output / "flow.svg")


@app.command()
def slurm(
    names: Annotated[list[str], typer.Argument(help="Names of tables or figures, or `all`.", metavar="NAME")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the job file.")] = Path(
        "out/edgemask.sbatch"
    ),
    results: Results = Path("results"),
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Use only the first SEEDS seeds of each run (default: all).")
    ] = None,
    elements: Annotated[
        int | None, typer.Option(min=1, help="Number of elements of the array job (default: one per run, at most 32).")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of parallel processes in each element.")] = 1,
    cpus: Annotated[int, typer.Option(min=1, help="Number of CPU cores of each element.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="Number of GPUs of each element.")] = 0,
    partition: Annotated[str | None, typer.Option(help="The partition of the cluster.")] = None,
    minutes: Annotated[
        int | None, typer.Option(min=1, help="Time limit of an element (default: predicted on this machine).")
    ] = None,
    memory_mib: Annotated[
        int | None, typer.Option(min=1, help="Memory of an element in MiB (default: predicted on this machine).")
    ] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Write a Slurm job file that runs tables and figures of the paper.

    The job is an array job. All its elements write their records to the same folder.
    """
    suites = paper("suites")
    names = list(suites.SUITES) if "all" in names else names
    tasks = [t for t in suites.all_tasks(names) if seeds is None or t.seed < seeds]
    if device not in ("auto", "cpu") and not device.startswith(
        "cuda"
    ):  # the device is that of the nodes; it need not exist on this machine
        raise InputError(f"device must be auto, cpu or cuda, got {device!r}")
    if minutes is None or memory_mib is None:
        err.print(
            "predicting time and memory on this machine (give --minutes and --memory-mib to skip this)", highlight=False
        )
    text = job_file(
        names,
        tasks,
        Settings(data_root, offline or None, device),
        results=results,
        elements=elements,
        seeds=seeds,
        jobs=jobs,
        cpus=cpus,
        gpus=gpus,
        partition=partition,
        minutes=minutes,
        memory_mib=memory_mib,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    out.print(f"submit with: sbatch {output}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path("out/report.html"),
    results: Results = Path("results"),
) -> None:
    """Write an HTML page with all tables, figures, runs and masks.

    The page is one file and needs no network. If edgemask does not run from a checkout of its repository, the page
    shows a table for each benchmark instead of the tables of the paper.
    """
    out.print(_page(open_store(results), output), highlight=False, soft_wrap=True)


def _page(store: ResultStore, output: Path) -> str:
    """Write the report page, and return its file name, number of records and size."""
    if not len(store):
        raise InputError(f"there are no records in {store.root}: `edgemask bench` and `edgemask reproduce` write them")
    sections = paper("suites").sections(store, TEMPORAL) if in_checkout() else benchmark_sections(store)
    path = write_report(store, sections, output)
    return f"{path}: {len(store)} records, {path.stat().st_size / 2**20:.1f} MiB"
