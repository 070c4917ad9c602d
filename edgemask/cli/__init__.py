"""The command line: parse arguments, call the library, print results."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from edgemask._version import __version__
from edgemask.cli.common import err, out
from edgemask.cli.json_output import print_document
from edgemask.errors import EdgemaskError
from edgemask.legal import did_you_mean
from edgemask.runtime.safe_text import OutputError, naming

ISSUES = "https://github.com/edgemask/edgemask/issues"
USER_ERROR, BUG, INTERRUPTED, CLOSED_PIPE = 2, 70, 130, 141  # exit statuses
EPILOG = "Exit status: 0 success, 1 some runs or files failed, 2 an error in the input, 70 a bug, 130 interrupted."
MEMORY_ADVICE = (
    "`edgemask plan` predicts what a fit needs; --set batch_size=1024 lowers it, and --inference-batch 10000 what a "
    "prediction needs"
)
ClickException: type[Exception] = typer.BadParameter.__mro__[2]  # some versions of typer have a copy of click inside

# Commands by name: the module that defines each, and its line in the list of commands. A module is imported when its
# command runs, so that `edgemask --help` does not load torch.
COMMANDS = {
    "fit": ("fit", "Train a model on labelled source graphs."),
    "predict": ("predict", "Predict the class of every node of one or several graphs."),
    "evaluate": ("evaluate", "Score a trained model on a labelled graph."),
    "explain": ("explain", "Show the edges that predictions depend on."),
    "theory": ("explain", "Check the paper's theory on a trained model."),
    "plan": ("plan", "Predict the time and memory of a fit before it runs."),
    "methods": ("bench", "List the methods, or the hyper-parameters of one method."),
    "bench": ("bench", "Run methods on a benchmark and print a table."),
    "compare": ("compare", "Compare methods on your own graphs."),
    "tune": ("tune", "Search hyper-parameters using only the labels of the source graphs."),
    "data": ("data", "List, describe, verify and download benchmark data."),
    "results": ("results", "Verify and pack the records of runs."),
    "reproduce": ("reproduce", "Reproduce tables and figures of the paper."),
    "slurm": ("reproduce", "Write a Slurm job file that runs tables and figures of the paper."),
    "report": ("reproduce", "Write an HTML page with all tables, figures, runs and masks."),
    "demo": ("demo", "Train on two synthetic graphs and test on a third."),
    "version": ("bench", "Print the version."),
}


class Interrupted(Exception):
    """The user stopped a command. The message says how to continue."""


class OutputClosed(Exception):
    """The reader of the output, such as `head`, has ended."""


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are used. The list of commands needs no import."""

    listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order in which the help lists them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a command, or None. While commands are listed, return a stand-in with the summary only."""
        if name not in COMMANDS:
            return None
        module, summary = COMMANDS[name]
        if self.listing:
            return TyperCommand(name, help=summary)
        app = import_module(f"edgemask.cli.{module}").app
        if name in ("data", "results"):
            return _join_lines(typer.main.get_command(app))
        return _join_lines(typer.main.get_group(app).commands[name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and the other arguments. An error names the nearest command."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}{did_you_mean(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help without importing any command."""
        self.listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete a command's name without importing any command."""
        self.listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.listing = False

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Ctrl-C and a closed output become errors, for which typer does not end the process."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(str(error) or "interrupted") from error
        except BrokenPipeError as error:
            raise OutputClosed from error


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
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(__version__)
        raise typer.Exit


@app.callback()
def edgemask(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the full traceback if an error occurs.")] = False,
) -> None:
    """Graph domain generalisation: train a node classifier on a few labelled graphs and use it on a new graph."""


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a warning of edgemask as one line, and any other warning as Python does."""
    if category.__module__.startswith("edgemask"):
        err.print(Text.assemble(("warning:", "bold yellow"), f" {_one_line(message)}"), soft_wrap=True)
    else:
        err.print(warnings.formatwarning(message, category, filename, lineno), soft_wrap=True, end="")


def main() -> None:
    """Run the command line.

    An error of edgemask or of the system (a missing file, a full disk) is printed as one line, and the exit status is
    2. Any other exception is a bug: it is printed with the address to report it to, and the exit status is 70. With
    `--debug`, anywhere on the line, the traceback is printed in both cases. With `--json`, standard output also gets
    the error as a JSON document. After Ctrl-C or SIGTERM the exit status is 130.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _open_closed_streams()
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # an unencodable character must not end a command
            stream.reconfigure(errors="replace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = app(arguments, prog_name="edgemask", standalone_mode=False)
            with naming("standard output"):
                sys.stdout.flush()
    except (BrokenPipeError, OutputClosed):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(CLOSED_PIPE)
    except SystemExit as stop:  # typer prints the help on a console of its own, which ends with status 1 then
        sys.exit(CLOSED_PIPE if isinstance(stop.__context__, BrokenPipeError) else stop.code)
    except Exception as error:
        if debug:
            err.print(traceback.format_exc(), soft_wrap=True, end="")
        sys.exit(_report(error, "--json" in arguments and not isinstance(error, OutputError)))
    sys.exit(status if isinstance(status, int) else 0)


def _open_closed_streams() -> None:
    """Replace the standard streams that are closed, so that no file of a command takes their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _report(error: Exception, as_json: bool) -> int:
    """Print an error, and return the exit status."""
    message, status, hint = _one_line(error), USER_ERROR, ""
    if isinstance(error, ClickException):
        message, hint = _usage(error)
    elif isinstance(error, Interrupted):
        status = INTERRUPTED
    elif _out_of_memory(error):
        message = f"not enough memory: {MEMORY_ADVICE}"
    elif isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    elif not isinstance(error, EdgemaskError):
        status, message = BUG, f"{type(error).__name__}: {error} ({_place(error)})"
        hint = (
            f"This is a bug in edgemask. Please report it at {ISSUES} with the output of the same command and --debug."
        )
    if as_json:
        print_document("error", {"error": {"type": type(error).__name__, "message": message}})
    if message:
        word = "bug: " if status == BUG else "" if status == INTERRUPTED else "error: "
        err.print(Text.assemble((word, "bold red"), message, f"\n{hint}" * bool(hint)), soft_wrap=True)
    return status


def _out_of_memory(error: Exception) -> bool:
    """Return whether an error means too little memory. It imports torch only if a command has done so."""
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    return bool(import_module("edgemask.runtime.device").out_of_memory(error))


def _usage(error: Any) -> tuple[str, str]:
    """Return the message and the hint of an error in the arguments; nothing if the help was printed instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return "", ""
    message = _one_line(getattr(error, "message", "") or error.format_message()).rstrip(".")
    if near := getattr(error, "possibilities", None):
        message += did_you_mean(error.option_name, near)
    elif not hasattr(error, "possibilities"):
        message = _one_line(error.format_message())
    command = error.ctx.command_path if getattr(error, "ctx", None) else "edgemask"
    return message, f"`{command} --help` shows the arguments."


def _one_line(message: object) -> str:
    return " ".join(str(message).splitlines())


def _place(error: Exception) -> str:
    """Return the file and line that raised an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename.rpartition('site-packages/')[2]}:{frame.lineno}"
