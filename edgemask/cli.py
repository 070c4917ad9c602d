"""The command line: parses, calls, prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from edgemask._version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Graph domain generalisation: train a node classifier on a few labelled graphs, "
    "use it on a graph it has never seen.",
)
data_app = typer.Typer(no_args_is_help=True, help="The benchmarks' data: list, describe, verify, fetch.")
app.add_typer(data_app, name="data")
out = Console()
err = Console(stderr=True)

DataRoot = Annotated[
    Path | None, typer.Option(help="Folder of the data [default: $EDGEMASK_DATA, else the user cache].")
]
Offline = Annotated[bool, typer.Option("--offline", help="Never go to the network.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto (cuda where there is one).")]
Seed = Annotated[int, typer.Option(help="All randomness derives from it.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Override a recipe's setting; repeatable.")
]
RecipeName = Annotated[str, typer.Option("--recipe", help="robust, paper or released.")]


def main() -> None:
    """Run the command line; what the user got wrong is one line on stderr and exit status 2."""
    from edgemask.data.store import DataError

    try:
        app()
    except (ValueError, DataError, OSError) as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)


@app.command()
def version() -> None:
    """Print the version."""
    out.print(__version__)


# ---- data ------------------------------------------------------------------------------------------------


@data_app.command("list")
def data_list(data_root: DataRoot = None) -> None:
    """List the benchmarks and how much of each is in the data root."""
    from edgemask.data import BENCHMARKS, Store

    store = Store(data_root, offline=True)
    table = Table(title=f"benchmarks (data root {escape(str(store.root))})", title_justify="left")
    for column in ("name", "what", "domains here", "missing files"):
        table.add_column(column, overflow="fold")
    for benchmark in BENCHMARKS.values():
        here = benchmark.available(store)
        absent = sorted(
            {f.path for d in benchmark.domains if d not in here for f in benchmark.files(d) if not store.has(f)}
        )
        shown = ", ".join(absent[:3]) + (f", … ({len(absent)} files)" if len(absent) > 3 else "")
        table.add_row(benchmark.name, benchmark.card.title, f"{len(here)} of {len(benchmark.domains)}", shown or "–")
    _wide().print(table)


@data_app.command("info")
def data_info(name: str, data_root: DataRoot = None) -> None:
    """Print a benchmark's data card, protocols, options and files."""
    from edgemask.data import Store, benchmark

    bench, store = benchmark(name), Store(data_root, offline=True)
    card = Table(show_header=False, box=None, pad_edge=False)
    card.add_column(style="bold", no_wrap=True)
    card.add_column(overflow="fold")
    for field in ("title", "nodes", "edges", "features", "labels", "shift", "split", "metric", "licence", "origin"):
        card.add_row(field, getattr(bench.card, field))
    card.add_row("citation", bench.card.citation)
    if bench.card.notes:
        card.add_row("notes", bench.card.notes)
    here = bench.available(store)
    for protocol in bench.protocols:
        parts = [f"train {', '.join(protocol.sources)}"]
        parts += [f"validate {', '.join(protocol.validation)}"] if protocol.validation else []
        absent = [t for t in protocol.domains if t not in here]
        note = f" [data not available: {', '.join(absent)}]" if absent else ""
        targets = f"test {', '.join(protocol.targets)}"
        card.add_row(
            "protocol", f"{protocol.name}: {'; '.join([*parts, targets])}; {', '.join(protocol.metrics)}{note}"
        )
    for option, default in bench.options.items():
        card.add_row("option", f"{option} = {default!r}")
    for file in _files([name]):
        card.add_row("file", f"{file.path} ({'here' if store.has(file) else 'missing'})")
    out.print(card, markup=False, highlight=False)


@data_app.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks [default: all].")] = None,
    data_root: DataRoot = None,
) -> None:
    """Check every file against its checksum; exit status 1 when a file is altered."""
    from edgemask.data import Store

    store, altered = Store(data_root, offline=True), 0
    for file in _files(names):
        status = store.status(file)
        altered += status == "altered"
        colour = {"present": "green", "missing": "yellow", "altered": "bold red"}[status]
        out.print(f"[{colour}]{status:8}[/] {file.path}", highlight=False)
        if status == "altered":
            try:
                store.get(file)
            except RuntimeError as error:
                out.print(f"         {escape(str(error))}", highlight=False, soft_wrap=True)
    if altered:
        raise typer.Exit(1)


@data_app.command("fetch")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks [default: all].")] = None,
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Fetch what is missing from its public origin, verified before it is put in place."""
    from edgemask.data import DataError, Store

    store, failed = Store(data_root, offline=offline or None), 0
    for file in _files(names):
        try:
            there = store.has(file)
            path = store.get(file)
            state = "present" if there else "fetched"
            out.print(f"[green]{state}[/] {escape(str(path))}", highlight=False, soft_wrap=True)
        except DataError as error:
            failed += 1
            err.print(f"[bold red]failed[/]  {escape(str(error))}", highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _files(names: Sequence[str] | None) -> list[Any]:
    from edgemask.data import BENCHMARKS, benchmark

    chosen = [benchmark(n) for n in names] if names else list(BENCHMARKS.values())
    return list(dict.fromkeys(f for b in chosen for d in b.domains for f in b.files(d)))


# ---- methods, benchmark runs --------------------------------------------------------------------------------


@app.command()
def methods() -> None:
    """List the methods."""
    from edgemask.methods.registry import METHODS

    table = Table(title="methods", title_justify="left")
    for column in ("name", "what", "citation"):
        table.add_column(column)
    for name, entry in METHODS.items():
        table.add_row(name, entry.summary, entry.citation)
    _wide().print(table)


@app.command()
def bench(
    benchmark: Annotated[str, typer.Argument(help="A benchmark (`edgemask data list`).")],
    method: Annotated[list[str], typer.Option(help="A method (`edgemask methods`); repeatable.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, 0 … n-1.")] = 5,
    protocol: Annotated[list[str] | None, typer.Option(help="Only these protocols.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A stock recipe in place of the method's own.")] = None,
    settings: Settings = [],  # noqa: B006
    option: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="An option of the benchmark; repeatable.")
    ] = [],  # noqa: B006
    results: Annotated[Path, typer.Option(help="Where the records are written.")] = Path("results"),
    device: Device = "auto",
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Run methods under a benchmark's protocols and print the table; one record per run is kept.

    A run whose record is already there is not run again.
    """
    from edgemask.bench.run import Run, execute, load_domains, missing_files, read_record, write_record
    from edgemask.bench.tables import footer, table
    from edgemask.data import Store
    from edgemask.data import benchmark as find
    from edgemask.enrich import default_cache
    from edgemask.estimator import resolve_device
    from edgemask.methods.registry import entry
    from edgemask.recipe import recipe as stock

    source, options = find(benchmark), _pairs(option)
    protocols = [source.protocol(name) for name in protocol] if protocol else source.protocols
    store, where = Store(data_root, offline=offline or None), resolve_device(device)
    own = {name: entry(name).recipe for name in method}
    settled = {name: (stock(recipe) if recipe else r).with_(**_pairs(settings)) for name, r in own.items()}
    labels = {n: n + (f" ({recipe})" if recipe else "") + "".join(f" {s}" for s in settings) for n in method}
    groups: dict[str, list[dict[str, Any]]] = {label: [] for label in labels.values()}
    absent: dict[str, list[str]] = {}
    for p in protocols:
        if lacking := missing_files(source, p, store):
            absent[p.name] = lacking
            continue
        domains = load_domains(source, p, store, options)
        for name, label in labels.items():
            for seed in range(seeds):
                run = Run(benchmark, {**source.options, **options}, p, name, settled[name], seed)
                path = run.path(results, domains)
                if path.exists():
                    record = read_record(path)
                else:
                    with progress(f"{name} {p.name} seed {seed}") as on_epoch:
                        record = execute(run, domains, device=where, cache=default_cache(), on_epoch=on_epoch)
                    write_record(record, path)
                groups[label].append(record)
    _wide().print(table(f"{benchmark}: {source.card.title}", groups, list(absent)))
    records = [r for group in groups.values() for r in group]
    if records:
        out.print(footer(records), highlight=False)
    for name, paths in absent.items():
        out.print(escape(f"{name}: data not available: {', '.join(paths)}"), highlight=False, soft_wrap=True)
    if not records:
        out.print(f"nothing was run: `edgemask data fetch {benchmark}` says where each file comes from", soft_wrap=True)
        raise typer.Exit(1)
    out.print(f"records: {results / benchmark}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("out/demo.png"),
    seed: Seed = 0,
) -> None:
    """Train on two synthetic graphs, test on a third with other wiring: EdgeMask-DG* against MLP and GCN."""
    from edgemask.bench.demo import run_demo

    run_demo(_wide(), picture, seed)


# ---- a user's own graphs ---------------------------------------------------------------------------------------


@app.command()
def fit(
    sources: Annotated[list[Path], typer.Argument(help="Labelled graphs: .npz, .mat, or a folder of CSV files.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="Where the trained model goes.")],
    validation: Annotated[list[Path], typer.Option(help="Labelled graphs that only choose; repeatable.")] = [],  # noqa: B006
    recipe: RecipeName = "robust",
    settings: Settings = [],  # noqa: B006
    metric: Annotated[str, typer.Option(help="What selection maximises.")] = "micro_f1",
    seed: Seed = 0,
    device: Device = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Write the state here as it goes, and continue from it.")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Epochs between two checkpoints.")] = 10,
) -> None:
    """Train on labelled source graphs and write a model file."""
    from edgemask.data import read_graph
    from edgemask.enrich import default_cache
    from edgemask.estimator import EdgeMaskClassifier

    estimator = EdgeMaskClassifier(recipe, seed=seed, device=device, metric=metric, **_pairs(settings))
    with progress("fit") as on_epoch:
        estimator.fit(
            [read_graph(p) for p in sources],
            [read_graph(p) for p in validation],
            checkpoint_path=checkpoint,
            checkpoint_every=checkpoint_every,
            cache=default_cache(),
            on_epoch=on_epoch,
        )
    estimator.save(model)
    choice = estimator.choice_
    scores = "".join(f"\n  α = {a:g}: {100 * v:.2f}" for a, v in choice.scores.items())
    out.print(f"selection rule {choice.rule}: epoch {choice.epoch}, propagation α = {choice.alpha:g}{scores}")
    out.print(f"model: {model}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    graph: Annotated[Path, typer.Argument(help="Any graph with the same features; labels are not looked at.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV file [default: standard output].")] = None,
    device: Device = "auto",
) -> None:
    """Write every node's class and class probabilities as CSV."""
    import pandas as pd

    from edgemask.data import read_graph
    from edgemask.estimator import EdgeMaskClassifier

    estimator = EdgeMaskClassifier.load(model, device=device)
    p = estimator.predict_proba(read_graph(graph))
    frame = pd.DataFrame(p, columns=[f"p:{c}" for c in estimator.classes_])
    frame.insert(0, "class", estimator.classes_[p.argmax(1)])
    frame.rename_axis("node").to_csv(output or sys.stdout)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    graph: Annotated[Path, typer.Argument(help="A labelled graph.")],
    metric: Annotated[list[str], typer.Option(help="Repeatable.")] = ["micro_f1", "macro_f1"],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Score a model on a labelled graph."""
    from edgemask.data import read_graph
    from edgemask.estimator import EdgeMaskClassifier
    from edgemask.metrics import score

    estimator, target = EdgeMaskClassifier.load(model, device=device), read_graph(graph)
    for name, value in score(metric, target, estimator.predict_proba(target)).items():
        out.print(f"{name} {100 * value:.2f}", highlight=False)
    out.print(
        f"(selection rule {estimator.choice_.rule}, propagation α = {estimator.choice_.alpha:g})", highlight=False
    )


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    graph: Annotated[Path, typer.Argument(help="Any graph with the same features.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV of every edge's mask and origin.")] = None,
    device: Device = "auto",
) -> None:
    """Show what the MaskNet prunes, by origin; an edge counts as pruned when its mask is below 0.5."""
    import pandas as pd

    from edgemask.data import read_graph
    from edgemask.estimator import EdgeMaskClassifier

    mask = EdgeMaskClassifier.load(model, device=device).explain(read_graph(graph))
    frame = pd.DataFrame({"source": mask.edges[0], "destination": mask.edges[1], "origin": mask.origin, "mask": mask.s})
    if output:
        frame.to_csv(output, index=False)
    table = Table(title="mask by origin", title_justify="left")
    for column in ("origin", "edges", "mean mask", "pruned"):
        table.add_column(column, justify="left" if column == "origin" else "right")
    for origin, part in frame.groupby("origin", sort=False):
        table.add_row(
            str(origin), f"{len(part):,}", f"{part['mask'].mean():.3f}", f"{100 * (part['mask'] < 0.5).mean():.1f} %"
        )
    _wide().print(table)


@app.command()
def theory(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    graph: Annotated[Path, typer.Argument(help="A labelled graph with the same features.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps of every gradient ascent.")] = 50,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The whole report as JSON.")] = None,
    device: Device = "auto",
) -> None:
    """Check the paper's theory on a trained pair: KKT residuals, surrogate mask, duality bound, gradients."""
    from edgemask.data import read_graph
    from edgemask.estimator import EdgeMaskClassifier

    report = EdgeMaskClassifier.load(model, device=device).theory(read_graph(graph), steps=steps, seed=seed)
    wide = _wide()
    for title, rows in report.tables().items():
        wide.print(_grid(title, rows))
    if output:
        output.write_text(json.dumps(report.to_json(), indent=1) + "\n")


def _grid(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Rows by column name as a table; a single row stands upright."""
    if len(rows) == 1:
        rows = [{"quantity": name, "value": value} for name, value in rows[0].items()]
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for i, column in enumerate(columns):
        table.add_column(column.replace("_", " "), justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    return table


def _wide() -> Console:
    """Room for a table of numbers on any terminal: a line that wraps is better than a number that is cut."""
    return Console(width=max(out.width, 132))


def _shown(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value).replace("_", " ")


# ---- shared ---------------------------------------------------------------------------------------------------


def _pairs(settings: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; values are JSON where they parse as JSON, a comma-separated list of it, or plain text."""
    pairs = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ValueError(f"expected NAME=VALUE, got {setting!r}")
        value = _value(text)
        if isinstance(value, str) and "," in value:
            value = [_value(part) for part in value.split(",") if part]
        if name in ("alpha", "mask_inputs") and not isinstance(value, list):
            value = [value]
        pairs[name] = tuple(value) if isinstance(value, list) else value
    return pairs


def _value(text: str) -> Any:
    words = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@contextmanager
def progress(label: str) -> Iterator[Callable[[Any, str], None] | None]:
    """A progress bar with losses, mean mask and time left; nothing at all when stderr is no terminal."""
    if not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=err, transient=True) as bar:

        def on_epoch(trainer: Any, stage: str) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(f"{label}, {stage}", total=trainer.method.recipe.epochs, note="")
            last = trainer.history[-1]
            losses = [v for k, v in last.items() if k.startswith("loss")]
            masks = [v for k, v in last.items() if k.startswith("mask original")]
            note = f"loss {sum(losses) / len(losses):.3f}" if losses else ""
            note += f"  mean mask {sum(masks) / len(masks):.3f}" if masks else ""
            bar.update(tasks[stage], completed=trainer.epoch, note=note)

        yield on_epoch


if __name__ == "__main__":
    main()
