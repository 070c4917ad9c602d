"""Parts that the commands share: options, consoles, parsing and checks of their values, tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from edgemask.cli.completion import FIT_METHODS, RECIPE_NAMES
from edgemask.errors import FileError, InputError
from edgemask.legal import Legal, did_you_mean
from edgemask.runtime.atomic import writable
from edgemask.runtime.safe_text import SafeConsole

out = SafeConsole()
err = SafeConsole(stderr=True)

DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder of the benchmark data (default: $EDGEMASK_DATA, or a folder in the user's cache)."),
]
Offline = Annotated[bool, typer.Option("--offline", help="Do not download anything.")]
Device = Annotated[str, typer.Option(help="The device to compute on: cpu, cuda, or auto (cuda if there is a GPU).")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers. The same seed gives the same result.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the recipe. Can be repeated.")
]
Reading = Annotated[
    list[str],
    typer.Option(
        "--read",
        metavar="NAME=VALUE",
        help="How to read graph files: undirected=true, self_loops=drop, duplicates=merge, isolated=error. For tables "
        "also the columns: id=…, label=…, features=…, text=…, source=…, destination=… and weight=…, where a list is "
        "separated by commas, as in features=age,income. Can be repeated.",
    ),
]
InferenceBatch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Process the graph in blocks of this many nodes, to save memory (default: as when the model was trained).",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of parallel processes (default: 1 on a CPU, as many as fit on a GPU).")
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on the Ray cluster at this address: auto (the running one), local (a new one) or HOST:PORT.",
    ),
]
Candidates = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="With method auto: the candidates, separated by commas, such as `erm-mlp,erm-gcn`. If every name starts "
        "with + or -, candidates are added to the default ones or removed from them.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        help="`auto` lets several models compete and keeps the best. Otherwise a method (`edgemask methods` lists "
        "them), or a recipe of edgemask-dg-star: robust, paper or released.",
        autocompletion=FIT_METHODS,
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="With method auto: the time that training may take, such as 90s, 10m or 2h."),
]
MaxMembers = Annotated[
    int, typer.Option(min=1, help="With method auto: the largest number of models that are averaged.")
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Use the recipe robust, paper or released instead of the method's own settings.",
        autocompletion=RECIPE_NAMES,
    ),
]


GRAPH_FORMS = "a folder of CSV or Parquet files, two files `nodes.csv,edges.csv`, an .npz file or a .mat file"


def reading(options: Sequence[str]) -> dict[str, Any]:
    """Return the options of `--read` by name. Values are texts, since they may be names of columns.

    Raises:
        InputError: A text is not a NAME=VALUE pair, a name is not an option, or a value is not legal.

    >>> reading(["label=grade", "features=age,7", "undirected=true"])
    {'label': 'grade', 'features': ('age', '7'), 'undirected': True}
    """
    values: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name:
            raise InputError(f"--read: expected NAME=VALUE, got {option!r}")
        if name not in READING:
            near = did_you_mean(name, READING)
            raise InputError(f"no option {name!r} for reading a graph (options: {', '.join(READING)}){near}")
        values[name] = READING[name](name, text)
    return values


def _text(name: str, text: str) -> str:
    return text


def _list(name: str, text: str) -> tuple[str, ...]:
    return tuple(split_names(text) or ())


def _texts(name: str, text: str) -> str | tuple[str, ...]:
    return _list(name, text) if "," in text else text


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InputError(f"--read {name}: must be true or false, got {text!r}")
    return text.lower() == "true"


def _choice(*choices: str) -> Callable[[str, str], str]:
    return lambda name, text: str(Legal(choices=choices).check(f"--read {name}:", text))


READING: dict[str, Callable[[str, str], Any]] = {
    "name": _text,
    "undirected": _boolean,
    "duplicates": _choice("error", "merge", "warn"),
    "self_loops": _choice("error", "drop", "warn"),
    "isolated": _choice("allow", "error"),
    "features": _texts,
    "label": _text,
    "id": _text,
    "text": _texts,
    "source": _text,
    "destination": _text,
    "weight": _text,
    "classes": _list,
    "labels": _choice("first", "all"),
}


def check_inputs(paths: Sequence[Path]) -> None:
    """Check that all files exist, before the first one is read.

    Raises:
        FileError: A file or folder does not exist.
    """
    for path in paths:
        if not path.exists():
            for part in str(path).split(","):
                if not Path(part).exists():
                    raise FileError(f"{part}: no such file or folder")


def writable_folder(folder: Path) -> None:
    """Check that files can be written to a folder. It is created if it does not exist.

    Raises:
        FileError: The folder cannot be created or written to.
    """
    try:
        writable(folder / "probe")
    except FileError as error:
        why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        raise FileError(f"files cannot be written to the folder {folder}: {why}") from error


def split_names(text: str | None) -> list[str] | None:
    """Return the names in a text that separates them by commas; None if there is no text.

    >>> split_names("erm-mlp, erm-gcn"), split_names(None)
    (['erm-mlp', 'erm-gcn'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def grid(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Return rows as a table. A single row is shown as two columns, quantity and value."""
    if len(rows) == 1:
        rows = [{"quantity": name, "value": value} for name, value in rows[0].items()]
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for i, column in enumerate(columns):
        table.add_column(column.replace("_", " "), justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    return table


def wide() -> SafeConsole:
    """Return a console with room for a table of numbers: lines wrap on a narrow terminal, but no number is cut."""
    return SafeConsole(width=max(out.width, 132))


def _shown(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value).replace("_", " ")
