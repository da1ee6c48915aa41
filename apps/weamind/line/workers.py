"""Where events are worked on after LINE was answered: the pool of dibs, counted in our metrics.

The rule beyond the bound: a webhook whose events do not all fit is refused as a whole, with 503.
LINE counts that as an error of the bot, and delivers it again where redelivery is switched on.
"""

from collections.abc import Awaitable, Callable

from dibs.integrations import linebot

from ..core.metrics import Metrics
from .events import Event

LONGEST = 50.0
"""Seconds that one event may take: its reply token is valid for about a minute."""

Work = Callable[[Event], Awaitable[str]]
"""Handles an event; returns the outcome as a word."""


class WorkerPool(linebot.WorkerPool[Event]):
    """Events under way. One that fails, hangs or is cancelled does not affect the others."""

    def __init__(
        self,
        work: Work,
        *,
        concurrency: int,
        limit: int,
        counted_in: Metrics,
        longest: float = LONGEST,
    ) -> None:
        super().__init__(
            work,
            concurrency=concurrency,
            limit=limit,
            longest=longest,
            ended=lambda outcome, number: counted_in.events.labels(outcome).inc(number),
            queued=counted_in.queue.set,
            running=counted_in.running.track_inprogress,
        )
