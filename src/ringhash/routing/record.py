"""A router as a document: what of it other processes are told."""

from __future__ import annotations

from ringhash.placement import placement_from
from ringhash.records import document, field, read_document
from ringhash.routing.pins import Pin, Pins
from ringhash.routing.running import Running
from ringhash.routing.snapshot import RouterSnapshot

__all__ = ["read", "written"]


def written(seen: RouterSnapshot) -> dict[str, object]:
    """Return what `Router.to_dict` does."""
    pins = {"pins": [pin.to_dict() for pin in seen.pins.values()]} if seen.pins else {}
    running = {} if seen.running is None else {"running": seen.running.to_dict()}
    return document("router", epoch=seen.epoch, placement=seen.placement.to_dict(), **pins, **running)


def read(data: object) -> RouterSnapshot:
    """Return the snapshot of a router that `written` described.

    Raises:
        ValueError: A field is missing, unknown or wrong; the message names it.
    """
    record = read_document(
        data, "router", "router", frozenset({"epoch", "placement"}), frozenset({"pins", "running"})
    )
    epoch = field(record, "router", "epoch", int)
    if epoch < 0:
        raise ValueError(f"router.epoch: must not be negative, not {epoch}")
    placement = placement_from(record["placement"])
    pins = Pin.list_from(record.get("pins", []), "router.pins")
    running = None
    if "running" in record:
        running = Running.read(record["running"], placement, "router.running")
    seen = RouterSnapshot(placement, epoch, Pins(pins), running=running)
    for pin in pins:
        if pin.node not in placement:
            raise ValueError(f"router.pins: {pin.key!r} is pinned to {pin.node!r}, which is not a node")
    return seen
