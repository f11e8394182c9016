"""Is the installed ringhash whole? Run it outside the source tree, with nothing but the wheel installed."""

import pickle
import sys
from pathlib import Path

import ringhash

installed = Path(ringhash.__file__)
assert "site-packages" in installed.parts, f"not the installed package: {installed}"

ring = ringhash.Ring(["gw-1", "gw-2", ringhash.Node("gw-3", weight=2.0, zone="b")])
assert len(ring) == 3
keys = [f"user:{i}" for i in range(1000)]
owners = ring.owner_many(keys)
assert owners == [ring.owner(key) for key in keys]
assert set(owners) == {"gw-1", "gw-2", "gw-3"}

same = pickle.loads(pickle.dumps(ring))
assert same == ring
assert same.digest == ring.digest
assert same.owner_many(keys) == owners

router = ringhash.Router(["gw-1", "gw-2", "gw-3"])
before = router.owner_many(keys)
plan = router.plan(add=["gw-4"])
assert 0.1 < plan.fraction < 0.5
router.apply(plan)
for key, source, target in zip(keys, before, router.owner_many(keys), strict=True):
    move = plan.move_of(key)
    assert (move is not None) == (source != target)
    assert move is None or (move.source, move.target) == (source, target)

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    print("without the GIL: ", end="")
print(f"ringhash works on Python {sys.version.split()[0]}, from {installed.parent}")
