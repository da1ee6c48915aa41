"""Shared forecasts: one request to the provider, however many people ask.

A forecast is fresh for some minutes. For some more it is served at once, while one caller refreshes
it in the background. When it is older, it is requested again; if that fails, the last known one is
served for hours, and the card says how old it is.
"""

import asyncio
import logging
from dataclasses import replace

from dibs import AsyncDibs, Unavailable

from ..places.place import Place
from .forecast import Forecast
from .hazards import Hazards
from .pause import Pause
from .provider import Provider, Reason, WeatherUnavailable

FRESH_KEY = "weather:{provider}:v2:{place.code}"
LAST_KEY = "weather:{provider}:last:v2:{place.code}"
_LOAD_TIMEOUT = 5.0
"""More than any provider's deadline: theirs says what went wrong, this one only ends it."""
_LOCK_TTL = 1.5
"""Short, so that a process that takes over from one that died can still answer in time."""
_log = logging.getLogger(__name__)


class Forecasts:
    """The forecasts of one provider, shared by all processes that share a store."""

    def __init__(
        self,
        dibs: AsyncDibs,
        provider: Provider,
        *,
        hazards: Hazards | None = None,
        ttl: float | None = None,
        stale: float = 900.0,
        keep: float = 6 * 3600.0,
        rest: float = 10.0,
        wait: float = 4.0,
    ) -> None:
        """*dibs*, *provider* and *hazards* stay the caller's, to be closed by it.

        *hazards*: the source of official warnings; None: no warnings. *ttl*: how long a forecast
        is fresh; None: what the provider says; 0: nothing is kept. *stale*: how much longer it is
        served while it is refreshed. *keep*: how long the last one known may stand in. *rest*: how
        long after a failure the provider is not asked again for the same place. *wait*: how long a
        caller waits.
        """
        self._provider = provider
        self._hazards = hazards
        self._wait = wait
        self._pause = Pause(dibs, provider.name)
        self._ttl = provider.fresh_for if ttl is None else ttl
        self._fresh = dibs.cached(
            FRESH_KEY.replace("{provider}", provider.name),
            ttl=self._ttl or 1.0,
            jitter=0.2,
            stale=stale,
            negative_ttl=rest,
            lock_ttl=_LOCK_TTL,
            load_timeout=_LOAD_TIMEOUT,
            wait=wait,
            on_outage="open",
            type=Forecast,
        )(self._load)
        self._last = dibs.cached(
            LAST_KEY.replace("{provider}", provider.name),
            ttl=keep,
            on_outage="open",
            type=Forecast,
        )(self._recall)

    def __repr__(self) -> str:
        return f"<Forecasts of {self._provider.name}, ttl {self._ttl:g} s>"

    async def get(self, place: Place) -> Forecast:
        """The forecast: shared, asked for now, or the last one known; `updated_at` tells how old.

        With the official warnings, if there are any. WeatherUnavailable: there is no forecast.
        """
        forecast = await self._get(place)
        if self._hazards is None:
            return forecast
        return replace(forecast, hazards=await self._hazards.of(place))

    async def _get(self, place: Place) -> Forecast:
        if not self._ttl:
            return await self._fetch(place)
        try:
            async with asyncio.timeout(self._wait):
                return await self._fresh(place)
        except WeatherUnavailable as error:
            failure = error
        except TimeoutError:
            failure = self._failure(Reason.TIMEOUT)
        except Unavailable:  # with on_outage="open": a failure that is remembered
            failure = self._failure(Reason.RESTING)
        return await self._last(place, failure)

    async def _load(self, place: Place) -> Forecast:
        await self._pause.check()
        forecast = await self._fetch(place)
        await self._last.refresh(place, forecast)
        return forecast

    async def _fetch(self, place: Place) -> Forecast:
        try:
            return await self._provider.fetch(place)
        except WeatherUnavailable as error:
            _log.warning("%s", error)  # also for a refresh in the background
            await self._pause.begin(error)
            if error.forecast is None:
                raise
            return error.forecast

    async def _recall(self, place: Place, found: Forecast | WeatherUnavailable) -> Forecast:
        """What to store as the last known forecast; an error: there is none, and why."""
        if isinstance(found, WeatherUnavailable):
            raise found
        return found

    def _failure(self, reason: Reason) -> WeatherUnavailable:
        return WeatherUnavailable(self._provider.name, reason)
