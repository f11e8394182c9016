"""The documents are right: their sessions run, their links lead somewhere, no public name is missing."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

import ringhash
from ringhash import Placement
from ringhash.space import Space

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
OTHERS = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# --- sessions of Python ---


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sessions_of_python(page: Path) -> None:
    outcome = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert outcome.failed == 0


# --- sessions of a shell ---


def shell_sessions(page: Path) -> list[tuple[str, str]]:
    """The (command, output) pairs of the console blocks of a page, in order."""
    blocks = re.findall(
        r"^```console\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    parts = [
        part.partition("\n") for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    return [(command, output) for command, _, output in parts]


@pytest.mark.skipif(os.name != "posix", reason="the sessions are of a POSIX shell")
@pytest.mark.parametrize("page", [page for page in PAGES if shell_sessions(page)], ids=name_of)
def test_sessions_of_a_shell(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    examples = ROOT / "examples"
    if not (examples / "data" / "flights.csv.gz").exists():
        pytest.skip("the sdist does not hold the flights")
    (tmp_path / "examples").symlink_to(examples)
    # The command of this Python, whether or not its folder is on the path.
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in {"ringhash": "-m ringhash", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "PYTHONUTF8": "1",
        "LC_ALL": "C",
    }
    for command, output in shell_sessions(page):
        done = subprocess.run(
            [shutil.which("sh") or "sh", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            check=False,
            timeout=60,
        )
        # How wide `uniq -c` makes its numbers is up to the system.
        found = (
            re.sub(r"^ +(?=\d+ \S+$)", "", done.stdout, flags=re.MULTILINE)
            if "uniq -c" in command
            else done.stdout
        )
        assert found == output, command


# --- links ---

# Written together with the benchmarks.
PENDING = {"docs/benchmarks.md"}


def slugs(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES + OTHERS, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if target.resolve().relative_to(ROOT.resolve()).as_posix() in PENDING:
            continue
        assert target.exists(), link
        assert not anchor or anchor in slugs(target), link


# --- the reference ---


def sections() -> dict[str, str]:
    parts = re.split(
        r"^## (.+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def row_names(section: str) -> set[str]:
    """The names that the first cells of the tables of a section describe."""
    cells = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)", cell)}


def members(cls: type) -> set[str]:
    inherited = set(dir(tuple if issubclass(cls, tuple) else object))
    return {name for name in dir(cls) if not name.startswith("_")} - inherited


# Rooms whose public objects have sections of their own, or a line each in one.
ROOMS = [
    ringhash,
    *map(
        importlib.import_module,
        ("ringhash.routing", "ringhash.balance", "ringhash.handover", "ringhash.spans", "ringhash.space"),
    ),
]


def public(name: str) -> object:
    """The public object of that name, in whichever room it is."""
    return next(getattr(room, name) for room in ROOMS if hasattr(room, name))


@pytest.mark.parametrize(
    "name", sorted({name for room in ROOMS[:4] for name in room.__all__} - {"__version__"})
)
def test_the_reference_has_every_public_name(name: str) -> None:
    thing = public(name)
    if isinstance(thing, type) and issubclass(thing, Exception):
        assert name in row_names(sections()["Errors"])
    elif isinstance(thing, type) and name in sections():
        described = row_names(sections()[name])
        for base in (Placement, Space):  # what all of a kind have is described there, once
            if issubclass(thing, base) and thing is not base:
                described |= members(base)
        assert members(thing) - described == set()
    else:
        assert re.search(rf"`{name}\b", "".join(sections().values()))


def test_the_reference_has_no_other_names() -> None:
    for title, section in sections().items():
        if title == "Errors":
            known = set(ringhash.errors.__all__)
        elif title.isidentifier():
            known = members(cast("type", public(title)))
        else:
            continue  # a room, with a line for each of its names
        assert row_names(section) - known == set(), title
