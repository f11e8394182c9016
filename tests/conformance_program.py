"""The second implementation, in `conformance/`: built once, asked by lines of JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

SOURCES = Path(__file__).parent.parent / "conformance"
FLAGS = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
REQUIRED = os.environ.get("RINGHASH_TEST_CONFORMANCE") == "required"


def build(folder: Path) -> Path:
    """The program, built in a folder; the test is left out where its tool chain is missing."""
    compiler = shutil.which("cc")
    if compiler is None or not SOURCES.exists():
        _missing("a C compiler and the folder conformance/")
    program = folder / "answer"
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    probe = subprocess.run(
        [str(compiler), "-E", "-x", "c", "-"],
        input="#include <jansson.h>\n#include <xxhash.h>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        _missing("Debian's libjansson-dev and libxxhash-dev")
    subprocess.run([str(compiler), *FLAGS, "-o", str(program), *sources, "-ljansson", "-lm"], check=True)
    return program


def _missing(what: str) -> None:
    if REQUIRED:
        pytest.fail(f"the second implementation needs {what}")
    pytest.skip(f"the second implementation needs {what}")


def ask(program: Path, requests: list[dict[str, Any]]) -> list[list[Any]]:
    """The answers to `requests`, each a document and its questions."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    outcome = subprocess.run([str(program)], input=lines, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    return [json.loads(line) for line in outcome.stdout.splitlines()]


def plain(key: Any) -> dict[str, Any]:
    """A key as requests and vectors give it."""
    if isinstance(key, str):
        return {"str": key}
    if isinstance(key, bytes):
        return {"hex": key.hex()}
    if isinstance(key, bool) or key is None or isinstance(key, float):
        return {"other": key}
    if isinstance(key, int):
        return {"int": str(key)}
    if isinstance(key, UUID):
        return {"uuid": str(key)}
    if isinstance(key, datetime):
        return {"moment": key.isoformat()}
    return {"tuple": [plain(part) for part in key]}


def key_from(given: dict[str, Any]) -> Any:
    """The key that `plain` described."""
    ((kind, value),) = given.items()
    if kind == "tuple":
        return tuple(key_from(part) for part in value)
    readers = {"hex": bytes.fromhex, "int": int, "uuid": UUID, "moment": datetime.fromisoformat}
    return readers.get(kind, lambda same: same)(value)
