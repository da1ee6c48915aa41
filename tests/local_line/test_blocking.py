"""`BlockingLine`, which is what the fixture gives: all verbs, and mistakes are reported at once."""

import inspect
from typing import Any

import httpx2 as httpx
import pytest
from local_line import BlockingLine, LocalLine, Source


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """A bot that answers 200 on its path, 404 elsewhere."""
    if scope["type"] != "http":
        return
    status = 200 if scope["path"] == "/callback" else 404
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def local_line_options() -> dict[str, Any]:
    """Time for a bot on a busy machine."""
    return {"webhook_timeout": 30.0}


def test_it_has_every_verb_of_local_line() -> None:
    """With the same parameters, or `**rest` for those that are rare."""
    verbs = {
        name: found
        for name, found in inspect.getmembers(LocalLine, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert {"join", "leave", "unsend", "say"} <= verbs.keys()
    for name, found in verbs.items():
        blocking = inspect.signature(getattr(BlockingLine, name)).parameters
        wanted = inspect.signature(found).parameters
        assert "rest" in blocking or list(blocking) == list(wanted), name


def test_a_group_invites_the_bot_and_removes_it(local_line: BlockingLine) -> None:
    """`join`, `leave` and `unsend`, as the page lists them."""
    local_line.connect(answers)
    group = Source.group("C1", local_line.somebody("Ann").user_id)
    assert local_line.join(source=group).is_ok
    said = local_line.say("a mistake", source=group)
    assert local_line.unsend(said.events[0]["message"]["id"], source=group).is_ok
    assert local_line.leave(source=group).is_ok
    sent = [event["type"] for each in local_line.deliveries for event in each.events]
    assert sent == ["join", "message", "unsend", "leave"]
    assert local_line.verify().is_ok


def test_an_address_is_not_an_app(local_line: BlockingLine) -> None:
    """A TypeError at once, which says what to set for a bot that runs in another process."""
    with pytest.raises(TypeError, match=r"webhook_url = .http://127\.0\.0\.1:5000/callback.$"):
        local_line.connect("http://127.0.0.1:5000/callback")
    with pytest.raises(TypeError, match="an ASGI or WSGI app, not NoneType"):
        local_line.connect(None)
    assert not local_line.webhook_url


@pytest.mark.parametrize(
    ("options", "error"), [({"nonsense": 1}, TypeError), ({"secret": ""}, ValueError)]
)
def test_wrong_options_are_refused_when_it_is_created(options: Any, error: Any) -> None:
    """As by `LocalLine`."""
    with pytest.raises(error):
        LocalLine(**options)
    with pytest.raises(error):
        BlockingLine(**options)


def test_what_did_not_come_in_time_is_described(local_line: BlockingLine) -> None:
    """How many there are, which, and how the bot answered the last webhook."""
    with pytest.raises(TimeoutError, match=r"^0 of 1 messages within 0.01 s: \[\]; no webhook was"):
        local_line.wait_for_messages(1, within=0.01)
    local_line.connect(answers, "/elsewhere")
    local_line.say("hello")
    with pytest.raises(TimeoutError, match=r"the last webhook: error_status_code 404$"):
        local_line.wait_for_messages(1, within=0.01)
    local_line.webhook_url = "http://127.0.0.1:9/callback"
    local_line.say("hello")
    with pytest.raises(TimeoutError, match=r"the last webhook: could_not_connect$"):
        local_line.wait_for_messages(1, within=0.01)


def test_what_came_is_in_the_sentence(local_line: BlockingLine) -> None:
    """The texts of the bot, as `chat().texts` has them."""
    local_line.connect(answers)
    local_line.say("hello")
    user, token = local_line.line.me.chat_id, local_line.access_token
    body = {"to": user, "messages": [{"type": "text", "text": "⏳ 請稍候…"}]}
    pushed = httpx.post(
        f"{local_line.api_base}/v2/bot/message/push", json=body, trust_env=False,
        headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip
    assert pushed.status_code == 200, pushed.text
    said = r"^1 of 3 messages within 0.01 s: \['⏳ 請稍候…'\]; the last webhook: ok 200$"
    with pytest.raises(TimeoutError, match=said):
        local_line.wait_for_messages(3, within=0.01)
