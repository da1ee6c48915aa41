"""A stream for browsers: numbered events that go on at any process, in every framework."""

import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import flask
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from dibs import AsyncDibs, Dibs, UsageError
from dibs.integrations.sse import sse
from dibs.testing import Server

WORDS = ("one", "two", "three")


def plain(dibs: Dibs, pause: float = 0.0) -> Any:
    """A stream of threads."""

    @dibs.streamed("answer:{prompt}", ttl=60)
    def answer(prompt: str) -> Iterator[str]:
        for word in WORDS:
            time.sleep(pause)
            yield word

    return answer


def parsed(body: bytes) -> list[tuple[str, str, str]]:
    """Each event: its name, its id, its data; a comment is left out."""
    events = list[tuple[str, str, str]]()
    for block in body.decode().split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines()]
        fields = {name: value for name, colon, value in lines if colon}
        if fields:
            events.append((fields.get("event", ""), fields.get("id", ""), fields.get("data", "")))
    return events


def test_a_browser_that_reconnects_goes_on_at_another_process(valkey: Server) -> None:
    """Behind the last item that it has; the event `end` says that no more will come."""
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        whole = parsed(b"".join(sse(plain(one)("a"))))
        assert [data for _, _, data in whole] == [*WORDS, ""]
        assert [name for name, _, _ in whole] == ["", "", "", "end"]
        number, _, run = whole[1][1].partition(".")
        assert number == "2"
        rest = parsed(b"".join(sse(plain(two)("a"), whole[1][1])))
        assert rest == [("", f"3.{run}", "three"), ("end", "", "")]


def test_a_browser_with_items_of_another_run_is_told(valkey: Server) -> None:
    """What it has is of a run that was forgotten: `restart`, then all items."""
    with Dibs(valkey.url, budget=5) as dibs:
        answer = plain(dibs)
        last = parsed(b"".join(sse(answer("a"))))[1][1]
        answer.invalidate("a")
        again = parsed(b"".join(sse(answer("a"), last)))
        assert again[0] == ("restart", "", "")
        assert [data for _, _, data in again[1:]] == [*WORDS, ""]


def test_a_comment_is_sent_while_nothing_comes(valkey: Server) -> None:
    """So that no proxy closes the connection."""
    with Dibs(valkey.url, budget=5) as dibs:
        body = b"".join(sse(plain(dibs, pause=0.3)("a"), heartbeat=0.05))
        assert b":\n\n" in body
        assert [data for _, _, data in parsed(body)] == [*WORDS, ""]


def test_a_run_that_fails_is_told_by_its_type(valkey: Server) -> None:
    """And raised, for the log of the server; its message stays there."""
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.streamed("odd:{prompt}", ttl=60)
        def odd(prompt: str) -> Iterator[dict[str, int]]:
            yield {"a": 1}
            raise ValueError("secret")

        sent = list[bytes]()
        with pytest.raises(ValueError, match="secret"):
            sent.extend(sse(odd("a")))
        assert b'data: {"a":1}' in sent[0]
        assert sent[1] == b'event: failed\ndata: {"type": "ValueError"}\n\n'


def test_what_is_no_stream_is_refused() -> None:
    """As the function itself, or a list."""
    for each in (["a"], plain, iter("a")):
        with pytest.raises(UsageError, match="what a streamed function returns"):
            sse(each)  # type: ignore[call-overload]


def test_it_is_a_response_of_starlette(valkey: Server) -> None:
    """And so of FastAPI."""
    dibs = AsyncDibs(valkey.url, budget=5)

    @dibs.streamed("answer:{prompt}", ttl=60)
    async def answer(prompt: str) -> AsyncIterator[str]:
        for word in WORDS:
            yield word

    async def endpoint(request: Request) -> StreamingResponse:
        last = request.headers.get("last-event-id")
        return StreamingResponse(sse(answer("a"), last), media_type="text/event-stream")

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with dibs:
            yield

    app = Starlette(routes=[Route("/", endpoint)], lifespan=lifespan)
    with TestClient(app) as client:
        whole = parsed(client.get("/").content)
        assert [data for _, _, data in whole] == [*WORDS, ""]
        rest = parsed(client.get("/", headers={"Last-Event-ID": whole[0][1]}).content)
        assert [data for _, _, data in rest] == [*WORDS[1:], ""]


def test_it_is_a_response_of_flask(valkey: Server) -> None:
    """With the header of its request."""
    with Dibs(valkey.url, budget=5) as dibs:
        answer, app = plain(dibs), flask.Flask(__name__)

        @app.get("/")
        def endpoint() -> flask.Response:
            last = flask.request.headers.get("last-event-id")
            return flask.Response(sse(answer("a"), last), mimetype="text/event-stream")

        client = app.test_client()
        whole = parsed(client.get("/").data)
        rest = parsed(client.get("/", headers={"Last-Event-ID": whole[0][1]}).data)
        assert [data for _, _, data in rest] == [*WORDS[1:], ""]


DJANGO = """
import sys
from collections.abc import Iterator
from django.conf import settings
settings.configure()
from django.http import StreamingHttpResponse
from dibs import Dibs
from dibs.integrations.sse import sse

with Dibs(sys.argv[1], budget=5) as dibs:
    @dibs.streamed("answer:{prompt}", ttl=60)
    def answer(prompt: str) -> Iterator[str]:
        yield from ("one", "two", "three")

    response = StreamingHttpResponse(sse(answer("a")), content_type="text/event-stream")
    sys.stdout.buffer.write(b"".join(response.streaming_content))
"""


def test_it_is_a_response_of_django(valkey: Server) -> None:
    """Which iterates over it when the view has ended. In a process of its own, for its settings."""
    command = [sys.executable, "-c", DJANGO, valkey.url]
    done = subprocess.run(command, capture_output=True, check=True)
    assert [data for _, _, data in parsed(done.stdout)] == [*WORDS, ""]
