"""Events that come twice, in one process or in two, with Redis and without."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest
from local_line import events

from apps.weamind.core.metrics import Metrics
from apps.weamind.line.deduplication import Deduplication, Memory
from apps.weamind.line.events import Event
from dibs import AsyncDibs
from dibs.testing import Server, aeventually

from .conftest import HOME, XINYI, Process, RunBot, RunningBot, is_busy, is_forecast

pytestmark = pytest.mark.only_on("linux", "darwin")
AT_HOME = f"action=set&type=home&place={XINYI}"


def skipped(bot: RunningBot, state: str) -> float:
    return bot.count("events_deduplicated_total", state=state)


# ------------------------------------------------------------------------------- as people see it


@pytest.mark.parametrize("is_flagged", [True, False])
async def test_a_redelivery_of_a_running_event(run_bot: RunBot, is_flagged: bool) -> None:
    """Exactly one reply, the forecast: no ⏳ uses its token, with and without LINE's flag."""
    async with run_bot(gated=True) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        tapped = await bot.line.tap(HOME)
        await aeventually(lambda: bot.gate.asked == 1)
        for _ in range(3):
            again = await bot.line.redeliver(tapped.event_ids[0], is_flagged=is_flagged)
            assert again.status == 200
        await aeventually(lambda: skipped(bot, "running") == 3)
        bot.gate.opened.set()
        assert is_forecast((await bot.replies(2))[-1])
        assert bot.answers == [200, 200]
        assert bot.count("processing_lock_miss_total") == 0


async def test_a_redelivery_of_what_is_done(run_bot: RunBot) -> None:
    """It is dropped silently, also by a bot that was restarted in between."""
    async with run_bot() as bot:
        said = await bot.line.say("板橋")
        await bot.replies(1)
        await bot.line.redeliver(said.event_ids[0])
        await aeventually(lambda: skipped(bot, "done") == 1)
        await bot.replies(1)
        async with run_bot(line_api_base=bot.line.api_base) as new:
            bot.line.webhook_url = f"{new.url}/line/webhook"
            await bot.line.redeliver(said.event_ids[0])
            await aeventually(lambda: skipped(new, "done") == 1)
        assert bot.answers == [200]


async def test_a_flagged_event_may_be_the_first(run_bot: RunBot) -> None:
    """What LINE could not deliver before is new to us, redelivery or not."""
    async with run_bot() as bot:
        said = bot.line.happen([events.text("板橋")])
        said[0]["deliveryContext"]["isRedelivery"] = True
        await bot.deliver(*said)
        assert is_forecast((await bot.replies(1))[0])


async def test_twice_in_one_webhook(run_bot: RunBot) -> None:
    """The same event twice in one call is one event."""
    async with run_bot() as bot:
        said = bot.line.happen([events.text("板橋")])
        await bot.deliver(*said, *said)
        await bot.replies(1)
        assert bot.answers == [200]


# ------------------------------------------------------------------------------- two processes


async def test_a_redelivery_to_another_process_is_not_answered_again(
    run_bot: RunBot, valkey: Server, start_bots: Callable[..., list[Process]]
) -> None:
    """A redelivery to the other process while the first works: one reply, the forecast.

    Taps that are spread over both: one forecast, and all others are told to wait. And a process
    that is told to end (SIGTERM) answers what it has said 200 to.
    """
    async with run_bot() as bot:
        settings = {"SAMPLE_DELAY_SECONDS": "2", "PROCESSING_LOCK_TIMEOUT_SECONDS": "30"}
        api_base = bot.line.api_base
        bots = await asyncio.to_thread(start_bots, 2, api_base, valkey.url, **settings)
        bot.line.webhook_url = bots[0].webhook_url
        await bot.line.tap(AT_HOME)
        await bot.line.wait_for_messages(1)
        tapped = await bot.line.tap(HOME)
        await aeventually(lambda: f"processing:user:{bot.line.me.chat_id}" in valkey.keys())
        bots[0].child.freeze()  # it works, for as long as the others need
        bot.line.webhook_url = bots[1].webhook_url
        again = await bot.line.redeliver(tapped.event_ids[0])
        taps = [await bot.line.tap(HOME) for _ in range(2)]
        assert {each.status for each in (tapped, again, *taps)} == {200}
        assert all(map(is_busy, (await bot.line.wait_for_messages(3))[1:]))
        metrics = (await bot.http.get(f"{bots[1].url}/metrics")).text
        assert 'events_deduplicated_total{state="running"} 1.0' in metrics
        bots[0].child.thaw()
        assert is_forecast((await bot.line.wait_for_messages(4))[-1])
        assert len(bot.line.chat().sent) == 4 and bot.answers == [200] * 4

        assert (await bot.line.say("板橋")).status == 200
        bots[1].child._process.popen.send_signal(signal.SIGTERM)
        assert is_forecast((await bot.line.wait_for_messages(5))[-1])
        await asyncio.to_thread(bots[1].child._process.popen.wait, 20)


# ------------------------------------------------------------------------------- without Redis


async def test_while_redis_hangs_webhooks_are_answered_in_time(
    run_bot: RunBot, own_server: Server
) -> None:
    """SIGSTOP: the webhook is still answered in LINE's time, and the person gets the forecast."""
    async with run_bot(redis_url=own_server.url) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        own_server.freeze()
        tapped = await bot.line.tap(HOME)
        assert tapped.status == 200
        assert is_forecast((await bot.replies(2))[-1])
        assert bot.count("processing_lock_acquire_total", status="unguarded", source_type="user")
        again = await bot.line.redeliver(tapped.event_ids[0])  # this process still knows it
        assert again.status == 200
        await bot.replies(2)
        assert skipped(bot, "done") == 1
        own_server.thaw()


async def test_redis_was_never_there(run_bot: RunBot, own_server: Server) -> None:
    """A bot can be started without it, and serves."""
    own_server.kill()
    async with run_bot(redis_url=own_server.url) as bot:
        await bot.line.say("板橋")
        assert is_forecast((await bot.replies(1))[0])


# ------------------------------------------------------------------------------- the parts


async def test_what_failed_may_come_again(valkey: Server) -> None:
    """An event that raised is new when it is delivered again, here and elsewhere."""
    event = Event(webhook_event_id="01H1")
    async with AsyncDibs(valkey.url) as dibs, AsyncDibs(valkey.url) as elsewhere:
        here = Deduplication(dibs, counted_in=Metrics())
        there = Deduplication(elsewhere, counted_in=Metrics())
        for one, other in [(here, there), (here, there), (there, here)]:
            with pytest.raises(RuntimeError):
                async with one.first_time(event) as is_new:
                    assert is_new
                    async with other.first_time(event) as is_new_there:
                        assert not is_new_there
                    raise RuntimeError("in the handler")
        async with here.first_time(event) as is_new:
            assert is_new
            async with there.first_time(event) as is_new_there:
                assert not is_new_there
        async with here.first_time(event) as is_new:
            assert not is_new
        assert 80_000 < valkey.client().ttl("line:event:01H1") <= 86_400


async def test_what_was_cut_may_come_again(valkey: Server) -> None:
    """A handler that is cancelled leaves no claim behind."""
    event = Event(webhook_event_id="01H1")
    async with AsyncDibs(valkey.url) as dibs:
        deduplication = Deduplication(dibs, counted_in=Metrics())

        async def hang() -> None:
            async with deduplication.first_time(event):
                await asyncio.Event().wait()

        task = asyncio.create_task(hang())
        await aeventually(lambda: valkey.keys() == ["line:event:01H1"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert valkey.keys() == []
        async with deduplication.first_time(event) as is_new:
            assert is_new


@pytest.mark.parametrize("event", [Event(), Event(webhook_event_id=None), object()])
async def test_an_event_without_an_id_is_always_new(valkey: Server, event: Any) -> None:
    """It cannot be told from others, so it is always new."""
    async with AsyncDibs(valkey.url) as dibs:
        deduplication = Deduplication(dibs, counted_in=Metrics())
        for _ in range(2):
            async with deduplication.first_time(event) as is_new:
                assert is_new
    assert valkey.keys() == []


def test_the_memory_is_bounded() -> None:
    """The oldest go first; what was seen again stays."""
    memory = Memory(3)
    for key in "abc":
        memory.put(key, "running")
    memory.put("a", "done")
    memory.put("d", "running")
    assert len(memory) == 3
    assert [memory.get(key) for key in "abcd"] == ["done", None, "running", "running"]
    memory.drop("a")
    memory.drop("unknown")
    assert memory.get("a") is None
