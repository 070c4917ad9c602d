"""The commands `reproduce`, `slurm` and `report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from edgemask.cli.common import DataRoot, Device, Jobs, Offline, Ray, err, out, wide, writable_folder
from edgemask.cli.comparisons import described
from edgemask.cli.json_output import Json, output
from edgemask.cli.paper import in_checkout, paper
from edgemask.cli.running import open_store, print_rejected, run_tasks
from edgemask.data import benchmark
from edgemask.errors import InputError
from edgemask.experiments.records import ResultStore
from edgemask.experiments.runner import Settings
from edgemask.experiments.slurm import job_file
from edgemask.experiments.slurm import shard as part
from edgemask.experiments.stored import OWN
from edgemask.report.comparison import Comparison
from edgemask.report.page import benchmark_sections, own_sections, write_report
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
from edgemask.runtime.atomic import replacing, writable
from edgemask.runtime.device import resolve_device

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
    target: Annotated[Path, typer.Option("--output", "-o", help="Folder in which to write tables and figures.")] = Path(
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
    json: Json = False,
) -> None:
    """Reproduce tables and figures of the paper.

    Runs the experiments behind a table or figure and shows the results beside those of the paper. Without a NAME, all
    tables and figures are listed. A run that already has a record is not run again, so after an interruption the same
    command continues.
    """
    suites = paper("suites")
    with output("reproduce", json) as result:
        if not names:
            listed = [_suite(suites.SUITES[name]) for name in suites.SUITES]
            result.show({"suites": listed, "report": None}, lambda: wide().print(_listing(listed)))
            return
        names = list(suites.SUITES) if "all" in names else names
        tasks = [t for t in suites.all_tasks(names) if seeds is None or t.seed < seeds]
        if shard is not None:
            number, _, count = shard.partition("/")
            if not (number.isdigit() and count.isdigit()):
                raise InputError(f"--shard must be I/N with two numbers, for example 0/4, got {shard!r}")
            tasks = part(tasks, int(number), int(count))
        if ray is None:
            resolve_device(device)
        if shard is None:
            writable_folder(target)
        settings = Settings(data_root, offline or None, device)
        store, code = open_store(results), 0
        if not only_show:
            writable_folder(results)
            code = run_tasks(tasks, store, settings, jobs, ray)
            store = ResultStore(results)  # other processes may have written records meanwhile
        shown = [] if shard is not None else [_written(name, store, target, settings) for name in names]
        if shard is None and len(names) == len(suites.SUITES):
            paper("figures").save("flow", store, target / "flow.svg")
        page = _page(store, target / "report.html") if with_report and shard is None else None
        fields = [
            _suite(suite) | {"tables": list(map(described, tables)), "files": files} for suite, tables, files in shown
        ]

        def print_suites() -> None:
            for suite, tables, files in shown:
                for table in tables:
                    wide().print(rich_table(table))
                empty = f"{suite.name}: {EMPTY.get(suite.name, 'nothing to show')}"
                message = f"{target / suite.name}.*" if files else empty
                out.print(message, soft_wrap=True)
            if page is not None:
                _print_page(page)

        result.show({"suites": fields, "report": page and page["output"]}, print_suites)
    if code:
        raise typer.Exit(code)


def _suite(suite: Any) -> dict[str, Any]:
    """Return a suite as JSON values, without results."""
    return {"name": suite.name, "title": suite.title, "runs": len(suite.tasks()), "tables": [], "files": []}


def _listing(suites: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of all suites."""
    listing = Table(title="tables and figures", title_justify="left")
    for column in ("name", "description", "runs"):
        listing.add_column(column, justify="right" if column == "runs" else "left", overflow="fold")
    for suite in suites:
        listing.add_row(suite["name"], suite["title"], str(suite["runs"]))
    return listing


def _written(
    name: str, store: ResultStore, target: Path, settings: Settings
) -> tuple[Any, list[Comparison], list[Path]]:
    """Write the tables and figures of a suite, and return the suite, its tables and the files with the tables."""
    suite, figures = paper("suites").suite(name), paper("figures")
    absent = [temporal for temporal in TEMPORAL if not benchmark(temporal).available(settings.store())]
    known = len(store.rejected)
    tables = suite.comparisons(store, absent)
    print_rejected(store, known)
    versus = [v for table in tables for v in (compare(table) if table.tested else [])]
    forms = {
        "md": "\n\n".join([markdown(t) for t in tables] + ([statistics_markdown(versus)] if versus else [])),
        "tex": "\n\n".join([latex(t) for t in tables] + ([statistics_latex(versus)] if versus else [])),
        "csv": "\n".join(csv_text(t) for t in tables),
        "tests.csv": statistics_csv(versus) if versus else "",
    }
    files = {target / f"{name}.{suffix}": text for suffix, text in forms.items() if text}
    for path, text in files.items():
        with replacing(path, text=True) as sink:
            sink.write(text)
    if name in figures.FIGURES and any(t.keys or name == "complexity" for t in tables):
        figures.save(name, store, target / f"{name}.svg")
    return suite, tables, list(files)


@app.command()
def slurm(
    names: Annotated[list[str], typer.Argument(help="Names of tables or figures, or `all`.", metavar="NAME")],
    target: Annotated[Path, typer.Option("--output", "-o", help="Where to write the job file.")] = Path(
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
    json: Json = False,
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
    writable(target)
    if minutes is None or memory_mib is None:
        err.print("predicting time and memory on this machine (give --minutes and --memory-mib to skip this)")
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
    with replacing(target, text=True) as sink:
        sink.write(text)
    with output("slurm", json) as result:
        command = f"sbatch {target}"
        result.show(
            {"output": target, "command": command, "runs": len(tasks)},
            lambda: out.print(f"submit with: {command}", soft_wrap=True),
        )


@app.command()
def report(
    target: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path("out/report.html"),
    results: Results = Path("results"),
    json: Json = False,
) -> None:
    """Write an HTML page with all tables, figures, runs and masks.

    The page is one file and needs no network. If edgemask does not run from a checkout of its repository, the page
    shows a table for each benchmark instead of the tables of the paper.
    """
    writable(target)
    with output("report", json) as result:
        page = _page(open_store(results), target)
        result.show(page, lambda: _print_page(page))


def _page(store: ResultStore, target: Path) -> dict[str, Any]:
    """Write the report page, and return its file name, number of records and size."""
    if not len(store):
        raise InputError(
            f"there are no records in {store.root}: `edgemask bench`, `compare` and `reproduce` write them"
        )
    sections = benchmark_sections(store)
    if in_checkout() and any(record["benchmark"] != OWN for record in store):
        sections = [*paper("suites").sections(store, TEMPORAL), *own_sections(store)]
    path = write_report(store, sections, target)
    return {"output": path, "records": len(store), "bytes": path.stat().st_size}


def _print_page(page: Mapping[str, Any]) -> None:
    text = f"{page['output']}: {page['records']} records, {page['bytes'] / 2**20:.1f} MiB"
    out.print(text, soft_wrap=True)
