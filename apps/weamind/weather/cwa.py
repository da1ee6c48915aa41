"""The Central Weather Administration, 中央氣象署: the official forecast, with a free key.

Townships have a 3-day forecast in steps of 3 hours (F-D0047-…), counties one of 36 hours in three
periods (F-C0032-001); both have one for a week in halves of a day, which is asked for at the same
time, and without which the forecast is shorter. A landmark has that of its township.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import datetime

import httpx2 as httpx

from ..places.place import Place
from .cwa_answers import NAME, read_county, read_township
from .cwa_week import read_week, with_week
from .download import DEADLINE, Downloads
from .forecast import TAIPEI, Day, Forecast
from .provider import Reason, WeatherUnavailable

BASE_URL = "https://opendata.cwa.gov.tw"
DATASTORE = "/api/v1/rest/datastore"
_COUNTIES = "F-C0032-001"
_WEEK_OF_COUNTIES = "F-D0047-091"
_TOWNSHIPS = {
    "宜蘭縣": "F-D0047-001",
    "桃園市": "F-D0047-005",
    "新竹縣": "F-D0047-009",
    "苗栗縣": "F-D0047-013",
    "彰化縣": "F-D0047-017",
    "南投縣": "F-D0047-021",
    "雲林縣": "F-D0047-025",
    "嘉義縣": "F-D0047-029",
    "屏東縣": "F-D0047-033",
    "臺東縣": "F-D0047-037",
    "花蓮縣": "F-D0047-041",
    "澎湖縣": "F-D0047-045",
    "基隆市": "F-D0047-049",
    "新竹市": "F-D0047-053",
    "嘉義市": "F-D0047-057",
    "臺北市": "F-D0047-061",
    "高雄市": "F-D0047-065",
    "新北市": "F-D0047-069",
    "臺中市": "F-D0047-073",
    "臺南市": "F-D0047-077",
    "連江縣": "F-D0047-081",
    "金門縣": "F-D0047-085",
}


_log = logging.getLogger(__name__)


def _week_of(dataset: str) -> str:
    """The forecast for a week has the number after the next: 001 and 003, 061 and 063."""
    name, _, number = dataset.rpartition("-")
    return f"{name}-{int(number) + 2:03d}"


class Cwa:
    """The official forecast. The key travels in a header, so that it is in no log of addresses."""

    name = NAME
    fresh_for = 600.0

    def __init__(
        self,
        key: str,
        *,
        base_url: str = BASE_URL,
        deadline: float = DEADLINE,
        strict_tls: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(TAIPEI),
    ) -> None:
        """ValueError: no key, or one that no header can hold. Nothing connects yet."""
        self._key = checked_key(key)
        tls = tls_context(strict=strict_tls)
        self._downloads = Downloads(NAME, base_url, deadline=deadline, tls=tls)
        self._clock = clock

    def __repr__(self) -> str:
        return "<Cwa>"

    async def fetch(self, place: Place) -> Forecast:
        """The official forecast. WeatherUnavailable: there is none, as for 東沙島; or the week was
        asked for too often, and the error has the three days."""
        if place.is_off_the_map:
            raise WeatherUnavailable(NAME, Reason.NO_DATA)
        forecast, week = await asyncio.gather(
            self._forecast(place),
            self._week(place),
            return_exceptions=True,  # nothing is left under way when one of them fails
        )
        if isinstance(forecast, BaseException):
            raise _limited(week) or forecast
        if not isinstance(week, BaseException):
            return with_week(forecast, week)
        _log.info("a forecast is shorter than a week: %s", week)
        if limited := _limited(week):
            limited.forecast = forecast
            raise limited
        return forecast

    async def _forecast(self, place: Place) -> Forecast:
        if place.town is None:
            body = await self._ask(_COUNTIES, {"locationName": place.county})
            return read_county(body, place, now=self._clock())
        body = await self._ask(_dataset(place), {"LocationName": place.town})
        return read_township(body, place, now=self._clock())

    async def _week(self, place: Place) -> tuple[Day, ...]:
        dataset = _week_of(_dataset(place)) if place.town else _WEEK_OF_COUNTIES
        body = await self._ask(dataset, {"LocationName": place.town or place.county})
        return read_week(body, place)

    async def aclose(self) -> None:
        """No connection is left."""
        await self._downloads.aclose()

    async def _ask(self, dataset: str, where: dict[str, str]) -> object:
        params = {"format": "JSON", **where}
        return await self._downloads.json(f"{DATASTORE}/{dataset}", params, key=self._key)


def _limited(answer: object) -> WeatherUnavailable | None:
    """It, if it says that we ask too often: that counts for all datasets."""
    is_error = isinstance(answer, WeatherUnavailable)
    return answer if is_error and answer.reason is Reason.RATE_LIMITED else None


def checked_key(key: str) -> str:
    """*key*. ValueError: it is none, or no header can hold it."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("CWA needs an authorization key: letters, digits and dashes")
    return key


def _dataset(place: Place) -> str:
    """WeatherUnavailable: there is none for its county."""
    dataset = _TOWNSHIPS.get(place.county)
    if dataset is None:
        raise WeatherUnavailable(NAME, Reason.NO_DATA)
    return dataset


def tls_context(*, strict: bool) -> ssl.SSLContext:
    """Certificates and host names are checked in any case; *strict*: also their form.

    The office's chain lacks a Subject Key Identifier, which browsers do not mind. Since Python 3.13
    the default context does, by one flag. That flag alone is taken back.
    """
    context = httpx.create_ssl_context()
    if strict:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    else:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
