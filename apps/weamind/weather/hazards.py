"""Official warnings, 天氣特報: those of the weather administration for every county (W-C0033-001).

They come from its open data, with its key, and are shown with the forecast of any provider. One
answer holds all counties and is shared by all callers for some minutes. If it is not available,
cards are sent without warnings, and a log line says why.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from dibs import AsyncDibs, Unavailable

from ..places.place import Place
from .cwa import BASE_URL, DATASTORE, checked_key, tls_context
from .cwa_answers import NAME, spelt
from .download import DEADLINE, Downloads
from .forecast import Hazard
from .pause import Pause
from .provider import Reason, WeatherUnavailable
from .values import field, nodes, taiwan_time

KEY = "weather:hazards:v1"
_DATASET = "W-C0033-001"
_FRESH, _STALE, _REST = 300.0, 600.0, 60.0
_LONGEST_NAME = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bulletin:
    """All warnings of one answer."""

    hazards: tuple[Hazard, ...]


class Hazards:
    """The warnings, shared by all processes that share a store."""

    def __init__(
        self,
        dibs: AsyncDibs,
        key: str,
        *,
        base_url: str = BASE_URL,
        deadline: float = DEADLINE,
        wait: float = 2.0,
        strict_tls: bool = False,
    ) -> None:
        """*wait*: how long a forecast waits for them. ValueError: no key. Nothing connects yet.

        *dibs* stays the caller's.
        """
        self._key = checked_key(key)
        self._wait = wait
        tls = tls_context(strict=strict_tls)
        self._downloads = Downloads(NAME, base_url, deadline=deadline, tls=tls)
        self._pause = Pause(dibs, NAME)
        self._bulletin = dibs.cached(
            KEY, ttl=_FRESH, stale=_STALE, negative_ttl=_REST, on_outage="open", type=Bulletin
        )(self._load)

    def __repr__(self) -> str:
        return "<Hazards>"

    async def of(self, place: Place) -> tuple[Hazard, ...]:
        """The warnings for the county of *place*, in force or soon; none if they are unknown."""
        if place.is_off_the_map:
            return ()
        try:
            async with asyncio.timeout(self._wait):
                bulletin = await self._bulletin()
        except (WeatherUnavailable, TimeoutError, Unavailable):
            return ()
        return tuple(hazard for hazard in bulletin.hazards if hazard.county == place.county)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._downloads.aclose()

    async def _load(self) -> Bulletin:
        await self._pause.check()
        try:
            path = f"{DATASTORE}/{_DATASET}"
            body = await self._downloads.json(path, {"format": "JSON"}, key=self._key)
            return read_bulletin(body)
        except WeatherUnavailable as error:
            _log.warning("no official warnings: %s", error)
            await self._pause.begin(error)
            raise


def read_bulletin(body: object) -> Bulletin:
    """What W-C0033-001 says. WeatherUnavailable: it is no such answer."""
    records = field(body, "Records")
    if field(body, "Success") not in ("true", True) or not isinstance(records, dict):
        raise WeatherUnavailable(NAME, Reason.UNREADABLE)
    found = [hazard for location in nodes(records, "Location") for hazard in _of(location)]
    return Bulletin(tuple(dict.fromkeys(found)))


def _of(location: dict[str, object]) -> Iterator[Hazard]:
    county = spelt(field(location, "LocationName"))
    conditions = field(location, "HazardConditions")
    one = field(conditions, "Hazards")
    for hazard in nodes(conditions, "Hazards") or [one]:
        name = _name(field(hazard, "Info"))
        time = field(hazard, "ValidTime")
        if county and name:
            start, end = taiwan_time(field(time, "StartTime")), taiwan_time(field(time, "EndTime"))
            yield Hazard(county, name, start, end)


def _name(info: object) -> str:
    """大雨 and 特報 → 大雨特報; empty, if it does not say what."""
    phenomena, significance = (field(info, key) for key in ("Phenomena", "Significance"))
    if not isinstance(phenomena, str) or not phenomena.strip().isalnum():
        return ""
    kind = significance.strip() if isinstance(significance, str) else ""
    return (phenomena.strip() + (kind if kind.isalnum() else ""))[:_LONGEST_NAME]
