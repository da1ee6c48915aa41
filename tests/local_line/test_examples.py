"""LINE's own examples, rewritten call by call on the SDK's public API, run against it."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest
from linebot.v3.messaging import Configuration
from local_line import BlockingLine, Content, Source, events
from local_line.sources import new_id

from .bots import KitchenSink, echo, make_tabs

COMMANDS = {
    "profile": ["Display name: Ann"],
    "emojis": ["$ LINE emoji"],
    "quota": ["type: QuotaType.LIMITED", "value: 200"],
    "quota_consumption": ["total usage: 0"],
    "push": ["PUSH!"],
    "multicast": ["MULTICAST!"],
    "broadcast": ["BROADCAST!"],
    "sent": ["sent ready 0"],
    "bye": ["Leaving"],
    "image": ["(image)"],
    "confirm": ["confirm"],
    "buttons": ["buttons"],
    "carousel": ["carousel"],
    "image_carousel": ["image_carousel"],
    "flex": ["hello"],
    "quick_reply": ["Quick reply"],
    "insight": ["ready 1 False"],
    "http_info": ["Hello"],
    "http_error": ["400 Invalid reply token"],
    "anything else": ["anything else"],
}


@pytest.fixture
def local_line_options() -> dict[str, Any]:
    """Time for a bot on a busy machine."""
    return {"webhook_timeout": 30.0}


def configuration(line: BlockingLine) -> Any:
    return Configuration(host=line.api_base, access_token=line.access_token)


@pytest.fixture
def sink(local_line: BlockingLine) -> KitchenSink:
    bot = KitchenSink(local_line.secret, configuration(local_line))
    local_line.connect(bot.app)
    return bot


def test_fastapi_echo(local_line: BlockingLine) -> None:
    """A text of a user comes back, and nothing else does."""
    local_line.connect(echo(local_line.secret, configuration(local_line)))
    assert local_line.say("哈囉").is_ok
    assert local_line.send(events.sticker()).is_ok
    assert local_line.chat().texts == ["哈囉"]
    forged = httpx.post(
        local_line.webhook_url, content=b'{"events":[]}', headers={"x-line-signature": "x"},
        trust_env=False,
    )  # fmt: skip
    assert forged.status_code == 400


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_kitchen_sink_is_answered(
    local_line: BlockingLine, sink: KitchenSink, command: str
) -> None:
    """Every command is answered in the chat, and no call of it is unknown."""
    ann = local_line.somebody("Ann")
    delivery = local_line.say(command, source=ann)
    assert delivery.is_ok, local_line.calls
    assert local_line.chat(ann).texts == COMMANDS[command]
    assert all(call.is_known for call in local_line.calls)


def test_kitchen_sink_links_an_account(local_line: BlockingLine, sink: KitchenSink) -> None:
    """The token is good for the page on which the account is linked."""
    ann = local_line.somebody("Ann")
    local_line.say("link_token", source=ann)
    token = local_line.chat(ann).texts[0].removeprefix("link_token: ")
    assert local_line.line.link_tokens.spend(token, local_line.line.clock()) == ann.chat_id


def test_kitchen_sink_hears_everything(local_line: BlockingLine, sink: KitchenSink) -> None:
    """Places, stickers, pictures, videos, sounds, files; friends, groups and their members."""
    ann = local_line.somebody("Ann")
    group = Source.group(new_id("group"), ann.user_id)
    film, file = Content(b"film", "video/mp4"), Content(b"%PDF", "application/pdf", "menu.pdf")
    local_line.share_location(25.034, 121.5645, address="信義路五段", source=ann)
    local_line.share_location(22.6163, 120.2677, source=ann)  # the example needs an address
    local_line.send(events.sticker(), source=ann)
    local_line.send_picture(Content(b"\x89PNG", "image/png"), source=ann)
    for draft in (events.video(film), events.audio(film), events.file(file)):
        local_line.send(draft, source=ann)
    local_line.follow(source=ann)
    local_line.tap("ping", source=ann)
    local_line.send(events.beacon(), source=ann)
    kinds = [message["type"] for message in local_line.chat(ann).sent]
    assert kinds == ["location", "location", "sticker", *["text"] * 7]
    assert local_line.chat(ann).sent[1]["address"] == "22.6163, 120.2677"
    assert sink.downloads == [b"\x89PNG", b"film", b"film", b"%PDF"]
    assert local_line.chat(ann).texts[-3:] == ["follow", "postback ping", "beacon"]
    ben = local_line.somebody("Ben")
    for draft in (events.join(), events.member_joined(ben.chat_id), events.leave()):
        assert local_line.send(draft, source=group).is_ok
    assert local_line.chat(group).texts == ["join", "memberJoined"]


def test_rich_menu_tabs(local_line: BlockingLine) -> None:
    """The areas of LINE's example reach one pixel beyond the menu: they are taken."""
    make_tabs(configuration(local_line))
    menus = local_line.line.menus
    seen = menus.seen_by(local_line.line.me.chat_id)
    assert seen is not None and seen["name"] == "richmenu-a"
    assert seen["areas"][1]["bounds"]["x"] == 1251
    assert menus.named("richmenu-alias-b") != seen["richMenuId"]
