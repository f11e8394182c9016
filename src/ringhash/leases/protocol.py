"""What a worker does next, given what it reads: the protocol of leases, without input or output.

    beat     heartbeat, and renew what is held here: exactly these (shard, epoch) pairs, nothing else
    read     all leases, and the workers whose heartbeat is fresh: the View
    decide   from the View and what is held: claim some, release one, disown what is not held here
    ...      again, at once while anything is out of balance

Safety does not rest on this file: a claim raises the epoch, and the fence of `lease.write()` compares
it under a lock. This file keeps two promises besides. The balance: with every worker following
`decide`, all end between floor and ceiling, and a settled table never moves. And self-fencing: a
holder counts from before it sent the claim or renewal, on its own monotonic clock, so it stops before
the database's clock can let anybody else in.

The method is that of leases with fencing tokens (Gray and Cheriton, 1989; Kleppmann, 2016) and of the
shard leases of Kinesis clients, whose fault it mends: workers are counted by their heartbeats and not
by what they own, so one that owns nothing yet is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["DRIFT", "Grant", "Holder", "Row", "Step", "View", "decide"]

# How much slower a worker's clock may run than the database's: one part in a hundred. A quartz is off
# by one in ten thousand.
DRIFT = 0.01


class Grant(NamedTuple):
    """The right to one shard; every claim makes a new one, so no two holders share a grant."""

    shard: int
    epoch: int


class Row(NamedTuple):
    """One lease as the database has it; `expired` by the database's clock."""

    shard: int
    owner: str | None
    epoch: int
    expired: bool


class View(NamedTuple):
    """What a worker reads: every lease, and the identities whose heartbeat is fresh."""

    rows: tuple[Row, ...]
    workers: tuple[str, ...]


class Step(NamedTuple):
    """What to do: give back `disown`, claim up to `claim` free shards, release one.

    `settled` says that nothing is left to do for anybody.
    """

    disown: tuple[Grant, ...]
    claim: int
    release: Grant | None
    settled: bool


def decide(view: View, me: str, held: Mapping[int, int]) -> Step:
    """Return what the worker `me`, which holds `held` (shard -> epoch), does about `view`.

    A worker below the floor claims; free shards that no worker below the floor needs go to those at
    the floor, up to the ceiling. While free shards do not cover what is missing, owners above the
    floor release one each, the fullest first, and no more of them than are needed. Above the ceiling
    a worker always releases.

    >>> rows = tuple(Row(shard, "a", 1, False) for shard in range(4))
    >>> decide(View(rows, ("a", "b")), "a", {0: 1, 1: 1, 2: 1, 3: 1})
    Step(disown=(), claim=0, release=Grant(shard=3, epoch=1), settled=False)
    >>> decide(View((Row(0, None, 3, False),), ("b",)), "b", {}).claim
    1
    """
    counts = dict.fromkeys((*view.workers, me), 0)
    free = coming = 0
    disown = []
    for row in view.rows:
        if row.owner is None or row.expired:
            free += 1
        elif row.owner == me and held.get(row.shard) != row.epoch:
            disown.append(Grant(row.shard, row.epoch))  # a claim whose answer never came
            coming += 1
        elif row.owner in counts:
            counts[row.owner] += 1
        else:
            coming += 1  # its owner is leaving, or its heartbeat ran out just before its lease
    floor, extra = divmod(len(view.rows), len(counts))
    ceiling = floor + bool(extra)
    mine = counts[me]
    missing = sum(max(0, floor - count) for count in counts.values())
    claim = min(
        free, max(0, floor - mine) + (mine < ceiling and mine <= floor and free > missing and extra > 0)
    )
    release = None
    if mine > floor:
        needed = missing - free - coming
        donors = sorted((-count, name) for name, count in counts.items() if count > floor)
        if mine > ceiling or (-mine, me) in donors[: max(0, needed)]:
            here = [row for row in view.rows if row.owner == me and not row.expired]
            last = max(row for row in here if held.get(row.shard) == row.epoch)
            release = Grant(last.shard, last.epoch)
    settled = not (free or coming or missing) and max(counts.values()) <= ceiling
    return Step(tuple(disown), claim, release, settled)


class Holder:
    """What one worker holds, and until when by its own monotonic clock.

    Args:
        identity: The worker's name and incarnation; no two processes ever share one.
        ttl: For how many seconds the database grants a lease.
    """

    __slots__ = ("_deadlines", "identity", "span")

    def __init__(self, identity: str, ttl: float) -> None:
        self.identity = identity
        self.span = ttl * (1 - DRIFT)
        self._deadlines: dict[Grant, float] = {}

    @property
    def grants(self) -> list[Grant]:
        """What is held, in order."""
        return sorted(self._deadlines)

    def deadline(self, grant: Grant) -> float | None:
        """Return when `grant` ends here, or None when it is not held."""
        return self._deadlines.get(grant)

    @property
    def next_deadline(self) -> float | None:
        """When the first grant ends, or None when nothing is held."""
        return min(self._deadlines.values(), default=None)

    def claimed(self, sent: float, grants: Sequence[Grant]) -> list[Grant]:
        """Take what a claim brought that was sent at `sent`; return, and drop, what it supersedes.

        That is a grant which ran out in the database and is not known to be over here.
        """
        shards = {grant.shard for grant in grants}
        lost = [grant for grant in self._deadlines if grant.shard in shards]
        for grant in lost:
            del self._deadlines[grant]
        for grant in grants:
            self._deadlines[grant] = sent + self.span
        return lost

    def renewed(self, sent: float, asked: Iterable[Grant], answer: Iterable[Grant]) -> list[Grant]:
        """Prolong what a renewal sent at `sent` brought; return, and drop, what it did not.

        A grant that was dropped meanwhile stays dropped. A renewal without an answer is not reported
        here: then the old deadline stands.
        """
        granted = set(answer)
        lost = []
        for grant in asked:
            if grant not in self._deadlines:
                continue
            if grant in granted:
                self._deadlines[grant] = max(self._deadlines[grant], sent + self.span)
            else:
                del self._deadlines[grant]
                lost.append(grant)
        return lost

    def expire(self, now: float) -> list[Grant]:
        """Drop and return the grants whose time is over."""
        over = [grant for grant, deadline in self._deadlines.items() if deadline <= now]
        for grant in over:
            del self._deadlines[grant]
        return over

    def drop(self, grant: Grant) -> bool:
        """Give up a grant; return whether it was held."""
        return self._deadlines.pop(grant, None) is not None

    def decide(self, view: View) -> Step:
        """Return what to do about `view`: see `decide`."""
        return decide(view, self.identity, dict(self._deadlines.keys()))
