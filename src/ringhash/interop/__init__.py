"""Rings that place every key exactly as other programs do, so that their changes can be planned."""

from ringhash.interop.ketama import KetamaRing
from ringhash.interop.nginx import NginxRing
from ringhash.interop.placement import Placement, UnplacedKeyError

__all__ = ["KetamaRing", "NginxRing", "Placement", "UnplacedKeyError"]
