"""Events as records of `logging`.

    dibs = Dibs("redis://…", listeners=[LoggingListener()])

One record for each event: `dibs.acquired`, with the name and the facts as attributes of the record
(`dibs_name`, `dibs_held` …), which JSON formatters write as fields. No keys, no personal data.
"""

import logging
from dataclasses import fields
from typing import Any

from ..errors import UsageError
from ..events import MEASURES, Event, Kind

__all__ = ["LoggingListener"]

_FACTS = tuple([each.name for each in fields(Event) if each.name not in ("kind", "name", "at")])


def checked_level(level: int | str) -> int:
    """Return the number of a level. Raises UsageError if there is no such level."""
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if type(number) is not int:
        raise UsageError(f"level must be a level of logging, such as INFO, not {level!r}")
    return number


def kinds_from(level: int) -> frozenset[Kind]:
    """Return the kinds of events that are at least as bad as *level*."""
    return frozenset([kind for kind, measure in MEASURES.items() if measure.level >= level])


def facts_of(event: Event) -> dict[str, Any]:
    """Return the facts that *event* has: text, numbers and booleans."""
    facts = {name: getattr(event, name) for name in _FACTS}
    return {name: fact for name, fact in facts.items() if fact is not None}


class LoggingListener:
    """Writes each event to *logger* (default: "dibs.events").

    WARNING is for what needs attention (outage, lost, leaked …), INFO for what happens now and then
    (recovered, elected, started …), DEBUG for everything else.

    Args:
        level: Less important events are not written, whatever the level of the logger.

    Raises:
        UsageError: There is no such level.
    """

    def __init__(
        self, logger: logging.Logger | None = None, *, level: int | str = logging.INFO
    ) -> None:
        self._logger = logging.getLogger("dibs.events") if logger is None else logger
        self._level = checked_level(level)
        self.kinds = kinds_from(self._level)
        """The events that it wants."""

    def __call__(self, event: Event) -> None:
        """Write *event*, if the logger is enabled for its level."""
        level = MEASURES[event.kind].level
        if not self._logger.isEnabledFor(level):
            return
        facts = facts_of(event)
        extra = {f"dibs_{name}": fact for name, fact in facts.items()}
        extra |= {"dibs_event": event.kind, "dibs_name": event.name}
        self._logger.log(
            level, "dibs.%s %s%s", event.kind, event.name, _shown_facts(facts), extra=extra
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._logger.name!r}, {logging.getLevelName(self._level)}>"


def _shown_facts(facts: dict[str, object]) -> str:
    """` held=0.02 guarded=True`."""
    return "".join([f" {name}={_value_text(fact)}" for name, fact in facts.items()])


def _value_text(fact: object) -> str:
    if isinstance(fact, float):
        return f"{fact:.6g}"
    return repr(fact) if isinstance(fact, str) and " " in fact else str(fact)
