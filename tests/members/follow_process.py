"""follow_process.py DB GROUP ROUTERS: routers that follow, in a process of their own.

Writes a line of JSON for every epoch they reach: the epoch and the digest of every router. Ends when its
standard input does.
"""

from __future__ import annotations

import json
import sys

from ringhash import Router
from ringhash.members import Members


def main(db: str, group: str, count: int) -> None:
    routers = [Router(vnodes=16) for _ in range(count)]

    def tell(epoch: int) -> None:
        assert all(router.epoch == epoch for router in routers)
        digests = [router.placement.digest for router in routers]
        print(json.dumps([epoch, digests]), flush=True)

    with Members(db, name=group).follow(*routers, poll=0.25, settle=0.01, on_change=tell):
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
