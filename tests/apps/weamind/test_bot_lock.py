"""The processing lock: for threads, for tasks, and as people see it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing

import pytest
from local_line import events
from local_line.sources import Source, new_id

from apps.weamind.core.config import SettingsError
from apps.weamind.core.metrics import Metrics
from apps.weamind.core.processing_lock import ProcessingLockService, processing_lock_service
from apps.weamind.core.turns import ProcessingLock
from apps.weamind.line.events import Source as OurSource
from apps.weamind.line.service import should_use_processing_lock
from dibs import AsyncDibs
from dibs.testing import Server, aeventually, eventually

from .conftest import BANQIAO, HOME, OFFICE, XINYI, RunBot, RunningBot, is_busy, is_forecast

pytestmark = pytest.mark.only_on("linux", "darwin")
KEY = "processing:user:U1"


@pytest.fixture
def service(valkey: Server) -> Iterator[ProcessingLockService]:
    with closing(ProcessingLockService(valkey.url, counted_in=Metrics())) as service:
        yield service


def counted(service: ProcessingLockService, name: str, **labels: str) -> float:
    return service._metrics.registry.get_sample_value(name, labels) or 0.0


# ------------------------------------------------------------------------------- for threads


def test_one_at_a_time(service: ProcessingLockService, valkey: Server) -> None:
    """Taken, refused, released, taken again; the key is the seed's, with an owner's token."""
    assert service.try_acquire_lock(KEY, 5)
    assert valkey.keys() == [KEY] and valkey.client().get(KEY) != b"1"
    assert 0 < valkey.client().pttl(KEY) <= 5050
    assert not service.try_acquire_lock(KEY, 5)
    assert service.try_acquire_lock("processing:user:U2", 5)
    service.release_lock(KEY)
    assert service.try_acquire_lock(KEY, 5)
    assert counted(service, "processing_lock_miss_total") == 1
    assert counted(service, "processing_lock_release_total") == 1
    labels = {"status": "acquired", "source_type": "unknown"}
    assert counted(service, "processing_lock_acquire_total", **labels) == 3


def test_two_services_with_one_lock(service: ProcessingLockService, valkey: Server) -> None:
    """Another service refuses, and cannot release what it does not have."""
    with closing(ProcessingLockService(valkey.url, counted_in=Metrics())) as other:
        assert service.try_acquire_lock(KEY, 5)
        assert not other.try_acquire_lock(KEY, 5)
        other.release_lock(KEY)
        assert valkey.keys() == [KEY]
        service.release_lock(KEY)
        assert other.try_acquire_lock(KEY, 5)


def test_another_thread_may_release(service: ProcessingLockService, valkey: Server) -> None:
    """Handlers that hop between threads are handlers, too."""
    with ThreadPoolExecutor(1) as here, ThreadPoolExecutor(1) as there:
        assert here.submit(service.try_acquire_lock, KEY, 5).result()
        assert not service.try_acquire_lock(KEY, 5)
        there.submit(service.release_lock, KEY).result()
        assert valkey.keys() == []
        assert there.submit(service.try_acquire_lock, KEY, 5).result()


@pytest.mark.parametrize("hopping", [False, True])
def test_a_slow_holder_leaves_the_lock_of_its_successor_alone(
    service: ProcessingLockService, valkey: Server, hopping: bool
) -> None:
    """Its time ran out and another caller of this process has the lock: it stays theirs.

    Whether it is released in its own thread, or in another one that has acquired nothing.
    """
    with (
        ThreadPoolExecutor(1) as slow,
        ThreadPoolExecutor(1) as quick,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        assert slow.submit(service.try_acquire_lock, KEY, 0.05).result()
        eventually(lambda: quick.submit(service.try_acquire_lock, KEY, 30).result())
        (elsewhere if hopping else slow).submit(service.release_lock, KEY).result()
        assert valkey.keys() == [KEY]
        assert not service.try_acquire_lock(KEY, 5)
        quick.submit(service.release_lock, KEY).result()
        assert valkey.keys() == []
    assert counted(service, "processing_lock_release_late_total") == 1


def test_who_was_refused_releases_nothing(service: ProcessingLockService, valkey: Server) -> None:
    """A handler that releases in any case does not take the lock from the one who has it."""
    with ThreadPoolExecutor(1) as holder, ThreadPoolExecutor(1) as other:
        assert holder.submit(service.try_acquire_lock, KEY, 30).result()
        assert not other.submit(service.try_acquire_lock, KEY, 30).result()
        other.submit(service.release_lock, KEY).result()
        assert valkey.keys() == [KEY]
        holder.submit(service.release_lock, KEY).result()
        assert valkey.keys() == []


def test_many_threads_get_the_lock_one_at_a_time(service: ProcessingLockService) -> None:
    """Many threads, one key: never two inside, and in the end each one gets in."""
    inside, most, served = 0, 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most, served
        eventually(lambda: service.try_acquire_lock(KEY, 30), within=90)
        with guard:
            inside += 1
            most = max(most, inside)
        with guard:
            inside -= 1
            served += 1
        service.release_lock(KEY)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, served) == (1, 8)


def test_nothing_to_release(service: ProcessingLockService, valkey: Server) -> None:
    """A release without an acquire touches nothing, not even a lock that was written by hand."""
    valkey.client().set(KEY, "1")
    service.release_lock(KEY)
    assert valkey.keys() == [KEY]
    assert not service.try_acquire_lock(KEY, 5)


def test_without_redis(own_server: Server) -> None:
    """It lets all callers through, and quickly; release does not raise; normal when it is back."""
    with closing(ProcessingLockService(own_server.url, counted_in=Metrics())) as service:
        assert service.try_acquire_lock(KEY, 5)
        own_server.freeze()
        service.release_lock(KEY)
        assert service.try_acquire_lock(KEY, 5) and service.try_acquire_lock(KEY, 5)
        service.release_lock(KEY)
        service.release_lock(KEY)
        labels = {"status": "unguarded", "source_type": "unknown"}
        assert counted(service, "processing_lock_acquire_total", **labels) == 2
        own_server.thaw()

        def refused_again() -> bool:
            taken = [service.try_acquire_lock("processing:user:U9", 5) for _ in range(2)]
            service.release_lock("processing:user:U9")
            return taken == [True, False]

        eventually(refused_again)


@pytest.mark.parametrize(("key", "seconds"), [("", 5), (KEY, 0), (KEY, -1)])
def test_what_makes_no_sense(service: ProcessingLockService, key: str, seconds: float) -> None:
    """ValueError, before any request."""
    with pytest.raises(ValueError, match=r"."):
        service.try_acquire_lock(key, seconds)


def test_the_one_of_this_process(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """`processing_lock_service` finds REDIS_URL when it is first used, and needs nothing else."""
    monkeypatch.setenv("REDIS_URL", valkey.url)
    monkeypatch.delenv("LINE_CHANNEL_SECRET", raising=False)
    try:
        assert processing_lock_service.try_acquire_lock(KEY, 5)
        assert valkey.keys() == [KEY]
        processing_lock_service.release_lock(KEY)
        assert valkey.keys() == []
    finally:
        processing_lock_service.close()
    monkeypatch.setenv("REDIS_URL", "redis://me:pass-word@host:port")
    with pytest.raises(SettingsError, match=r"^REDIS_URL: ") as raised:
        processing_lock_service.try_acquire_lock(KEY, 5)
    assert "pass-word" not in repr(raised.value)


# ------------------------------------------------------------------------------- for tasks


async def test_a_person_has_one_turn_at_a_time(valkey: Server) -> None:
    """One turn for a person at a time, also if the block raises; others have their own."""
    me, you = OurSource("user", "U1"), OurSource("group", "U2", "C1")
    async with AsyncDibs(valkey.url) as dibs, AsyncDibs(valkey.url) as elsewhere:
        here = ProcessingLock(dibs, counted_in=Metrics())
        there = ProcessingLock(elsewhere, counted_in=Metrics())
        with pytest.raises(RuntimeError):
            async with here.turn(me) as turn:
                assert turn.granted and valkey.keys() == [KEY]
                async with there.turn(me) as refused, here.turn(me) as refused_too:
                    assert not refused.granted and refused.asks_to_wait and not refused_too.granted
                async with there.turn(you) as other:
                    assert other.granted
                raise RuntimeError("of the block")
        assert valkey.keys() == []
        async with there.turn(me) as turn:
            assert turn.granted


async def test_a_turn_that_took_too_long(valkey: Server) -> None:
    """The lock has expired and another caller has it; it stays theirs."""
    source = OurSource("user", "U1")
    async with AsyncDibs(valkey.url) as dibs, AsyncDibs(valkey.url) as elsewhere:
        slow = ProcessingLock(dibs, ttl=0.05, counted_in=(metrics := Metrics()))
        quick = ProcessingLock(elsewhere, ttl=30, counted_in=Metrics())
        async with AsyncExitStack() as stack:
            async with slow.turn(source) as turn:
                assert turn.granted
                async with asyncio.timeout(10):
                    while not (await stack.enter_async_context(quick.turn(source))).granted:
                        await asyncio.sleep(0.01)
            assert valkey.keys() == [KEY]
        assert valkey.keys() == []
        assert metrics.registry.get_sample_value("processing_lock_release_late_total") == 1


async def test_without_a_user_id(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    """No person is locked out, and a warning says so, without any id."""
    lock = ProcessingLock(AsyncDibs(valkey.url), counted_in=(metrics := Metrics()))
    source = OurSource("group", None, "C-secret")
    async with lock.turn(source) as first, lock.turn(source) as second:
        assert first.granted and second.granted
    assert "no user id" in caplog.text and "C-secret" not in caplog.text
    labels = {"status": "no_user", "source_type": "group"}
    assert metrics.registry.get_sample_value("processing_lock_acquire_total", labels) == 2


async def test_without_the_lock_everybody_has_a_turn(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the lock, every caller has a turn, and Redis is not asked."""
    lock = ProcessingLock(AsyncDibs(valkey.url), enabled=False, counted_in=Metrics())
    source = OurSource("user", "U1")
    async with lock.turn(source) as first, lock.turn(source) as second:
        assert first.granted and second.granted
    assert valkey.keys() == [] and caplog.text == ""


async def test_one_refusal_of_a_window_is_answered(valkey: Server) -> None:
    """With `first`, one refusal of each window is answered, in all processes together."""
    source = OurSource("user", "U1")
    async with AsyncDibs(valkey.url) as dibs, AsyncDibs(valkey.url) as elsewhere:
        one = ProcessingLock(dibs, busy_reply="first", ttl=1.5, counted_in=Metrics())
        two = ProcessingLock(elsewhere, busy_reply="first", ttl=1.5, counted_in=Metrics())

        async def waiting_replies() -> int:
            async with one.turn(source) as turn:
                assert turn.granted
                found = 0
                for lock in (one, two, two, one):
                    async with lock.turn(source) as refused:
                        assert not refused.granted
                        found += refused.asks_to_wait
                return found

        assert await waiting_replies() == 1
        async with asyncio.timeout(10):
            while valkey.keys():
                await asyncio.sleep(0.01)
        assert await waiting_replies() == 1


async def test_no_ids_in_what_the_lock_logs(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Log lines about a turn share a short random mark, and reveal nothing else."""
    caplog.set_level(logging.DEBUG)
    async with AsyncDibs(valkey.url) as dibs:
        lock = ProcessingLock(dibs, counted_in=Metrics())
        async with lock.turn(OurSource("user", "U1")), lock.turn(OurSource("user", "U1")):
            pass
    said = [record.getMessage() for record in caplog.records if "processing lock" in record.msg]
    assert [line.split(": ")[1] for line in said] == ["acquired", "missed", "released"]
    assert said[0].split(":")[0] == said[2].split(":")[0] != said[1].split(":")[0]
    assert "U1" not in caplog.text


# ------------------------------------------------------------------------------- what is locked


@pytest.mark.parametrize(
    ("data", "locked"),
    [
        ({"action": "weather", "type": "home"}, True),
        ({"action": "weather", "type": "office"}, True),
        ({"action": "weather", "type": "current"}, False),
        ({"action": "weather"}, False),
        ({"action": "recent_queries"}, True),
        ({"action": "settings"}, False),
        ({"action": "other", "type": "menu"}, False),
        ({"action": "unheard-of"}, False),
        ({}, False),
    ],
)
def test_which_taps_are_locked(data: dict[str, str], locked: bool) -> None:
    """Those of the seed: home, office and recent queries."""
    assert should_use_processing_lock(data) is locked


async def at_home(bot: RunningBot, source: Source | None = None) -> None:
    """They live in Xinyi, and work in Banqiao."""
    await bot.line.tap(f"action=set&type=home&place={XINYI}", source=source)
    await bot.line.tap(f"action=set&type=office&place={BANQIAO}", source=source)
    await bot.replies(2, source=source)


async def test_five_quick_taps(run_bot: RunBot) -> None:
    """Five webhooks within a second while the forecast takes long: one forecast, four ⏳."""
    async with run_bot(sample_delay_seconds=2) as bot:
        await at_home(bot)
        deliveries = await asyncio.gather(*(bot.line.tap(HOME) for _ in range(5)))
        assert [delivery.status for delivery in deliveries] == [200] * 5
        sent = (await bot.replies(7))[2:]
        assert sum(map(is_busy, sent)) == 4 and is_forecast(sent[-1])
        assert bot.answers == [200] * 7
        assert bot.count("processing_lock_miss_total") == 4


async def test_the_next_tap_is_free_again(run_bot: RunBot) -> None:
    """As soon as the answer is sent, and not when the lock would have ended."""
    async with run_bot(gated=True, processing_lock_timeout_seconds=60) as bot:
        await at_home(bot)
        for number in (1, 2):
            bot.gate.opened.clear()
            await bot.line.tap(HOME)
            await aeventually(lambda number=number: bot.gate.asked == number)
            await bot.line.tap(OFFICE)
            sent = await bot.line.wait_for_messages(1 + 2 * number)
            assert is_busy(sent[-1])
            bot.gate.opened.set()
            assert is_forecast((await bot.replies(2 + 2 * number))[-1])


async def test_only_the_first_refusal_is_answered(run_bot: RunBot) -> None:
    """With PROCESSING_LOCK_BUSY_REPLY=first: one forecast, one ⏳, three silent."""
    options = {"processing_lock_busy_reply": "first", "processing_lock_timeout_seconds": 60}
    async with run_bot(gated=True, **options) as bot:
        await at_home(bot)
        await asyncio.gather(*(bot.line.tap(HOME) for _ in range(5)))
        await aeventually(lambda: bot.count("line_events_pending") == 1)
        bot.gate.opened.set()
        sent = (await bot.replies(4))[2:]
        assert is_busy(sent[0]) and is_forecast(sent[1])


async def test_several_taps_in_one_webhook(run_bot: RunBot) -> None:
    """The first is served, the others are told to wait: they run side by side."""
    async with run_bot(gated=True, processing_lock_timeout_seconds=60) as bot:
        await at_home(bot)
        await bot.line.batch([events.postback(HOME), events.postback(OFFICE)] * 2)
        await bot.line.wait_for_messages(5)
        bot.gate.opened.set()
        sent = (await bot.replies(6))[2:]
        assert sum(map(is_busy, sent)) == 3
        assert sent[-1]["altText"].startswith("臺北市信義區")


async def test_people_do_not_wait_for_each_other(run_bot: RunBot) -> None:
    """Three people tap at once: three forecasts, side by side."""
    async with run_bot(gated=True) as bot:
        people = [bot.line.somebody() for _ in range(3)]
        for person in people:
            await at_home(bot, person)
        await asyncio.gather(*(bot.line.tap(HOME, source=person) for person in people))
        await aeventually(lambda: bot.gate.asked == 3)
        bot.gate.opened.set()
        for person in people:
            assert is_forecast((await bot.replies(3, source=person))[-1])


async def test_texts_are_not_locked(run_bot: RunBot) -> None:
    """Selective: who types twice is answered twice; what costs nothing is answered meanwhile."""
    async with run_bot(gated=True) as bot:
        await asyncio.gather(*(bot.line.say("板橋") for _ in range(2)))
        await asyncio.gather(*map(bot.line.tap, ["action=other", "action=settings"]))
        await bot.line.wait_for_messages(2)
        await aeventually(lambda: bot.gate.asked == 2)
        bot.gate.opened.set()
        sent = await bot.replies(4)
        assert sum(map(is_forecast, sent)) == 2 and not any(map(is_busy, sent))
        assert bot.count("processing_lock_miss_total") == 0


async def test_everything_is_locked(run_bot: RunBot) -> None:
    """With PROCESSING_LOCK_SCOPE=all: texts, locations and any tap; coming and going never."""
    options = {"processing_lock_scope": "all", "processing_lock_timeout_seconds": 60}
    async with run_bot(gated=True, **options) as bot:
        await bot.line.say("板橋")
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.share_location(25.033, 121.5654)
        await bot.line.tap("action=other")
        await bot.line.say("台北信義")
        await bot.line.follow()
        await bot.line.wait_for_messages(4)
        bot.gate.opened.set()
        sent = await bot.replies(5)
        assert sum(map(is_busy, sent)) == 3 and is_forecast(sent[-1])
        assert any("歡迎" in message.get("text", "") for message in sent)


async def test_the_lock_in_groups(run_bot: RunBot) -> None:
    """By the person, in any chat; where LINE tells no id, every person is served."""
    options = {"processing_lock_scope": "all", "processing_lock_timeout_seconds": 60}
    async with run_bot(gated=True, **options) as bot:
        person = bot.line.somebody().chat_id
        group = Source.group(new_id("group"), person)
        room = Source.room(new_id("room"), person)
        await bot.line.say("板橋天氣", source=group)
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.say("板橋天氣", source=room)
        assert is_busy((await bot.line.wait_for_messages(1, source=room))[0])
        nobody = Source.group(new_id("group"))
        await bot.line.batch([events.text("板橋天氣")] * 2, source=nobody)
        await aeventually(lambda: bot.gate.asked == 3)
        bot.gate.opened.set()
        assert is_forecast((await bot.replies(1, source=group))[0])
        assert all(map(is_forecast, await bot.replies(2, source=nobody)))


async def test_dots_while_it_takes_long(run_bot: RunBot) -> None:
    """LINE's loading dots after half a second, between two only, and never after the answer."""
    async with run_bot(gated=True) as bot:
        group = Source.group(new_id("group"), bot.line.me.chat_id)
        await bot.line.say("板橋天氣", source=group)
        await bot.line.say("板橋")
        await aeventually(lambda: bot.line.chat().loading(bot.line.clock()))
        assert bot.line.chat().sent == []
        bot.gate.opened.set()
        await bot.replies(1)
        await bot.replies(1, source=group)
        loading = [call for call in bot.line.calls if call.route.endswith("/loading/start")]
        assert len(loading) == 1 and not bot.line.chat().loading(bot.line.clock())


async def test_no_dots_where_it_is_quick(run_bot: RunBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who is answered at once sees none."""
    monkeypatch.setattr("apps.weamind.line.bot.DOTS_AFTER", 20)
    async with run_bot() as bot:
        await bot.line.say("板橋")
        await bot.replies(1)
        assert len(bot.line.calls) == 1
