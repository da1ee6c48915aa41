"""All cases, one module for each theme, in the order in which they are tried."""

from __future__ import annotations

from ..case import Case
from . import claims, clients, keys, outages, passage, replays, sameness, streams, work

THEMES = (work, replays, sameness, streams, clients, passage, keys, claims, outages)
CASES: tuple[Case, ...] = tuple(
    thing for theme in THEMES for thing in vars(theme).values() if isinstance(thing, Case)
)

__all__ = ["CASES"]
