"""Services that are slow, broken or rude: both providers, over real connections.

Whatever they send or do not send, there is a WeatherUnavailable that tells why, in time.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from apps.weamind.places.place import Place
from apps.weamind.weather.cwa import Cwa
from apps.weamind.weather.forecast import TAIPEI, Forecast
from apps.weamind.weather.open_meteo import OpenMeteo
from apps.weamind.weather.provider import Provider, Reason, WeatherUnavailable
from apps.weamind.weather.sources import NAMES, open_provider
from dibs.testing.servers import free_port

from .recorded import upstream as does
from .recorded.upstream import Behaviour, Upstream, recorded, saying

BANQIAO = Place("65000010", "新北市", "板橋區", 25.0115, 121.4509)
NOW = datetime(2026, 3, 1, 18, 20, tzinfo=TAIPEI)
KEY = "a-key-for-tests"
NONSENSE = [
    b"", b"<html>busy</html>", b"\xff\xfe\x00", b"{", b"null", b"[]", b"{}", b'"text"', b"NaN",
    b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000, b'{"hourly": {"time": "\\ud800"}}',
]  # fmt: skip
SHORT = 0.3
PLENTY = 20.0


Says = Callable[..., Awaitable[WeatherUnavailable]]


class Make:
    """One of the two providers that ask over the network."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.good = recorded("open_meteo_forecast" if name == "open-meteo" else "cwa_township")

    def __call__(self, url: str, deadline: float = PLENTY) -> Provider:
        options: dict[str, Any] = {"base_url": url, "deadline": deadline, "clock": lambda: NOW}
        return OpenMeteo(**options) if self._name == "open-meteo" else Cwa(KEY, **options)


@pytest.fixture(params=["open-meteo", "cwa"])
def make(request: pytest.FixtureRequest) -> Make:
    return Make(request.param)


@asynccontextmanager
async def opened(provider: Provider) -> AsyncIterator[Provider]:
    try:
        yield provider
    finally:
        await provider.aclose()


async def ask(make: Make, behaviour: Behaviour, deadline: float = PLENTY) -> Forecast:
    async with Upstream(behaviour) as upstream, opened(make(upstream.url, deadline)) as provider:
        async with asyncio.timeout(PLENTY):
            return await provider.fetch(BANQIAO)


async def refused(make: Make, behaviour: Behaviour, deadline: float = PLENTY) -> WeatherUnavailable:
    with pytest.raises(WeatherUnavailable) as caught:
        await ask(make, behaviour, deadline)
    return caught.value


# ---- no answer


@pytest.mark.parametrize("behaviour", [does.hanging, does.dripping])
async def test_it_takes_too_long(make: Make, behaviour: Behaviour) -> None:
    """The deadline is for all of it: also a body that comes drop by drop is given up."""
    error = await refused(make, behaviour, SHORT)
    assert error.reason is Reason.TIMEOUT


@pytest.mark.parametrize("behaviour", [does.hanging_up, does.cut_short, does.not_http])
async def test_it_breaks_off(make: Make, behaviour: Behaviour) -> None:
    """A connection without an answer, half an answer, or another protocol."""
    error = await refused(make, behaviour)
    assert error.reason is Reason.UNREACHABLE


async def test_nobody_is_there(make: Make) -> None:
    """Nothing listens."""
    async with opened(make(f"http://127.0.0.1:{free_port()}")) as provider:
        with pytest.raises(WeatherUnavailable) as caught:
            await provider.fetch(BANQIAO)
    assert caught.value.reason is Reason.UNREACHABLE


async def test_a_service_that_recovers(make: Make) -> None:
    """After a failure the same provider fetches again."""
    async with Upstream(does.hanging_up) as upstream, opened(make(upstream.url)) as provider:
        with pytest.raises(WeatherUnavailable):
            await provider.fetch(BANQIAO)
        upstream.behaviour = saying(make.good)
        assert (await provider.fetch(BANQIAO)).place_code == "65000010"


async def test_who_leaves_takes_the_request_along(make: Make) -> None:
    """Cancelled while it waits: CancelledError, and nothing is left."""
    async with Upstream(does.hanging) as upstream, opened(make(upstream.url)) as provider:
        fetching = asyncio.create_task(provider.fetch(BANQIAO))
        while not upstream.asked:
            await asyncio.sleep(0.01)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching


# ---- a no


@asynccontextmanager
async def a_rude_service(make: Make) -> AsyncIterator[Says]:
    """`await says(body, status, …)`: what the provider makes of that answer."""
    async with Upstream(does.hanging) as upstream, opened(make(upstream.url)) as provider:

        async def says(*answer: Any, **headers: str) -> WeatherUnavailable:
            upstream.behaviour = saying(*answer, **headers)
            with pytest.raises(WeatherUnavailable) as caught:
                await provider.fetch(BANQIAO)
            return caught.value

        yield says


async def test_an_answer_with_an_error(make: Make) -> None:
    """Told apart by the status. A redirect is not followed: a key must not travel."""
    async with a_rude_service(make) as says:
        for status in (204, 301, 302, 307, 400, 404, 418, 500, 502, 503, 504):
            error = await says(make.good, status, location="http://127.0.0.1:1/")
            assert (error.reason, error.status) == (Reason.STATUS, status)
            assert str(status) in str(error)


async def test_a_key_that_is_not_accepted(make: Make) -> None:
    """A matter of the key for who sends one, else an error like others."""
    async with a_rude_service(make) as says:
        for status in (401, 403):
            error = await says(b"{}", status)
            expected = Reason.BAD_KEY if error.provider == "cwa" else Reason.STATUS
            assert (error.reason, error.status) == (expected, status)
            assert KEY not in f"{error} {error!r}"


async def test_a_service_that_was_asked_too_often(make: Make) -> None:
    """429, and when to come again: in seconds, at most in an hour; if it says nothing that makes
    sense, nothing."""
    expected = {"30": 30, "0": 0, "999999": 3600, "soon": None, "-5": None, "nan": None}
    async with a_rude_service(make) as says:
        for header, seconds in expected.items():
            error = await says(b"", 429, retry_after=header)
            assert (error.reason, error.retry_after) == (Reason.RATE_LIMITED, seconds)
        assert (await says(b"", 429)).retry_after is None


async def test_asked_too_often_with_a_date(make: Make) -> None:
    """Until then; a date that is over says nothing."""
    now = datetime.now(UTC)
    soon, over = (format_datetime(now + timedelta(seconds=n), usegmt=True) for n in (500, -500))
    async with a_rude_service(make) as says:
        rest = (await says(b"", 429, retry_after=soon)).retry_after
        assert rest is not None and 300 < rest <= 500
        assert (await says(b"", 429, retry_after=over)).retry_after is None


# ---- nonsense


async def test_what_is_not_the_expected_json_is_unreadable(make: Make) -> None:
    """Anything but the expected JSON is unreadable."""
    async with a_rude_service(make) as says:
        for body in NONSENSE:
            assert (await says(body)).reason is Reason.UNREADABLE, body[:20]


async def test_a_body_without_an_end(make: Make) -> None:
    """Given up when it is too long, before the deadline."""
    error = await refused(make, does.endless)
    assert error.reason is Reason.UNREADABLE


async def test_the_type_is_not_what_counts(make: Make) -> None:
    """A good document that calls itself a page is read."""
    forecast = await ask(make, saying(make.good, content_type="text/html"))
    assert forecast.place_code == "65000010"


# ---- packed


async def test_packed_answers_are_unpacked(make: Make) -> None:
    """gzip, as it was asked for."""
    packed = gzip.compress(json.dumps(make.good).encode())
    forecast = await ask(make, saying(packed, content_encoding="gzip"))
    assert forecast.place_code == "65000010"


async def test_bombs_and_other_packings(make: Make) -> None:
    """What unpacks to too much, is cut short, or is packed in another way: unreadable."""
    good = json.dumps(make.good).encode()
    bomb, packed = gzip.compress(good + b" " * 50_000_000, 1), gzip.compress(good)
    async with a_rude_service(make) as says:
        for body in (bomb, packed[:100], packed[:-4], good):
            assert (await says(body, content_encoding="gzip")).reason is Reason.UNREADABLE
        for encoding in ("br", "gzip, br", "?"):
            assert (await says(b"{}", content_encoding=encoding)).reason is Reason.UNREADABLE


# ---- which provider


def test_every_name_has_a_provider() -> None:
    """The three of the settings; another, or a missing key, is a ValueError."""
    for name in NAMES:
        assert open_provider(name, cwa_key=KEY).name == name
    assert NAMES == ("open-meteo", "cwa", "sample")
    for name, message in (("", "one of"), ("cwa", "key"), ("yahoo", "one of")):
        with pytest.raises(ValueError, match=message):
            open_provider(name)
