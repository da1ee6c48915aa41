"""Behind a real server: clients that leave, streams, and connections that stay open."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from dibs.testing import Child, eventually
from tests.conftest import Servers

EDGES = ["middleware", "decorator"]


def serve(url: str) -> None:
    """The same endpoints twice: behind the middleware, and with the decorator."""
    import asyncio
    from typing import Any

    import uvicorn
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    from dibs import AsyncDibs
    from dibs.integrations.asgi import DibsMiddleware, Policy
    from dibs.integrations.fastapi import install, once

    app, dibs = FastAPI(), AsyncDibs(url, budget=5)
    states: dict[str, dict[str, int]] = {}

    def build(edge: str, decorate: Any) -> None:
        counts = states[edge] = {"begun": 0, "done": 0, "sent": 0}
        gate, over = asyncio.Event(), asyncio.Event()

        async def slow() -> dict[str, int]:
            counts["begun"] += 1
            await gate.wait()
            counts["done"] += 1
            return {"order": counts["done"]}

        async def stream() -> StreamingResponse:
            counts["begun"] += 1

            async def pieces() -> Any:
                while not over.is_set():
                    yield b"piece\n"
                    counts["sent"] += 1
                    await asyncio.sleep(0.02)

            return StreamingResponse(pieces())

        async def echo(body: dict[str, Any]) -> dict[str, Any]:
            counts["begun"] += 1
            return body

        for endpoint in (slow, stream, echo):
            app.post(f"/{edge}/{endpoint.__name__}")(decorate(endpoint))
        app.post(f"/open/{edge}")(gate.set)
        app.post(f"/end/{edge}")(over.set)

    build("middleware", lambda endpoint: endpoint)
    build("decorator", once(window=60, after="replay", key="required"))
    app.get("/states")(lambda: states)
    install(app, dibs)
    policies = [Policy("POST /middleware/*", window=60, after="replay", key="required")]
    outer = DibsMiddleware(app, dibs=dibs, policies=policies)

    async def main() -> None:
        server = uvicorn.Server(uvicorn.Config(outer, port=0, log_level="critical"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await serving

    asyncio.run(main())


class Visitor:
    """A browser at one of the edges: well behaved over httpx, or a bare socket that hangs up."""

    def __init__(self, http: httpx.Client, edge: str) -> None:
        self._http = http
        self._edge = edge
        self._before = self._counts()

    def _counts(self) -> dict[str, int]:
        return self._http.get("/states").json()[self._edge]

    def seen(self, what: str) -> int:
        """How often, since this visitor came."""
        return self._counts()[what] - self._before[what]

    def end_the_stream(self) -> None:
        self._http.post(f"/end/{self._edge}")

    def open_the_gate(self) -> None:
        self._http.post(f"/open/{self._edge}")

    def post(self, path: str, key: str, body: Any = None) -> httpx.Response:
        headers = {"idempotency-key": key}
        return self._http.post(f"/{self._edge}/{path}", json=body or {}, headers=headers)

    def begin(self, path: str, key: str, body: bytes = b"{}", length: int = 0) -> socket.socket:
        """A request of which the answer may never be read."""
        there = self._http.base_url
        wire = socket.create_connection((there.host, there.port or 80), timeout=20)
        head = (
            f"POST /{self._edge}/{path} HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length or len(body)}\r\n\r\n"
        )
        wire.sendall(head.encode() + body)
        return wire


@pytest.fixture(scope="module")
def http(servers: Servers) -> Iterator[httpx.Client]:
    """One server for all: starting it takes longer than all the tests."""
    with Child(serve, servers("valkey").url) as child:
        address = f"http://127.0.0.1:{int(child.line(within=60))}"
        with httpx.Client(base_url=address, timeout=20) as client:
            yield client


@pytest.fixture(params=EDGES)
def visitor(http: httpx.Client, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(http, request.param)


def test_a_client_that_leaves_gets_its_answer_when_it_comes_back(visitor: Visitor) -> None:
    """Hanging up stops nothing: the work is done once, and kept."""
    with visitor.begin("slow", "left"):
        eventually(lambda: visitor.seen("begun") == 1, within=90)
        running = visitor.post("slow", "left")
        assert running.status_code == 409 and int(running.headers["retry-after"]) >= 1
    visitor.open_the_gate()
    again = eventually(lambda: _replayed(visitor.post("slow", "left")), within=90)
    assert again.json() == {"order": 1} and visitor.seen("begun") == 1


def _replayed(response: httpx.Response) -> httpx.Response | None:
    return response if "idempotent-replayed" in response.headers else None


def test_a_stream_that_its_client_leaves_is_kept_behind_uvicorn(visitor: Visitor) -> None:
    """It is read to its end for the retry, which gets the whole of it."""
    with visitor.begin("stream", "stream") as wire:
        assert wire.recv(1000)
        eventually(lambda: visitor.seen("sent") > 3, within=90)
    running = visitor.post("stream", "stream")
    assert running.status_code == 409 and running.json()["state"] == "running"
    sent = visitor.seen("sent")
    eventually(lambda: visitor.seen("sent") > sent + 3, within=90)
    visitor.end_the_stream()
    again = eventually(lambda: _replayed(visitor.post("stream", "stream")), within=90)
    assert again.content == b"piece\n" * visitor.seen("sent") and visitor.seen("begun") == 1


def test_a_request_that_breaks_off_is_not_done_behind_uvicorn(visitor: Visitor) -> None:
    """Half a body is no submission: nothing runs, and the whole one is new."""
    with visitor.begin("echo", "broken", b'{"tea":', length=100):
        pass
    whole = visitor.post("echo", "broken", {"tea": 1})
    assert whole.status_code == 200 and not _replayed(whole)
    assert visitor.seen("begun") == 1


def test_answers_fit_a_connection_that_stays_open(visitor: Visitor) -> None:
    """New ones, replays and refusals in turn, of any size: none runs into the next."""
    for number, size in enumerate((1, 100_000, 500_000, 10)):
        body = {"number": number, "text": "x" * size}
        first = visitor.post("echo", f"fit-{number}", body)
        again = visitor.post("echo", f"fit-{number}", body)
        assert json.loads(first.content) == body and not _replayed(first)
        is_kept = size < 256 * 1024
        assert again.status_code == (200 if is_kept else 409)
        assert (again.content == first.content) is is_kept
        assert visitor.post("echo", f"fit-{number}", {"other": 1}).status_code == 422
    assert visitor.seen("begun") == 4
