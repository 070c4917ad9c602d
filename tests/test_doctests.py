"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import pkgutil
import warnings
from importlib import import_module

import pytest

import edgemask

MODULES = ["edgemask", *(m.name for m in pkgutil.walk_packages(edgemask.__path__, "edgemask."))]
SKIPPED = ("edgemask.__main__", "edgemask.cli.__main__", "edgemask.nn.kernels.gpu")  # scripts; Triton kernels


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith(SKIPPED)])
def test_the_examples_of_a_module_run(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_there_are_examples() -> None:
    modules = [import_module(name) for name in ("edgemask", "edgemask.config")]
    assert all(any(test.examples for test in doctest.DocTestFinder().find(module)) for module in modules)
