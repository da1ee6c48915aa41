"""Events as entries of structlog.

    dibs = Dibs("redis://…", listeners=[StructlogListener()])

One entry for each event: `dibs.acquired`, with `name`, `held`, `waited` … as its fields, and what
the application has bound to its context variables. No keys, no personal data.
"""

import logging
from typing import Any

from . import needs

with needs("structlog"):
    import structlog

from ..events import MEASURES, Event
from .logging import checked_level, facts_of, kinds_from

__all__ = ["StructlogListener"]


class StructlogListener:
    """Writes each event to *logger* (default: that of structlog, as it is configured).

    WARNING is for what needs attention (outage, lost, leaked …), INFO for what happens now and then
    (recovered, elected, started …), DEBUG for everything else.

    Args:
        level: Less important events are not written.

    Raises:
        UsageError: There is no such level.
    """

    def __init__(self, logger: Any = None, *, level: int | str = logging.INFO) -> None:
        self._logger = structlog.get_logger() if logger is None else logger
        self._level = checked_level(level)
        self.kinds = kinds_from(self._level)
        """The events that it wants."""

    def __call__(self, event: Event) -> None:
        """Write *event*."""
        message = f"dibs.{event.kind}"
        self._logger.log(MEASURES[event.kind].level, message, name=event.name, **facts_of(event))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {logging.getLevelName(self._level)}>"
