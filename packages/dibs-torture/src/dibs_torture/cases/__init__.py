"""All cases, one module for each theme, in the order in which they are tried."""

from __future__ import annotations

from ..case import Case
from . import clients, execution, identity, keys, outages, passthrough, replays, store, streams

THEMES = (execution, replays, identity, streams, clients, passthrough, keys, store, outages)
CASES: tuple[Case, ...] = tuple(
    thing for theme in THEMES for thing in vars(theme).values() if isinstance(thing, Case)
)

__all__ = ["CASES"]
