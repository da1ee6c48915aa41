"""Loads that failed: what is remembered of them, and what callers get."""

from collections.abc import Mapping
from typing import Any, cast

from ..errors import Unavailable, UsageError
from .causes import cause_for
from .codec import NO_VALUE


class Absent(KeyError):
    """A load of many values returned none for this one. Callers get `as_unavailable()`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def as_unavailable(self) -> Unavailable:
        """What whoever asked for this value alone gets."""
        why = cause_for("load_failed", "the loader returned no value for it")
        return Unavailable(why, self.name, KeyError.__name__)


def picked(name: str, items: list[Any], found: Any) -> list[Any]:
    """What a load of many returned, as a value for each item, or an Absent. UsageError: no dict."""
    if not isinstance(found, Mapping):
        kind = type(found).__name__
        raise UsageError(f"{name}: the loader must return a dict of values by item, not {kind}")
    values = cast("Mapping[Any, Any]", found)
    return [values[item] if item in values else Absent(name) for item in items]


def failure_of(error: Exception) -> str:
    """What is remembered of a load that failed so: which type, and nothing that may be secret."""
    return NO_VALUE if isinstance(error, Absent) else type(error).__name__


def load_error(failure: str, name: str) -> Absent | Unavailable:
    """What is raised for a failure that is remembered."""
    if failure == NO_VALUE:
        return Absent(name)
    return Unavailable(cause_for("load_failed", f"the last load failed ({failure})"), name, failure)
