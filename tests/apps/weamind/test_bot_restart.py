"""Events that the end of a process cuts short: answered by the next one, once, or told why not."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_line import events

from apps.weamind.line import texts
from apps.weamind.line.events import dump_event, parse_event
from apps.weamind.line.unanswered import OLDEST
from apps.weamind.user.database import UserDatabase
from apps.weamind.user.users import Users, UsersUnavailable
from dibs.testing import Server, aeventually

from .conftest import Process, RunBot, is_forecast

pytestmark = pytest.mark.only_on("linux", "darwin")
HASTY = {"gated": True, "shutdown_seconds": 0.05}


async def test_a_cut_event_is_answered_after_the_start(run_bot: RunBot, valkey: Server) -> None:
    """The bot ends while three people wait; when it is back, each has their forecast, once."""
    async with run_bot() as bot:
        people = [bot.line.somebody() for _ in range(3)]
        async with run_bot(line_api_base=bot.line.api_base, **HASTY) as old:
            bot.line.webhook_url = f"{old.url}/line/webhook"
            for person in people:
                await bot.line.say("板橋", source=person)
            await aeventually(lambda: old.gate.asked == 3)
        assert old.count("line_events_total", outcome="cut") == 3
        assert old.count("line_events_total", outcome="kept") == 3
        assert not [key for key in valkey.keys() if key.startswith("line:event:")]
        async with run_bot(line_api_base=bot.line.api_base, gated=True) as new:
            new.gate.opened.set()
            for person in people:
                [card] = await bot.line.wait_for_messages(1, source=person)
                assert is_forecast(card)
            await new.settled()
        assert bot.answers == [200] * 3


async def test_one_that_waited_for_its_turn(run_bot: RunBot) -> None:
    """An event that had not begun yet is kept as well."""
    async with run_bot() as bot:
        options = {"line_api_base": bot.line.api_base, "event_concurrency": 1}
        async with run_bot(**options, **HASTY) as old:
            bot.line.webhook_url = f"{old.url}/line/webhook"
            await bot.line.batch([events.text("板橋"), events.text("淡水")])
            await aeventually(lambda: old.gate.asked == 1)
        async with run_bot(line_api_base=bot.line.api_base, gated=True) as new:
            new.gate.opened.set()
            sent = await bot.line.wait_for_messages(2)
            assert {card["altText"][:6] for card in sent} == {"新北市板橋區", "新北市淡水區"}


async def test_a_redelivery_after_the_start(run_bot: RunBot) -> None:
    """If LINE sends it again as well, it is still answered once."""
    async with run_bot() as bot:
        async with run_bot(line_api_base=bot.line.api_base, **HASTY) as old:
            bot.line.webhook_url = f"{old.url}/line/webhook"
            said = await bot.line.say("板橋")
            await aeventually(lambda: old.gate.asked == 1)
        async with run_bot(line_api_base=bot.line.api_base, gated=True) as new:
            bot.line.webhook_url = f"{new.url}/line/webhook"
            await bot.line.redeliver(said.event_ids[0])
            new.gate.opened.set()
            await bot.line.wait_for_messages(1)
            await new.settled()
        assert bot.answers == [200]


async def test_another_process_takes_it(run_bot: RunBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has run all the time answers what another one left."""
    monkeypatch.setattr("apps.weamind.line.unanswered.LOOK_EVERY", 0.05)
    async with run_bot() as bot:
        async with run_bot(line_api_base=bot.line.api_base, **HASTY) as old:
            bot.line.webhook_url = f"{old.url}/line/webhook"
            await bot.line.say("板橋")
            await aeventually(lambda: old.gate.asked == 1)
        assert is_forecast((await bot.line.wait_for_messages(1))[0])
        await bot.settled()


async def test_the_reply_on_its_way_is_finished(
    run_bot: RunBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that LINE is being given is given to the end, and not a second time."""
    import httpx2 as httpx

    asked, answer, original = asyncio.Event(), asyncio.Event(), httpx.AsyncClient.post

    async def slow(self: Any, path: str, **options: Any) -> Any:
        if path.endswith("/reply"):
            asked.set()
            await answer.wait()
        return await original(self, path, **options)

    async with run_bot() as bot:
        async with run_bot(line_api_base=bot.line.api_base, shutdown_seconds=0.05) as old:
            monkeypatch.setattr(httpx.AsyncClient, "post", slow)
            await old.deliver(*bot.line.happen([events.text("板橋")]))
            await asyncio.wait_for(asked.wait(), 20)
            asyncio.get_running_loop().call_later(0.5, answer.set)
        [card] = bot.line.chat().sent
        assert is_forecast(card) and bot.answers == [200]


async def test_when_nothing_can_be_kept(
    run_bot: RunBot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The database is out as well: people are told to ask again, and the log says how many."""

    async def out(self: Users, kept: list[str]) -> None:
        raise UsersUnavailable("out")

    async with run_bot() as bot:
        async with run_bot(line_api_base=bot.line.api_base, **HASTY) as old:
            bot.line.webhook_url = f"{old.url}/line/webhook"
            await bot.line.say("板橋")
            await aeventually(lambda: old.gate.asked == 1)
            monkeypatch.setattr(Users, "keep", out)
        assert [each["text"] for each in bot.line.chat().sent] == [texts.RESTARTING]
    assert "1 events could not be kept" in caplog.text and "板橋" not in caplog.text


async def test_a_process_that_is_told_to_end(
    run_bot: RunBot, valkey: Server, start_bots: Callable[..., list[Process]]
) -> None:
    """SIGTERM with a forecast that takes too long: the next process answers."""
    async with run_bot() as bot:
        api_base = bot.line.api_base
        slow = {"SAMPLE_DELAY_SECONDS": "30", "SHUTDOWN_SECONDS": "0.2"}
        [old] = await asyncio.to_thread(start_bots, 1, api_base, valkey.url, **slow)
        bot.line.webhook_url = old.webhook_url
        said = await bot.line.say("板橋")
        key = f"line:event:{said.event_ids[0]}"
        await aeventually(lambda: key in valkey.keys())
        old.child._process.popen.send_signal(signal.SIGTERM)
        await asyncio.to_thread(old.child._process.popen.wait, 30)
        await asyncio.to_thread(start_bots, 1, api_base, valkey.url)
        assert is_forecast((await bot.line.wait_for_messages(1, within=90))[0])


# ------------------------------------------------------------------------------- the parts


def test_what_is_kept_is_taken_once(tmp_path: Path) -> None:
    """In order, by one of two; the old are counted, and gone as well."""
    one = UserDatabase(f"sqlite:///{tmp_path}/bot.db")
    one.prepare()
    two = UserDatabase(f"sqlite:///{tmp_path}/bot.db")
    try:
        one.keep(["old"], at=1000)
        one.keep(["a", "b"], at=2000)
        assert two.take(since=2000) == (["a", "b"], 1)
        assert one.take(since=0) == two.take(since=0) == ([], 0)
    finally:
        one.close()
        two.close()


@pytest.mark.parametrize("why", ["cancelled", "too slow"])
async def test_what_nobody_waits_for_any_more_is_kept_again(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends, or the database is slow, while events are taken: they are not lost."""
    taken, goes_on, take = Event(), Event(), UserDatabase.take

    def take_slowly(database: UserDatabase, since: int) -> tuple[list[str], int]:
        found = take(database, since)
        taken.set()
        goes_on.wait()
        return found

    async with Users(f"sqlite:///{tmp_path}/bot.db") as people:
        await people.keep(["a", "b"])
        with monkeypatch.context() as slow:
            slow.setattr(UserDatabase, "take", take_slowly)
            limit = asyncio.timeout(None)
            slow.setattr("apps.weamind.user.users.asyncio.timeout", lambda longest: limit)
            taking = asyncio.create_task(people.take(OLDEST))
            await asyncio.to_thread(taken.wait)
            if why == "cancelled":
                taking.cancel()
            else:
                limit.reschedule(0)
            await asyncio.wait([taking])
        assert taking.cancelled() or isinstance(taking.exception(), UsersUnavailable)
        goes_on.set()
        found = await aeventually(lambda: _taken(people))
    assert found == ["a", "b"]


async def _taken(people: Users) -> list[str]:
    events, _ = await people.take(OLDEST)
    return events


async def test_what_is_too_old_is_given_up(
    run_bot: RunBot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not answered hours later; it is logged and counted."""
    database = UserDatabase(f"sqlite:///{tmp_path}/bot.db")
    database.prepare()
    database.keep([json.dumps({"type": "message"})], at=1)
    database.close()
    async with run_bot() as bot:
        await bot.settled()
        assert bot.count("line_events_total", outcome="expired") == 1
    assert OLDEST == 600 and "too old" in caplog.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
PARTS = {
    "type": st.sampled_from(["message", "postback", "follow"]), "mode": st.just("active"),
    "timestamp": st.integers(0, 2**60), "replyToken": st.text(min_size=1, max_size=9),
    "webhookEventId": st.text(min_size=1, max_size=9),
    "source": st.fixed_dictionaries({}, optional={
        "type": st.just("group"), "userId": st.just("U1"), "groupId": st.just("C1")}),
    "deliveryContext": st.fixed_dictionaries({"isRedelivery": st.booleans()}),
    "postback": st.fixed_dictionaries({"data": st.text(max_size=9)}),
    "message": st.fixed_dictionaries({}, optional={
        "type": st.just("text"), "text": st.text(max_size=9), "latitude": st.floats(-90, 90),
        "longitude": st.floats(-180, 180), "title": st.text(max_size=5), "address": JSON,
        "mention": st.fixed_dictionaries({"mentionees": st.lists(st.fixed_dictionaries({
            "index": st.integers(0, 9), "length": st.integers(0, 9), "isSelf": st.booleans()}))}),
    }),
}  # fmt: skip


@given(st.fixed_dictionaries({}, optional=PARTS))
def test_an_event_there_and_back(document: dict[str, Any]) -> None:
    """For any event of LINE's, the next process reads what the first one read."""
    event = parse_event(document)
    assert parse_event(json.loads(json.dumps(dump_event(event)))) == event
