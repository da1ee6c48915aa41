"""Whether the result of a job that exists may still come."""

from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from ..._internal_api import ResultWatch, Standing, inspector, job_keys, standing_of
from ...errors import Duplicate, LeaseLost, Unavailable, UsageError
from .._unique_jobs import LOOK_EVERY

if TYPE_CHECKING:
    from ... import AsyncDibs


class AsyncResultWait:
    """Whether the result of a job that exists may still come."""

    def __init__(self, dibs: "AsyncDibs", error: Duplicate, lease: float, ended_for: float) -> None:
        self._dibs = dibs
        self._error = error
        self._lease = lease
        self._watch = ResultWatch(lease, ended_for)
        self._since = monotonic()
        self._looked_at = -inf
        self._verdict = "wait"

    async def is_over(self) -> bool:
        """True: no result will come. LeaseLost: the job was lost, or failed without a result.

        Redis is asked once in a second; what it does not answer changes nothing.
        """
        now = monotonic()
        if self._verdict == "wait" and now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            with suppress(Unavailable, UsageError):
                self._verdict = self._watch.look(now - self._since, await self._standing())
        if self._verdict == "gone":
            raise LeaseLost(self._error.key, None, self._error.name)
        return self._verdict == "done"

    async def _standing(self) -> Standing:
        key, job_id = self._error.key, self._error.note or ""
        entry = await inspector(self._dibs).entry(key)
        last = None if entry and entry.note == job_id else await job_keys(self._dibs).last_run(key)
        return standing_of(entry, last, job_id, self._lease)
