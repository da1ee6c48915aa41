"""Outages are logged without any set-up: one WARNING when one begins, one INFO when it ends."""

import logging
import math
import threading

from .errors import Cause

_log = logging.getLogger("dibs")

_POLICIES = {
    "open": "callers proceed unguarded and cached functions are called directly, except with "
    'on_outage="closed"; leaders and schedules wait',
    "closed": 'callers get Unavailable, except with on_outage="open"; leaders and schedules wait',
}


_LATE = 1.0
"""Seconds in which callers may still come that an outage touched before it ended."""
_OF_SOME_KEYS = ("tryagain", "clusterdown")
"""Causes that concern a few slots of a cluster: that others are served does not end them."""
_QUIET = 5.0
"""Seconds without another such cause after which they are over."""


class OutageLog:
    """What one `Dibs` says about outages of its store. Holds no key and no id.

    An outage begins when a server stops answering, or answers that it cannot serve; it ends when
    it answers again.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self.open()

    def open(self) -> None:
        """Begin without an outage; again in a forked child, which has connections of its own."""
        self.is_open = False
        """True: an outage was logged, and its end was not."""
        self._servers = 0
        """How many servers do not answer: one, or several nodes of a cluster."""
        self._since = 0.0
        self._late_until = -math.inf
        self._cause = Cause("")
        self._touched_at = 0.0
        self._unguarded = 0
        self._guard = threading.RLock()

    def began(self, cause: Cause, now: float) -> None:
        """A server stopped answering."""
        with self._guard:
            self._servers += 1
            self._begin(cause, now)

    def touched(self, cause: str, now: float, *, is_unguarded: bool) -> None:
        """A caller was let through without a guard, or got Unavailable.

        A thread may say so late, when the server answers again: it is counted with the next outage.
        """
        with self._guard:
            if now > self._late_until or self._cause != cause:
                self._begin(Cause(cause), now)
            self._touched_at = now
            self._unguarded += is_unguarded

    def ended(self, now: float) -> None:
        """A server answers again."""
        with self._guard:
            self._servers = max(self._servers - 1, 0)
            self._late_until = now + _LATE
            self.served(now)

    def served(self, now: float) -> None:
        """A request was served: what the server could not do before, it can do now."""
        with self._guard:
            is_quiet = now - self._touched_at > _QUIET
            is_over = self._cause.code not in _OF_SOME_KEYS or is_quiet
            if not self.is_open or self._servers or not is_over:
                return
            self.is_open = False
            lasted, count = max(now - self._since, 0.0), self._unguarded
            self._unguarded = 0
        _log.info(
            "Redis is available again after %.2f s (%s); unguarded grants meanwhile: %d",
            lasted, self._cause.code, count,
        )  # fmt: skip

    def _begin(self, cause: Cause, now: float) -> None:
        if self.is_open:
            return
        self.is_open, self._since, self._cause = True, now, cause
        _log.warning(
            "Redis is unavailable (%s: %s); until it is available again, %s",
            cause.code, cause, _POLICIES[self._policy],
        )  # fmt: skip
