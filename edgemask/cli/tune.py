"""The command `tune`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from edgemask.cli.common import DataRoot, Device, Offline, Seed, Settings, out, wide
from edgemask.config import parse_settings
from edgemask.data import Store
from edgemask.data import benchmark as find
from edgemask.enrich import default_cache
from edgemask.errors import DataError
from edgemask.experiments.records import load_domains, missing_files
from edgemask.experiments.tune import Search, Trial, best, source_score
from edgemask.methods.registry import method_spec
from edgemask.runtime.device import resolve_device

app = typer.Typer()


@app.command()
def tune(
    benchmark: Annotated[str, typer.Argument(help="A benchmark. `edgemask data list` lists them.")],
    method: Annotated[list[str], typer.Option(help="A method. `edgemask methods` lists them. Can be repeated.")],
    trials: Annotated[
        int, typer.Option(min=1, help="Number of trials of each method. The first trial has the default values.")
    ] = 20,
    protocol: Annotated[
        list[str] | None, typer.Option(help="Use only this protocol. Can be repeated (default: all).")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Use the recipe robust, paper or released instead of the method's own.")
    ] = None,
    settings: Settings = [],  # noqa: B006
    seed: Seed = 0,
    results: Annotated[Path, typer.Option(help="Folder in which the trials are stored.")] = Path("tuned"),
    device: Device = "auto",
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Search hyper-parameters using only the labels of the source graphs.

    With several sources, a trial is scored by leaving out each source in turn. With one source, it is scored on a fifth
    of the labels, which are not used in training. The labels of the target graphs are never used. A trial that is
    already stored is not run again.
    """
    source, resolved_device = find(benchmark), resolve_device(device)
    store = Store(data_root, offline=offline or None)
    table = Table(title=f"{benchmark}: best of {trials} trials on the sources", title_justify="left")
    for column in ("protocol", "method", "defaults", "best", "failed", "settings"):
        table.add_column(column, justify="right" if column in ("defaults", "best", "failed") else "left")
    for p in source.select_protocols(protocol or ()):
        if missing := missing_files(source, p, store):
            raise DataError(f"protocol {p.name!r}: data not available: {', '.join(missing)}")
        training, _ = p.open(load_domains(source, p, store, dict(p.options)))
        for name in method:
            full_recipe = method_spec(name).under(recipe, **parse_settings(settings))
            data = {g.name: g.hash for g in training.sources}
            search = Search(benchmark, p.name, name, full_recipe, data, seed)

            def print_trial(number: int, trial: Trial, name: str = name) -> None:
                shown = trial.failed or f"{100 * (trial.score or 0):.2f}"
                out.print(f"{name} trial {number + 1} of {trials}: {shown}", highlight=False, soft_wrap=True)

            done = search.run(
                trials,
                partial(
                    source_score, name, training=training, seed=seed, device=resolved_device, cache=default_cache()
                ),
                results / benchmark / p.name.replace("→", "-to-") / f"{name}-seed{seed}.json",
                print_trial,
            )
            top = best(done)
            first = "failed" if done[0].score is None else f"{100 * done[0].score:.2f}"
            line = " ".join(
                f"--set {k}={v:.4g}" if isinstance(v, float) else f"--set {k}={v}" for k, v in top.settings.items()
            )
            failed = sum(t.score is None for t in done)
            table.add_row(p.name, name, first, f"{100 * (top.score or 0):.2f}", str(failed), line)
    wide().print(table)
