"""All cases, one room for each theme, in the order in which they are tried."""

from __future__ import annotations

from ..case import Case
from . import clients, keys, outages, passage, replays, streams, work

ROOMS = (work, replays, streams, clients, passage, keys, outages)
CASES: tuple[Case, ...] = tuple(
    thing for room in ROOMS for thing in vars(room).values() if isinstance(thing, Case)
)

__all__ = ["CASES"]
