"""Membership shared by many routers, in a database that you have already."""

from ringhash.members.follow import Follow, Guard
from ringhash.members.member import Member
from ringhash.members.table import Members

__all__ = ["Follow", "Guard", "Member", "Members"]
