"""Shared forecasts: a real Valkey, and a real service that counts its calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from apps.weamind.places.place import Place
from apps.weamind.weather.forecast import TAIPEI, is_stale
from apps.weamind.weather.forecasts import Forecasts
from apps.weamind.weather.open_meteo import OpenMeteo
from apps.weamind.weather.provider import Reason, WeatherUnavailable
from apps.weamind.weather.sample import Sample
from dibs import AsyncDibs, Event
from dibs.testing import Child, FaultProxy, Server, aeventually

from .recorded import upstream as does
from .recorded.upstream import Upstream, recorded, saying

pytestmark = pytest.mark.only_on("linux", "darwin")

XINYI = Place("63000020", "臺北市", "信義區", 25.0330, 121.5654)
DAAN = Place("63000030", "臺北市", "大安區", 25.0264, 121.5435)
FRESH = "weather:open-meteo:v2:63000020"
LAST = "weather:open-meteo:last:v2:63000020"
NOW = datetime(2026, 3, 1, 17, 50, tzinfo=TAIPEI)
GOOD = recorded("open_meteo_forecast")


class Bot:
    """One process of the bot, as far as weather goes."""

    def __init__(self, redis_url: str, upstream: Upstream, **options: Any) -> None:
        self.events: list[Event] = []
        self.now = NOW
        # A budget with room: an outage is something that a test makes, not a busy machine.
        self.dibs = AsyncDibs(redis_url, budget=5, listeners=[self.events.append])
        self.provider = OpenMeteo(base_url=upstream.url, deadline=10, clock=lambda: self.now)
        options = {"wait": 15.0} | options
        self.forecasts = Forecasts(self.dibs, self.provider, **options)

    @property
    def get(self) -> Callable[..., Any]:
        return self.forecasts.get

    def was_emitted(self, kind: str) -> bool:
        return any(event.kind == kind for event in self.events)


@asynccontextmanager
async def bot(redis_url: str, upstream: Upstream, **options: Any) -> AsyncIterator[Bot]:
    bot = Bot(redis_url, upstream, **options)
    try:
        yield bot
    finally:
        await bot.dibs.aclose()
        await bot.provider.aclose()


async def failure(get: Callable[..., Any], place: Place = XINYI) -> WeatherUnavailable:
    with pytest.raises(WeatherUnavailable) as caught:
        await get(place)
    return caught.value


def expire(valkey: Server) -> None:
    """As if the forecast were neither fresh nor good to be served while it is refreshed."""
    valkey.client().delete(FRESH)


# ---- one question for all


async def ask_for_many(redis_url: str, weather_url: str, people: int) -> int:
    """What a process of the bot does with many callers; says how many different answers it got."""
    import asyncio

    from apps.weamind.places.place import Place
    from apps.weamind.weather.forecasts import Forecasts
    from apps.weamind.weather.open_meteo import OpenMeteo
    from dibs import AsyncDibs
    from tests.apps.weamind.test_weather_forecasts import NOW

    place = Place("63000020", "臺北市", "信義區", 25.0330, 121.5654)
    provider = OpenMeteo(base_url=weather_url, deadline=20, clock=lambda: NOW)
    async with AsyncDibs(redis_url, budget=5) as dibs:
        forecasts = Forecasts(dibs, provider, wait=25)
        print("ready", flush=True)
        await asyncio.to_thread(input)
        answers = await asyncio.gather(*(forecasts.get(place) for _ in range(people)))
    await provider.aclose()
    return len(set(answers))


async def test_three_hundred_people_are_one_call(valkey: Server) -> None:
    """Two processes with 150 people each ask for one township at once: one call upstream."""
    async with Upstream(saying(GOOD, after=0.5)) as upstream:
        children = [Child(ask_for_many, valkey.url, upstream.url, 150) for _ in range(2)]
        try:
            for child in children:
                assert await asyncio.to_thread(child.line, within=30) == "ready"
            for child in children:
                child.tell()
            for child in children:
                assert await asyncio.to_thread(child.result) == 1
        finally:
            for child in children:
                child.close()
        assert len(upstream.asked) == 1


async def test_it_is_read_and_not_asked_again(valkey: Server) -> None:
    """Also by another process, which gets the same, down to the types."""
    async with Upstream(saying(GOOD)) as upstream:
        async with bot(valkey.url, upstream) as one, bot(valkey.url, upstream) as other:
            first, second = await one.get(XINYI), await other.get(XINYI)
            assert first == second and type(second.steps) is tuple
            assert second.updated_at == NOW and second.steps[0].start.utcoffset() is not None
    assert len(upstream.asked) == 1


async def test_the_keys(valkey: Server) -> None:
    """Two for a place, with provider and version, that end by themselves: 10 minutes give or take
    a fifth and 15 more, and 6 hours. No person is in them."""
    async with Upstream(saying(GOOD)) as upstream, bot(valkey.url, upstream) as one:
        await one.get(XINYI)
        assert sorted(valkey.keys()) == sorted([FRESH, LAST])
        client = valkey.client()
        assert 480 + 900 - 5 < client.ttl(FRESH) <= 720 + 900
        assert 6 * 3600 - 5 < client.ttl(LAST) <= 6 * 3600
        stored = json.loads(client.get(FRESH).partition(b"\n")[2])
        assert stored["place_code"] == "63000020" and stored["provider"] == "open-meteo"


async def test_places_are_kept_apart(valkey: Server) -> None:
    """One call for each."""
    async with Upstream(saying(GOOD)) as upstream, bot(valkey.url, upstream) as one:
        answers = await asyncio.gather(*(one.get(place) for place in (XINYI, DAAN) * 20))
        assert {answer.place_name for answer in answers} == {"臺北市信義區", "臺北市大安區"}
        assert len(upstream.asked) == 2


async def test_a_busy_place_never_waits(valkey: Server) -> None:
    """Just past its time it is served at once, while one refreshes it behind; no note is due."""
    async with Upstream(saying(GOOD)) as upstream, bot(valkey.url, upstream) as one:
        await one.get(XINYI)
        assert valkey.client().pexpire(FRESH, 899_000)
        upstream.behaviour = does.hanging
        old = await one.get(XINYI)
        assert old.updated_at == NOW and not is_stale(old, NOW + timedelta(minutes=27))
        await aeventually(lambda: len(upstream.asked) == 2)
    assert one.was_emitted("stale")


# ---- failures


async def test_the_last_one_known_stands_in(valkey: Server) -> None:
    """The service fails, and the forecast is old: it is served, with its age; when the service is
    back, a new one."""
    async with Upstream(saying(GOOD)) as upstream:
        async with bot(valkey.url, upstream, rest=0.05) as one:
            await one.get(XINYI)
            expire(valkey)
            one.now = NOW + timedelta(hours=3)
            upstream.behaviour = saying(b"oops", 500)
            for _ in range(3):
                old = await one.get(XINYI)
                assert old.updated_at == NOW and is_stale(old, one.now)
            upstream.behaviour = saying(GOOD)

            async def is_new() -> bool:
                return (await one.get(XINYI)).updated_at == one.now

            await aeventually(is_new)


async def test_also_for_who_never_asked_before(valkey: Server) -> None:
    """Another process, which starts during the failure, has the last one known as well."""
    async with Upstream(saying(GOOD)) as upstream:
        async with bot(valkey.url, upstream) as one:
            await one.get(XINYI)
        expire(valkey)
        upstream.behaviour = does.hanging_up
        async with bot(valkey.url, upstream) as other:
            assert (await other.get(XINYI)).updated_at == NOW


async def test_a_failure_is_shared_and_not_repeated_for_a_while(valkey: Server) -> None:
    """The first caller is told why; for a while no other call is made, in any process."""
    async with Upstream(saying(b"oops", 500)) as upstream:
        async with bot(valkey.url, upstream) as one, bot(valkey.url, upstream) as other:
            first = await failure(one.get)
            assert (first.reason, first.status) == (Reason.STATUS, 500)
            for get in (one.get, other.get, one.get):
                assert (await failure(get)).reason is Reason.RESTING
    assert len(upstream.asked) == 1


async def test_many_callers_share_one_failure(valkey: Server) -> None:
    """A hundred people, a service that fails: one call."""
    async with Upstream(saying(b"oops", 502, after=0.2)) as upstream:
        async with bot(valkey.url, upstream) as one:
            errors = await asyncio.gather(*(failure(one.get) for _ in range(100)))
            assert {error.reason for error in errors} <= {Reason.STATUS, Reason.RESTING}
    assert len(upstream.asked) == 1


async def test_a_service_that_hangs_is_not_waited_for_long(valkey: Server) -> None:
    """A service that hangs: the last one known, or a time-out, long before the service itself is
    given up."""
    async with Upstream(saying(GOOD)) as upstream:
        async with bot(valkey.url, upstream) as one:
            await one.get(XINYI)
            expire(valkey)
        upstream.behaviour = does.hanging
        async with bot(valkey.url, upstream, wait=0.3) as one:
            assert (await one.get(XINYI)).updated_at == NOW
            assert (await failure(one.get, DAAN)).reason is Reason.TIMEOUT
            failed = [event.name for event in one.events if event.kind == "degraded"]
            assert FRESH.replace("63000020", "{place.code}") not in failed


async def test_asked_too_often(valkey: Server) -> None:
    """The service wants to be left alone: no place is asked for until then."""
    async with Upstream(saying(b"", 429, retry_after="300")) as upstream:
        async with bot(valkey.url, upstream) as one:
            assert (await failure(one.get)).reason is Reason.RATE_LIMITED
            other = await failure(one.get, DAAN)
            assert other.reason is Reason.RATE_LIMITED
            assert other.retry_after is not None and 200 < other.retry_after <= 300
    assert len(upstream.asked) == 1


async def test_asked_too_often_by_another_process(valkey: Server) -> None:
    """Who has not asked yet leaves the service alone as well, and says for how long."""
    async with Upstream(saying(b"", 429, retry_after="300")) as upstream:
        async with bot(valkey.url, upstream) as one, bot(valkey.url, upstream) as other:
            assert (await failure(one.get)).reason is Reason.RATE_LIMITED
            refused = await failure(other.get, DAAN)
            assert refused.reason is Reason.RATE_LIMITED
            assert refused.retry_after is not None and 200 < refused.retry_after <= 300
        async with bot(valkey.url, upstream) as later:  # the process that was refused is gone
            banqiao = Place("65000010", "新北市", "板橋區", 25.0118, 121.4579)
            assert (await failure(later.get, banqiao)).reason is Reason.RATE_LIMITED
    assert len(upstream.asked) == 1
    assert 200 < valkey.client().ttl("weather:open-meteo:pause") <= 300


async def test_asked_too_often_without_a_store(valkey: Server, proxy: FaultProxy) -> None:
    """Then each process has its own pause."""
    async with Upstream(saying(b"", 429, retry_after="300")) as upstream:
        async with bot(proxy.url, upstream) as one:
            proxy.refuse()
            assert (await failure(one.get)).reason is Reason.RATE_LIMITED
            assert (await failure(one.get, DAAN)).reason is Reason.RATE_LIMITED
    assert len(upstream.asked) == 1


@pytest.mark.parametrize(
    "foreign", [b"", b"1", b"dibs1 json 00000000 1.0 0.1\n{}", b"\xff\xfe", b"{}"]
)
async def test_foreign_bytes_are_a_miss(valkey: Server, foreign: bytes) -> None:
    """In the place of a forecast, and of the last one known."""
    valkey.client().set(FRESH, foreign, ex=600)
    valkey.client().set(LAST, foreign, ex=600)
    async with Upstream(saying(GOOD)) as upstream, bot(valkey.url, upstream) as one:
        assert (await one.get(XINYI)).updated_at == NOW
    assert len(upstream.asked) == 1


async def test_a_forecast_that_is_no_forecast_is_a_miss(valkey: Server) -> None:
    """Right type, wrong content: a time without a zone would break every comparison."""
    async with Upstream(saying(GOOD)) as upstream, bot(valkey.url, upstream) as one:
        await one.get(XINYI)
        stored = valkey.client().get(FRESH)
        valkey.client().set(FRESH, stored.replace(b"+08:00", b""), ex=3600)
        assert (await one.get(XINYI)).updated_at == NOW
    assert len(upstream.asked) == 2


# ---- the store is out


async def test_without_a_store(valkey: Server, proxy: FaultProxy) -> None:
    """Forecasts are asked for directly, one call at a time for a place; and shared again after."""
    async with Upstream(saying(GOOD, after=0.3)) as upstream:
        async with bot(proxy.url, upstream) as one:
            proxy.refuse()
            answers = await asyncio.gather(*(one.get(XINYI) for _ in range(50)))
            assert {answer.updated_at for answer in answers} == {NOW}
            assert len(upstream.asked) == 1 and valkey.keys() == []
            proxy.accept()

            async def is_kept() -> bool:
                await one.get(XINYI)
                return FRESH in valkey.keys()

            await aeventually(is_kept, within=90)


async def test_without_a_store_or_a_service(valkey: Server) -> None:
    """The service's own failure is reported."""
    async with Upstream(saying(b"", 503)) as upstream:
        async with bot("redis://127.0.0.1:1", upstream) as one:
            assert (await failure(one.get)).reason is Reason.STATUS


# ---- nothing to keep


async def test_made_up_weather_is_not_kept(valkey: Server) -> None:
    """It is made for each caller, so that its slowness can be seen again and again."""
    async with AsyncDibs(valkey.url) as dibs:
        forecasts = Forecasts(dibs, Sample())
        assert (await forecasts.get(XINYI)).sample
        assert valkey.keys() == [] and "sample" in repr(forecasts)
        kept = Forecasts(dibs, Sample(), ttl=60)
        assert (await kept.get(XINYI)) == (await kept.get(XINYI))
        assert len(valkey.keys()) == 2
