"""Reports as text for a terminal and as dictionaries for JSON."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringhash.analysis.keys import KeyReport, Report

__all__ = ["keys_text", "plain", "report_to_dict", "text_table"]


def text_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return a table in columns of text: the first `left` columns to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    lines = []
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def keys_text(report: Report) -> str:
    """Return the analysis of keys as text: a table, then the reasons of each candidate."""
    heads = ["key", "values", "top", "floor", "shards", "ring", "range", "with time", "verdict"]
    queries = any(key.queries is not None for key in report.keys)
    if queries:
        heads.insert(-1, "one shard")
    rows = []
    for key in report.best():
        row = [
            key.name,
            ("~" if key.distinct.error or key.distinct.at_least else "") + f"{key.distinct.value:,}",
            f"{key.top[0].share:.2%}" if key.top else "-",
            f"{key.floor:.2f}",
            *(f"{key.peaks[method].rows:.2f}" for method in ("shards", "ring", "range")),
            "?" if key.monotone is None else f"{key.monotone.global_:+.2f}",
            key.verdict,
        ]
        if queries:
            row.insert(-1, "-" if key.queries is None else f"{key.queries.single:.0%}")
        rows.append(row)
    sample = "" if report.sampled == 1 else f" (a sample of {report.sampled:.2%})"
    lines = [
        f"{report.rows:,} rows{sample}, {report.shards} shards; shards, ring, range: the fullest by the mean",
        "",
    ]
    lines.append(text_table(heads, rows))
    for key in report.best():
        lines += ["", key.name]
        for reason in key.reasons:
            text = f"{reason.verdict}: {reason.text}"
            lines.append(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="    "))
    return "\n".join(lines)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: no NaN, no infinity, keys and bytes as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value):
        return {it.name: plain(getattr(value, it.name)) for it in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def report_to_dict(report: Report) -> dict[str, Any]:
    """Return the analysis of keys as a dictionary, the best candidate first."""
    return {
        "kind": "key_report",
        "version": 1,
        "rows": report.rows,
        "sampled": report.sampled,
        "shards": report.shards,
        "order": report.order,
        "weight": report.weight,
        "keys": [_key_to_dict(key) for key in report.best()],
    }


def _key_to_dict(key: KeyReport) -> dict[str, Any]:
    return {
        "columns": list(key.columns),
        "verdict": key.verdict,
        "unique": key.unique,
        **{
            name: plain(getattr(key, name))
            for name in (
                "rows", "nulls", "distinct", "top", "top_weight", "floor", "peaks", "monotone", "growth",
                "changed", "reasons", "loads", "lorenz", "queries",
            )
        },
    }  # fmt: skip
