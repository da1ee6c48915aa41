"""Events as breadcrumbs of Sentry.

    dibs = Dibs("redis://…", listeners=[SentryListener()])

An error that Sentry reports then shows what dibs did before it in that request, task or thread.
No keys, no personal data.
"""

import logging
from datetime import UTC, datetime

from . import needs

with needs("sentry"):
    import sentry_sdk

from ..events import MEASURES, Event
from .logging import checked_level, facts_of, kinds_from

__all__ = ["SentryListener"]

_ALSO = frozenset({"busy", "duplicate", "replayed", "detached", "resumed"})
"""What explains the behaviour of a call, although it is nothing bad."""


class SentryListener:
    """Adds a breadcrumb for each event that may explain an error.

    Args:
        level: Less important events are not added, except refusals (busy, duplicate, replayed) and
            hand-overs, which always are. "DEBUG" adds all of them.

    Raises:
        UsageError: There is no such level.
    """

    def __init__(self, *, level: int | str = logging.INFO) -> None:
        self._level = checked_level(level)
        self.kinds = kinds_from(self._level) | _ALSO
        """The events that it wants."""

    def __call__(self, event: Event) -> None:
        """Add a breadcrumb to the current scope."""
        level = logging.getLevelName(MEASURES[event.kind].level).lower()
        sentry_sdk.add_breadcrumb(
            type="default",
            category="dibs",
            message=f"{event.kind} {event.name}",
            level=level,
            data=facts_of(event),
            timestamp=datetime.fromtimestamp(event.at, UTC),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {logging.getLevelName(self._level)}>"
