"""Moving connections without a storm: who must go, in what waves, and when to come back."""

from ringhash.reconnect.drain import Closable, backoff, displaced, drain, retry_after
from ringhash.reconnect.storm import Storm, as_svg, as_table, simulate

__all__ = [
    "Closable",
    "Storm",
    "as_svg",
    "as_table",
    "backoff",
    "displaced",
    "drain",
    "retry_after",
    "simulate",
]
