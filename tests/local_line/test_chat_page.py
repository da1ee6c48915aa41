"""The chat page, as a person meets it: a phone in a real browser, and a real bot behind it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from local_line import LocalLine, panel
from local_line.accounts import Picture
from PIL import Image

from dibs.testing import eventually

from .stage import (
    DESK,
    PHONE,
    TIMEOUT,
    TOKEN,
    Json,
    Stage,
    box,
    bubble,
    expect,
    flex,
    say,
    text,
    words,
)

pytestmark = pytest.mark.only_on("linux", "darwin")


# ------------------------------------------------------------------------------- talking


def test_a_conversation(page: Any, stage: Stage) -> None:
    """Said, read, answered; quick replies stand below the last message and are gone after it."""
    stage.bot.says = lambda event: [text("哪裡？", "臺北", "臺中")]
    say(page, "天氣")
    expect(page.locator(".row.mine .said")).to_have_text("天氣")
    expect(page.locator(".row.mine .mark")).to_have_text("已讀")
    expect(page.locator(".row.bot .said")).to_have_text("哪裡？")
    stage.bot.says = lambda event: [text("晴")]
    page.get_by_role("button", name="臺北").click()
    expect(page.locator(".row.mine .said")).to_have_text(["天氣", "我選臺北"])
    expect(page.locator(".row.bot .said")).to_have_text(["哪裡？", "晴"])
    expect(page.locator("#quick")).to_be_hidden()
    expect(page.locator("#say")).to_be_focused()
    assert [event["message"]["text"] for event in stage.bot.events] == ["天氣", "我選臺北"]


def test_a_long_answer_is_shown_from_its_beginning(page: Any, stage: Stage) -> None:
    """The sentence that answers is in view when a card that is higher than the phone follows it;
    what is said next is in view again."""
    tall = "\n".join(["一行"] * 80)
    stage.bot.says = lambda event: [text("會下雨，記得帶傘。"), text(tall)]
    say(page, "會下雨嗎")
    expect(page.locator(".row.bot .said")).to_have_count(2)
    expect(page.locator(".row.bot .said").first).to_be_in_viewport(ratio=1)
    stage.bot.says = lambda event: [text("不客氣")]
    say(page, "謝謝")
    expect(page.locator(".row.bot .said").last).to_have_text("不客氣")
    expect(page.locator(".row.bot .said").last).to_be_in_viewport(ratio=1)


def test_what_was_being_written_is_there_after_a_reload(page: Any, stage: Stage) -> None:
    """Once: what was sent is not written again."""
    page.locator("#say").fill("half\na thought")
    page.reload()
    expect(page.locator("#say")).to_have_value("half\na thought")
    page.locator("#say").press("Enter")
    expect(page.locator(".row.mine .said")).to_have_text("half\na thought")
    page.reload()
    expect(page.locator(".row.mine .said")).to_have_text("half\na thought")
    expect(page.locator("#say")).to_have_value("")


def test_what_was_said_is_there_after_a_reload(page: Any, stage: Stage) -> None:
    """The chat, its quick replies and the log: a phone does not forget."""
    stage.bot.says = lambda event: [text("哪裡？", "臺北")]
    say(page, "天氣")
    expect(page.get_by_role("button", name="臺北")).to_be_visible()
    expect(page.locator("#wire li")).to_have_count(2)
    page.reload()
    expect(page.locator(".row .said")).to_have_text(["天氣", "哪裡？"])
    expect(page.locator(".row.mine .mark")).to_have_text("已讀")
    expect(page.get_by_role("button", name="臺北")).to_be_visible()
    expect(page.locator("#wire li")).to_have_count(2)


def test_words_are_words(page: Any, stage: Stage) -> None:
    """Markup that a user sends is shown as text; addresses are links."""
    evil = "<img src=x onerror=alert(1)><b>粗</b> https://example.com/help。"
    stage.bot.says = lambda event: [text(evil), flex(bubble({"type": "text", "text": evil}))]
    say(page, evil)
    expect(page.locator(".row.mine .said")).to_have_text(evil)
    expect(page.locator(".row.bot p.said")).to_have_text(evil)
    expect(page.locator(".fx-text")).to_have_text(evil)
    assert page.locator(".talk img, .talk b").count() == 0
    link = page.locator(".row.bot p.said a")
    expect(link).to_have_attribute("href", "https://example.com/help")
    expect(link).to_have_attribute("rel", "noopener noreferrer")


def test_dots_are_shown_until_the_bot_answers(page: Any, stage: Stage) -> None:
    """The bot thinks: three dots, until it says something."""
    say(page, "嗨")
    eventually(lambda: stage.bot.events)
    event = stage.bot.events[0]
    chat = {"chatId": event["source"]["userId"], "loadingSeconds": 60}
    stage.call("POST", "/v2/bot/chat/loading/start", json=chat)
    dots = page.get_by_role("img", name="正在輸入")
    expect(dots).to_be_visible()
    body = {"replyToken": event["replyToken"], "messages": [text("好了")]}
    stage.call("POST", "/v2/bot/message/reply", json=body)
    expect(page.locator(".row.bot .said")).to_have_text("好了")
    expect(dots).to_have_count(0)


def test_a_bot_that_does_not_take_it(page: Any, stage: Stage) -> None:
    """The person sees that it has not arrived, the log why; redelivered, it has."""
    stage.bot.status = 500
    say(page, "嗨")
    expect(page.locator(".row.mine .mark")).to_have_text("未送達")
    expect(page.locator("#wire .failed .status")).to_have_text("500")
    stage.bot.status = 200
    page.get_by_role("button", name="重送上一個事件").click()
    expect(page.locator(".row.mine .mark")).to_have_text("已讀")
    expect(page.locator("#wire .fine em")).to_have_text("重送")
    assert [event["deliveryContext"]["isRedelivery"] for event in stage.bot.events] == [False, True]
    assert len({event["webhookEventId"] for event in stage.bot.events}) == 1


def test_redelivery_by_itself(page: Any, stage: Stage) -> None:
    """Switched on, LINE tries again until the bot takes it."""
    page.get_by_label("失敗時自動重送").check()
    stage.bot.status = 503
    say(page, "嗨")
    eventually(lambda: len(stage.bot.events) == 3)
    expect(page.locator("#wire .failed em")).to_have_text(["重送", "重送"])
    assert len({event["replyToken"] for event in stage.bot.events}) == 1


def test_two_events_and_standby(page: Any, stage: Stage) -> None:
    """The last thing twice in one webhook; and events that are not the bot's to answer."""
    page.get_by_role("button", name="同一則訊息送兩次").click()
    expect(page.locator("#note")).to_contain_text("Do something first")
    say(page, "臺南")
    page.get_by_role("button", name="同一則訊息送兩次").click()
    expect(page.locator(".row.mine .said")).to_have_text(["臺南"] * 3)
    expect(page.locator("#wire .what").first).to_contain_text("text + text")
    assert [len(body) for body in stage.bot.bodies] == [1, 2]
    page.get_by_label("待命模式").check()
    say(page, "嗨")
    expect(page.locator("#wire em")).to_have_text("待命")
    assert stage.bot.events[-1]["mode"] == "standby" and "replyToken" not in stage.bot.events[-1]


def test_adding_and_blocking(page: Any, stage: Stage) -> None:
    """A blocked bot gets no events and its messages do not arrive; then it is followed."""
    stage.bot.says = lambda event: [text("歡迎")]
    page.get_by_role("button", name="加入好友").click()
    expect(page.locator(".row.bot .said")).to_have_text("歡迎")
    page.get_by_role("button", name="封鎖", exact=True).click()
    expect(page.locator("#say")).to_be_disabled()
    expect(page.get_by_role("button", name="封鎖", exact=True)).to_be_disabled()
    page.get_by_role("button", name="解除封鎖").click()
    expect(page.locator("#say")).to_be_enabled()
    expect(page.locator(".row.bot .said")).to_have_text(["歡迎", "歡迎"])
    assert [event["type"] for event in stage.bot.events] == ["follow", "unfollow", "follow"]
    assert stage.bot.events[2]["follow"] == {"isUnblocked": True}


def test_a_group_is_a_chat_of_its_own(page: Any, stage: Stage) -> None:
    """Joined once; with and without the person's id; a separate chat, without a menu."""
    stage.show_menu("住家")
    stage.bot.says = lambda event: [text(f"於{event['source']['type']}")]
    say(page, "嗨")
    expect(page.locator(".row.bot .said")).to_have_text("於user")
    expect(page.locator("#rich-menu")).to_be_visible()
    page.get_by_label("群組", exact=True).check()
    expect(page.locator("#rich-menu")).to_be_hidden()
    expect(page.locator(".row.bot .said")).to_have_text("於group")
    page.get_by_label("群組（不提供使用者 ID）").check()
    say(page, "大家好")
    expect(page.locator(".row.bot .said")).to_have_text(["於group"] * 2)
    page.get_by_label("一對一聊天").check()
    expect(page.locator(".row .said")).to_have_text(["嗨", "於user"])
    kinds = [(event["type"], event["source"]["type"]) for event in stage.bot.events]
    assert kinds == [("message", "user"), ("join", "group"), ("message", "group")]
    assert ["userId" in event["source"] for event in stage.bot.events] == [True, True, False]


def test_an_empty_chat_says_what_to_do(page: Any, stage: Stage) -> None:
    """A hint in the place of the first message, and gone with it."""
    hint = "() => getComputedStyle(document.querySelector('#talk'), '::before').content"
    page.wait_for_function("() => document.querySelector('#talk').dataset.empty")
    assert page.evaluate(hint) == '"傳訊息給機器人，或點選單試試。"'
    say(page, "嗨")
    expect(page.locator(".row.mine .said")).to_have_text("嗨")
    assert page.evaluate(hint) == "none"


def test_what_is_opened_in_the_wire_is_in_sight(page: Any, stage: Stage) -> None:
    """Also the last row of a long list: the list moves up for what unfolds below it."""
    for number in range(1, 16):
        say(page, str(number))
    expect(page.locator("#wire li")).to_have_count(15)
    page.locator("#wire li").last.locator("summary").click()
    expect(page.locator(".in-full h3").first).to_be_in_viewport()
    inside = """() => {
      const [list, opened] = [document.querySelector("#wire"), document.querySelector(".in-full")];
      return opened.getBoundingClientRect().top + 60 < list.getBoundingClientRect().bottom;
    }"""
    page.wait_for_function(inside)


@pytest.mark.parametrize("page", [{"width": 1280, "height": 900}], indirect=True)
def test_three_phones_stand_side_by_side(page: Any, stage: Stage) -> None:
    """In one row, and the wire below them."""
    page.goto(f"{stage.line.page_url}?place=group&beside=ben&beside=cleo")
    expect(page.locator("iframe.other-phone")).to_have_count(2)
    boxes = [each.bounding_box() for each in page.locator(".phone, .other-phone").all()]
    assert len({round(box["y"]) for box in boxes}) == 1
    lefts = [box["x"] for box in boxes]
    assert lefts == sorted(lefts) and all(box["width"] > 330 for box in boxes)
    assert page.locator(".tools").bounding_box()["y"] > boxes[0]["y"] + boxes[0]["height"]


def test_stickers_pictures_and_places_from_the_bot(page: Any, stage: Stage) -> None:
    """Each is recognised, and nothing is fetched for it."""
    far = "https://example.com/p.png"
    stage.bot.says = lambda event: [
        {"type": "sticker", "packageId": "446", "stickerId": "1988"},
        {"type": "image", "originalContentUrl": far, "previewImageUrl": far},
        {"type": "location", "title": "臺北 101", "address": "信義路五段", "latitude": 25.034,
         "longitude": 121.5645},
    ]  # fmt: skip
    page.get_by_role("button", name="更多").click()
    page.get_by_role("button", name="貼圖", exact=True).click()
    expect(page.locator(".row.mine .stand-in")).to_contain_text("貼圖")
    expect(page.locator(".row.bot .stand-in")).to_have_count(2)
    expect(page.locator(".row.bot .place")).to_contain_text("信義路五段")
    expect(page.get_by_role("button", name="更多")).to_be_focused()
    assert stage.bot.events[0]["message"]["type"] == "sticker"


def test_a_picture_of_the_bot_is_shown_on_click(browser: Any, stage: Stage) -> None:
    """It is not requested until then; if it cannot be loaded, the page says so."""
    file, near, far = io.BytesIO(), "https://near.invalid/p.png", "https://far.invalid/p.png"
    Image.new("RGB", (64, 48), "#1d6660").save(file, "PNG")
    stage.bot.says = lambda event: [
        {"type": "image", "originalContentUrl": url, "previewImageUrl": url} for url in (near, far)
    ]
    context = browser.new_context(viewport=PHONE, locale="zh-TW")
    context.set_default_timeout(TIMEOUT * 1000)
    context.route(near, lambda route: route.fulfill(body=file.getvalue(), content_type="image/png"))
    context.route(far, lambda route: route.abort())
    page = context.new_page()
    page.goto(stage.line.page_url)
    say(page, "圖")
    show = page.get_by_role("button", name="圖片：顯示")
    expect(show).to_have_count(2)
    show.last.click()
    expect(page.get_by_role("button", name="圖片：無法載入")).to_be_visible()
    show.click()
    shot = page.locator(".row.bot img.shot")
    eventually(lambda: shot.evaluate("(image) => image.naturalWidth") == 64)
    context.close()


# ------------------------------------------------------------------------------- the rich menu


def test_five_taps_are_five_webhooks(page: Any, stage: Stage) -> None:
    """All within one turn of the browser's loop, none of them held back."""
    stage.show_menu("住家", "公司", "最近")
    home = page.get_by_role("button", name="住家")
    expect(home).to_be_visible()
    home.evaluate("area => { for (let n = 0; n < 5; n += 1) area.click(); }")
    expect(page.locator("#wire .out")).to_have_count(5)
    assert [event["postback"]["data"] for event in stage.bot.events] == ["do=住家"] * 5
    assert len({event["webhookEventId"] for event in stage.bot.events}) == 5
    assert len(stage.bot.bodies) == 5


def test_the_menu_by_keyboard(page: Any, stage: Stage) -> None:
    """Its areas are where its JSON says, can be reached and named, and it opens and closes."""
    stage.show_menu("住家", "公司", "最近")
    home, office = (page.get_by_role("button", name=name) for name in ("住家", "公司"))
    expect(home).to_be_visible()
    boxes = [area.bounding_box() for area in (home, office)]
    frame = page.locator("#menu-picture").bounding_box()
    assert abs(boxes[0]["width"] - frame["width"] / 3) < 2
    assert abs(boxes[1]["x"] - frame["x"] - frame["width"] / 3) < 2
    assert page.locator("#menu-picture img").evaluate("image => image.naturalWidth") == 1200
    home.focus()
    page.keyboard.press("Tab")
    expect(office).to_be_focused()
    page.keyboard.press("Enter")
    eventually(lambda: [event["postback"]["data"] for event in stage.bot.events] == ["do=公司"])
    toggle = page.get_by_role("button", name="選單", exact=True)
    expect(toggle).to_have_attribute("aria-expanded", "true")
    toggle.press("Enter")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    expect(home).to_be_hidden()


def test_the_menu_changes_on_the_phone(page: Any, stage: Stage) -> None:
    """When the bot takes it away or shows another, and by its own switch; closed if it says so."""
    stage.show_menu("住家")
    expect(page.get_by_role("button", name="住家")).to_be_visible()
    stage.call("DELETE", "/v2/bot/user/all/richmenu")
    expect(page.locator("#rich-menu")).to_be_hidden()
    stage.show_menu("第二頁", selected=False, chatBarText="其他")
    expect(page.get_by_role("button", name="其他")).to_have_attribute("aria-expanded", "false")
    second = stage.line.menus.default
    alias = {"richMenuAliasId": "two", "richMenuId": second}
    stage.call("POST", "/v2/bot/richmenu/alias", json=alias)
    switch = {"type": "richmenuswitch", "label": "換頁", "richMenuAliasId": "two", "data": "go"}
    bounds = {"x": 0, "y": 0, "width": 2400, "height": 810}
    stage.show_menu("x", areas=[{"bounds": bounds, "action": switch}])
    page.get_by_role("button", name="換頁").click()
    expect(page.get_by_role("button", name="其他")).to_be_visible()
    eventually(lambda: stage.bot.events)  # the page switches before the bot has the event
    assert stage.bot.events[0]["postback"]["params"]["status"] == "SUCCESS"


# ------------------------------------------------------------------------------- cards


def send_card(page: Any, stage: Stage, contents: Json) -> Any:
    stage.bot.says = lambda event: [flex(contents, "三日天氣")]
    say(page, "卡片")
    card = page.get_by_role("group", name="三日天氣")
    expect(card).to_be_visible()
    return card


def style(element: Any, name: str) -> str:
    return element.evaluate("(element, name) => getComputedStyle(element)[name]", name)


@pytest.mark.parametrize("page", [DESK], indirect=True, ids=["desk"])
def test_a_card_looks_as_its_json_says(page: Any, stage: Stage) -> None:
    """Sizes, weights, colours, shares of the width, spaces, corners, and what is cut off."""
    line = "一段很長很長很長很長很長很長很長很長很長很長很長很長的文字"
    row = box(words("窄", flex=1), words("寬", flex=3, margin="xxl"), layout="horizontal")
    card = bubble(
        words("標題", size="xl", weight="bold", color="#ff0000", align="center"),
        words(line), words(line, wrap=True), words(line, wrap=True, maxLines=1),
        row,
        {"type": "separator", "margin": "lg", "color": "#00ff00"},
        box(words("角"), backgroundColor="#0000ff", cornerRadius="md", paddingAll="lg"),
        {"type": "image", "url": "https://example.com/p.png", "size": "sm", "aspectRatio": "2:1"},
        size="kilo",
        styles={"body": {"backgroundColor": "#eeeeee"}},
    )  # fmt: skip
    drawn = send_card(page, stage, card)
    texts = drawn.locator(".fx-text")
    title, cut, wrapped, clamped, narrow, wide, corner = (texts.nth(n) for n in range(7))
    assert drawn.locator(".fx-bubble").bounding_box()["width"] == 260
    assert [style(title, name) for name in ("fontSize", "fontWeight", "color", "textAlign")] == [
        "22px", "700", "rgb(255, 0, 0)", "center",
    ]  # fmt: skip
    heights = [each.bounding_box()["height"] for each in (cut, wrapped, clamped)]
    assert heights[1] > 1.5 * heights[0] and heights[2] < 1.5 * heights[0]
    assert cut.evaluate("element => element.scrollWidth > element.clientWidth")
    shares = [each.bounding_box() for each in (narrow, wide)]
    assert abs(shares[1]["width"] - 3 * shares[0]["width"]) < 2
    assert abs(shares[1]["x"] - shares[0]["x"] - shares[0]["width"] - 20) < 1
    assert style(drawn.locator(".fx-rule"), "backgroundColor") == "rgb(0, 255, 0)"
    nested = corner.locator("xpath=..")
    assert [style(nested, name) for name in ("borderRadius", "paddingTop", "backgroundColor")] == [
        "8px", "12px", "rgb(0, 0, 255)",
    ]  # fmt: skip
    frame = drawn.locator(".fx-picture").bounding_box()
    assert (round(frame["width"]), round(frame["height"])) == (80, 40)
    assert style(drawn.locator(".fx-body"), "backgroundColor") == "rgb(238, 238, 238)"


def test_buttons_on_cards(page: Any, stage: Stage) -> None:
    """Each kind of action does what it is for; what is on a card can be reached by keyboard."""
    actions = [
        {"type": "postback", "label": "設為住家", "data": "set", "displayText": "好，住家"},
        {"type": "message", "label": "說", "text": "說了"},
    ]
    buttons = [{"type": "button", "style": "primary", "action": each} for each in actions]
    tapped = box(words("整塊"), action={"type": "postback", "label": "整塊", "data": "box"})
    drawn = send_card(page, stage, bubble(tapped, footer=box(*buttons)))
    stage.bot.says = lambda event: []
    drawn.get_by_role("button", name="設為住家").click()
    drawn.get_by_role("button", name="說", exact=True).press("Enter")
    drawn.get_by_role("button", name="整塊").press("Enter")
    expect(page.locator("#wire .out")).to_have_count(4)
    expect(page.locator(".row.mine .said")).to_have_text(["卡片", "好，住家", "說了"])
    said = [event.get("postback", event.get("message")) for event in stage.bot.events]
    assert [each.get("data", each.get("text")) for each in said] == ["卡片", "set", "說了", "box"]


def test_cards_side_by_side(page: Any, stage: Stage) -> None:
    """A carousel scrolls within the phone, and its cards are equally high."""
    cards = [bubble(words("甲")), bubble(*[words("乙")] * 5), bubble(words("丙"))]
    drawn = send_card(page, stage, {"type": "carousel", "contents": cards})
    boxes = [each.bounding_box() for each in drawn.locator(".fx-bubble").all()]
    assert len({round(each["height"]) for each in boxes}) == 1
    assert boxes[0]["x"] < boxes[1]["x"] < boxes[2]["x"] and boxes[2]["x"] > 360
    drawn.locator(".fx-carousel").evaluate("row => { row.scrollLeft = row.scrollWidth; }")
    expect(drawn.get_by_text("丙")).to_be_in_viewport()


def test_templates_are_shown_as_cards(page: Any, stage: Stage) -> None:
    """Buttons and confirm are cards, too."""
    tap = {"type": "postback", "label": "刪除", "data": "yes"}
    keep = {"type": "message", "label": "取消", "text": "取消"}
    confirm = {"type": "confirm", "text": "要刪除嗎？", "actions": [tap, keep]}
    buttons = {"type": "buttons", "title": "功能", "text": "請選擇", "actions": [keep]}
    stage.bot.says = lambda event: [
        {"type": "template", "altText": "確認", "template": confirm},
        {"type": "template", "altText": "按鈕", "template": buttons},
    ]
    say(page, "刪除我的資料")
    asked = page.get_by_role("group", name="確認")
    expect(asked).to_contain_text("要刪除嗎？")
    expect(page.get_by_role("group", name="按鈕")).to_contain_text("功能請選擇取消")
    stage.bot.says = lambda event: []
    asked.get_by_role("button", name="刪除").click()
    eventually(lambda: stage.bot.events[-1].get("postback") == {"data": "yes"})


# ------------------------------------------------------------------------------- places and times


def test_a_place_from_the_list(page: Any, stage: Stage) -> None:
    """Asked for by the bot, chosen by name, sent with its coordinates."""
    action = {"type": "location", "label": "傳送位置"}
    where = text("您在哪裡？", quickReply={"items": [{"type": "action", "action": action}]})
    stage.bot.says = lambda event: [where]
    say(page, "這裡")
    page.get_by_role("button", name="傳送位置").click()
    sheet = page.get_by_role("dialog", name="傳送位置資訊")
    sheet.get_by_label("地點").select_option("日月潭")
    sheet.get_by_role("button", name="傳送").click()
    expect(page.locator(".row.mine .place")).to_contain_text("日月潭")
    eventually(lambda: len(stage.bot.events) == 2)
    message = stage.bot.events[1]["message"]
    assert (message["title"], message["latitude"], message["longitude"]) == (
        "日月潭", 23.8573, 120.916,
    )  # fmt: skip


def test_a_place_on_the_map_or_none(page: Any, stage: Stage) -> None:
    """A click on the map is a place in Taiwan or the sea beside it; Escape sends nothing."""
    page.get_by_role("button", name="更多").click()
    page.get_by_role("button", name="位置資訊").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="更多").click()
    page.get_by_role("button", name="位置資訊").click()
    sheet = page.get_by_role("dialog", name="傳送位置資訊")
    drawn = page.locator("#map polygon").bounding_box()
    page.mouse.click(drawn["x"] + drawn["width"] / 2, drawn["y"] + drawn["height"] / 2)
    expect(sheet.get_by_label("地點")).to_have_value("")
    sheet.get_by_label("地址").fill("山裡")
    sheet.get_by_role("button", name="傳送").click()
    eventually(lambda: len(stage.bot.events) == 1)
    message = stage.bot.events[0]["message"]
    assert 23 < message["latitude"] < 24.2 and 120.5 < message["longitude"] < 121.5
    assert message["address"] == "山裡" and "title" not in message


def test_a_date_is_picked(page: Any, stage: Stage) -> None:
    """It comes back as the postback's parameter."""
    action = {"type": "datetimepicker", "label": "選日期", "data": "when", "mode": "date"}
    ask = text("哪天？", quickReply={"items": [{"type": "action", "action": action}]})
    stage.bot.says = lambda event: [ask]
    say(page, "預報")
    page.get_by_role("button", name="選日期").click()
    page.locator("#picked").fill("2026-02-17")
    page.get_by_role("button", name="確定").click()
    eventually(lambda: len(stage.bot.events) == 2)
    assert stage.bot.events[1]["postback"] == {"data": "when", "params": {"date": "2026-02-17"}}


# ------------------------------------------------------------------------------- begin and end


def test_the_log_shows_webhooks_and_calls(page: Any, stage: Stage) -> None:
    """The newest first: the webhook with status and time, each call with its route and answer."""
    stage.bot.says = lambda event: [text("好")]
    say(page, "嗨")
    expect(page.locator("#wire li")).to_have_count(2)
    expect(page.locator("#wire .in code")).to_have_text("message/reply")
    expect(page.locator("#wire .status")).to_have_text(["200", "200"])
    assert all(
        took.endswith((" ms", " s")) for took in page.locator("#wire .took").all_inner_texts()
    )
    shown = page.locator("#wire").inner_text()
    assert stage.bot.events[0]["source"]["userId"] not in shown


def test_a_server_that_is_gone(browser: Any) -> None:
    """The page says so, and the phone keeps what it shows."""
    stage = Stage()
    context = browser.new_context(viewport=DESK, locale="zh-TW")
    page = context.new_page()
    page.goto(stage.line.page_url)
    say(page, "嗨")
    expect(page.locator(".row.mine .mark")).to_have_text("已讀")
    stage.close()
    expect(page.locator("#gone")).to_be_visible()
    expect(page.locator(".row.mine .said")).to_have_text("嗨")
    context.close()


# ------------------------------------------------------------------------------- in full


def test_a_row_in_full(page: Any, stage: Stage) -> None:
    """On click: what was sent and answered as JSON, a command for a terminal, and once more."""
    stage.bot.says = lambda event: [text("晴")]
    say(page, "天氣")
    expect(page.locator("#wire li")).to_have_count(2)
    kinds = [row.get_attribute("class") for row in page.locator("#wire li").all()]
    assert kinds == ["in fine", "out fine"]  # the newest first: the call began after the webhook
    page.locator("#wire .out summary").click()
    expect(page.locator(".in-full pre").first).to_contain_text('"text": "天氣"')
    page.get_by_role("button", name="重播").click()
    eventually(lambda: len(stage.bot.bodies) == 2)
    assert stage.bot.bodies[0] == stage.bot.bodies[1]
    page.locator("#wire .in summary").last.click()
    expect(page.locator("#wire .in .in-full pre").nth(1)).to_contain_text("sentMessages")


def test_a_row_as_curl(page: Any, stage: Stage) -> None:
    """The command repeats the call, once the token is put in; the token itself is not shown."""
    stage.call("GET", "/v2/bot/info")
    number = stage.run(_last_number(stage.line))
    row = page.evaluate("(number) => fetch(`api/row/${number}`).then((row) => row.json())", number)
    assert row["curl"].startswith(f"curl -X GET {stage.line.api_base}/v2/bot/info")
    assert "$LINE_CHANNEL_ACCESS_TOKEN" in row["curl"] and TOKEN not in json.dumps(row)
    assert row["answer"]["displayName"] == "My bot"


async def _last_number(line: LocalLine) -> int:
    return line.calls[-1].number


def test_a_call_that_is_not_served(page: Any, stage: Stage) -> None:
    """It is shown in red, and links to LINE's own page."""
    with pytest.raises(AssertionError):
        stage.call("POST", "/v2/bot/teleport", json={"to": "moon"})
    row = page.locator("#wire .unknown")
    expect(row.locator("code")).to_have_text("teleport")
    expect(row.locator("em")).to_have_text("沒有提供")
    row.locator("summary").click()
    link = row.get_by_role("link")
    expect(link).to_have_attribute(
        "href", "https://developers.line.biz/en/reference/messaging-api/"
    )


# ------------------------------------------------------------------------------- more to say


def test_a_picture_of_ones_own(page: Any, stage: Stage) -> None:
    """It is shown in the chat, and the bot can download it to the byte."""
    file = io.BytesIO()
    Image.new("RGB", (320, 200), "#a8471f").save(file, "PNG")
    data = file.getvalue()
    page.locator("#file").set_input_files(
        {"name": "sky.png", "mimeType": "image/png", "buffer": data}
    )
    shot = page.locator(".row.mine img.shot")
    expect(shot).to_be_visible()
    eventually(lambda: shot.evaluate("(image) => image.naturalWidth") == 320)
    message = stage.bot.events[0]["message"]
    assert message["type"] == "image" and message["contentProvider"] == {"type": "line"}
    assert stage.run(_content(stage, message["id"])) == data


async def _content(stage: Stage, message_id: str) -> bytes:
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT) as http:
        url = f"{stage.line.api_base}/v2/bot/message/{message_id}/content"
        return (await http.get(url, headers={"Authorization": f"Bearer {TOKEN}"})).content


def test_a_file_and_what_it_could_be(page: Any, stage: Stage) -> None:
    """An HTML page that a user sends is saved, not opened."""
    page.locator("#file").set_input_files(
        {"name": "evil.html", "mimeType": "text/html", "buffer": b"<script>alert(1)</script>"}
    )
    link = page.locator(".row.mine .file a")
    expect(link).to_have_text("evil.html")
    headers = page.evaluate(
        "(url) => fetch(url).then((answer) => Object.fromEntries(answer.headers))",
        link.get_attribute("href"),
    )
    assert headers["content-disposition"] == "attachment"
    assert headers["content-type"] == "application/octet-stream"
    message = stage.bot.events[0]["message"]
    assert (message["type"], message["fileName"], message["fileSize"]) == ("file", "evil.html", 25)


def test_taken_back_and_answered(page: Any, stage: Stage) -> None:
    """A message can be quoted in the next one; an unsent one is no longer shown."""
    say(page, "錯字")
    row = page.locator(".row.mine").first
    row.hover()
    row.get_by_role("button", name="回覆這則").click()
    expect(page.locator("#quoting")).to_contain_text("錯字")
    say(page, "我是說臺中")
    expect(page.locator("#quoting")).to_be_hidden()
    row.hover()
    row.get_by_role("button", name="收回").click()
    expect(row.locator(".unsent")).to_have_text("訊息已收回")
    eventually(lambda: len(stage.bot.events) == 3)
    first, second, third = stage.bot.events
    assert second["message"]["quotedMessageId"] == first["message"]["id"]
    assert third["unsend"] == {"messageId": first["message"]["id"]}
    page.reload()
    expect(page.locator(".row .said")).to_have_text(["訊息已收回", "我是說臺中"])


def test_a_bot_is_told_that_it_is_mentioned(page: Any, stage: Stage) -> None:
    """In a group the bot can be mentioned; the event says so."""
    page.get_by_label("群組", exact=True).check()
    page.get_by_role("button", name="更多").click()
    page.get_by_role("button", name="@ 機器人").click()
    page.locator("#say").press_sequentially("臺中天氣")
    page.keyboard.press("Enter")
    expect(page.locator(".row.mine .said")).to_have_text("@My bot 臺中天氣")
    eventually(lambda: len(stage.bot.events) == 2)
    mentionee = stage.bot.events[1]["message"]["mention"]["mentionees"][0]
    assert (mentionee["index"], mentionee["length"], mentionee["isSelf"]) == (0, 7, True)


# ------------------------------------------------------------------------------- several people


@pytest.mark.parametrize("page", [DESK], ids=["desk"], indirect=True)
def test_two_phones_side_by_side(page: Any, stage: Stage) -> None:
    """Both are in the group and see each other; alone with the bot they are two people."""
    stage.bot.says = lambda event: [text("哈囉大家")] if event["type"] == "join" else []
    page.goto(f"{stage.line.page_url}?place=group&beside=ben")
    ben = page.frame_locator("iframe.other-phone")
    expect(page.locator("#owner")).to_have_text("Ann")
    expect(ben.locator("#owner")).to_have_text("Ben")
    expect(ben.locator(".row.bot .said")).to_have_text("哈囉大家")
    say(page, "有人嗎")
    expect(ben.locator(".row.other .said")).to_have_text("有人嗎")
    expect(ben.locator(".row.other .who")).to_have_text("Ann")
    ben.locator("#say").fill("我在")
    ben.locator("#say").press("Enter")
    expect(page.locator(".row.other .said")).to_have_text("我在")

    def messages() -> list[Any]:
        return [event for event in stage.bot.events if event["type"] == "message"]

    eventually(lambda: len(messages()) == 2)  # the page shows it before the bot has it
    said = messages()
    assert len({event["source"]["userId"] for event in said}) == 2
    assert len({event["source"]["groupId"] for event in said}) == 1
    assert [event["type"] for event in stage.bot.events].count("join") == 1


def test_a_deep_link_opens_a_phone_a_place_and_a_language(page: Any, stage: Stage) -> None:
    """The address says whose phone it is, where and in which language; the top stays in sight."""
    page.goto(f"{stage.line.page_url}?as=cleo&place=room&lang=en#say")
    expect(page.locator("#owner")).to_have_text("Cleo")
    expect(page.locator("#where")).to_have_text("Multi-person chat")
    expect(page.get_by_label("Multi-person chat")).to_be_checked()
    eventually(lambda: [event["source"]["type"] for event in stage.bot.events] == ["room"])
    page.get_by_label("1:1 chat").check()
    assert "place=private" in page.url and "as=cleo" in page.url
    page.goto(stage.line.page_url)
    expect(page.locator(".masthead")).to_be_in_viewport()
    assert page.evaluate("scrollY") == 0


def test_the_language_is_changed_by_a_tap_and_kept(page: Any, stage: Stage) -> None:
    """The browser's at first; the other one on a tap, and still after a reload."""
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hant")
    page.get_by_role("button", name="English").click()
    expect(page.locator("#say")).to_have_attribute("placeholder", "Write a message")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.goto(stage.line.page_url)
    expect(page.get_by_role("button", name="Add the bot")).to_be_visible()
    say(page, "hi")
    expect(page.locator(".row.mine .mark")).to_have_text("Read")


def test_every_word_has_two_languages() -> None:
    """No word of the page is missing, and none is left over."""
    static = Path(panel.__file__).with_name("static")
    words = set(re.findall(r"^  (\w+): \[\"", (static / "chat-words.js").read_text(), re.M))
    html = "".join(path.read_text() for path in static.glob("*.html"))
    used = set(re.findall(r'data-(?:word|label|hint)="(\w+)"', html))
    code = "".join(path.read_text() for path in static.glob("*.js"))
    assert used <= words
    assert not [name for name in words - used if f'"{name}"' not in code and f"{name}:" not in code]


@pytest.fixture
def with_face(stage: Stage) -> Stage:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), "#a8471f").save(file, "PNG")
    channel = replace(stage.line.channel, picture=Picture(file.getvalue(), "image/png"))
    stage.line.channel = channel
    return stage


def test_the_bots_own_name_and_picture(with_face: Stage, page: Any) -> None:
    """In the head of the chat, and beside what it says."""
    with_face.bot.says = lambda event: [text("嗨")]
    expect(page.locator("#portrait")).to_be_visible()
    say(page, "嗨")
    face = page.locator(".row.bot img.face")
    expect(face).to_be_visible()
    eventually(lambda: face.evaluate("(image) => image.naturalWidth") == 64)
