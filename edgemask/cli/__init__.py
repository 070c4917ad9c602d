"""The command line: parses, calls, prints."""

from __future__ import annotations

import sys

import typer
from rich.markup import escape

from edgemask._version import __version__
from edgemask.cli import bench, data, graphs, plan, reproduce, tune
from edgemask.cli.common import err, out
from edgemask.data.store import DataError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Graph domain generalisation: train a node classifier on a few labelled graphs, "
    "use it on a graph it has never seen.",
)
app.add_typer(data.app, name="data")
app.add_typer(bench.app)
app.add_typer(graphs.app)
app.add_typer(plan.app)
app.add_typer(reproduce.app)
app.add_typer(tune.app)


@app.command()
def version() -> None:
    """Print the version."""
    out.print(__version__)


def main() -> None:
    """Run the command line; what the user got wrong is one line on stderr and exit status 2."""
    try:
        app()
    except (ValueError, DataError, OSError, ImportError) as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
