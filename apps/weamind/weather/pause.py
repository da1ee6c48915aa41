"""A provider that answers 429 is not asked for a while, by all processes that share a store."""

from time import monotonic

from dibs import AsyncDibs, Unavailable

from .provider import Reason, WeatherUnavailable

KEY = "weather:{provider}:pause"
_REST = 60.0
"""Seconds, where the provider does not say how long."""


class Pause:
    """A lease that is never released: while it lasts, the provider is not asked.

    Without a store, each process has its own pause.
    """

    def __init__(self, dibs: AsyncDibs, provider: str) -> None:
        self._dibs = dibs
        self._provider = provider
        self._key = KEY.format(provider=provider)
        self._until = 0.0

    async def check(self) -> None:
        """WeatherUnavailable: the provider has asked us to pause, for any place."""
        left = self._until - monotonic()
        if left <= 0:
            left = await self._shared()
        if left > 0:
            self._until = monotonic() + left
            raise WeatherUnavailable(self._provider, Reason.RATE_LIMITED, retry_after=left)

    async def begin(self, error: WeatherUnavailable) -> None:
        """If *error* says that we ask too often, begin a pause, for all processes."""
        if error.reason is not Reason.RATE_LIMITED:
            return
        rest = _REST if error.retry_after is None else error.retry_after
        if rest > 0:
            self._until = monotonic() + rest
            await self._dibs.try_hold(self._key, ttl=rest, on_outage="open", name=KEY)

    async def _shared(self) -> float:
        try:
            held = await self._dibs.peek(self._key)
        except Unavailable:
            return 0.0
        return 0.0 if held is None else held.remaining
