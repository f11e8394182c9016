"""Writes ordered.json: the bytes of keys in order. It shares no code with ringhash.

python tests/vectors/make_ordered.py > tests/vectors/ordered.json
"""

import json
from datetime import UTC, datetime
from uuid import UUID

TEXTS = ["", "\0", "\0\0", "\0\1", "\1", "\1\0", "\2", "a", "a\0", "a\0b", "a\1", "aa", "ab", "b", "z", "é", "e\u0301",
         "\ue000", "\ufb00", "\uff61", "\U00010002", "\U00010478", "\U0010ffff"]  # fmt: skip
BYTES = [
    "",
    "00",
    "0000",
    "0001",
    "01",
    "0100",
    "02",
    "61",
    "6100",
    "6162ffff",
    "7f",
    "80",
    "c3a9",
    "fe",
    "ff",
    "ff00",
    "ffff",
]
INTS = [-(2**63), -(2**32), -256, -255, -129, -128, -2, -1, 0, 1, 127, 128, 255, 256, 2**31, 2**32, 2**63 - 1, 2**63,
        2**64 - 1]  # fmt: skip
UUIDS = ["00000000-0000-0000-0000-000000000000", "00112233-4455-6677-8899-aabbccddeeff",
         "80000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]  # fmt: skip
MOMENTS = ["0001-01-01T00:00:00+00:00", "1969-12-31T23:59:59.999999+00:00", "1970-01-01T00:00:00+00:00",
           "1970-01-01T00:00:00.000001+00:00", "2024-10-27T02:30:00+02:00", "2024-10-27T02:30:00+01:00",
           "9999-12-31T23:59:59.999999+00:00"]  # fmt: skip
TUPLES = [
    [],
    [["str", ""]],
    [["str", ""], ["int", -1]],
    [["str", "\0"], ["int", 0]],
    [["str", "a"]],
    [["str", "a"], ["int", -5]],
    [["str", "a"], ["int", 7]],
    [["str", "a\0"], ["int", -5]],
    [["str", "a\1"], ["int", -5]],
    [["str", "ab"], ["int", -5]],
    [["str", "é"], ["int", 2**64 - 1]],
]


def instant(text):
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 10**6 + since.microseconds


def encoded(kind, value, within=False):
    if kind in ("str", "bytes"):
        data = value.encode() if kind == "str" else bytes.fromhex(value)
        return data.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1") + b"\0" if within else data
    if kind == "int":
        return bytes([value >= 0]) + (value % 2**64).to_bytes(8, "big")
    if kind == "uuid":
        return UUID(value).bytes
    return (instant(value) + 2**63).to_bytes(8, "big")


def main():
    groups = {}
    for kind, values in (
        ("str", TEXTS),
        ("bytes", BYTES),
        ("int", INTS),
        ("uuid", UUIDS),
        ("datetime", MOMENTS),
    ):
        text = str if kind == "int" else lambda value: value
        ordered = sorted(values) if kind == "str" else values
        groups[kind] = [{"key": text(value), "hex": encoded(kind, value).hex()} for value in ordered]
    groups["str, int"] = [
        {
            "key": [str(value) if kind == "int" else value for kind, value in key],
            "hex": b"".join(encoded(kind, value, True) for kind, value in key).hex(),
        }
        for key in TUPLES
    ]
    for group in groups.values():
        assert [row["hex"] for row in group] == sorted({row["hex"] for row in group})
    print(json.dumps(groups, indent=1))


main()
