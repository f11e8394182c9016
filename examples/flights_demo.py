"""A year of real flights over eight gateways, and then over nine: what `make demo` shows.

The key is the number on the tail of the aircraft, so all flights of one aircraft have one owner.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ringhash import Router
from ringhash.cli.keys import KeyFile
from ringhash.cli.measure import check, count, ideal
from ringhash.cli.render import Page

FLIGHTS = Path(__file__).parent / "data" / "flights.csv.gz"
NO_AIRCRAFT = b"NA"  # stands in this data for a flight without a tail number; empty fields are none either


def main() -> int:
    page = Page()
    source = KeyFile(str(FLIGHTS), column="tailnum")
    tails = [tail for block in source for tail in block if tail != NO_AIRCRAFT]
    left_out = source.taken + source.empty - len(tails)
    page.line(
        (f"{len(tails):,} flights", "bold"),
        f" from New York in 2013 by {len(set(tails)):,} aircraft; key: tail number.",
    )
    if left_out:
        page.line(f"{left_out:,} flights without one are left out.")

    # Eight gateways. Some aircraft fly every day and some once, so flights are never as even as arcs.
    router = Router([f"gw-{number}" for number in range(1, 9)])
    start = time.perf_counter()
    router.index_many(tails)
    took = time.perf_counter() - start
    title(page, "Eight gateways", f"all flights routed in {took * 1000:.0f} ms")
    before = router.placement
    page.balance(before, count(before, [tails]), "flights")

    # What would a ninth change? A plan looks and changes nothing.
    plan = router.plan(add=["gw-9"])
    title(page, "A ninth is planned", "nothing has changed yet")
    page.plan(plan, ideal(before, before.with_nodes("gw-9")))

    # Now it is done, and every flight is asked again.
    router.apply(plan)
    title(page, "The plan is applied", f"epoch {router.epoch}")
    found = check(plan, before, router.placement, [tails])
    page.check(found, "flights")
    if {target for _, target in found.pairs} == {"gw-9"}:
        page.line("All of them to gw-9, and none between two of the old gateways.")
    return 1 if found.otherwise else 0


def title(page: Page, what: str, remark: str) -> None:
    page.line()
    page.line((what, "bold cyan"), f"  {remark}")
    page.line()


if __name__ == "__main__":
    sys.exit(main())
