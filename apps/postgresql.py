"""Connections to PostgreSQL that a caller leaves when the server does not answer.

`statement_timeout` ends a statement in a server that works. A server that hangs (stopped, or its
machine is gone) ends nothing, and its kernel still accepts what is sent: only our own clock helps.
"""

import math
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any

import psycopg

from .deadlines import seconds_left

_GRACE = 0.5
"""Seconds for the server's own word, which is clearer than our silence."""


class LimitedConnection(psycopg.Connection[Any]):
    """Closes itself and raises OperationalError when the caller's time is over."""

    longest = math.inf
    """How long a statement may take outside of such a call: a transaction of several threads."""

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Run *gen* to its end, but not past the time that the thread's call has left."""
        left = seconds_left()
        until = monotonic() + (self.longest if left is None else left) + _GRACE
        return super().wait(self._limited(gen, until), *arguments, **options)

    def _limited(self, gen: Any, until: float) -> Generator[Any, Any, Any]:
        """*gen*; psycopg resumes it ten times a second while nothing comes."""
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and monotonic() >= until:
                    self.pgconn.finish()  # or the pool would hand out what is still in use
                    raise psycopg.OperationalError("the server did not answer in time")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def opening(longest: float) -> Callable[..., LimitedConnection]:
    """For SQLAlchemy's event `do_connect`. *longest*: seconds for a statement."""

    def open_connection(
        dialect: Any, record: Any, arguments: Any, options: Any
    ) -> LimitedConnection:
        opened = LimitedConnection.connect(*arguments, **options)
        opened.longest = longest
        return opened

    return open_connection
