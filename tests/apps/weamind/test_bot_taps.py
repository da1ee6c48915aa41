"""Impatient taps, as people meet the lock: one card, ⏳ only before it, and silence afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from local_line import events

from apps.weamind.core.config import Settings
from apps.weamind.core.metrics import Metrics
from apps.weamind.core.turns import ProcessingLock
from apps.weamind.line import texts
from apps.weamind.line.events import Source as OurSource
from dibs import AsyncDibs
from dibs.testing import Server, aeventually

from .conftest import (
    BANQIAO,
    HOME,
    OFFICE,
    XINYI,
    Process,
    RunBot,
    RunningBot,
    is_busy,
    is_forecast,
)

pytestmark = pytest.mark.only_on("linux", "darwin")
AT_HOME = f"action=set&type=home&place={XINYI}"
PEOPLE = {"processing_lock_min_seconds": 4}
"""As the bot does unless it is told otherwise, but longer: a busy machine may take a second."""


def test_the_default_is_a_second() -> None:
    """PROCESSING_LOCK_MIN_SECONDS=1, unless the exact behaviour of the seeds is wanted."""
    assert Settings.model_fields["processing_lock_min_seconds"].default == 1


# ------------------------------------------------------------------------------- one process


async def tap_five_times(bot: RunningBot, *, every: float) -> list[dict[str, Any]]:
    """What comes back for five taps, *every* so many seconds, when no event is left."""
    await bot.line.tap(AT_HOME)
    await bot.replies(1)
    taps = []
    for _ in range(5):
        taps.append(asyncio.create_task(bot.line.tap(HOME)))
        await asyncio.sleep(every)
    await asyncio.gather(*taps)
    await bot.settled()
    return bot.line.chat().sent[1:]


@pytest.mark.parametrize("every", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("weather", [0, 0.1, 0.3, 2])
async def test_five_taps_give_one_card(run_bot: RunBot, weather: float, every: float) -> None:
    """Exactly one card, and no word after it, however quick the weather is."""
    async with run_bot(sample_delay_seconds=weather, **PEOPLE) as bot:
        sent = await tap_five_times(bot, every=every)
        assert [is_forecast(each) for each in sent].count(True) == 1 and is_forecast(sent[-1])
        assert all(map(is_busy, sent[:-1]))
        assert bot.answers == [200] * (len(sent) + 1)
        if weather == 2:
            assert len(sent) == 5


async def test_silence_after_the_answer(run_bot: RunBot, valkey: Server) -> None:
    """A tap while the work runs is told to wait; one after the answer gets nothing; then a card.

    The key is the seeds' own, and stays for a second after it was acquired.
    """
    options = {"processing_lock_min_seconds": 30, "processing_lock_timeout_seconds": 60}
    async with run_bot(gated=True, **options) as bot:
        await bot.line.tap(AT_HOME)
        await bot.line.tap(f"action=set&type=office&place={BANQIAO}")
        await bot.replies(2)
        await bot.line.tap(HOME)
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.tap(HOME)
        assert is_busy((await bot.line.wait_for_messages(3))[-1])
        bot.gate.opened.set()
        assert is_forecast((await bot.replies(4))[-1])
        key = f"processing:user:{bot.line.me.chat_id}"
        assert 0 < valkey.client().pttl(key) <= 30_050
        for _ in range(2):
            await bot.line.tap(HOME)
        await bot.replies(4)
        assert bot.gate.asked == 1
        assert bot.count("processing_lock_miss_total") == 3


async def test_something_else_after_the_answer(run_bot: RunBot) -> None:
    """Who taps the office next gets it as soon as the lock is free, once, however often."""
    async with run_bot(processing_lock_min_seconds=1.5) as bot:
        await bot.line.tap(AT_HOME)
        await bot.line.tap(f"action=set&type=office&place={BANQIAO}")
        await bot.replies(2)
        await bot.line.tap(HOME)
        await bot.replies(3)
        for _ in range(3):
            await bot.line.tap(OFFICE)
        await bot.settled()
        sent = bot.line.chat().sent[3:]
        assert is_forecast(sent[-1]) and sent[-1]["altText"].startswith("新北市板橋區")
        assert all(map(is_busy, sent[:-1]))


async def test_a_tap_after_the_second_is_answered(run_bot: RunBot) -> None:
    """When the second is over, the next tap is answered."""
    async with run_bot(processing_lock_min_seconds=0.2) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        await bot.line.tap(HOME)
        await bot.replies(2)

        async def tapped_again() -> bool:
            await bot.line.tap(HOME)
            await bot.settled()
            return len(bot.line.chat().sent) == 3

        await aeventually(tapped_again)
        assert is_forecast(bot.line.chat().sent[-1])


async def test_long_work_is_told_to_its_end(run_bot: RunBot) -> None:
    """Also in its last second, when the key is about to expire: the work runs, so ⏳."""
    options = {"processing_lock_min_seconds": 30, "processing_lock_timeout_seconds": 30}
    async with run_bot(gated=True, **options) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        await bot.line.tap(HOME)
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.tap(HOME)
        assert is_busy((await bot.line.wait_for_messages(2))[-1])
        bot.gate.opened.set()
        assert is_forecast((await bot.replies(3))[-1])


async def test_slow_words_do_not_overtake_the_card(
    run_bot: RunBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card waits for a ⏳ that is on its way, and nothing comes after the card."""
    from apps.weamind.line.sender import Sender

    said, original = asyncio.Event(), Sender.reply
    order: list[str] = []

    async def slow(self: Sender, token: Any, messages: Any, **options: Any) -> Any:
        name = "busy" if messages[0].get("text") == texts.BUSY else messages[0]["type"]
        order.append(f"{name} begins")
        if name == "busy":
            await said.wait()
        outcome = await original(self, token, messages, **options)
        order.append(f"{name} ends")
        return outcome

    async with run_bot(gated=True, **PEOPLE, processing_lock_timeout_seconds=30) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        monkeypatch.setattr(Sender, "reply", slow)
        await bot.line.tap(HOME)
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.batch([events.postback(HOME)] * 3)
        await aeventually(lambda: order == ["busy begins"])
        bot.gate.opened.set()
        await asyncio.sleep(0.1)  # the card is ready, and does not go: nothing to wait for
        assert order == ["busy begins"]
        said.set()
        await bot.settled()
    assert order[-2:] == ["flex begins", "flex ends"] and "flex begins" not in order[:-2]


# ------------------------------------------------------------------------------- two processes


async def test_taps_on_two_processes(
    run_bot: RunBot, valkey: Server, start_bots: Callable[..., list[Process]]
) -> None:
    """Five taps, each to another process than the one before: the same."""
    async with run_bot() as bot:
        stays = {"PROCESSING_LOCK_MIN_SECONDS": "4"}
        bots = await asyncio.to_thread(start_bots, 2, bot.line.api_base, valkey.url, **stays)
        bot.line.webhook_url = bots[0].webhook_url
        for _ in range(3):
            person = bot.line.somebody()
            await bot.line.tap(AT_HOME, source=person)
            await bot.line.wait_for_messages(1, source=person)
            taps = []
            for number in range(6):
                bot.line.webhook_url = bots[number % 2].webhook_url
                taps.append(asyncio.create_task(bot.line.tap(HOME, source=person)))
                await asyncio.sleep(0.03)
            await asyncio.gather(*taps)
            await aeventually(lambda: not any(map(events_left, bots)))
            sent = bot.line.chat(person).sent[1:]
            assert is_forecast(sent[-1]) and all(map(is_busy, sent[:-1])), sent


def events_left(bot: Process) -> bool:
    import httpx2 as httpx

    text = httpx.get(f"{bot.url}/metrics", trust_env=False).text
    [line] = [each for each in text.splitlines() if each.startswith("line_events_pending ")]
    return float(line.split()[1]) > 0


# ------------------------------------------------------------------------------- the seeds


async def test_the_seeds_to_the_letter(run_bot: RunBot, valkey: Server) -> None:
    """With 0, the key goes with the answer, and the next tap is served at once."""
    async with run_bot(processing_lock_min_seconds=0) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        for number in (2, 3, 4):
            await bot.line.tap(HOME)
            assert is_forecast((await bot.replies(number))[-1])
            assert not [key for key in valkey.keys() if key.startswith("processing:")]


async def test_the_words_of_everything(run_bot: RunBot) -> None:
    """With PROCESSING_LOCK_SCOPE=all, a text after an answer is answered."""
    options = {"processing_lock_scope": "all", "processing_lock_min_seconds": 30}
    async with run_bot(processing_lock_timeout_seconds=60, **options) as bot:
        for number, words in enumerate(("板橋", "淡水", "烏來"), 1):
            await bot.line.say(words)
            assert is_forecast((await bot.replies(number))[-1])
        await bot.line.tap("action=other")
        assert (await bot.replies(4))[-1]["text"] == texts.OTHER


async def test_taps_while_redis_hangs(run_bot: RunBot, frozen: Server) -> None:
    """No tap is locked out, and none waits for the keys that tell who may speak."""
    async with run_bot(redis_url=frozen.url, **PEOPLE) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        frozen.freeze()
        for number in (2, 3):
            await bot.line.tap(HOME)
            assert is_forecast((await bot.replies(number))[-1])


# ------------------------------------------------------------------------------- no place yet


@pytest.mark.parametrize("every", [0.0, 0.1])
async def test_no_home_yet(run_bot: RunBot, every: float) -> None:
    """Three taps of a person without a home: asked once to set one, and no word of a query."""
    async with run_bot(**PEOPLE) as bot:
        for data in (HOME, OFFICE):
            for _ in range(3):
                await bot.line.tap(data)
                await asyncio.sleep(every)
        await bot.settled()
        said = sorted(message["text"] for message in bot.line.chat().sent)  # side by side
        assert said == sorted(texts.NO_PLACE_YET.format(kind=kind) for kind in ("住家", "公司"))


async def test_no_home_while_the_office_is_looked_up(run_bot: RunBot) -> None:
    """They are asked to set a home at once: nothing is looked up for it."""
    async with run_bot(gated=True, **PEOPLE) as bot:
        await bot.line.tap(f"action=set&type=office&place={BANQIAO}")
        await bot.replies(1)
        await bot.line.tap(OFFICE)
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.tap(HOME)
        said = await bot.line.wait_for_messages(2)
        assert said[-1]["text"] == texts.NO_PLACE_YET.format(kind="住家")
        bot.gate.opened.set()
        assert is_forecast((await bot.replies(3))[-1])


async def test_no_queries_yet(run_bot: RunBot) -> None:
    """The same for recent queries, tap after tap: said once."""
    async with run_bot(**PEOPLE) as bot:
        for _ in range(3):
            await bot.line.tap("action=recent_queries")
            await bot.settled()
        assert [each["text"] for each in bot.line.chat().sent] == [texts.NO_QUERIES_YET]


# ------------------------------------------------------------------------------- the part


async def test_a_key_that_stays_silences_later_taps(valkey: Server) -> None:
    """The key stays, no tap after the answer gets a reply, and no other key is left behind."""
    me = OurSource("user", "U1")
    async with AsyncDibs(valkey.url) as dibs, AsyncDibs(valkey.url) as elsewhere:
        here = ProcessingLock(dibs, ttl=60, at_least=30, counted_in=Metrics())
        there = ProcessingLock(elsewhere, ttl=60, at_least=30, counted_in=Metrics())
        async with here.turn(me, what="home") as turn:
            assert turn.granted
            async with there.turn(me) as refused, here.turn(me) as refused_too:
                assert not refused.granted and refused.asks_to_wait
                assert not refused_too.granted
            await turn.answers()
            await turn.answers()
        for lock in (here, there):
            async with lock.turn(me, what="home") as refused:
                assert not refused.granted and not refused.asks_to_wait
            async with lock.turn(me) as turn:
                assert turn.granted
        assert sorted(valkey.keys()) == ["line:tap:home:U1", "processing:user:U1"]


async def test_a_turn_that_fails(valkey: Server) -> None:
    """Work that ends without an answer leaves nothing but the key, which stays."""
    me = OurSource("user", "U1")
    async with AsyncDibs(valkey.url) as dibs:
        lock = ProcessingLock(dibs, ttl=60, at_least=30, counted_in=Metrics())
        with pytest.raises(RuntimeError):
            async with lock.turn(me):
                raise RuntimeError("of the work")
        assert valkey.keys() == ["processing:user:U1"]


async def test_a_second_that_is_longer_than_the_lock(valkey: Server) -> None:
    """It ends with the lock."""
    async with AsyncDibs(valkey.url) as dibs:
        lock = ProcessingLock(dibs, ttl=5, at_least=30, counted_in=Metrics())
        async with lock.turn(OurSource("user", "U1")):
            pass
        assert 0 < valkey.client().pttl("processing:user:U1") <= 5050


async def test_who_waits_to_speak_gets_no_turn_afterwards(valkey: Server) -> None:
    """A tap while the same was looked up, and whose ⏳ comes too late: neither ⏳ nor a card."""
    source, counted = OurSource(type="user", user_id="U1"), Metrics()
    async with AsyncDibs(valkey.url) as dibs:
        lock = ProcessingLock(dibs, ttl=30, at_least=0.05, counted_in=counted)

        async def tap() -> tuple[bool, bool]:
            async with lock.turn(source, what="home") as turn:
                return turn.granted, turn.asks_to_wait

        async with lock.turn(source, what="home") as first:
            assert first.granted
            somebody = await dibs.try_hold("line:speaking:U1", ttl=60)
            assert somebody is not None
            second = asyncio.create_task(tap())
            await aeventually(lambda: misses(counted) == 1)
        await aeventually(lambda: "processing:user:U1" not in valkey.keys())
        await somebody.release()
        assert await second == (False, False)


def misses(counted: Metrics) -> float:
    return counted.registry.get_sample_value("processing_lock_miss_total") or 0.0
