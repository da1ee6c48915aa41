"""`local-line run -- …`: unmodified bots, each a real program, find LINE here."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from local_line import LocalLine
from local_line.__main__ import main
from local_line.certificates import issue
from local_line.programs import environment, first_webhook, run_program
from local_line.proxy import Ports, proxied

from tests.fork_server import real_interpreters

from .test_command import TIMEOUT, base_in, command

pytestmark = pytest.mark.only_on("linux")

START = 4 * TIMEOUT
"""LINE's SDK has some 800 modules to import, Go has to compile."""

FRAME = """
import os
from flask import Flask, request
app = Flask(__name__)
SECRET, TOKEN = os.environ["LINE_CHANNEL_SECRET"], os.environ["LINE_CHANNEL_ACCESS_TOKEN"]
{bot}
@app.post("{path}")
def webhook():
    handler.handle(request.get_data(as_text=True), request.headers["X-Line-Signature"])
    return "OK"
app.run(port=0)
"""
NEW = """
from linebot.v3 import WebhookHandler
from linebot.v3 import messaging as m
from linebot.v3.webhooks import MessageEvent
handler, configuration = WebhookHandler(SECRET), m.Configuration(access_token=TOKEN)
@handler.add(MessageEvent)
def on_message(event):
    with m.ApiClient(configuration) as client:
        messages = [m.TextMessage(text="new " + event.message.text)]
        request = m.ReplyMessageRequest(replyToken=event.reply_token, messages=messages)
        m.MessagingApi(client).reply_message(request)
"""
ASYNCHRONOUS = """
import asyncio
from linebot.v3 import WebhookHandler
from linebot.v3 import messaging as m
from linebot.v3.webhooks import MessageEvent
handler, configuration = WebhookHandler(SECRET), m.Configuration(access_token=TOKEN)
async def answer(event):
    async with m.AsyncApiClient(configuration) as client:
        messages = [m.TextMessage(text="async " + event.message.text)]
        request = m.ReplyMessageRequest(replyToken=event.reply_token, messages=messages)
        await m.AsyncMessagingApi(client).reply_message(request)
@handler.add(MessageEvent)
def on_message(event):
    asyncio.run(answer(event))
"""
OLD = """
from linebot import LineBotApi, WebhookHandler
from linebot.models import MessageEvent, TextSendMessage
handler, api = WebhookHandler(SECRET), LineBotApi(TOKEN)
@handler.add(MessageEvent)
def on_message(event):
    name = api.get_profile(event.source.user_id).display_name
    api.reply_message(event.reply_token, TextSendMessage(text=name + " " + event.message.text))
"""
NO_SDK = """
import json, urllib.request
class Handler:
    def handle(self, body, signature):
        for event in json.loads(body)["events"]:
            text = {"type": "text", "text": "urllib " + event["message"]["text"]}
            sent = json.dumps({"replyToken": event["replyToken"], "messages": [text]}).encode()
            headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
            url = "https://api.line.me/v2/bot/message/reply"
            urllib.request.urlopen(urllib.request.Request(url, sent, headers)).close()
handler = Handler()
"""


ON_UVLOOP = """
import json, os
import aiohttp, httpx2, uvicorn
URL, TOKEN = "https://api.line.me/v2/bot/message/", os.environ["LINE_CHANNEL_ACCESS_TOKEN"]
HEADERS = {"Authorization": "Bearer " + TOKEN}
async def answer(event):
    texts = [{"type": "text", "text": name} for name in ("aiohttp", "httpx2")]
    async with aiohttp.ClientSession(headers=HEADERS) as client:
        body = {"replyToken": event["replyToken"], "messages": texts[:1]}
        await client.post(URL + "reply", json=body)
    async with httpx2.AsyncClient(headers=HEADERS) as client:
        body = {"to": event["source"]["userId"], "messages": texts[1:]}
        await client.post(URL + "push", json=body)
async def app(scope, receive, send):
    for event in json.loads((await receive())["body"])["events"]:
        await answer(event)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})
uvicorn.run(app, port=int(os.environ["PORT"]), loop="uvloop", lifespan="off")
"""


@asynccontextmanager
async def running(*words: str) -> AsyncIterator[LocalLine]:
    """The local LINE with that program, as soon as its webhook is known."""
    # An interpreter that starts: that is when the environment is read.
    with real_interpreters():
        async with connected(words) as line:
            yield line


@asynccontextmanager
async def connected(words: tuple[str, ...]) -> AsyncIterator[LocalLine]:
    async with LocalLine(webhook_timeout=TIMEOUT) as line:
        work = asyncio.create_task(run_program(line, words, finds_webhook=True))
        try:
            async with asyncio.timeout(START):
                while not line.webhook_url and not work.done():
                    await asyncio.sleep(0.02)
            yield line
        finally:
            work.cancel()
            await asyncio.wait([work])


async def test_a_bot_on_uvloop(tmp_path: Path) -> None:
    """It resolves names itself; aiohttp looks at no proxy."""
    pytest.importorskip("uvloop")
    file = tmp_path / "app.py"
    file.write_text(ON_UVLOOP)
    async with running(sys.executable, str(file)) as line:
        assert (await line.say("hi")).is_ok
        assert line.chat().texts == ["aiohttp", "httpx2"]


@pytest.mark.parametrize(
    ("bot", "path", "texts"),
    [
        (NEW, "/callback", ["new hi"]),
        (ASYNCHRONOUS, "/webhook", ["async hi"]),
        (OLD, "/line", ["Ann hi"]),
        (NO_SDK, "/", ["urllib hi"]),
    ],
    ids=["v3", "v3 asynchronous", "LineBotApi", "urllib"],
)
async def test_a_python_bot_as_it_is(bot: str, path: str, texts: list[str], tmp_path: Path) -> None:
    """Its port and path are found, its calls to api.line.me arrive here."""
    file = tmp_path / "app.py"
    file.write_text(FRAME.format(bot=bot, path=path))
    async with running(sys.executable, str(file)) as line:
        assert line.webhook_url.endswith(path)
        ann = line.somebody("Ann")
        assert (await line.say("hi", source=ann)).is_ok
        assert line.chat(ann).texts == texts
        assert all(call.status == 200 for call in line.calls)


SETS_ITS_WEBHOOK = FRAME.format(bot=NO_SDK, path="/hidden").replace("app.run(port=0)", """
from threading import Thread
from werkzeug.serving import make_server
server = make_server("127.0.0.1", int(os.environ["PORT"]), app, threaded=True)
body = json.dumps({"endpoint": "https://bot.example.com/hidden"}).encode()
headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
url = "https://api.line.me/v2/bot/channel/webhook/endpoint"
call = urllib.request.Request(url, body, headers, method="PUT")
Thread(target=lambda: urllib.request.urlopen(call).close()).start()
server.serve_forever()
""")  # fmt: skip


async def test_a_bot_that_sets_its_webhook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its address on the internet is not asked; the path is the one that it says."""
    file = tmp_path / "app.py"
    file.write_text(SETS_ITS_WEBHOOK)
    async with running(sys.executable, str(file)) as line:
        async with asyncio.timeout(TIMEOUT):
            while "the bot is at" not in capsys.readouterr().err:
                await asyncio.sleep(0.02)
        assert line.webhook_url.startswith("http://127.0.0.1:")
        assert line.webhook_url.endswith("/hidden")
        assert (await line.say("hi")).is_ok
        assert line.chat().texts == ["urllib hi"]


NO_WEBHOOK = """
from http.server import BaseHTTPRequestHandler, HTTPServer
HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler).serve_forever()
"""


async def test_a_program_without_a_webhook(capsys: pytest.CaptureFixture[str]) -> None:
    """It says once at which port it looked, and how to name the path."""
    async with LocalLine() as line:
        words = (sys.executable, "-c", NO_WEBHOOK)
        with real_interpreters():
            work = asyncio.create_task(run_program(line, words, finds_webhook=True))
            said = ""
            async with asyncio.timeout(TIMEOUT):
                while "--webhook http://127.0.0.1:" not in said:
                    await asyncio.sleep(0.02)
                    said += capsys.readouterr().err
            work.cancel()
            await asyncio.wait([work])
        assert not line.webhook_url


MOVES = FRAME.format(bot=NO_SDK, path="/callback").replace("app.run(port=0)", """
from multiprocessing import Process
def serve():
    app.run(port=0)
if __name__ == "__main__":
    while True:
        child = Process(target=serve)
        child.start()
        open(os.environ["PIDS"], "a").write(f"{child.pid}\\n")
        child.join()
""")  # fmt: skip


async def test_a_program_that_restarts_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The webhook follows to the new port."""
    file, pids = tmp_path / "app.py", tmp_path / "pids"
    file.write_text(MOVES)
    monkeypatch.setenv("PIDS", str(pids))
    async with running(sys.executable, str(file)) as line:
        first = line.webhook_url
        os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)
        async with asyncio.timeout(TIMEOUT):
            while line.webhook_url == first:
                await asyncio.sleep(0.02)
        assert (await line.say("again")).is_ok
        assert line.chat().texts == ["urllib again"]


ELSEWHERE = """
import os, ssl, sys, urllib.request
assert os.environ["LINE_CHANNEL_SECRET"] and os.environ["PORT"]
for url in ("https://api.line.me/v2/bot/info", "https://api-data.line.me/v2/bot/nothing"):
    headers = {"Authorization": "Bearer " + os.environ["LINE_CHANNEL_ACCESS_TOKEN"]}
    try:
        print(urllib.request.urlopen(urllib.request.Request(url, headers=headers)).status)
    except urllib.error.HTTPError as error:
        print(error.code)
sys.exit(7)
"""


def wait_for_end(pid: int) -> None:
    end = time.monotonic() + TIMEOUT
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in _status(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has just ended
        return "\nState:\tZ"


def test_the_exit_code_is_that_of_the_program() -> None:
    """The command ends with it; the environment around it is as before."""
    before = dict(os.environ)
    assert main(["run", "--port", "0", "--", sys.executable, "-c", ELSEWHERE]) == 7
    assert dict(os.environ) == before


def test_the_end_of_the_command_is_the_end_of_the_program() -> None:
    """SIGTERM to local-line alone; no process and no folder of it is left."""
    code = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
    with command("run", "--port", "0", "--", sys.executable, "-c", code) as (process, said):
        assert base_in(said) and "looked for" in said and "LINE_CHANNEL" not in said
        pid = int(process.stdout.readline().split()[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_the_children_of_the_program_end_with_it() -> None:
    """As of `go run` and of servers that reload, which do not end them themselves."""
    with command("run", "--port", "0", "--", sys.executable, "-c", PARENT) as (process, _):
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        wait_for_end(pid)


async def test_a_port_that_never_answers() -> None:
    """As that of a debugger: it is asked once, not at every path."""
    asked: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: asked.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with LocalLine(webhook_timeout=0.2) as line, asyncio.timeout(TIMEOUT):
        assert await first_webhook(line, [port]) == ""
    for writer in asked:
        writer.close()
    silent.close()
    assert len(asked) == 1


IGNORES = """
import os, signal, subprocess, sys, time
code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
words = [sys.executable, "-c", code + "; time.sleep(600)"]
child = subprocess.Popen(words, stdout=subprocess.PIPE)
child.stdout.readline()
folder = os.path.dirname(os.environ["LOCAL_LINE_CA"])
print(os.getpid(), child.pid, folder, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_is_left_however_the_command_ends(number: signal.Signals) -> None:
    """A closed terminal and kill -9 too; a child that ignores SIGTERM is killed."""
    with command("run", "--port", "0", "--", sys.executable, "-c", IGNORES) as (process, _):
        program, child, folder = process.stdout.readline().split()
        process.send_signal(number)
        process.wait(TIMEOUT)
        wait_for_end(int(program))
        wait_for_end(int(child))
        end = time.monotonic() + TIMEOUT
        while Path(folder).exists():
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_program_that_was_killed() -> None:
    """Its exit code is that of a shell."""
    code = "import os; os.kill(os.getpid(), 15)"
    assert main(["run", "--port", "0", "--", sys.executable, "-c", code]) == 128 + 15


async def test_a_program_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends both, even if the bot ignores the signal."""
    monkeypatch.setattr("local_line.processes.GRACE", 0.1)
    ready = tmp_path / "ready"
    code = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        f"; pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"
    )
    async with LocalLine() as line, asyncio.timeout(TIMEOUT):
        words = (sys.executable, "-c", code)
        work = asyncio.create_task(run_program(line, words, finds_webhook=False))
        while not ready.exists():
            await asyncio.sleep(0.02)
        work.cancel()
        await asyncio.wait([work])


def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """`local-line run --help` explains the command, and exits with 0."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0 and "usage: local-line" in capsys.readouterr().out


def test_a_program_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence and exit code 1; without any, exit code 2."""
    assert main(["run", "--port", "0", "--", "no-such-program"]) == 1
    assert "no-such-program" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["run", "--port", "0"])
    assert ended.value.code == 2


async def test_other_hosts_are_reached_through_the_proxy(tmp_path: Path) -> None:
    """Byte by byte: what is no host of LINE's is neither opened nor changed."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        writer.close()

    other = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, proxied(1, issue(tmp_path), "") as ports, asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", ports.proxy)
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x16\x03\x01ab")
        assert await reader.read() == b"\x16\x03\x01ab"
        writer.close()


@pytest.mark.parametrize(
    ("upstream", "authorization"),
    [
        ("http://127.0.0.1:{port}", b""),
        ("127.0.0.1:{port}", b""),
        ("http://ann:p%40ss@127.0.0.1:{port}", b"Proxy-Authorization: Basic YW5uOnBAc3M=\r\n"),
    ],
)
async def test_other_hosts_through_the_proxy_of_before(
    upstream: str, authorization: bytes, tmp_path: Path
) -> None:
    """As of a company: the bot itself no longer knows its name and password."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = upstream.format(port=other.sockets[0].getsockname()[1])
    async with other, proxied(1, issue(tmp_path), url) as ports, asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", ports.proxy)
        head = b"CONNECT elsewhere.example:443 HTTP/1.1\r\nHost: elsewhere.example:443\r\n"
        writer.write(head + b"\r\n")
        assert await reader.read() == head + authorization + b"\r\n"
        writer.close()


def test_the_authorities_of_before_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a folder, as Ubuntu's, and those of a company in the variable of one client."""
    names = ("company", "folder", "node")
    blocks = {name: f"{ssl.PEM_HEADER}\n{name:A<8}\n{ssl.PEM_FOOTER}\n" for name in names}
    authorities, made = tmp_path / "authorities", tmp_path / "made"
    for each in (authorities, made):
        each.mkdir()
    (authorities / "0a1b2c3d.0").write_text(blocks["folder"])
    for name in ("company", "node"):
        (tmp_path / name).write_text(blocks[name])
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing"))
    monkeypatch.setenv("SSL_CERT_DIR", str(authorities))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "company"))
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(tmp_path / "node"))
    issue(made)
    bundle = (made / "bundle.pem").read_text()
    assert all(block in bundle for block in blocks.values())
    assert blocks["node"] in (made / "node.pem").read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [("*", ""), ("localhost,.line.me", "localhost"), ("api.line.me, db.example", "db.example")],
)
async def test_no_proxy_does_not_lead_past_the_local_line(
    before: str, after: str, tmp_path: Path
) -> None:
    """Go, Java and curl look at it; what it says of other hosts stays."""
    usual = {"NO_PROXY": before, "no_proxy": before}
    async with LocalLine() as line:
        made = environment(line, tmp_path, Ports(1, 2), usual)
    assert (made["NO_PROXY"], made["no_proxy"]) == (after, after)


def test_the_strictest_clients_accept_the_certificate(tmp_path: Path) -> None:
    """Since Python 3.13 a client asks by default for all that RFC 5280 wants."""
    client_side = ssl.create_default_context()
    server_side = issue(tmp_path)
    client_side.load_verify_locations(tmp_path / "ca.pem")
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname="api.line.me")
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with pytest.raises(ssl.SSLWantReadError):
        server.do_handshake()
    client.do_handshake()
    assert client.getpeercert()
