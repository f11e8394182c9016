"""Rings that place every key exactly as other programs do, so that their changes can be planned."""

from ringhash.interop.cassandra import CassandraRing
from ringhash.interop.envoy import EnvoyMaglev, EnvoyRing
from ringhash.interop.haproxy import HAProxyRing
from ringhash.interop.kafka import KafkaPartitioner
from ringhash.interop.ketama import KetamaRing
from ringhash.interop.nginx import NginxRing
from ringhash.interop.placement import ProgramPlacement, UnplacedKeyError
from ringhash.interop.redis import RedisSlots
from ringhash.interop.texts import TextSpace
from ringhash.interop.uhash_placement import UHashPlacement
from ringhash.interop.uhashring import UHashRing

__all__ = [
    "CassandraRing",
    "EnvoyMaglev",
    "EnvoyRing",
    "HAProxyRing",
    "KafkaPartitioner",
    "KetamaRing",
    "NginxRing",
    "ProgramPlacement",
    "RedisSlots",
    "TextSpace",
    "UHashPlacement",
    "UHashRing",
    "UnplacedKeyError",
]
