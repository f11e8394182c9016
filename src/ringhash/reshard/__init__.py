"""Moving rows between databases while writes go on, and back.

    reshard = Reshard(fleet, [Table("orders", key="tenant")])
    handover = Handover(router, plan, reshard, journal="move.journal")
    handover.run()           copies, catches up, cuts over; each piece is closed for a moment only
    handover.finish()        or handover.reverse(): nothing that was written since is lost
    handover.run()

`reshard.check(piece)` says what would fail later, `verify(piece)` compares both sides, `clean()` takes away
what is left.
"""

from ringhash.errors import ReshardError
from ringhash.reshard.reshard import Reshard
from ringhash.reshard.verify import Diff

__all__ = ["Diff", "Reshard", "ReshardError"]
