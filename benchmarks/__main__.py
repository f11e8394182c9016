"""Measure it all and write docs/benchmarks.md with its charts; or, with --quick, check a few ratios."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / ".benchmarks" / "results.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--quick", action="store_true", help="check a few ratios, in seconds")
    what.add_argument("--no-suite", action="store_true", help="leave out the pytest-benchmark suite")
    what.add_argument("--render", action="store_true", help="write the page again from the last measurements")
    options = parser.parse_args()
    if options.quick:
        from benchmarks import quick  # noqa: PLC0415 - it needs no matplotlib

        failed = quick.failures(_say)
        _say(f"{failed} ratios are too high" if failed else "All ratios are within their margins.")
        return bool(failed)

    from benchmarks import charts, measure, page  # noqa: PLC0415

    if not options.render:
        if not options.no_suite:
            import pytest  # noqa: PLC0415

            arguments = ["--benchmark-only", "--benchmark-columns=median,iqr,rounds", "-q"]
            if code := pytest.main([str(ROOT / "benchmarks"), *arguments]):
                return int(code)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(measure.everything(_say), indent=1))
    results = json.loads(RESULTS.read_text())
    charts.draw(results, ROOT / "docs")
    page.write(results, ROOT / "docs" / "benchmarks.md")
    _say("Written: docs/benchmarks.md and its charts.")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
