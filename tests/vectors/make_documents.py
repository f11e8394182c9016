"""Makes documents.json: documents, questions about them, and the answers of the program in `conformance/`.

    python tests/vectors/make_documents.py /path/to/answer

The documents are written by ringhash; the answers come from the other implementation, which was written from
docs/spec.md and docs/formats.md alone. The file is made once and does not change.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from conformance_program import ask, plain  # noqa: E402

from ringhash import Directory, Node, RangeMap, Ring, Router, Shards, assign  # noqa: E402
from ringhash.handover import Handover  # noqa: E402

KEYS: list[Any] = [
    "", "a", "user:1", "é", "e\u0301", "日本語", "\0", "{a}b", "x{a}", "{}a", "{a", "a\0b", "x" * 300,
    b"", b"a", b"\xff", b"\x00\x01",
    -(2**63), -1, 0, 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1,
    UUID("00112233-4455-6677-8899-aabbccddeeff"), UUID(int=0),
    True, None, 1.5, datetime(2024, 10, 27, 0, 30, tzinfo=UTC), ("a", 1),
]  # fmt: skip


def owners(keys: list[Any]) -> list[dict[str, Any]]:
    return [{"ask": "owner", "key": plain(key)} for key in keys]


def lists(keys: list[Any], n: int) -> list[dict[str, Any]]:
    return [
        {"ask": "owners", "key": plain(key), "n": n, "zones": zones}
        for key in keys
        for zones in (False, True)
    ]


def of_placements() -> list[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    zoned = Ring(
        [
            Node("a", 1, "z1"),
            Node("b", 2.5, "z1"),
            Node("c", 0.001),
            Node("é", 1.15, "é"),
            Node("d", 4, "z2"),
        ],
        vnodes=10,
        seed=2**64 - 1,
        hash_tags=True,
    )
    tied = Ring(["node-4366", "node-5548", "gw-1", "gw-2"])
    unassigned = {"kind": "assignment", "shards": {"kind": "shards", "count": 7}, "nodes": [{"name": "a"}]}
    moments = RangeMap(
        [(None, "db-1"), (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "db-2"),
         (datetime(2024, 10, 27, 1, 0, tzinfo=UTC), "db-3")]
    )  # fmt: skip
    berlin = [
        datetime.fromisoformat(text) for text in ("2024-10-27T02:30:00+02:00", "2024-10-27T02:30:00+01:00")
    ]
    tuples = RangeMap(
        [(None, "a"), (("acme",), "b"), (("acme", 7), "c"), (("acme\0",), "d"), (("b", -(2**63)), "a")],
        keys=(str, int),
    )
    pairs = [
        ("acme", -1),
        ("acme", 7),
        ("acme", 6),
        ("acme\0", 0),
        ("acm", 9),
        ("b", 0),
        ("",),
        ("acme", 7, 7),
    ]
    integers = RangeMap([(None, "a"), (-1, "b"), (0, "c"), (2**63, "d"), (2**64 - 1, "a")])
    texts = RangeMap([(None, "a"), ("\uff00", "b"), ("\U00010002", "c")])
    raw = RangeMap([(None, "a"), (b"\x00", "b"), (b"\xff", "c")])
    uuids = RangeMap([(None, "a"), (UUID(int=1), "b"), (UUID(int=2**127), "c")])
    directory = Directory(zoned, {"acme": "b", b"\xff": "a", 7: "d", "{a}x": "c", "": "é"}).dedicate(
        "big", "own"
    )
    over = Directory(RangeMap([(None, "a"), ("m", "b")]), {"zoe": "a", "": "b"})
    entries: list[Any] = [
        "acme",
        b"acme",
        b"\xff",
        7,
        "{acme}1",
        "a",
        "{a}",
        "",
        b"",
        "big",
        "zoe",
        "m",
        "other",
    ]
    return [
        ("a ring of one node", Ring(["a"]).to_dict(), [*owners(KEYS), *lists(KEYS[:3], 2)]),
        ("a ring of nobody", Ring([]).to_dict(), lists(KEYS[:2], 2)),
        ("a ring with tags, zones and weights", zoned.to_dict(), [*owners(KEYS), *lists(KEYS[:20], 4)]),
        ("a ring with a tie", tied.to_dict(), [*owners(["key-22022553"]), *lists(["key-22022553"], 3)]),
        (
            "a ring of what may be left out",
            {"kind": "ring", "nodes": [{"name": "b"}, {"name": "a"}]},
            owners(KEYS),
        ),
        ("an assignment", assign(Shards(100), ["a", Node("b", 2)]).to_dict(), owners(KEYS)),
        (
            "an assignment with tags",
            assign(Shards(9, seed=1, hash_tags=True), ["a", "b"]).to_dict(),
            owners(KEYS),
        ),
        (
            "an assignment of nobody",
            unassigned,
            [{"ask": what, "key": plain(key)} for key in KEYS for what in ("owner", "position")],
        ),
        ("ranges of text", texts.to_dict(), owners([*KEYS, "z", "\ue000", "\ufb00", "\uff61", "\U00010478"])),
        ("ranges of bytes", raw.to_dict(), owners([*KEYS, b"\x00", b"\xfe\xff", b"\xff\x00"])),
        ("ranges of integers", integers.to_dict(), owners([*KEYS, -2, 2**63 - 1])),
        (
            "ranges of UUIDs",
            uuids.to_dict(),
            owners([*KEYS, UUID(int=1), UUID(int=2**127 - 1), UUID(int=2**128 - 1)]),
        ),
        ("ranges of moments", moments.to_dict(), owners([*KEYS, *berlin, datetime(1, 1, 1, tzinfo=UTC)])),
        ("ranges of tuples", tuples.to_dict(), owners([*KEYS, *pairs])),
        ("a directory over a ring", directory.to_dict(), owners([*KEYS, *entries])),
        ("a directory over ranges", over.to_dict(), owners([*KEYS, *entries])),
    ]


def of_plans() -> list[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    ring, other = Ring(["a", "b"], vnodes=4), Ring(["b", "c"], vnodes=4)
    shards = assign(16, ["a", "b"])
    ranges = RangeMap([(None, "a"), ("m", "b")])
    directory = Directory(ring, {"acme": "b"})
    return [
        ("moves between rings", ring.to_dict(), [{"ask": "moves", "after": other.to_dict()}]),
        ("moves into nothing", ring.to_dict(), [{"ask": "moves", "after": Ring([], vnodes=4).to_dict()}]),
        ("moves of shards", shards.to_dict(), [{"ask": "moves", "after": shards.changed(add=["c"]).to_dict()}]),
        *(
            (f"a plan of {what}", before.diff(after).to_dict(), [
                {"ask": ask_for, "key": plain(key)} for key in [*KEYS, "acme", "zoe", "n"] for ask_for in ("move", "position")
            ])
            for what, before, after in (
                ("rings", ring, other),
                ("shards", shards, shards.changed(add=["c"])),
                ("ranges", ranges, ranges.split("f").move("f", "b").move("m", "a")),
                ("entries", directory, directory.with_entries({"acme": "a", "zoe": "b"})),
            )
        ),
    ]  # fmt: skip


def of_routers() -> list[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    keys = [f"user:{i}" for i in range(12)] + ["{user:3}x", "n", "acme"]
    found = []
    ring = Ring(["a", "b", "c"], vnodes=8, hash_tags=True)
    for what, before in (
        ("a ring", ring),
        ("shards", assign(Shards(16), ["a", "b", "c"])),
        ("ranges", RangeMap([(None, "a"), ("n", "b"), ("user:3", "c")])),
        ("a directory", Directory(ring, {"acme": "b", "user:7": "c"}, fallback=True)),
        ("a directory without a fallback", Directory(ring, {"acme": "b", "user:7": "c"})),
    ):
        router = Router(before)
        router.pin("user:3", "a")
        downs = [[], ["a"], ["b", "c"], ["a", "b", "c"]]
        questions = [{"ask": "route", "key": plain(key), "down": down} for key in keys for down in downs]
        found.append((f"a router over {what}", router.to_dict(), questions))
        if isinstance(before, RangeMap):
            plan = router.plan_to(before.move("n", "c").move("user:3", "b"))
        elif isinstance(before, Directory):
            plan = router.plan_to(before.with_entries({"acme": "c", "n": "a"}).without_entries("user:7"))
        else:
            plan = router.plan(add=["d"])
        states: list[dict[str, Any]] = []
        Handover(router, plan, stop=_nothing, start=_nothing, on_epoch=states.append).run()
        middle = [state for state in states if "running" in state]
        question = [{"ask": "route", "key": plain(key)} for key in keys]
        found += [(f"a handover of {what}, {i}", state, question) for i, state in enumerate(middle[:3])]
    return found


def _nothing(piece: object) -> None:
    pass


def main() -> None:
    documents = [*of_placements(), *of_plans(), *of_routers()]
    requests = [{"document": document, "ask": questions} for _, document, questions in documents]
    rows = [
        {"about": about, **request, "answers": answers}
        for (about, _, _), request, answers in zip(
            documents, requests, ask(Path(sys.argv[1]), requests), strict=True
        )
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    (HERE / "documents.json").write_text(f'{{\n"documents": [\n{lines}\n]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
