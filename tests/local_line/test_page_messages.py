"""Every kind of message on the chat page: drawn, tapped and written as on a phone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from local_line import LocalLine
from PIL import Image

from dibs.testing import eventually

from .stage import PHONE, TIMEOUT, TOKEN, Json, Stage, expect, say, text

pytestmark = pytest.mark.only_on("linux", "darwin")

FAR = "https://far.invalid/picture"


@contextmanager
def with_pictures(browser: Any, stage: Stage, *urls: str) -> Iterator[Any]:
    """A page for which those addresses have a picture."""
    file = io.BytesIO()
    Image.new("RGB", (1040, 520), "#1d6660").save(file, "PNG")
    context = browser.new_context(viewport=PHONE, locale="zh-TW")
    context.set_default_timeout(TIMEOUT * 1000)
    picture = {"body": file.getvalue(), "content_type": "image/png"}
    for url in urls:
        context.route(url, lambda route: route.fulfill(**picture))
    page = context.new_page()
    page.goto(stage.line.page_url)
    page.locator("#bot-name", has_text="My bot").wait_for()
    yield page
    context.close()


def messages(stage: Stage) -> list[Json]:
    """What the bot was sent, by its text or data."""
    return [event["message"]["text"] for event in stage.bot.events if event["type"] == "message"]


def answers(stage: Stage, *said: Json) -> None:
    """The bot says that once."""
    left = [list(said)]
    stage.bot.says = lambda event: left.pop() if left else []


# ------------------------------------------------------------------------------- imagemaps


def area(x: int, y: int, width: int, height: int) -> Json:
    return {"x": x, "y": y, "width": width, "height": height}


IMAGEMAP: Json = {
    "type": "imagemap",
    "baseUrl": FAR,
    "altText": "三個區域",
    "baseSize": {"width": 1040, "height": 520},
    "actions": [
        {"type": "message", "text": "左邊", "area": area(0, 0, 520, 520)},
        {"type": "uri", "linkUri": "tel:119", "label": "電話", "area": area(520, 0, 520, 260)},
        {"type": "clipboard", "clipboardText": "優惠碼", "area": area(520, 260, 520, 260)},
    ],
    "video": {
        "originalContentUrl": "https://far.invalid/v.mp4",
        "previewImageUrl": "https://far.invalid/v.png",
        "area": area(130, 130, 260, 260),
        "externalLink": {"linkUri": "tel:110", "label": "看更多"},
    },
}


def test_an_imagemap_is_drawn_and_tapped(page: Any, stage: Stage) -> None:
    """Its areas are where its JSON says; each does what it is for, by mouse and by keyboard."""
    answers(stage, IMAGEMAP)
    say(page, "圖")
    card = page.get_by_role("group", name="三個區域")
    left, phone = (card.get_by_role("button", name=name) for name in ("左邊", "電話"))
    expect(left).to_be_visible()
    frame, half = card.locator(".imagemap").bounding_box(), left.bounding_box()
    assert abs(frame["width"] - 2 * frame["height"]) < 2
    assert abs(half["width"] - frame["width"] / 2) < 2 and abs(half["x"] - frame["x"]) < 2
    left.focus()
    page.keyboard.press("Tab")
    expect(phone).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#note")).to_have_text("手機會開啟 tel:119")
    card.get_by_role("button", name="看更多").click()
    expect(page.locator("#note")).to_have_text("手機會開啟 tel:110")
    card.get_by_role("button", name="優惠碼").click()
    expect(page.locator("#note")).to_contain_text("複製")
    left.click(position={"x": 5, "y": 5})
    expect(page.locator(".row.mine .said")).to_have_text(["圖", "左邊"])
    eventually(lambda: messages(stage) == ["圖", "左邊"])


def test_the_picture_of_an_imagemap_is_shown_on_click(browser: Any, stage: Stage) -> None:
    """At the width that LINE asks for; the areas stay where they are."""
    answers(stage, IMAGEMAP)
    with with_pictures(browser, stage, f"{FAR}/1040") as page:
        say(page, "圖")
        page.get_by_role("button", name="圖片：顯示").click()
        picture = page.locator(".imagemap img")
        eventually(lambda: picture.evaluate("(image) => image.naturalWidth") == 1040)
        page.get_by_role("button", name="左邊").click(position={"x": 5, "y": 5})
        eventually(lambda: messages(stage) == ["圖", "左邊"])


# ------------------------------------------------------------------------------- who speaks


def test_a_sender_has_a_name_and_a_face(browser: Any, stage: Stage) -> None:
    """Above the message and beside it; the icon when it is asked for; the bot itself has none."""
    icon = f"{FAR}/icon.png"
    cat = text("喵", sender={"name": "小花貓", "iconUrl": icon})
    answers(stage, cat, cat, text("我是機器人"))
    with with_pictures(browser, stage, icon) as page:
        say(page, "嗨")
        expect(page.locator(".row.bot .said")).to_have_text(["喵", "喵", "我是機器人"])
        expect(page.locator(".row.bot .who:visible")).to_have_text("小花貓")
        face = page.get_by_role("button", name="小花貓：顯示圖示")
        expect(face).to_have_count(1)
        face.click()
        shown = page.locator(".row.bot img.face:visible")
        expect(shown).to_have_count(1)
        eventually(lambda: shown.evaluate("(image) => image.naturalWidth") == 1040)
        expect(page.locator(".row.bot").last.locator("span.face")).to_be_visible()


# ------------------------------------------------------------------------------- several lines


def test_a_message_of_several_lines(page: Any, stage: Stage) -> None:
    """Shift+Enter begins a line, Enter sends; a bot's `fillInText` keeps its lines."""
    field = page.locator("#say")
    field.press_sequentially("姓名：王")
    page.keyboard.press("Shift+Enter")
    field.press_sequentially("電話：0912")
    low = field.bounding_box()["height"]
    page.keyboard.press("Enter")
    expect(page.locator(".row.mine .said")).to_have_text("姓名：王\n電話：0912")
    expect(field).to_have_value("")
    eventually(lambda: messages(stage) == ["姓名：王\n電話：0912"])
    assert field.bounding_box()["height"] < low
    fill = {"type": "postback", "label": "填表", "data": "form", "inputOption": "openKeyboard"}
    item = {"type": "action", "action": fill | {"fillInText": "姓名：\n電話："}}
    answers(stage, text("請填", quickReply={"items": [item]}))
    say(page, "表單")
    page.get_by_role("button", name="填表").click()
    expect(field).to_have_value("姓名：\n電話：")
    expect(field).to_be_focused()


def test_enter_while_characters_are_composed_sends_nothing(page: Any, stage: Stage) -> None:
    """It chooses among them."""
    page.locator("#say").fill("ㄊㄞˊ")
    composing = """field => field.dispatchEvent(new KeyboardEvent("keydown",
      { key: "Enter", isComposing: true, bubbles: true, cancelable: true }))"""
    assert page.locator("#say").evaluate(composing) is True  # the browser goes on with it
    say(page, "台北")
    eventually(lambda: messages(stage) == ["台北"])


# ------------------------------------------------------------------------------- emoji and names


def test_emoji_and_mentions_have_names(page: Any, stage: Stage) -> None:
    """A LINE emoji stands where its `$` was, a mention is the name of who is meant."""
    page.get_by_label("群組", exact=True).check()
    eventually(lambda: stage.bot.events)
    user = stage.bot.events[0]["source"]["userId"]
    emoji = {"productId": "5ac1bfd5040ab15980c9b435", "emojiId": "001"}
    people: Json = {"who": {"type": "mention", "mentionee": {"type": "user", "userId": user}}}
    people |= {"all": {"type": "mention", "mentionee": {"type": "all"}}}
    people |= {"smile": {"type": "emoji", **emoji}}
    answers(
        stage,
        text("😀$ 早安 $5", emojis=[{"index": 2, **emoji}]),
        {"type": "textV2", "text": "{who} {all} 早{smile} {{x}}", "substitution": people},
    )
    say(page, "嗨")
    first, second = (page.locator(".row.bot .said").nth(n) for n in range(2))
    expect(first).to_have_text("😀☺ 早安 $5")
    expect(second).to_have_text("@Ann @All 早☺ {x}")
    expect(page.get_by_role("img", name="5ac1bfd5040ab15980c9b435 / 001")).to_have_count(2)
    expect(second.locator(".mention")).to_have_text(["@Ann", "@All"])


def test_an_emoji_needs_its_placeholder(stage: Stage) -> None:
    """400, as at LINE, if there is no `$` at its index, which counts UTF-16 units."""
    user = stage.line.somebody("Ann").chat_id
    emoji = {"index": 1, "productId": "5ac1bfd5040ab15980c9b435", "emojiId": "001"}
    body = {"to": user, "messages": [text("😀$", emojis=[emoji])]}
    with pytest.raises(AssertionError, match=r"messages\[0\].emojis\[0\].index"):
        stage.call("POST", "/v2/bot/message/push", json=body)
    body["messages"] = [text("😀$", emojis=[emoji | {"index": 2}])]
    stage.call("POST", "/v2/bot/message/push", json=body)


# ------------------------------------------------------------------------------- coupons, videos


def test_a_coupon_says_what_it_is(page: Any, stage: Stage) -> None:
    """Its title and its last day, from what the bot has created."""
    coupon = {
        "title": "咖啡第二杯半價", "acquisitionCondition": {"type": "normal"},
        "startTimestamp": 1_780_000_000, "endTimestamp": 1_798_732_799,
        "maxUseCountPerTicket": 1, "visibility": "UNLISTED", "timezone": "ASIA_TAIPEI",
        "description": "出示本券",
    }  # fmt: skip
    id = stage.call("POST", "/v2/bot/coupon", json=coupon)["couponId"]
    answers(stage, {"type": "coupon", "couponId": id}, {"type": "coupon", "couponId": "unknown"})
    say(page, "優惠")
    first, second = (page.locator(".row.bot .coupon").nth(n) for n in range(2))
    expect(first).to_contain_text("咖啡第二杯半價")
    expect(first).to_contain_text("出示本券")
    expect(first).to_contain_text("2026")
    expect(second).to_contain_text("unknown")
    page.reload()
    expect(first).to_contain_text("咖啡第二杯半價")


def test_a_video_is_seen_to_its_end(page: Any, stage: Stage) -> None:
    """Where the bot wants to know; it gets the event that LINE sends then."""
    video = {"type": "video", "originalContentUrl": FAR, "previewImageUrl": FAR}
    answers(stage, video | {"trackingId": "intro"}, video)
    say(page, "影片")
    seen = page.get_by_role("button", name="看完影片")
    expect(page.locator(".row.bot .stand-in")).to_have_count(2)
    expect(seen).to_have_count(1)
    seen.click()
    eventually(lambda: stage.bot.events[-1]["type"] == "videoPlayComplete")
    assert stage.bot.events[-1]["videoPlayComplete"] == {"trackingId": "intro"}


# ------------------------------------------------------------------------------- dates


def test_the_limits_of_a_date_in_lines_spelling(page: Any, stage: Stage) -> None:
    """`t` and `T` are the same; what is later than `max` cannot be sent."""
    pick: Json = {"type": "datetimepicker", "label": "選時間", "data": "when", "mode": "datetime"}
    pick |= {"initial": "2026-07-01t09:30", "min": "2026-01-01t00:00", "max": "2026-12-31t23:59"}
    answers(stage, text("何時？", quickReply={"items": [{"type": "action", "action": pick}]}))
    say(page, "預約")
    page.get_by_role("button", name="選時間").click()
    field = page.locator("#picked")
    expect(field).to_have_value("2026-07-01T09:30")
    field.fill("2030-01-01T00:00")
    page.get_by_role("button", name="確定").click()
    expect(field).to_be_visible()
    assert field.evaluate("field => field.validity.rangeOverflow")
    field.fill("2026-12-31T23:59")
    page.get_by_role("button", name="確定").click()
    eventually(lambda: len(stage.bot.events) == 2)
    assert stage.bot.events[1]["postback"]["params"] == {"datetime": "2026-12-31T23:59"}


# ------------------------------------------------------------------------------- very many


COUNT_LAYOUTS = """() => {
  const talk = document.querySelector("#talk");
  const height = Object.getOwnPropertyDescriptor(Element.prototype, "scrollHeight");
  window.counted = { layouts: 0, frames: 0 };
  const measure = function () { counted.layouts += 1; return height.get.call(this); };
  Object.defineProperty(talk, "scrollHeight", { get: measure });
  const frame = () => { counted.frames += 1; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""


async def push(line: LocalLine, user: str, number: int) -> None:
    """So many messages, five in a call."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{line.api_base}/v2/bot/message/push"
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT, headers=headers) as http:
        for first in range(1, number, 5):
            said = [text(f"第 {n} 則") for n in range(first, first + 5)]
            answer = await http.post(url, json={"to": user, "messages": said})
            assert answer.status_code == 200, answer.text


def test_two_thousand_messages(page: Any, stage: Stage) -> None:
    """The page keeps as many rows as the server, and lays them out once in a frame."""
    say(page, "嗨")
    eventually(lambda: stage.bot.events)
    page.evaluate(COUNT_LAYOUTS)
    user = stage.bot.events[0]["source"]["userId"]
    stage.run(push(stage.line, user, 2000), within=120.0)
    expect(page.locator(".row.bot .said").last).to_have_text("第 2000 則")
    expect(page.locator(".row.bot .said").last).to_be_in_viewport()
    assert page.locator(".row").count() <= 500
    counted = page.evaluate("counted")
    assert counted["layouts"] <= counted["frames"] + 1
    page.locator("#talk").evaluate("talk => { talk.scrollTop = 0; }")
    expect(page.locator(".row.bot .face").first).to_be_visible()


def test_messages_and_rows_are_items_of_a_list(page: Any, stage: Stage) -> None:
    """In a log: a screen reader says how many there are, and what comes."""
    answers(stage, text("哪裡？", "臺北"))
    say(page, "天氣")
    expect(page.locator("#wire li")).to_have_count(2)
    for name in ("對話", "往來的資料"):
        items = page.get_by_role("log", name=name).get_by_role("list").get_by_role("listitem")
        expect(items).to_have_count(2)


def test_the_end_stays_in_sight(page: Any, stage: Stage) -> None:
    """Also if a text of many lines, or the menu of other kinds, takes room below it."""
    answers(stage, *[text(f"{n}\n\n\n") for n in range(5)])
    say(page, "天氣")
    last = page.locator(".row.bot .said").nth(4)
    expect(last).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="更多").click()
    page.locator("#say").fill("一\n二\n三\n四")
    at_end = "talk => Math.abs(talk.scrollHeight - talk.clientHeight - talk.scrollTop) < 2"
    eventually(lambda: page.locator("#talk").evaluate(at_end))


# ------------------------------------------------------------------------------- a server that ends


def test_what_is_written_while_the_server_is_down_is_not_lost(browser: Any) -> None:
    """It is in the field again, and sent on Enter when the server is back."""
    stage = Stage()
    port = urlsplit(stage.line.page_url).port
    assert port is not None
    context = browser.new_context(viewport=PHONE, locale="zh-TW")
    page = context.new_page()
    page.goto(stage.line.page_url)
    page.locator("#bot-name", has_text="My bot").wait_for()
    stage.close()
    expect(page.locator("#gone")).to_be_visible()
    say(page, "第一行\n第二行")
    expect(page.locator("#note")).to_contain_text("未送出")
    expect(page.locator("#say")).to_have_value("第一行\n第二行")
    stage = Stage(port)
    try:
        expect(page.locator("#gone")).to_be_hidden()
        page.locator("#say").press("Enter")
        expect(page.locator(".row.mine .said")).to_have_text("第一行\n第二行")
        expect(page.locator("#note")).to_have_text("")
        expect(page.locator("#say")).to_have_value("")
    finally:
        context.close()
        stage.close()


def test_what_the_bot_cannot_get_yet_stays_in_the_field(page: Any, stage: Stage) -> None:
    """What was typed meanwhile comes after it."""
    stage.line.webhook_url, webhook = "", stage.line.webhook_url
    with page.expect_response("**/api/say"):
        say(page, "早")
    expect(page.locator("#say")).to_have_value("早")
    expect(page.locator("#note")).not_to_have_text("")
    stage.line.webhook_url = webhook
    page.locator("#say").press("Enter")
    eventually(lambda: messages(stage) == ["早"])
