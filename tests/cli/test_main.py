"""The command line as a whole: help texts, exit statuses, one-line errors, start-up without heavy libraries."""

from __future__ import annotations

import errno
import json
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.testing import CliRunner

from edgemask import __version__
from edgemask.cli import BUG, COMMANDS, INTERRUPTED, ISSUES, MEMORY_ADVICE, USER_ERROR, app, main
from edgemask.errors import FileError, InputError

GROUP = typer.main.get_command(app)
CONTEXT = click.Context(GROUP)


def commands() -> dict[str, Any]:
    """Return all commands by name, with those of groups."""
    found = {}
    for name in COMMANDS:
        command = found[name] = GROUP.get_command(CONTEXT, name)
        found |= {f"{name} {sub}": c for sub, c in getattr(command, "commands", {}).items()}
    return found


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `main` with arguments; return exit status, output and error output."""

    def call(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgemask", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def failing(monkeypatch, run):
    """Run `edgemask demo` with arguments while the demo raises an error."""

    def call(error: BaseException, *arguments: str) -> tuple[object, str, str]:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr("edgemask.cli.demo.run_demo", fail)
        return run(*(arguments or ("demo",)))

    return call


# ---- help ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name):
    assert GROUP.get_command(CONTEXT, name).help.splitlines()[0] == COMMANDS[name][1]


def test_every_command_and_option_has_a_help_text_that_is_printed_in_full():
    for name, command in commands().items():
        assert command.help.splitlines()[0].endswith("."), name
        for parameter in command.params:
            text = parameter.help or ""
            assert text.endswith("."), f"{name}: {parameter.name}"
            assert "[" not in text, f"{name}: {parameter.name}: square brackets are markup and are not printed"


def test_a_paragraph_of_a_help_text_is_one_line_so_that_the_terminal_wraps_it():
    for name, command in commands().items():
        assert all("\n" not in paragraph for paragraph in command.help.split("\n\n")), name


@pytest.mark.parametrize("name", ["", *commands()])
def test_every_command_prints_its_help(name):
    for option in ("-h", "--help"):
        result = CliRunner().invoke(app, [*name.split(), option], catch_exceptions=False)
        assert result.exit_code == 0
        assert "Usage: " in result.output


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_lists_every_command(run, option, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, err = run(option)
    assert (status, err) == (0, "")
    for name, (_, summary) in COMMANDS.items():
        assert any(name in line and summary in line for line in out.splitlines())


def test_the_version_is_printed_by_an_option_too(run):
    assert run("--version") == (0, f"{__version__}\n", "")
    assert run("version") == (0, f"{__version__}\n", "")


def test_an_unknown_command_is_named(run):
    status, _, err = run("nope")
    assert status == USER_ERROR
    assert "No such command 'nope'" in err
    assert "did you mean 'predict'?" in run("predct")[2]
    assert "did you mean '--seed'?" in run("demo", "--sede", "1")[2]
    assert "did you mean '--model'?" in run("fit", "a.npz", "--modle", "m")[2]  # not --method


# ---- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("k must be at least 1, got 0"), "error: k must be at least 1, got 0"),
        (FileError("a [red] file cannot be read"), "error: a [red] file cannot be read"),
        (InputError("two\nlines"), "error: two\\nlines"),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "error: /data/x: Permission denied"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), "error: x: No such file or directory"),
        (OSError(errno.ENOSPC, "No space left on device"), "error: No space left on device"),
        (MemoryError(), f"error: not enough memory: {MEMORY_ADVICE}"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), f"error: not enough memory: {MEMORY_ADVICE}"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), f"error: not enough memory: {MEMORY_ADVICE}"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_expected_error_is_one_line_with_status_2(failing, error, line):
    assert failing(error) == (USER_ERROR, "", f"{line}\n")
    assert USER_ERROR == 2


def test_a_user_without_a_home_is_told_what_to_set_before_the_first_run(run, monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEMASK_DATA", "data")
    for name in ("EDGEMASK_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    status, _, err = run("bench", "synthetic", "--method", "erm-mlp", "--seeds", "1")
    assert status == USER_ERROR
    assert err == (
        "error: this user has no home directory: set the environment variable EDGEMASK_CACHE to a folder, or HOME\n"
    )


def test_a_search_that_is_stopped_says_how_to_continue(run, monkeypatch, tmp_path: Path):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgemask.experiments.own.tune", stop)
    (tmp_path / "a.npz").touch()
    line = "interrupted: the trials stay, and the same command continues from here\n"
    assert run("tune", "a.npz", "--method", "erm-mlp") == (INTERRUPTED, "", line)


def test_a_file_in_place_of_a_folder_is_one_line(run, tmp_path: Path):
    (tmp_path / "file").write_text("")
    status, _, err = run("report", "--results", str(tmp_path / "file"))
    assert (status, err) == (USER_ERROR, f"error: {tmp_path / 'file'} is not a folder of results\n")


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("[bold]broken"), OSError("without a number")])
def test_any_other_exception_is_a_bug_with_the_address_and_status_70(failing, error):
    status, out, err = failing(error)
    assert (status, out) == (BUG, "")
    assert BUG == 70
    first, second = err.splitlines()
    assert first.startswith(f"bug: {type(error).__name__}: {error} (")
    assert f"{Path(__file__).name}:" in first
    assert "report it" in second
    assert ISSUES in second
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [("--debug", "demo"), ("demo", "--debug"), ("demo", "--seed", "1", "--debug")])
@pytest.mark.parametrize(
    ("error", "status", "word"), [(InputError("k"), USER_ERROR, "error: k"), (KeyError("x"), BUG, "bug: KeyError: 'x'")]
)
def test_debug_anywhere_on_the_line_prints_the_traceback(failing, error, status, word, arguments):
    code, _, err = failing(error, *arguments)
    assert code == status
    assert err.startswith("Traceback (most recent call last):")
    assert word in err


# ---- start-up --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["import edgemask", "from edgemask.cli import main; main()"])
def test_the_package_and_the_help_start_without_heavy_libraries(start):
    code = (
        "import atexit, json, sys\n"
        "sys.argv = ['edgemask', '--help']\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n" + start
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = set(json.loads(result.stderr))
    assert "edgemask" in modules
    assert modules.isdisjoint({"torch", "numpy", "pandas", "scipy", "matplotlib"})
