"""The examples in the docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import ringhash

MODULES = [
    "ringhash",
    *(m.name for m in pkgutil.walk_packages(ringhash.__path__, "ringhash.") if "__main__" not in m.name),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:  # an extra that is not installed
        pytest.skip(str(error))
    assert doctest.testmod(module).failed == 0


def test_the_lookups_have_examples() -> None:
    finder = doctest.DocTestFinder()
    tested = {
        test.name
        for test in finder.find(
            ringhash.Ring, "Ring", module=importlib.import_module("ringhash.placements.ring")
        )
        if test.examples
    }
    assert {"Ring", "Ring.owner", "Ring.owners", "Ring.walk", "Ring.position", "Ring.diff"} <= tested
