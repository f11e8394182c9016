"""The house: which room imports which, held against the code, late imports included.

cli -> contrib, analysis -> reshard, scatter -> fleet -> store, leases, members, reconnect, interop
    -> handover, balance -> routing, placements, databases -> the language (placement.py and below)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringhash

ROOT = Path(ringhash.__file__).parent

LANGUAGE = frozenset(
    [
        "_core",
        "_ordered",
        "batch",
        "errors",
        "immutable",
        "membership",
        "node",
        "ordered",
        "placement",
        "plan",
        "plan_text",
        "printable",
        "ranges",
        "records",
        "space",
        "spans",
    ]
)
# From the top to the bottom. A room imports only rooms below it, never one beside it.
LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"", "__main__"}),  # the public face
    frozenset({"cli"}),
    frozenset({"contrib", "analysis"}),
    frozenset({"reshard", "scatter"}),
    frozenset({"fleet"}),
    frozenset({"store", "leases", "members", "reconnect", "interop"}),
    frozenset({"handover", "balance"}),
    frozenset({"routing", "placements", "databases"}),
    LANGUAGE,
)
# What is below, and yet not for them: they know no kind of placement.
CLOSED = {"handover": frozenset({"placements"})}
# A name that is text is loaded on demand: the tables of kinds, and the public face.
ON_DEMAND = {"", "placement", "space"}
KINDS = frozenset(["Ring", "Assignment", "Shards", "RangeMap", "Directory", "KetamaRing"])
KIND_NAMES = frozenset(["ring", "assignment", "shards", "range_map", "directory"])


def module_of(file: Path, root: Path) -> str:
    """The name of a module within ringhash: "" for its own __init__, "routing.router", "balance" ..."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(file: Path, root: Path, modules: frozenset[str]) -> Iterator[str]:
    """The modules of ringhash that a file imports when it runs, at its top or late."""
    yield from _imports(ast.parse(file.read_text(encoding="utf-8")), modules)


def _imports(node: ast.AST, modules: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        for other in node.orelse:
            yield from _imports(other, modules)
        return
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        yield from (name.partition(".")[2] for name in names if name.split(".")[0] == "ringhash")
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "imports are absolute"
        if node.module and node.module.split(".")[0] == "ringhash":
            base = node.module.partition(".")[2]
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in modules else base
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, modules)


def graph_of(root: Path) -> dict[str, set[str]]:
    """Each module, and the modules that it imports."""
    files = {module_of(file, root): file for file in sorted(root.rglob("*.py"))}
    modules = frozenset(files) | {path.stem for path in root.glob("*.pyx")}
    graph = {name: set(imports_of(file, root, modules)) for name, file in files.items()}
    return graph | {name: set() for name in modules - files.keys()}


def room_of(module: str) -> str:
    return module.partition(".")[0]


def level_of(room: str) -> int:
    found = [level for level, rooms in enumerate(LEVELS) if room in rooms]
    assert found, f"{room!r} has no place in the house; give it one in LEVELS, and in the design"
    return found[0]


def wrong_ways(graph: dict[str, set[str]]) -> list[str]:
    """The imports that do not point down."""
    found = []
    for module, targets in graph.items():
        here = room_of(module)
        for target in sorted(targets):
            there = room_of(target)
            if here == there or {here, there} <= LANGUAGE:
                continue
            if level_of(there) <= level_of(here) or there in CLOSED.get(here, ()):
                found.append(f"{module or 'ringhash'} imports {target or 'ringhash'}")
    return found


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle of imports, in its order; empty if there is none."""
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> list[str]:
        state[module] = 1
        path.append(module)
        for target in sorted(graph.get(module, ())):
            if state.get(target) == 1:
                return path[path.index(target) :]
            if target not in state:
                found = visit(target)
                if found:
                    return found
        path.pop()
        state[module] = 2
        return []

    for module in sorted(graph):
        if module not in state:
            found = visit(module)
            if found:
                return found
    return []


GRAPH = graph_of(ROOT)


def test_imports_point_down() -> None:
    assert wrong_ways(GRAPH) == []


def test_there_is_no_circle() -> None:
    assert circle_in(GRAPH) == []


def test_the_picture_is_of_this_code() -> None:
    """Every room is in the picture, and the graph has the edges that anyone can see."""
    assert {room_of(module) for module in GRAPH} <= set().union(*LEVELS)
    assert "placement" in GRAPH["routing.router"]
    assert "routing.router" in GRAPH["routing"]
    assert "routing" in GRAPH[""]


def test_names_as_text_are_loaded_by_the_tables_alone() -> None:
    users = {
        module_of(file, ROOT)
        for file in ROOT.rglob("*.py")
        if {"import_module", "__import__"} & {n.id for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.Name)}
    }  # fmt: skip
    assert users <= ON_DEMAND


def docstrings(tree: ast.AST) -> set[int]:
    """The ids of the constants that are docstrings."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(id(first.value))
    return found


def kinds_named(source: str) -> set[str]:
    """The kinds of placement that code names: as a class, or as the word of a document."""
    tree = ast.parse(source)
    text = docstrings(tree)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found |= {node.id} & KINDS
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & KINDS
        elif isinstance(node, ast.alias):
            found |= {node.name.rpartition(".")[2]} & KINDS
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in text:
            found |= {node.value} & KIND_NAMES
    return found


@pytest.mark.parametrize("room", ["routing", "handover"])
def test_a_room_that_knows_no_kind_of_placement(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    assert {
        file.name: kinds for file in files if (kinds := kinds_named(file.read_text(encoding="utf-8")))
    } == {}


# --- negative controls ---


def house(tmp_path: Path, **files: str) -> dict[str, set[str]]:
    for name, source in files.items():
        path = tmp_path / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return graph_of(tmp_path)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("routing__router", "from ringhash.balance.stats import stats"),
        ("routing__router", "def late():\n    import ringhash.handover.machine"),
        ("handover__machine", "from ringhash.placements.ring import Ring"),
        ("handover__machine", "from ringhash.balance import ramp"),
        ("placements__ring", "from ringhash.routing import Router"),
        ("plan", "from ringhash.routing.pins import Pin"),
        ("databases__sqlite", "from ringhash import Router"),
    ],
)
def test_a_wrong_way_is_found(tmp_path: Path, file: str, source: str) -> None:
    assert len(wrong_ways(house(tmp_path, **{file: source}))) == 1


def test_a_circle_is_found(tmp_path: Path) -> None:
    graph = house(
        tmp_path,
        plan="from ringhash.spans import Spans",
        spans="def late():\n    from ringhash.ranges import Ranges",
        ranges="import ringhash.plan",
        node="from ringhash.errors import RinghashError",
    )
    assert sorted(circle_in(graph)) == ["plan", "ranges", "spans"]


def test_what_is_only_for_types_is_no_import(tmp_path: Path) -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ringhash.routing import Router"
    assert house(tmp_path, plan=source)["plan"] == set()


def test_a_kind_that_is_named_is_found() -> None:
    assert kinds_named('from ringhash.placements.ring import Ring\nx = "assignment"') == {
        "Ring",
        "assignment",
    }
    assert kinds_named('"""Over a ring: `Ring`."""\nx = "a ring"') == set()
