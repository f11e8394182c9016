"""The sessions in the docstrings run, those of the compiled core too."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import ringhash

MODULES = sorted(module.name for module in pkgutil.walk_packages(ringhash.__path__, "ringhash."))


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_sessions_of(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"an extra is not installed: {error.name}")
    assert doctest.testmod(module).failed == 0


def test_there_are_sessions() -> None:
    core = doctest.DocTestFinder().find(importlib.import_module("ringhash._core"))
    assert sum(len(test.examples) for test in core) > 20
