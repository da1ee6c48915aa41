"""The Flex pad and the page of rich menus: JSON looked at by line, taps that are tried out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from local_line.pad import look, positions

from dibs.testing import eventually

from .line_samples import MESSAGES
from .stage import DESK, PHONE, Json, Stage, box, bubble, expect, flex, text, words

pages = pytest.mark.only_on("linux", "darwin")

WRONG = """{
  "type": "bubble",
  "body": {
    "type": "box",
    "layout": "vertical",
    "contents": [
      { "type": "text", "text": "right" },
      { "type": "text",
        "text": "" }
    ]
  },
  "footer": { "type": "box", "contents": [] }
}"""


def found(text: str) -> list[tuple[int, str, str]]:
    """Line, property and message of each mistake."""
    return [(each.place.line, each.property, each.message) for each in look(text).mistakes]


# ------------------------------------------------------------------------------- without a browser


def test_every_value_has_a_place() -> None:
    """A member of an object where its name is, an item of a list where it begins."""
    places = positions('{\n "a": [1,\n  {"b, \\"c]": true}],\n "d": {}\n}')
    assert {path: tuple(place) for path, place in places.items()} == {
        (): (1, 1), ("a",): (2, 2), ("a", 0): (2, 8), ("a", 1): (3, 3),
        ("a", 1, 'b, "c]'): (3, 4), ("d",): (4, 2),
    }  # fmt: skip


def test_a_container_is_checked_at_its_lines() -> None:
    """In LINE's words; what is missing is reported where it is missing."""
    assert found(WRONG) == [
        (9, "/body/contents/1/text", "must be non-empty text"),
        (12, "/footer/layout", "must be specified"),
    ]
    assert look(WRONG).refusal == "A message (messages[0]) in the request body is invalid"


@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: [it], lambda it: {"messages": [it]}])
def test_a_message_a_list_and_a_request(wrap: Any) -> None:
    """Each can be pasted as it is written in a program."""
    assert look(json.dumps(wrap(text("早")))).messages == [text("早")]
    wrong = look(json.dumps(wrap({"type": "text"}), indent=1))
    assert wrong.refusal == "The request body has 1 error(s)"
    assert wrong.mistakes[0].property == "messages[0].text" and not wrong.messages


@pytest.mark.parametrize(
    ("pasted", "line"),
    [
        ("", 1), ('{\n "type": }', 2), ("[NaN]", 1), ('["\\ud83d"]', 1), ("[1e999]", 1),
        ("[" * 99999, 1),
    ],
)  # fmt: skip
def test_what_is_no_json(pasted: str, line: int) -> None:
    """LINE's sentence, and the line."""
    looked = look(pasted)
    assert looked.refusal.startswith("The request body could not be parsed as JSON (line: ")
    assert [each.place.line for each in looked.mistakes] == [line]


@pytest.mark.parametrize("pasted", ["3", "null", '"text"', "{}", "[]", '{"messages": 3}', "[[[]]]"])
def test_json_that_is_no_message(pasted: str) -> None:
    """Refused, with a place."""
    looked = look(pasted)
    assert looked.refusal and looked.mistakes and not looked.messages


ODD: list[Any] = [None, [], {}, "", "x", 0, -1, 1.5, True, [[]], {"type": []}, {"type": "text"}]


def oddly(value: Any) -> Iterator[Any]:
    """*value* with one part of it replaced, for each part and each odd value, or without it."""
    yield from ODD
    if isinstance(value, list):
        for index, part in enumerate(value):
            for other in oddly(part):
                yield [*value[:index], other, *value[index + 1 :]]
    elif isinstance(value, dict):
        for name, part in value.items():
            yield {key: each for key, each in value.items() if key != name}
            for other in oddly(part):
                yield value | {name: other}


@pytest.mark.parametrize("kind", MESSAGES)
def test_whatever_is_pasted_gets_an_answer(kind: str) -> None:
    """Taken, or refused with a line; nothing is an error of the server."""
    for message in oddly(MESSAGES[kind]):
        looked = look(json.dumps(message))
        assert bool(looked.messages) != bool(looked.refusal and looked.mistakes), message


@pages
def test_whatever_is_taken_is_drawn(page: Any, stage: Stage) -> None:
    """With any optional field left out or null."""
    taken = [
        message
        for sample in MESSAGES.values()
        for odd in oddly(sample)
        for message in look(json.dumps(odd)).messages
    ]
    assert len(taken) > 100
    drawing = """async (messages) => {
      const { bubble } = await import("./static/chat-bubbles.js");
      const fails = [];
      for (const message of messages) {
        try { bubble({ author: "bot", message, at: 0, id: "1" }, () => {}, {}); }
        catch (error) { fails.push(`${error}: ${JSON.stringify(message)}`); }
      }
      return fails;
    }"""
    assert page.evaluate(drawing, taken) == []


# ------------------------------------------------------------------------------- the pad


def opened(page: Any, stage: Stage, name: str) -> None:
    page.goto(f"{stage.line.page_url}{name}")


def write(page: Any, pasted: str) -> None:
    page.get_by_label("Flex 容器").fill(pasted)


@pages
@pytest.mark.parametrize("page", [PHONE, DESK], ids=["360px", "desk"], indirect=True)
def test_json_is_drawn_and_its_mistakes_are_at_their_lines(page: Any, stage: Stage) -> None:
    """An example at first; then what is pasted. A mistake leads to its line."""
    page.get_by_role("link", name="Flex 試寫板").click()
    expect(page.locator(".fx-bubble")).to_contain_text("Latte")
    expect(page.locator("#verdict")).to_have_text("LINE 會接受。")
    write(page, WRONG)
    expect(page.locator("#verdict")).to_contain_text("A message (messages[0])")
    expect(page.locator("#mistakes li")).to_have_count(2)
    expect(page.locator("#numbers b")).to_have_text(["9", "12"])
    expect(page.get_by_role("button", name="傳送到聊天")).to_be_disabled()
    page.get_by_role("button", name="第 9 行").press("Enter")
    expect(page.get_by_label("Flex 容器")).to_be_focused()
    selected = "field => field.value.slice(field.selectionStart, field.selectionEnd)"
    assert page.locator("#json").evaluate(selected) == '"text": "" }'
    write(page, json.dumps(bubble(words("對了"))))
    expect(page.locator(".fx-bubble")).to_have_text("對了")
    expect(page.locator("#mistakes li")).to_have_count(0)
    page.reload()
    expect(page.locator(".fx-bubble")).to_have_text("對了")


@pages
def test_what_was_pasted_is_sent_to_the_chat(page: Any, stage: Stage) -> None:
    """To the phone and the place that are chosen; the bot and its quota know nothing of it."""
    opened(page, stage, "pad?as=ben")
    write(page, json.dumps([flex(bubble(words("一"))), text("二", "好")]))
    expect(page.locator("#preview .row")).to_have_count(2)
    page.get_by_role("button", name="傳送到聊天").click()
    expect(page.locator("#note")).to_have_text("已經在聊天裡。")
    page.get_by_role("link", name="聊天", exact=True).click()
    expect(page.locator("#owner")).to_have_text("Ben")
    expect(page.locator(".row.bot")).to_have_count(2)
    expect(page.get_by_role("button", name="好", exact=True)).to_be_visible()
    assert not stage.bot.events and stage.line.used == 0


@pages
def test_a_tap_shows_what_the_bot_would_get(page: Any, stage: Stage) -> None:
    """A button sends it."""
    opened(page, stage, "pad")
    tap = {"type": "postback", "label": "付款", "data": "pay=17", "displayText": "我付"}
    call = {"type": "uri", "label": "打電話", "uri": "tel:119"}
    buttons = [{"type": "button", "action": each} for each in (tap, call)]
    write(page, json.dumps(bubble(box(*buttons))))
    page.get_by_role("button", name="打電話").click()
    expect(page.locator("#tried-words")).to_have_text("手機會開啟 tel:119")
    expect(page.get_by_role("button", name="傳送給機器人")).to_be_hidden()
    page.get_by_role("button", name="付款").click()
    expect(page.locator("#tried-json")).to_contain_text('"data": "pay=17"')
    shown: Json = json.loads(page.locator("#tried-json pre").inner_text())
    assert shown["destination"] == stage.line.channel.bot_id and not stage.bot.events
    page.get_by_role("button", name="傳送給機器人").click()
    eventually(lambda: stage.bot.events)
    sent, tried = stage.bot.events[0], shown["events"][0]
    assert sent["postback"] == tried["postback"] and sent["source"] == tried["source"]
    assert sent.keys() == tried.keys()


# ------------------------------------------------------------------------------- rich menus


@pages
@pytest.mark.parametrize("page", [PHONE, DESK], ids=["360px", "desk"], indirect=True)
def test_menus_are_listed_and_tried(page: Any, stage: Stage) -> None:
    """With their names and users; an area shows its event; a new menu is listed at once."""
    opened(page, stage, "menus")
    expect(page.locator("#none")).to_be_visible()
    stage.show_menu("住家", "公司", name="第一頁")
    first = page.get_by_role("group", name="第一頁")
    expect(first.get_by_role("button")).to_have_count(2)
    expect(page.locator(".tags")).to_contain_text("預設")
    expect(page.locator(".tags")).to_contain_text("Ann, Ben, Cleo")
    expect(page.locator(".areas li")).to_have_count(2)
    alias = {"richMenuAliasId": "one", "richMenuId": stage.line.menus.default}
    stage.call("POST", "/v2/bot/richmenu/alias", json=alias)
    expect(page.locator(".tags")).to_contain_text("別名 one")
    first.get_by_role("button", name="公司").press("Enter")
    expect(page.locator("#tried-json")).to_contain_text('"data": "do=公司"')
    assert not stage.bot.events
    page.get_by_role("button", name="傳送給機器人").click()
    eventually(lambda: [event["postback"]["data"] for event in stage.bot.events] == ["do=公司"])


@pages
def test_a_menu_without_a_picture_that_switches(page: Any, stage: Stage) -> None:
    """It is drawn as a frame; the event says whether there is a menu to switch to."""
    switch = {"type": "richmenuswitch", "label": "換", "richMenuAliasId": "two", "data": "go"}
    pick = {"type": "datetimepicker", "label": "時", "data": "t", "mode": "date"}
    pick |= {"initial": "2026-07-01"}
    bounds = {"x": 0, "y": 0, "width": 1250, "height": 843}
    areas = [{"bounds": bounds, "action": switch}]
    areas += [{"bounds": bounds | {"x": 1250}, "action": pick}]
    menu = {"size": {"width": 2500, "height": 843}, "selected": True, "name": "<b>", "areas": areas}
    stage.call("POST", "/v2/bot/richmenu", json=menu | {"chatBarText": "選"})
    opened(page, stage, "menus")
    expect(page.locator(".menu-sheet h2")).to_have_text("<b>")
    expect(page.locator(".tags")).to_contain_text("還沒有圖片")
    page.get_by_role("button", name="換").click()
    expect(page.locator("#tried-json")).to_contain_text("RICHMENU_ALIAS_ID_NOTFOUND")
    page.get_by_role("button", name="時").click()
    expect(page.locator("#tried-json")).to_contain_text('"date": "2026-07-01"')


# ------------------------------------------------------------------------------- keyboard alone


WALK = """() => {
  const [all, reached] = [[], new Set()];
  for (const each of document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]")) {
    if (each.disabled || each.type === "radio" && !each.checked || !each.checkVisibility({ visibilityProperty: true })) continue;
    all.push(each);
  }
  addEventListener("focusin", ({ target }) => reached.add(target));
  window.missed = () => all.filter((each) => !reached.has(each)).map((each) => each.outerHTML.slice(0, 120));
  return all.length;
}"""  # noqa: E501


@pages
@pytest.mark.parametrize("name", ["", "pad", "menus"])
def test_everything_is_reached_by_tab(page: Any, stage: Stage, name: str) -> None:
    """Nothing needs a mouse, and nothing keeps the focus."""
    stage.show_menu("住家", "公司")
    opened(page, stage, name)
    if name == "pad":
        write(page, json.dumps([MESSAGES["imagemap"], MESSAGES["bubble"], text("二", "好")]))
        page.get_by_role("button", name="傳送到聊天").click()
    page.get_by_role("button", name="住家" if name != "pad" else "好").wait_for()
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    for _ in range(page.evaluate(WALK) + 5):
        page.keyboard.press("Tab")
    assert page.evaluate("missed()") == []
