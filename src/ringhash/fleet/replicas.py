"""Read replicas, with a bound on how far they are behind."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from ringhash.databases import Database, Transaction
from ringhash.errors import ReplicaLagError
from ringhash.fleet.fence import fence_statement, verdict

__all__ = ["Replicas"]

# Seconds behind. A replica that has replayed all that it received is as fresh as its stream; a stream that is
# cut is not.
_LAG = """
    SELECT CASE
        WHEN NOT pg_is_in_recovery() THEN 0.0
        WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
            AND EXISTS (SELECT 1 FROM pg_stat_wal_receiver WHERE status = 'streaming') THEN 0.0
        ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8,
        'infinity')
    END
"""


class Replicas:
    """The read replicas of a fleet's nodes, by name."""

    def __init__(self, databases: Mapping[str, Sequence[Database]]) -> None:
        self._databases = {name: tuple(one) for name, one in databases.items()}

    def enter(
        self, node: str, addresses: tuple[bytes, ...], stale: float, itself: Database
    ) -> tuple[AbstractContextManager[Transaction], Transaction]:
        """Enter a transaction on a replica that is at most `stale` seconds behind; the node itself, if it has
        none.

        The bound and the fence are asked in the round trip that begins the transaction.

        Raises:
            Moved: As far as the replica knows, the key belongs to another node.
            ReplicaLagError: All replicas are further behind, or do not answer.
        """
        replicas = list(self._databases.get(node, ())) or [itself]
        random.shuffle(replicas)
        reasons = []
        for database in replicas:
            asked = [fence_statement(database.dialect, addresses, write=False)]
            if database.dialect == "postgresql":
                asked.append((_LAG, []))
            context = database.transaction(write=False, first=asked)
            try:
                tx = context.__enter__()
            except database.errors as error:
                reasons.append(f"{database.address}: {type(error).__name__}")
                continue
            lag = float(tx.first[1].rows[0][0]) if len(asked) > 1 else 0.0
            try:
                if lag <= stale:
                    verdict(tx.first[0], addresses, write=False)
                    return context, tx
            except BaseException as error:
                context.__exit__(type(error), error, error.__traceback__)
                raise
            context.__exit__(None, None, None)
            reasons.append(f"{database.address}: {lag:.1f} s behind")
        raise ReplicaLagError(f"no replica of {node} is at most {stale} s behind: {'; '.join(reasons)}")

    def __iter__(self) -> Iterator[Database]:
        return (database for databases in self._databases.values() for database in databases)
