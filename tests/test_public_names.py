"""The public names of the package: they load lazily, and the lists of them agree."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import edgemask

SOURCE = ast.parse(Path(edgemask.__file__).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", edgemask.__all__)
def test_a_public_name_is_its_modules(name: str) -> None:
    if name != "__version__":
        module = import_module(f"edgemask.{edgemask._MODULES[name]}")
        assert getattr(edgemask, name) is getattr(module, name)
    assert name in dir(edgemask)


def test_type_checkers_see_the_same_names() -> None:
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    imported = {(alias.name, node.module) for node in block.body for alias in node.names}
    assert imported == {(name, f"edgemask.{module}") for name, module in edgemask._MODULES.items()}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'edgemask' has no attribute 'nope'"):
        edgemask.nope  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "('torch', 'numpy', 'scipy', 'sklearn', 'numba', 'pandas', 'rich')"
    code = f"import sys, edgemask; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
