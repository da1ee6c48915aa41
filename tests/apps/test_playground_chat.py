"""The playground's LINE bot: WeaMind behind the chat page, started by the first visitor."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest

from dibs.testing import eventually

from .browser import launched
from .playground_process import Playground, running
from .test_playground_menu import alive, children

pytestmark = pytest.mark.only_on("linux", "darwin")

TIMEOUT = 60.0
"""Seconds: a bot may take its time to start on a busy machine."""
PATIENCE = "⏳ 正在為您查詢天氣，請稍候..."


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with running() as playground:
        assert playground.url, playground.line
        yield playground


@contextmanager
def at_the_phone(playground: Playground) -> Iterator[tuple[httpx.Client, Iterator[str]]]:
    """A visitor whose page is open, and what its stream says, line by line."""
    with playground.visitor() as client:
        client.timeout = httpx.Timeout(TIMEOUT)
        assert client.get("/chat/").status_code == 200
        with client.stream("GET", "/chat/api/events") as stream:
            yield client, stream.iter_lines()


def next_of(lines: Iterator[str], kind: str) -> dict[str, Any]:
    """The next message of that kind."""
    for line in lines:
        if line == f"event: {kind}":
            return json.loads(next(lines).removeprefix("data: "))
    raise AssertionError(f"the stream ended without {kind}")


def answered(lines: Iterator[str]) -> str:
    """What the bot says next; empty: the webhook did not reach it."""
    for line in lines:
        facts = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
        if facts.get("author") == "bot":
            return facts["message"].get("altText") or facts["message"]["text"]
        if facts.get("reason", "ok") != "ok":
            return ""
    raise AssertionError("the stream ended without an answer")


# ------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, playground: Playground) -> Iterator[Any]:
    """The phone, reached by the navigation, on a narrow screen; it calls no other host."""
    context = browser.new_context(viewport={"width": 360, "height": 740}, locale="zh-TW")
    context.set_default_timeout(TIMEOUT * 1000)
    page = context.new_page()
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(playground.url) else mistakes.append(asked.url),
    )
    page.goto(f"{playground.url}/#hold")
    page.get_by_role("link", name="LINE bot").click()
    page.locator("#bot-name", has_text="WeaMind").wait_for()
    box = page.locator("#say").bounding_box()
    assert box["y"] + box["height"] <= 740  # where one writes is in sight, without scrolling
    yield page
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    context.close()
    assert not mistakes and overflow <= 0


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def say(page: Any, words: str) -> None:
    page.locator("#say").fill(words)
    page.keyboard.press("Enter")


def answers(page: Any, words: str) -> Any:
    """What the bot has said with these words in it."""
    return page.locator(".row.bot .said", has_text=words)


def area(page: Any, name: str) -> Any:
    """A field of the rich menu."""
    return page.locator("#menu-picture").get_by_role("button", name=name, exact=True)


def card(page: Any) -> Any:
    """The last forecast."""
    return page.locator(".row.bot .card").last


def move_in(page: Any) -> None:
    """A new friend who lives in 信義; the bot has said four things by now."""
    page.get_by_role("button", name="加入好友").click()
    page.get_by_role("button", name="設定住家").click()
    page.get_by_role("button", name="臺北市").click()
    page.get_by_role("button", name="信義區").click()
    expect(answers(page, "已將住家設為 臺北市信義區")).to_have_count(1)


def slow_down(page: Any, seconds: int) -> None:
    """Moves the slider: how long the weather takes."""
    page.locator("#delay").fill(str(seconds))
    expect(page.locator("#note")).to_be_empty()
    expect(page.locator("#delay-now")).to_have_text(f"{seconds} s")


def test_five_taps_are_one_forecast(page: Any) -> None:
    """Within one moment: five webhooks, five 200s, one forecast, and four times a word to wait."""
    move_in(page)
    area(page, "住家").evaluate("area => { for (let n = 0; n < 5; n += 1) area.click(); }")
    expect(answers(page, PATIENCE)).to_have_count(4)
    expect(page.locator(".row.bot .card")).to_have_count(1)
    webhooks = page.locator(".wire .out", has_text="action=weather&type=home")
    expect(webhooks.locator(".status")).to_have_text(["200"] * 5)
    expect(card(page)).to_have_attribute("aria-label", re.compile("信義"))
    say(page, "說明")
    expect(answers(page, "使用說明")).to_have_count(1)
    expect(page.locator(".row.bot")).to_have_count(4 + 5 + 1)


def test_the_first_advice_works_at_the_first_try(page: Any) -> None:
    """A newcomer has no home: one button sets it, then 住家 is a forecast, under a lock."""
    expect(page.locator("#lock")).to_have_text("處理鎖：目前沒有人持有。")
    page.get_by_role("button", name="先把住家設成板橋").click()
    expect(answers(page, "已將住家設為 新北市板橋區")).to_have_count(1)
    slow_down(page, 4)
    area(page, "住家").click()
    expect(page.locator("#lock")).to_contain_text("Ann 持有中")
    expect(card(page)).to_have_attribute("aria-label", re.compile("板橋"))
    expect(page.locator("#lock")).to_have_text("處理鎖：目前沒有人持有。")


def test_a_redelivery_while_it_runs_takes_nothing_away(page: Any) -> None:
    """The same event twice, one reply: the forecast, and no word to wait that eats its token."""
    move_in(page)
    area(page, "住家").click()
    page.get_by_role("button", name="重送上一個事件").click()
    again = page.locator(".wire .out", has=page.locator("em", has_text="重送"))
    expect(again.locator(".status")).to_have_text("200")
    expect(page.locator(".row.bot .card")).to_have_count(1)
    say(page, "說明")
    expect(answers(page, "使用說明")).to_have_count(1)
    expect(page.locator(".row.bot")).to_have_count(4 + 1 + 1)
    expect(page.locator(".wire .in", has_text="message/reply")).to_have_count(4 + 1 + 1)


def test_slowing_the_weather_down_loses_no_forecast(page: Any, playground: Playground) -> None:
    """What is under way is finished by the bot before; the next one has other weather."""
    move_in(page)
    before = children(playground)
    area(page, "住家").click()
    expect(page.locator(".wire .out", has_text="action=weather&type=home")).to_have_count(1)
    slow_down(page, 0)
    expect(page.locator(".row.bot .card")).to_have_count(1)
    area(page, "住家").click()
    expect(page.locator(".row.bot .card")).to_have_count(2)
    now = eventually(lambda: len(found := children(playground)) == len(before) and found, within=90)
    assert now != before
    page.reload()
    expect(page.locator("#delay-now")).to_have_text("0 s")


def test_the_whole_conversation(page: Any) -> None:
    """Added, asked by name and by place, home and office, the menu, what was asked, forgotten."""
    slow_down(page, 0)
    page.get_by_role("button", name="加入好友").click()
    expect(answers(page, "歡迎使用 WeaMind")).to_have_count(1)
    say(page, "板橋")
    expect(card(page)).to_have_attribute("aria-label", re.compile("板橋"))
    card(page).get_by_role("button", name="設為住家").click()
    expect(answers(page, "已將住家設為 新北市板橋區")).to_have_count(1)

    page.locator("#extras-toggle").click()
    page.get_by_role("button", name="位置資訊", exact=True).click()
    page.locator("#places").get_by_role("button", name="傳送").click()
    expect(card(page)).to_have_attribute("aria-label", re.compile("信義"))
    card(page).get_by_role("button", name="設為公司").click()
    expect(answers(page, "已將公司設為 臺北市信義區")).to_have_count(1)

    say(page, "花蓮市")
    expect(card(page)).to_have_attribute("aria-label", re.compile("花蓮"))
    area(page, "住家").click()
    expect(card(page)).to_have_attribute("aria-label", re.compile("板橋"))
    area(page, "公司").click()
    expect(card(page)).to_have_attribute("aria-label", re.compile("信義"))
    area(page, "最近查詢").click()
    expect(answers(page, "最近查詢的地點")).to_have_count(1)
    expect(page.locator("#quick button")).to_have_text(["花蓮縣花蓮市"])

    say(page, "刪除我的資料")
    page.get_by_role("button", name="確定刪除").click()
    expect(answers(page, "您的資料已全部刪除")).to_have_count(1)
    area(page, "住家").click()
    expect(answers(page, "您還沒有設定住家")).to_have_count(1)


@pytest.mark.parametrize("panel", ["hold", "once", "cached", "machines"])
def test_a_deep_link_leaves_the_head_in_sight(
    page: Any, playground: Playground, panel: str
) -> None:
    """The panel that the address names is shown, and the page stands at its top."""
    page.goto(f"{playground.url}/#{panel}")
    expect(page.locator(f"#{panel}")).to_be_visible()
    expect(page.locator(".masthead")).to_be_in_viewport()
    page.evaluate("new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))")
    assert page.evaluate("scrollY") == 0


# ------------------------------------------------------------------------------- without one


def test_a_killed_bot_comes_back(playground: Playground) -> None:
    """While it is dead no other one is started by accident; then it answers as before."""
    with at_the_phone(playground) as (client, lines):
        next_of(lines, "state")
        killed = client.post("/chat/kill")
        assert killed.status_code == 202 and killed.json()["what"] == "the bot"
        assert client.post("/chat/bot", json={"delay": 0}).status_code == 503
        client.delete("/faults/")
        assert client.post("/chat/api/say", json={"text": "板橋"}).status_code == 202
        assert "新北市板橋區" in answered(lines)


def test_a_bot_that_died_is_started_again(playground: Playground) -> None:
    """By the next page that is opened; what people have told it is still known."""
    with at_the_phone(playground) as (client, lines):
        next_of(lines, "state")
        home = "action=set&type=home&place=63000020"
        assert client.post("/chat/api/tap", json={"data": home}).status_code == 202
        assert "已將住家設為" in answered(lines)
        for pid in children(playground):
            os.kill(int(pid), signal.SIGKILL)

        def asked_again() -> str:
            with client.stream("GET", "/chat/api/events") as stream:
                next_of(lines := stream.iter_lines(), "state")
                client.post("/chat/api/tap", json={"data": "action=weather&type=home"})
                return answered(lines)

        assert "臺北市信義區" in eventually(asked_again, within=TIMEOUT)


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b"{", b'{"delay": -1}', b'{"delay": 5}', b'{"delay": "2"}', b'{"delay": true}',
     b'{"delay": NaN}', b"[" * 900],
)  # fmt: skip
def test_what_the_lever_refuses(playground: Playground, body: bytes) -> None:
    """400, and what would be right; a visitor who has not opened a page may not use it."""
    with playground.visitor() as visitor:
        visitor.get("/chat/")
        answer = visitor.post("/chat/bot", content=body)
        assert answer.status_code == 400
        assert re.fullmatch(r"[A-Za-z][^.]* must be [^.]*\.", answer.json()["error"])
    other = httpx.post(f"{playground.url}/chat/bot", content=body, trust_env=False)
    assert other.status_code == 400 and "Open the page first" in other.json()["error"]


def test_a_bot_that_does_not_start_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the page, where everything else goes on. The terminal has the reason."""
    monkeypatch.setenv("SHUTDOWN_SECONDS", "soon")
    with running() as playground:
        with at_the_phone(playground) as (client, lines):
            sentence = "The bot does not start: apps.weamind.main:app did not start."
            assert next_of(lines, "closed") == {"error": sentence}
            assert client.post("/chat/api/say", json={"text": "板橋"}).status_code == 503
            assert client.post("/hold/ann", json={"ttl": 2}).status_code == 200
        code, said, _ = playground.end(signal.SIGINT)
        assert code == 0 and "SHUTDOWN_SECONDS" in said and "Traceback" not in said
        assert not os.listdir(playground.folder)


def test_it_leaves_nothing_behind() -> None:
    """Told to end in the middle of a forecast: no bot, no shop, no server, no files, no word."""
    with running() as playground, at_the_phone(playground) as (client, lines):
        assert client.get("/orders/all").status_code == 200
        next_of(lines, "state")
        pids = children(playground)
        assert len(pids) == 2
        assert client.post("/chat/api/say", json={"text": "板橋"}).status_code == 202
        next_of(lines, "delivery")
        code, said, _ = playground.end(signal.SIGINT)
        assert (code, said) == (0, "")
        assert not alive(pids) and not playground.servers()
        assert not os.listdir(playground.folder)


def test_it_ends_while_the_bot_is_being_started() -> None:
    """Told to end meanwhile: it does not wait for a bot that is no longer needed."""
    with running() as playground, at_the_phone(playground) as (_, lines):
        next_of(lines, "opening")
        pids = eventually(lambda: children(playground))
        code, said, _ = playground.end(signal.SIGINT)
        assert (code, said) == (0, "")
        eventually(lambda: not alive(pids) and not playground.servers(), within=90)
        assert not os.listdir(playground.folder)
