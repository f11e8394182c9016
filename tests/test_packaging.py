"""What an installed ringhash promises to those who import it, type-check it or depend on it."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import re

import ringhash


def test_every_public_name_is_there() -> None:
    assert ringhash.__all__
    assert len(set(ringhash.__all__)) == len(ringhash.__all__)
    assert [name for name in ringhash.__all__ if not hasattr(ringhash, name)] == []


def test_its_types_are_shipped() -> None:
    package = importlib.resources.files("ringhash")
    assert package.joinpath("py.typed").is_file()
    assert package.joinpath("_core.pyi").is_file()


def test_numpy_is_all_it_needs() -> None:
    required = importlib.metadata.requires("ringhash") or []
    assert [re.split(r"[^\w-]", line)[0] for line in required if "extra ==" not in line] == ["numpy"]


def test_the_command_is_an_entry_point() -> None:
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="ringhash")
    assert command.value == "ringhash.cli:main"
