"""How bad an event is, and what of it is written: for the listeners that write logs."""

import logging
from dataclasses import fields
from typing import Any

from ..errors import UsageError
from ..events import KINDS, Event, Kind

_BAD: frozenset[Kind] = frozenset({
    "outage", "lost", "late", "leaked", "deposed", "failed", "missed", "clock_skew",
    "degraded", "rejected_write", "poison", "mismatch",
})  # fmt: skip
_NOTED: frozenset[Kind] = frozenset({
    "recovered", "switched", "elected", "resigned", "fired", "finished",
})  # fmt: skip
LEVELS: dict[Kind, int] = {
    kind: logging.WARNING if kind in _BAD else logging.INFO if kind in _NOTED else logging.DEBUG
    for kind in KINDS
}
"""What is bad is a WARNING, what happens now and then INFO, what happens in every call DEBUG."""

_FACTS = tuple([each.name for each in fields(Event) if each.name not in ("kind", "name", "at")])


def checked_level(level: int | str) -> int:
    """The number of a level. UsageError: there is no such level."""
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if type(number) is not int:
        raise UsageError(f"level must be a level of logging, such as INFO, not {level!r}")
    return number


def kinds_from(level: int) -> frozenset[Kind]:
    """The kinds of events that are at least as bad as *level*."""
    return frozenset([kind for kind, its in LEVELS.items() if its >= level])


def facts_of(event: Event) -> dict[str, Any]:
    """The facts that *event* has: text, numbers and booleans."""
    found = {name: getattr(event, name) for name in _FACTS}
    return {name: fact for name, fact in found.items() if fact is not None}
