"""The command line: parse arguments, call the library, print results."""

from __future__ import annotations

import sys
import traceback
import warnings
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from edgemask._version import __version__
from edgemask.cli.common import err, out
from edgemask.errors import EdgemaskError

ISSUES = "https://github.com/edgemask/edgemask/issues"
USER_ERROR, BUG = 2, 70  # exit statuses

# Commands by name: the module that defines each, and its line in the list of commands. A module is imported when its
# command runs, so that `edgemask --help` does not load torch.
COMMANDS = {
    "fit": ("graphs", "Train a model on labelled source graphs."),
    "predict": ("graphs", "Predict the class of every node of a graph."),
    "evaluate": ("graphs", "Score a trained model on a labelled graph."),
    "explain": ("graphs", "Show the edges that predictions depend on."),
    "theory": ("graphs", "Check the paper's theory on a trained model."),
    "plan": ("plan", "Predict the time and memory of a fit before it runs."),
    "methods": ("bench", "List the methods, or the hyper-parameters of one method."),
    "bench": ("bench", "Run methods on a benchmark and print a table."),
    "tune": ("tune", "Search hyper-parameters using only the labels of the source graphs."),
    "data": ("data", "List, describe, verify and download benchmark data."),
    "results": ("results", "Verify and pack the records of runs."),
    "reproduce": ("reproduce", "Reproduce tables and figures of the paper."),
    "slurm": ("reproduce", "Write a Slurm job file that runs tables and figures of the paper."),
    "report": ("reproduce", "Write an HTML page with all tables, figures, runs and masks."),
    "demo": ("bench", "Train on two synthetic graphs and test on a third."),
    "version": ("bench", "Print the version."),
}


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are used. The list of commands needs no import."""

    listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order in which the help lists them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a command, or None. While the help is printed, return a stand-in with the summary only."""
        if name not in COMMANDS:
            return None
        module, summary = COMMANDS[name]
        if self.listing:
            return TyperCommand(name, help=summary)
        app = import_module(f"edgemask.cli.{module}").app
        if name in ("data", "results"):
            return _join_lines(typer.main.get_command(app))
        return _join_lines(typer.main.get_group(app).commands[name])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help without importing any command."""
        self.listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.listing = False


def _join_lines(command: Any) -> Any:
    """Join the lines of each paragraph of a command's help. Typer would keep the line breaks of the docstring."""
    if command.help:
        command.help = "\n\n".join(" ".join(text.split()) for text in cleandoc(command.help).split("\n\n"))
    for subcommand in getattr(command, "commands", {}).values():
        _join_lines(subcommand)
    return command


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def edgemask(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the full traceback if an error occurs.")] = False,
) -> None:
    """Graph domain generalisation: train a node classifier on a few labelled graphs and use it on a new graph."""


def _message(error: Exception) -> str:
    """Return the message of an expected error on one line."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return " ".join(str(error).splitlines())


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a warning of edgemask as one line, and any other warning as Python does."""
    if category.__module__.startswith("edgemask"):
        err.print(f"[bold yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True)
    else:
        err.print(escape(warnings.formatwarning(message, category, filename, lineno)), highlight=False, end="")


def main() -> None:
    """Run the command line.

    An error of edgemask or of the system (a missing file, a full disk) is printed as one line, and the exit status is
    2. Any other exception is a bug: it is printed with the address to report it to, and the exit status is 70. With
    `--debug`, anywhere on the line, the traceback is printed in both cases.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(arguments)
    except Exception as error:
        if debug:
            traceback.print_exc()
        expected = isinstance(error, EdgemaskError | MemoryError) or (isinstance(error, OSError) and error.strerror)
        if expected:
            message = _message(error)
            err.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
            sys.exit(USER_ERROR)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename.rpartition('site-packages/')[2]}:{frame.lineno}"
        err.print(
            f"[bold red]bug:[/] {escape(f'{type(error).__name__}: {error} ({place})')}\n"
            f"This is a bug in edgemask. Please report it at {ISSUES} with the output of the same command and --debug.",
            highlight=False,
            soft_wrap=True,
        )
        sys.exit(BUG)
