"""The seeds' acceptance list, item by item: seed 001's tests and check-list, seed 000's choices.

What the seeds say is in each docstring. Where they disagree, or are unsafe, both are satisfied:
`PROCESSING_LOCK_SCOPE=all` is 001, `selective` is 000; the lock's value is an owner's token.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
from linebot.v3.webhooks import GroupSource, RoomSource, UserSource
from local_line import events

from apps.weamind.core.config import Settings
from apps.weamind.core.metrics import Metrics
from apps.weamind.core.processing_lock import ProcessingLockService
from apps.weamind.core.turns import ProcessingLock
from apps.weamind.line import service as line_service
from apps.weamind.line import texts
from apps.weamind.line.bot import Bot
from dibs import AsyncDibs
from dibs.testing import Server, aeventually, eventually

from .conftest import HOME, XINYI, RunBot, is_busy, is_forecast

pytestmark = pytest.mark.only_on("linux", "darwin")
KEY = "processing:user:U1"
AT_HOME = f"action=set&type=home&place={XINYI}"
ALL = {"processing_lock_scope": "all", "processing_lock_timeout_seconds": 60}


@pytest.fixture
def service(valkey: Server) -> Iterator[ProcessingLockService]:
    with closing(ProcessingLockService(valkey.url, counted_in=Metrics())) as service:
        yield service


# ------------------------------------------------------------------------------- 單元測試


def test_same_key_true_then_false_then_true_after_ttl(service: ProcessingLockService) -> None:
    """同一 key：首次 → True；隨後立即再呼叫 → False；等待 TTL 後 → True。"""
    assert service.try_acquire_lock(KEY, 1) is True
    assert service.try_acquire_lock(KEY, 1) is False
    eventually(lambda: service.try_acquire_lock(KEY, 1) is True)


def test_acquired_refused_released_acquired(service: ProcessingLockService) -> None:
    """000 關鍵驗證流程：取得、競爭失敗、釋放後再取得。"""
    assert service.try_acquire_lock(KEY, 5)
    assert not service.try_acquire_lock(KEY, 5)
    service.release_lock(KEY)
    assert service.try_acquire_lock(KEY, 5)


def test_build_actor_key_for_each_source(
    service: ProcessingLockService, caplog: pytest.LogCaptureFixture
) -> None:
    """build_actor_key 對不同 source 類型產生正確鍵名；缺失 ID → None（記錄 warn，不含個資）。"""
    for source in (
        UserSource(userId="U1"),
        GroupSource(groupId="C1", userId="U1"),
        RoomSource(roomId="R1", userId="U1"),
        {"type": "user", "userId": "U1"},
        SimpleNamespace(user_id="U1"),
    ):
        assert service.build_actor_key(source) == KEY
    assert caplog.text == ""
    for source in (
        GroupSource(groupId="C1"),
        RoomSource(roomId="R1"),
        UserSource(),
        object(),
        None,
    ):
        assert service.build_actor_key(source) is None
    assert len(caplog.records) == 5
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert "C1" not in caplog.text and "R1" not in caplog.text


# ------------------------------------------------------------------------------- 整合測試


async def test_consecutive_events_first_served_second_told_to_wait(run_bot: RunBot) -> None:
    """連續事件：第一個事件進入實際處理；第二個事件回覆「處理中」。處理完成後可正常發送新請求。"""
    async with run_bot(gated=True, processing_lock_timeout_seconds=60) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        await bot.line.tap(HOME)
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.tap(HOME)
        assert is_busy((await bot.line.wait_for_messages(2))[-1])
        assert bot.gate.asked == 1  # 不呼叫外部 API
        bot.gate.opened.set()
        assert is_forecast((await bot.replies(3))[-1])
        await bot.line.tap(HOME)
        assert is_forecast((await bot.replies(4))[-1])


async def test_follow_and_unfollow_are_not_affected(run_bot: RunBot) -> None:
    """Follow/Unfollow 流程不受影響：處理期間照常歡迎，不套用鎖。"""
    async with run_bot(gated=True, **ALL) as bot:
        await bot.line.say("板橋")
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.follow()
        assert (await bot.line.wait_for_messages(1))[0]["text"] == texts.WELCOME
        await bot.line.unfollow()
        await aeventually(lambda: bot.count("line_events_total", outcome="done") == 2)
        bot.gate.opened.set()
        await bot.settled()
        assert bot.count("processing_lock_miss_total") == 0


# ------------------------------------------------------------------------------- 成功標準


async def test_only_the_first_of_many_is_served(run_bot: RunBot) -> None:
    """處理期間重複觸發，僅第一個被處理，其餘回覆處理中——也包括同一個 webhook 裡的多個事件。"""
    async with run_bot(gated=True, **ALL) as bot:
        await bot.line.batch([events.text("板橋"), events.text("淡水"), events.text("烏來")])
        sent = await bot.line.wait_for_messages(2)
        assert all(map(is_busy, sent)) and bot.gate.asked == 1
        bot.gate.opened.set()
        assert (await bot.replies(3))[-1]["altText"].startswith("新北市板橋區")


async def test_after_the_timeout_a_new_request_is_served(run_bot: RunBot) -> None:
    """超時後，來源可正常發送新請求：TTL 是最後保險。"""
    async with run_bot(gated=True, processing_lock_timeout_seconds=0.5) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        await bot.line.tap(HOME)
        await aeventually(lambda: bot.gate.asked == 1)

        async def tap_until_it_is_served() -> bool:
            await bot.line.tap(HOME)
            return bot.gate.asked >= 2  # on a busy machine two taps may come after the timeout

        await aeventually(tap_until_it_is_served)
        bot.gate.opened.set()
        await bot.settled()
        assert sum(map(is_forecast, bot.line.chat().sent)) == bot.gate.asked


async def test_what_worked_before_still_works(run_bot: RunBot) -> None:
    """既有功能（地點解析、回覆、Postback 路由）不受影響。"""
    async with run_bot() as bot:
        await bot.line.say("台北信義")
        assert is_forecast((await bot.replies(1))[-1])
        await bot.line.share_location(25.0337, 121.5645)
        assert is_forecast((await bot.replies(2))[-1])
        for number, data in enumerate(
            [HOME, "action=weather&type=current", "action=recent_queries", "action=settings",
             "action=other"], 3,
        ):  # fmt: skip
            await bot.line.tap(data)
            assert (await bot.replies(number))[-1]["type"] == "text"


# ------------------------------------------------------------------------------- 開發檢核清單


async def test_the_key_is_the_user_id_and_the_ttl_five_seconds(
    run_bot: RunBot, valkey: Server
) -> None:
    """只使用 userId 作為鍵：processing:user:{userId}；TTL 固定 5 秒。"""
    assert Settings.model_fields["processing_lock_timeout_seconds"].default == 5
    async with run_bot(gated=True) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        await bot.line.tap(HOME)
        await aeventually(lambda: bot.gate.asked == 1)
        key = f"processing:user:{bot.line.me.chat_id}"
        assert [each for each in valkey.keys() if each.startswith("processing")] == [key]
        assert 0 < valkey.client().pttl(key) <= 5050
        bot.gate.opened.set()
        await bot.settled()
        assert key not in valkey.keys()


def test_an_existing_lock_is_not_overwritten(
    service: ProcessingLockService, valkey: Server
) -> None:
    """取得鎖使用 SET … EX <ttl> NX，不可覆蓋既有鎖（也不覆蓋別人以 "1" 寫入的鎖）。"""
    valkey.client().set(KEY, "1", ex=60, nx=True)
    assert service.try_acquire_lock(KEY, 5) is False
    service.release_lock(KEY)
    assert valkey.client().get(KEY) == b"1" and valkey.client().ttl(KEY) > 50


async def test_released_in_finally(valkey: Server) -> None:
    """釋放鎖於 finally：處理中發生例外，鎖也立即釋放。"""
    async with AsyncDibs(valkey.url) as dibs:
        lock = ProcessingLock(dibs, counted_in=Metrics())
        with pytest.raises(ZeroDivisionError):
            async with lock.turn(SimpleNamespace(type="user", user_id="U1")):
                assert valkey.keys() == [KEY]
                _ = 1 / 0
        assert valkey.keys() == []


async def test_text_location_and_postback_are_locked(run_bot: RunBot) -> None:
    """001：Text/Location/Postback 套用鎖（PROCESSING_LOCK_SCOPE=all）。"""
    async with run_bot(gated=True, **ALL) as bot:
        for first in (
            events.text("板橋"), events.location(25.0337, 121.5645),
            events.postback(f"action=weather&type=place&place={XINYI}"),
        ):  # fmt: skip
            person = bot.line.somebody()
            bot.gate.opened.clear()
            asked = bot.gate.asked
            await bot.line.send(first, source=person)
            await aeventually(lambda asked=asked: bot.gate.asked == asked + 1)
            await bot.line.say("淡水", source=person)
            assert is_busy((await bot.line.wait_for_messages(1, source=person))[0])
            bot.gate.opened.set()
            assert is_forecast((await bot.replies(2, source=person))[-1])


def test_the_selective_policy_of_seed_000() -> None:
    """000：只有 weather home/office 與 recent_queries 需要鎖；current、settings、other 不需要。"""
    decide = line_service.should_use_processing_lock
    assert decide({"action": "weather", "type": "home"}) is True
    assert decide({"action": "weather", "type": "office"}) is True
    assert decide({"action": "recent_queries"}) is True
    for data in ({"action": "weather", "type": "current"}, {"action": "settings"},
                 {"action": "other"}, {}):  # fmt: skip
        assert decide(data) is False


async def test_redis_failure_lets_people_through_without_a_lock_in_memory(
    run_bot: RunBot, own_server: Server
) -> None:
    """Redis 連線/操作失敗時「放行」（不鎖）；不使用 In-Memory fallback：兩個請求都會被處理。"""
    async with run_bot(gated=True, redis_url=own_server.url, **ALL) as bot:
        own_server.kill()
        await bot.line.batch([events.text("板橋"), events.text("淡水")])
        await aeventually(lambda: bot.gate.asked == 2)
        bot.gate.opened.set()
        assert all(map(is_forecast, await bot.replies(2)))


def test_release_is_best_effort(own_server: Server) -> None:
    """釋放失敗不拋出異常，依賴 TTL 自動釋放。"""
    with closing(ProcessingLockService(own_server.url, counted_in=Metrics())) as service:
        assert service.try_acquire_lock(KEY, 5)
        own_server.kill()
        service.release_lock(KEY)


def test_the_words_are_fixed() -> None:
    """命中鎖回覆文案固定：⏳ 正在為您查詢天氣，請稍候...；不進行 i18n。"""
    assert texts.BUSY == "⏳ 正在為您查詢天氣，請稍候..."


async def test_logs_hold_no_personal_data(
    run_bot: RunBot, caplog: pytest.LogCaptureFixture
) -> None:
    """log 不得記錄個資（含 userId）；僅記錄 acquired/missed/released 與隨機的 correlation id。"""
    caplog.set_level(logging.DEBUG)
    async with run_bot(gated=True, processing_lock_timeout_seconds=60) as bot:
        await bot.line.tap(AT_HOME)
        await bot.replies(1)
        await bot.line.tap(HOME)
        await aeventually(lambda: bot.gate.asked == 1)
        await bot.line.tap(HOME)
        await bot.line.wait_for_messages(2)
        bot.gate.opened.set()
        await bot.replies(3)
        mine = bot.line.me.chat_id
    said = [record.getMessage() for record in caplog.records]
    turns = [line for line in said if line.startswith("processing lock ")]
    assert all(
        re.fullmatch(r"processing lock [0-9a-f]{8}: (acquired|missed|released)", each)
        for each in turns
    )
    assert len(turns) == 3
    assert not any(mine in line for line in said)


async def test_an_event_without_a_source_is_served() -> None:
    """000 向下相容：event 沒有 source 屬性（例如測試用的 mock）也不會失敗。"""
    answered: list[object] = []

    async def reply(self: Bot, event: object, *messages: object) -> None:
        answered.extend(messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bot, "reply", reply)
        async with AsyncDibs("redis://127.0.0.1:1") as dibs:
            bot = Bot(None, None, None, ProcessingLock(dibs, counted_in=Metrics()))  # type: ignore[arg-type]
            event = SimpleNamespace(postback=SimpleNamespace(data="action=recent_queries"))
            await line_service.handle_postback_event(event, bot)
    assert len(answered) == 1


def test_the_names_are_where_the_seeds_have_them() -> None:
    """模組結構：processing_lock.py 與 service.py 的函式名稱。"""
    from apps.weamind.core import processing_lock

    for name in ("try_acquire_lock", "release_lock", "build_actor_key"):
        assert callable(getattr(processing_lock.processing_lock_service, name))
    for name in ("handle_message_event", "handle_location_message_event", "handle_postback_event",
                 "handle_follow_event", "handle_unfollow_event", "_dispatch_postback"):  # fmt: skip
        assert inspect.iscoroutinefunction(getattr(line_service, name))
