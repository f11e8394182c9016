"""The live view of a placement: what it is now, the plans that change it, what is down and what is pinned."""

from ringhash.routing.pins import Pin, Pins
from ringhash.routing.route import Route
from ringhash.routing.router import Router
from ringhash.routing.running import Progress, Running
from ringhash.routing.snapshot import RouterSnapshot

__all__ = ["Pin", "Pins", "Progress", "Route", "Router", "RouterSnapshot", "Running"]
