"""A Sphinx extension that writes the page of the commands of `edgemask` from their definitions."""

from pathlib import Path

import typer
from sphinx.application import Sphinx

from edgemask.cli import COMMANDS, app

HEAD = """# CLI reference

This page is generated from the commands. [The command line](cli.md) explains files, output, exit statuses and JSON.

"""


def page() -> str:
    """Return the page as Markdown."""
    group = typer.main.get_command(app)
    text = [HEAD]
    for name in COMMANDS:
        command = group.get_command(None, name)
        for path, single in commands(name, command):
            text += [f"## edgemask {path}\n", f"{single.help}\n", *table(single)]
    return "\n".join(text)


def commands(name, command):
    """Return the commands of a group with their names, or the command itself."""
    inner = getattr(command, "commands", None)
    return [(f"{name} {child}", c) for child, c in inner.items()] if inner else [(name, command)]


def table(command) -> list[str]:
    """Return the lines of the table of a command's arguments and options."""
    rows = [
        f"| {label(p)} | {help_of(p)} | {default_of(p)} |"
        for p in command.params
        if p.name != "help" and not getattr(p, "hidden", False)
    ]
    return ["| argument or option | what it does | default |", "| --- | --- | --- |", *rows, ""] if rows else []


def label(parameter) -> str:
    """Return the name of an argument, or the forms of an option with its value."""
    if parameter.param_type_name == "argument":
        name = (parameter.metavar or parameter.name).strip("{}")
        return f"`{name}`{'…' if parameter.nargs == -1 and not name.endswith('...') else ''}".replace("...`", "`…")
    forms = ", ".join(f"`{form}`" for form in [*parameter.opts, *parameter.secondary_opts])
    return forms if parameter.is_flag else f"{forms} `{parameter.metavar or parameter.name.upper()}`"


def help_of(parameter) -> str:
    """Return the help of a parameter as the text of a cell."""
    return " ".join((parameter.help or "").split()).replace("|", "\\|")


def default_of(parameter) -> str:
    """Return the default of a parameter as the text of a cell."""
    default = parameter.default
    if parameter.required:
        return "required"
    if default is None or default == [] or default is False or callable(default) or not parameter.show_default:
        return ""
    values = default if isinstance(default, list | tuple) else [default]
    return ", ".join(f"`{value}`" for value in values)


def write(sphinx: Sphinx) -> None:
    """Write the page into the source folder if it has changed."""
    path, text = Path(sphinx.srcdir) / "cli_reference.md", page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(sphinx: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    sphinx.connect("builder-inited", write)
    return {"parallel_read_safe": True}
