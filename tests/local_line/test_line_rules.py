"""The local LINE against LINE's own descriptions: what they forbid, and what they promise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from linebot.v3 import messaging
from local_line import BlockingLine, Content, Source, events
from local_line.api import api_routes
from local_line.events import Mention
from local_line.platform import Platform

from .line_samples import MENU, MESSAGES, RULES, Json, deviations, rules_of, spoil

TIMEOUT = 30.0
COUNT = 775


@pytest.fixture
def local_line_options() -> dict[str, Any]:
    """As many calls as a test needs."""
    return {"rate_limits": False, "quota": None, "webhook_timeout": TIMEOUT}


@pytest.fixture
def api(local_line: BlockingLine) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {local_line.access_token}"}
    with httpx.Client(
        base_url=local_line.api_base, headers=headers, trust_env=False, timeout=TIMEOUT
    ) as client:
        yield client


def check(api: httpx.Client, message: Any) -> httpx.Response:
    return api.post("/v2/bot/message/validate/push", json={"messages": [message]})


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_with_all_its_fields_and_each_mistake_in_it(name: str, api: httpx.Client) -> None:
    """The message is accepted; 400 for everything that the descriptions forbid in it."""
    message = MESSAGES[name]
    assert check(api, message).text == "{}"
    rule = {"object": "Message"}
    wrong = [each for each in spoil(rule, message) if check(api, each.body).status_code != 400]
    assert [(each.path, each.mistake) for each in wrong] == []


def test_a_rich_menu_and_each_mistake_in_it(api: httpx.Client) -> None:
    """The same for rich menus."""
    assert api.post("/v2/bot/richmenu/validate", json=MENU).text == "{}"
    for each in spoil({"object": "RichMenuRequest"}, MENU):
        answer = api.post("/v2/bot/richmenu/validate", json=each.body)
        assert answer.status_code == 400, (each.path, each.mistake)


def test_no_mistake_is_lost_when_the_rules_are_renewed() -> None:
    """At least as many as when this was written: a rule that cannot be read would hide them."""
    rule = {"object": "Message"}
    found = [each for message in MESSAGES.values() for each in spoil(rule, message)]
    assert len([*found, *spoil({"object": "RichMenuRequest"}, MENU)]) >= COUNT


def test_the_samples_have_every_kind_and_every_field() -> None:
    """Of messages, templates, imagemap actions and substitutions; of the SDK's classes, too."""
    kinds = RULES["messaging-api"]["kinds"]
    assert {each["type"] for each in MESSAGES.values()} == set(kinds["Message"]["kinds"])
    shown = [each["template"]["type"] for each in MESSAGES.values() if "template" in each]
    assert set(shown) == set(kinds["Template"]["kinds"])
    actions = {each["type"] for each in MESSAGES["imagemap"]["actions"]}
    assert actions == set(kinds["ImagemapAction"]["kinds"])
    for message in MESSAGES.values():
        fields = set(rules_of("messaging-api", "Message", message)["fields"])
        assert fields - {"quickReply", "sender"} <= set(message), message["type"]
    sdk = messaging.Message._Message__discriminator_value_class_map  # type: ignore[attr-defined]
    assert set(sdk) == set(kinds["Message"]["kinds"])


def test_every_operation_has_a_route() -> None:
    """None of LINE's descriptions has one that the local LINE does not know."""
    platform = Platform(secret="s", access_token="t")
    served = {f"{route.method} {route.path}" for route in api_routes(platform)}
    assert len(RULES["operations"]) >= 110
    assert {_shape(each) for each in RULES["operations"]} <= {_shape(each) for each in served}


def _shape(operation: str) -> str:
    """Without the names of its parameters, in which spellings differ."""
    parts = operation.split("/")
    return "/".join("{}" if part.startswith("{") else part for part in parts)


# ------------------------------------------------------------------------------- webhooks

NOT_SENT = {"activated", "botResumed", "botSuspended", "deactivated", "delivery", "membership",
            "module"}  # fmt: skip
"""For accounts with a leave of LINE's; `events.anything` makes them."""


def test_webhook_events_are_as_described(local_line: BlockingLine) -> None:
    """Each kind of event and of message that people can cause, field by field."""
    bodies: list[Json] = []

    def bot(environ: Json, start: Any) -> list[bytes]:
        bodies.append(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
        start("200 OK", [])
        return [b""]

    local_line.connect(bot)
    _live(local_line)
    found = [each for body in bodies for each in body["events"]]
    assert len(found) == 27
    rule = {"object": "CallbackRequest"}
    assert [each for body in bodies for each in deviations(rule, body)] == []
    kinds = RULES["webhook"]["kinds"]
    assert {each["type"] for each in found} == set(kinds["Event"]["kinds"]) - NOT_SENT
    messages = {each["message"]["type"] for each in found if "message" in each}
    assert messages == set(kinds["MessageContent"]["kinds"])
    assert {each["source"]["type"] for each in found} == set(kinds["Source"]["kinds"])


def _live(line: BlockingLine) -> None:
    """All that people do, once."""
    ann, video = line.somebody("Ann"), Content(b"0" * 10, "video/mp4")
    ben = "U" + "2" * 32
    group = Source.group("C" + "a" * 32, ann.user_id)
    room = Source.room("R" + "b" * 32, ann.user_id)
    alone = [
        events.text("hi"), events.image(), events.video(video), events.audio(video),
        events.file(Content(b"1", "text/plain", "a.txt")), events.location(25, 121, title="t"),
        events.sticker(), events.postback("d", params={"date": "2026-01-01"}), events.follow(),
        events.unfollow(), events.follow(is_unblocked=True), events.video_played("t"),
        events.beacon(dm="00"), events.account_link("n"), events.account_link("n", is_ok=False),
        events.text("standby").in_standby(),
    ]  # fmt: skip
    together = [
        events.text("@Bot x", mentions=[Mention("@Bot", ben, True)]),
        events.text("@All", mentions=[Mention("@All")]), events.member_joined(ben),
        events.member_left(ben), events.join(), events.leave(),
    ]  # fmt: skip
    for source, drafts in ((ann, alone), (group, together), (room, [events.text("room")])):
        for draft in drafts:
            assert line.send(draft, source=source).is_ok
    line.say("oops", source=ann)
    line.unsend(line.chat(ann).entries[-1].id, source=ann)
    said = line.say("again", source=ann)
    line.redeliver(said.event_ids[0])
    line.verify()
