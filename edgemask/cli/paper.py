"""Access to the paper's tables and figures, which are part of the repository but not of the installed package."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import edgemask
from edgemask.errors import InputError

CHECKOUT = Path(edgemask.__file__).resolve().parent.parent


def in_checkout() -> bool:
    """Return whether edgemask runs from a checkout of its repository."""
    return (CHECKOUT / "paper" / "suites.py").is_file()


def paper(module: str) -> Any:
    """Import a module of the `paper` folder.

    Raises:
        InputError: edgemask does not run from a checkout.
    """
    if not in_checkout():
        raise InputError(
            "the paper's tables and figures are part of the edgemask repository, not of the installed package: clone "
            "the repository and run this command from an editable installation of it (`make setup`)"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return import_module(f"paper.{module}")
