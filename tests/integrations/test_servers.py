"""Real servers and blunt clients: old protocols, closed connections, half bodies, pipelines."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from dibs.testing import Child, eventually
from dibs.testing.ports import free_port

from .double_submits import PATIENCE, executions, place

pytestmark = pytest.mark.timeout(2 * PATIENCE)

GRID = [
    ("asgi", "uvicorn"), ("asgi", "uvicorn httptools"), ("asgi", "hypercorn"),
    ("starlette", "uvicorn httptools"), ("fastapi", "hypercorn"), ("django-asgi", "uvicorn"),
    ("flask", "gunicorn"), ("flask", "gunicorn sync"), ("wsgi", "gunicorn sync"),
    ("django", "gunicorn"), ("drf", "gunicorn sync"),
]  # fmt: skip


def serve(framework: str, url: str, database: str, port: int, server: str) -> None:
    from tests.integrations.double_submits_apps import run

    run(framework, url, database, port, server)


class Site(NamedTuple):
    framework: str
    port: int
    database: str

    def send(self, data: bytes, *, cut: int = 0, end: bool = False) -> bytes:
        """What comes back until the server closes, or has nothing to say for a while."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE / 4) as wire:
            for start in range(0, len(data), cut or len(data)):
                wire.sendall(data[start : start + (cut or len(data))])
            if end:
                wire.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: wire.recv(65536), b""))

    def runs(self, intent: str) -> int:
        return executions(self.database)[intent]


@pytest.fixture(scope="module", params=GRID, ids=" on ".join)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    framework, server = request.param
    with place() as (url, database):
        port = free_port()
        with Child(serve, framework, url, database, port, server) as child:
            eventually(lambda: _answers(port), within=PATIENCE)
            yield Site(framework, port, database)
            child.kill()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def request(
    intent: str, *, size: int = 0, version: str = "1.1", closes: bool = True, cookie: str = "a=1"
) -> bytes:
    body = json.dumps({"intent": intent, "pad": "x" * size}).encode()
    head = (
        f"POST /orders HTTP/{version}\r\nHost: shop\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: {intent}\r\nContent-Length: {len(body)}\r\nCookie: {cookie}\r\n"
    )
    return (head + ("Connection: close\r\n" if closes else "") + "\r\n").encode() + body


def result_of(answer: bytes) -> tuple[int, bool]:
    """Status, and whether it is a replay."""
    head = answer.partition(b"\r\n\r\n")[0].lower()
    return int(head.split()[1]), b"idempotent-replayed: true" in head


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("size", [10, 2 << 20], ids=["short", "2 MiB"])
def test_a_client_that_closes_gets_its_replay(site: Site, version: str, size: int) -> None:
    """The body is read to its end before anything is answered, so that nothing is reset."""
    intent = f"closes-{version}-{size}"
    for number, cut in enumerate((0, 65_536, 1_000, 300_000)):
        data = request(intent, size=size, version=version, cookie=f"session={number}")
        assert result_of(site.send(data, cut=cut if size > 1000 else 0)) == (201, number > 0)
    assert site.runs(intent) == 1


def test_half_a_body_does_not_run_and_the_retry_does(site: Site) -> None:
    """Whether the client closes its side only, or leaves."""
    for number, size in enumerate((100, 300_000, 2 << 20)):
        intent = f"half-{number}"
        whole = request(intent, size=size)
        for part in (len(whole) // 2, len(whole) - 1):
            with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE / 4) as wire:
                wire.sendall(whole[:part])
        answer = site.send(whole[: len(whole) // 2], end=True)
        assert answer == b"" or result_of(answer)[0] >= 400
        assert site.runs(intent) == 0
        assert result_of(site.send(whole)) == (201, False) and site.runs(intent) == 1


def test_requests_in_a_pipeline_are_each_answered(site: Site) -> None:
    """The same twice and another one, in one write: no body runs into the next."""
    once, other = request("pipe-1", closes=False), request("pipe-2")
    answer = site.send(once + once + other)
    assert answer.count(b"HTTP/1.1 ") in (1, 3)  # a server may close after the first
    assert site.runs("pipe-1") == 1 and site.runs("pipe-2") <= 1


def test_a_chunked_body_is_the_same_as_one_with_a_length(site: Site) -> None:
    """However it is cut. Django reads no chunked bodies under WSGI."""
    if site.framework in ("django", "drf"):
        return
    whole = request("chunked", size=5000)
    head, _, body = whole.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    head = b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n"
    for number, size in enumerate((100, 1717)):
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        chunks = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])
        assert result_of(site.send(head + chunks + b"0\r\n\r\n")) == (201, number > 0)
    assert result_of(site.send(whole)) == (201, True) and site.runs("chunked") == 1


def test_a_chunked_body_that_breaks_off_does_not_run(site: Site) -> None:
    """Its end never came."""
    head = request("broken").partition(b"\r\n\r\n")[0]
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    head = b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n"
    body = b'{"intent": "broken", "pad": ""}'
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE / 4) as wire:
        wire.sendall(head + b"%x\r\n%b\r\n" % (len(body), body))
    time.sleep(0.2)
    assert site.runs("broken") == 0


def test_continue_is_kept(site: Site) -> None:
    """A client that asks first gets 100, and an answer."""
    whole = request("continue", size=100)
    head, _, body = whole.partition(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE / 4) as wire:
        wire.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert wire.recv(1000).startswith(b"HTTP/1.1 100")
        wire.sendall(body)
        answer: Any = b"".join(iter(lambda: wire.recv(65536), b""))
    assert result_of(answer)[0] == 201 and site.runs("continue") == 1
