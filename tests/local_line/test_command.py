"""The local LINE as a product: one command for any bot, a fixture for any test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2 as httpx
import pytest
from local_line import BlockingLine, LocalLine
from local_line.__main__ import main
from local_line.chats import Chat, Entry
from local_line.journal import Window
from local_line.troubles import trouble
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dibs.testing.servers import free_port

TIMEOUT = 30.0
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("LINE_")}


@contextmanager
def command(*options: str, **environment: str) -> Iterator[tuple[Any, str]]:
    """It runs; what it has said until it was ready."""
    arguments = [sys.executable, "-m", "local_line", *options]
    with subprocess.Popen(
        arguments, env=CLEAN | environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("Ctrl-C"):
                break
        try:
            yield process, "".join(said)
        finally:
            process.kill()


def base_in(said: str) -> str:
    found = re.search(r"^LINE is at  (\S+)$", said, re.M)
    assert found is not None, said
    return found[1]


def call(base: str, token: str, path: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(base + path, headers=headers, trust_env=False, timeout=TIMEOUT)


# ------------------------------------------------------------------------------- the command


@pytest.mark.only_on("linux", "darwin")
def test_a_liff_app_on_the_command_line() -> None:
    """Its id names the channel; the script and the login are there. A wrong one is reported."""
    liff = "1234567890-abcdefgh=http://127.0.0.1:9/page?a=b"
    with command("--liff", liff, "--port", "0", "--token", "t") as (_, said):
        base = base_in(said)
        assert f"{base}/liff/edge/2/sdk.js" in said
        [app] = call(base, "t", "/liff/v1/apps").json()["apps"]
        assert app["view"]["url"] == "http://127.0.0.1:9/page?a=b"
        query = "response_type=code&client_id=1234567890&state=s&redirect_uri=http://127.0.0.1:9/"
        assert call(base, "t", f"/oauth2/v2.1/authorize?{query}").status_code == 200
    for wrong in ("abc", "1234567890-abc=", "=http://127.0.0.1:9/", "x-y=http://127.0.0.1:9/"):
        with pytest.raises(SystemExit) as ended:
            main(["--liff", wrong])
        assert ended.value.code == 2


@pytest.mark.only_on("linux", "darwin")
def test_one_command_for_any_bot() -> None:
    """It says where LINE is and what each SDK calls that, serves the API and a page, and ends."""
    port = free_port()
    options = ["--webhook", "http://127.0.0.1:9/callback", "--name", "報時", "--port", str(port)]
    with command(*options, "--secret", "s", "--token", "t") as (process, said):
        base = base_in(said)
        assert base == f"http://127.0.0.1:{port}"
        for option in ("Configuration(host=", "apiBaseURL:", "apiEndPoint(", "WithEndpoint(",
                       "setHost(", "base_url:"):  # fmt: skip
            assert option in said
        assert said.count(base) >= 9 and "LINE_CHANNEL_SECRET=" not in said
        assert call(base, "t", "/v2/bot/info").json()["displayName"] == "報時"
        endpoint = call(base, "t", "/v2/bot/channel/webhook/endpoint").json()
        assert endpoint["endpoint"] == "http://127.0.0.1:9/callback"
        page = httpx.get(base, follow_redirects=True, trust_env=False, timeout=TIMEOUT)
        assert page.url.path == "/chat/" and page.status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 0 and process.stderr.read() == ""


EAGER = """
import builtins, os, signal, sys
from local_line.__main__ import main

def said(*words, **how):
    os.kill(os.getpid(), signal.SIGTERM)  # by somebody who has read it

builtins.print = said
sys.exit(main(["--port", "0"]))
"""


@pytest.mark.only_on("linux", "darwin")
def test_who_has_read_the_address_may_end_it() -> None:
    """With exit code 0, also before it waits for a signal."""
    ended = subprocess.run([sys.executable, "-c", EAGER], env=CLEAN, timeout=TIMEOUT, check=False)
    assert ended.returncode == 0


def test_a_secret_and_a_token_are_made_up() -> None:
    """And printed, in the form of an environment file."""
    with command("--port", "0") as (_, said):
        facts = dict(re.findall(r"^  (LINE_\w+)=(\S+)$", said, re.M))
        assert set(facts) == {"LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN"}
        assert call(base_in(said), facts["LINE_CHANNEL_ACCESS_TOKEN"], "/v2/bot/info").is_success


def test_they_are_read_from_the_environment() -> None:
    """Under the names that LINE's examples use; then they are not printed."""
    names = {"LINE_CHANNEL_SECRET": "from-env-s", "LINE_CHANNEL_ACCESS_TOKEN": "from-env-t"}
    with command("--port", "0", **names) as (_, said):
        assert "from-env" not in said
        assert call(base_in(said), "from-env-t", "/v2/bot/info").is_success


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and exit code 1."""
    with BlockingLine() as line:
        port = line.api_base.rpartition(":")[2]
        assert main(["--port", port]) == 1
    said = capsys.readouterr().err
    assert said == f"local-line: port {port} is in use; --port takes another one, 0 a free one\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--webhook", "localhost:5000"],
        ["--webhook", "http:///callback"],
        ["--webhook", "http://localhost:99999/callback"],
        ["--port", "99999"],
        ["--nothing"],
    ],
    ids=" ".join,
)
def test_wrong_options_are_refused_before_anything_starts(options: list[str]) -> None:
    """Exit code 2, before anything is started."""
    with pytest.raises(SystemExit) as raised:
        main(options)
    assert raised.value.code == 2


def test_a_picture_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and exit code 1."""
    file = tmp_path / "face.txt"
    file.write_text("a face")
    assert main(["--picture", str(file)]) == 1
    assert "neither a PNG nor a JPEG" in capsys.readouterr().err


def test_a_picture_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence without an error number."""
    assert main(["--picture", "no.png"]) == 1
    assert capsys.readouterr().err == "local-line: no.png: No such file or directory\n"


@pytest.mark.only_on("linux", "darwin")
def test_a_bot_that_is_down_is_reported_in_the_terminal() -> None:
    """So is a call that is not served, and one with another token."""
    with command("--webhook", "http://127.0.0.1:9/callback", "--port", "0", "--token", "t") as (
        process,
        said,
    ):
        base = base_in(said)
        assert call(base, "t", "/v2/bot/nothing").status_code == 404
        assert call(base, "another", "/v2/bot/info").status_code == 401
        with httpx.Client(base_url=base, trust_env=False) as phone:
            phone.get("/chat/")
            phone.post("/chat/api/say", json={"text": "hello"}).raise_for_status()
        lines = [process.stderr.readline() for _ in range(3)]
    assert lines == [
        "local-line: call: GET /v2/bot/nothing is not served.\n",
        "local-line: call: GET /v2/bot/info: 401. Does the bot have the same access token?\n",
        "local-line: webhook: no connection to http://127.0.0.1:9/callback. Is the bot running?\n",
    ]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Does the bot have the same channel secret?"),
        (404, "Is the path of --webhook right?"),
        (500, "The bot's log says why."),
    ],
)
async def test_what_is_said_about_a_bot_that_refuses(status: int, words: str) -> None:
    """What its author should look at first; nothing, if it answers well."""

    async def bot(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async with LocalLine(webhook_timeout=TIMEOUT) as line:
        url = await line.connect(bot)
        assert trouble(await line.say("hi")) == f"webhook: {url} answered {status}. {words}"
        status = 200
        assert trouble(await line.say("hi")) is None


# ------------------------------------------------------------------------------- in tests


def weather_bot(line: Any) -> Starlette:
    """A bot that answers what it is asked for with a card and a button."""

    async def callback(request: Request) -> Response:
        events = (await request.json())["events"]
        async with httpx.AsyncClient(base_url=line.api_base, trust_env=False) as api:
            for event in events:
                body = {"replyToken": event["replyToken"], "messages": MESSAGES}
                headers = {"Authorization": f"Bearer {line.access_token}"}
                await api.post("/v2/bot/message/reply", json=body, headers=headers)
        return Response()

    return Starlette(routes=[Route("/callback", callback, methods=["POST"])])


AGAIN = {"type": "action", "action": {"type": "message", "label": "再一次", "text": "天氣"}}
BUBBLE = {"type": "bubble", "body": {"type": "box", "layout": "vertical", "contents": []}}
MESSAGES: list[Any] = [
    {"type": "text", "text": "臺北市 ☀️"},
    {"type": "flex", "altText": "臺北市，晴朗 28°", "contents": BUBBLE,
     "quickReply": {"items": [AGAIN]}},
]  # fmt: skip


@pytest.fixture
def local_line_options() -> dict[str, Any]:
    """A name, and time for a bot on a busy machine."""
    return {"name": "天氣", "webhook_timeout": TIMEOUT}


def test_a_bot_author_asserts_on_what_a_user_saw(local_line: BlockingLine) -> None:
    """The fixture is available once local-line is installed; its options can be overridden."""
    local_line.connect(weather_bot(local_line))
    ann = local_line.somebody("Ann")
    assert local_line.say("天氣", source=ann).is_ok
    assert local_line.chat(ann).texts == ["臺北市 ☀️", "臺北市，晴朗 28°"]
    assert local_line.chat(ann).quick_reply == [AGAIN]
    assert [call.status for call in local_line.calls] == [200]
    assert local_line.line.channel.name == "天氣"


async def test_the_same_in_asyncio() -> None:
    """`async with LocalLine()`, in the loop of the test."""
    async with LocalLine(access_token="t", webhook_timeout=TIMEOUT) as line:

        class Known:
            api_base, access_token = line.api_base, "t"

        await line.connect(weather_bot(Known))
        await line.say("天氣")
        assert line.chat().texts == ["臺北市 ☀️", "臺北市，晴朗 28°"]


async def test_an_app_that_does_not_start() -> None:
    """OSError, and the platform can still be used."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    async with LocalLine() as line:
        with pytest.raises(OSError, match="does not start"):
            await line.connect(broken)
        assert not line.webhook_url


def test_a_fixture_costs_nothing_until_it_is_used() -> None:
    """pytest loads the plugin in every project that has it: it must not load a web server."""
    code = "import sys, local_line.fixtures; print('uvicorn' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_a_chat_is_read_while_the_bot_goes_on() -> None:
    """A test looks in its thread, the bot says more in that of the platform: what was there."""
    chat = Chat("U1")

    class Meanwhile(Entry):
        @property
        def author(self) -> str:  # type: ignore[override]
            chat.add(Entry("2", "bot", {"type": "text", "text": "more"}, 0.0))
            return "bot"

        @author.setter
        def author(self, _: str) -> None: ...

    chat.entries.append(object.__new__(Meanwhile))
    object.__setattr__(chat.entries[0], "message", {"type": "text", "text": "first"})
    assert chat.texts == ["first"] and "more" in chat.texts


def test_who_still_waits_at_the_end_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for the bot ends with the platform, and not never."""
    waits, ended = Event(), list[BaseException]()
    following = Window.next

    async def heard(window: Window) -> Any:
        waits.set()
        return await following(window)

    def wait(line: BlockingLine) -> None:
        try:
            line.wait_for_messages(1, within=3600)
        except BaseException as error:
            ended.append(error)

    monkeypatch.setattr(Window, "next", heard)
    with BlockingLine() as line:
        waiting = Thread(target=wait, args=[line], daemon=True)
        waiting.start()
        assert waits.wait(TIMEOUT)
    waiting.join(TIMEOUT)
    assert [type(error) for error in ended] == [CancelledError]
