"""The WSGI middleware: streams, exceptions, clients that leave, and what is not its business."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dibs import Dibs, UsageError
from dibs.integrations.wsgi import DibsMiddleware, Policy
from dibs.testing import Server

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

KEY = "k-1"


@pytest.fixture
def guarded(valkey: Server) -> Iterator[Callable[..., DibsMiddleware]]:
    with Dibs(valkey.url, budget=5) as dibs:

        def around(app: Any, **options: Any) -> DibsMiddleware:
            given = {"window": 60, "after": "replay", "key": "required", **options}
            return DibsMiddleware(app, dibs=dibs, policies=[Policy("POST /orders", **given)])

        yield around


class Exchange:
    """One request, as a server makes it."""

    def __init__(self, body: bytes = b"{}", key: str = KEY, **facts: Any) -> None:
        self.environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body),
            "HTTP_IDEMPOTENCY_KEY": key, **facts,
        }  # fmt: skip
        self.status = 0
        self.headers: dict[str, str] = {}
        self.written: list[bytes] = []

    def start_response(self, status: str, headers: Any, error: Any = None) -> Any:
        self.status = int(status.split()[0])
        self.headers = {name.lower(): value for name, value in headers}
        return self.written.append

    def run(self, app: Any) -> "Exchange":
        pieces = app(self.environ, self.start_response)
        try:
            self.written += list(pieces)
        finally:
            if hasattr(pieces, "close"):
                pieces.close()
        return self

    @property
    def body(self) -> bytes:
        return b"".join(self.written)

    @property
    def is_replay(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"


def test_a_stream_passes_piece_by_piece_and_is_kept(guarded: Any, valkey: Server) -> None:
    """It is guarded until its end."""
    runs: list[int] = []

    def app(environ: Any, start_response: Any) -> Any:
        runs.append(1)
        start_response("200 OK", [("X-Own", "1")])
        yield b"one "
        yield b"two"

    app = guarded(app)
    exchange = Exchange()
    answer = app(exchange.environ, exchange.start_response)
    pieces = iter(answer)
    assert next(pieces) == b"one " and Exchange().run(app).status == 409
    assert next(pieces) == b"two" and next(pieces, None) is None
    answer.close()
    again = Exchange().run(app)
    assert again.is_replay and again.body == b"one two" and again.headers["x-own"] == "1"
    assert len(runs) == 1


def test_it_is_stored_before_the_last_piece_is_sent_under_wsgi(
    guarded: Any, valkey: Server
) -> None:
    """A client that has the whole answer can submit again and gets a correct answer."""

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Length", "4")])
        return iter([b"whole"[:4]])

    app = guarded(app)
    exchange = Exchange()
    pieces = app(exchange.environ, exchange.start_response)
    assert next(iter(pieces)) == b"whol" and Exchange().run(app).is_replay
    pieces.close()


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ({}, 200), ({"most": 4}, 409), ({"after": "hold"}, 409),
        ({"after": "hold", "on_disconnect": "release"}, 200), ({"on_disconnect": "release"}, 200),
    ],
)  # fmt: skip
def test_a_client_that_leaves_amid_a_stream_under_wsgi(
    guarded: Any, policy: Any, status: int
) -> None:
    """It is read to its end and kept, where responses are; the application's own end is called."""
    closed: list[int] = []

    class Pieces:
        def __iter__(self) -> Iterator[bytes]:
            return iter([b"one", b"two", b"three"])

        def close(self) -> None:
            closed.append(1)

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return Pieces()

    app = guarded(app, **policy)
    exchange = Exchange()
    pieces = app(exchange.environ, exchange.start_response)
    assert next(iter(pieces)) == b"one"
    pieces.close()
    again = Exchange().run(app)
    assert closed[:1] == [1] and again.status == status
    assert again.is_replay is (not policy) and (status == 409 or again.body == b"onetwothree")


@pytest.mark.parametrize("status", ["204 No Content", "200 OK"])
def test_the_work_has_ended_before_its_client_has_all(guarded: Any, status: str) -> None:
    """What comes after the last piece may be a commit: it is done before that piece is sent."""
    log: list[str] = []
    is_short = status == "200 OK"

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response(status, [("Content-Length", "4")] if is_short else [])
        yield b"done" if is_short else b""
        log.append("commit")

    app = guarded(app)
    exchange = Exchange()
    pieces = app(exchange.environ, exchange.start_response)
    next(pieces)
    assert log == ["commit"] and Exchange().run(app).is_replay
    assert list(pieces) == []
    pieces.close()


def test_a_commit_that_fails_after_the_last_piece_is_no_success(guarded: Any) -> None:
    """It is raised before the client has all, and the retry runs."""
    runs: list[int] = []

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        runs.append(1)
        start_response("200 OK", [("Content-Length", "4")])
        yield b"done"
        if len(runs) == 1:
            raise OSError("the commit failed")

    app = guarded(app)
    exchange = Exchange()
    with pytest.raises(OSError, match="commit"):
        exchange.run(app)
    again = Exchange().run(app)
    assert exchange.written == [] and again.body == b"done" and not again.is_replay
    assert Exchange().run(app).is_replay and len(runs) == 2


@pytest.mark.parametrize("when", ["at once", "amid its answer"])
def test_what_the_application_raises_is_raised_and_frees_the_key(
    guarded: Any, valkey: Server, when: str
) -> None:
    """The very same."""
    error = LookupError("of the application")

    def app(environ: Any, start_response: Any) -> Any:
        if when == "at once":
            raise error

        def pieces() -> Iterator[bytes]:
            yield b"one"
            raise error

        start_response("200 OK", [])
        return pieces()

    with pytest.raises(LookupError) as raised:
        Exchange().run(guarded(app))
    assert raised.value is error and valkey.keys() == []


def test_an_answer_that_is_begun_anew(guarded: Any) -> None:
    """With an error at hand, before anything was sent: the second beginning counts."""

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("X-First", "1")])
        start_response("409 Conflict", [("X-Second", "1")], (None, None, None))
        return [b"taken"]

    app = guarded(app)
    first, again = Exchange().run(app), Exchange().run(app)
    assert first.status == again.status == 409 and again.is_replay
    assert "x-second" in again.headers and "x-first" not in again.headers


def test_what_is_written_is_kept(guarded: Any) -> None:
    """By the old way, which start_response returns."""

    def app(environ: Any, start_response: Any) -> Any:
        write = start_response("200 OK", [])
        write(b"old ")
        return [b"way"]

    app = guarded(app)
    assert Exchange().run(app).body == Exchange().run(app).body == b"old way"


def test_the_application_reads_what_was_sent(guarded: Any) -> None:
    """Short or long, and with a length that is known, also if it came in chunks."""
    seen: list[tuple[int, str]] = []

    def app(environ: Any, start_response: Any) -> Any:
        seen.append((len(environ["wsgi.input"].read()), environ["CONTENT_LENGTH"]))
        start_response("200 OK", [])
        return []

    app = guarded(app)
    for number, size in enumerate((0, 10, 3 << 20)):
        Exchange(b"x" * size, key=f"k-{number}").run(app)
    chunked = Exchange(b"x" * 99, key="chunked", HTTP_TRANSFER_ENCODING="chunked")
    chunked.environ["wsgi.input_terminated"] = True
    del chunked.environ["CONTENT_LENGTH"]
    chunked.run(app)
    assert seen == [(0, "0"), (10, "10"), (3 << 20, str(3 << 20)), (99, "99")]


def test_a_request_without_a_policy_is_not_touched_at_all_under_wsgi(
    guarded: Any, valkey: Server
) -> None:
    """The application gets the very objects that the server made."""
    seen: list[Any] = []

    def app(environ: Any, start_response: Any) -> Any:
        seen.append((environ, environ["wsgi.input"], start_response))
        return []

    exchange = Exchange(PATH_INFO="/other")
    source = exchange.environ["wsgi.input"]
    guarded(app)(exchange.environ, exchange.start_response)
    assert seen[0][0] is exchange.environ and seen[0][1] is source and valkey.keys() == []


def test_a_method_in_lower_case_is_guarded(guarded: Any) -> None:
    """Applications read it so: "post" would be done, and pass the guard unseen."""
    runs: list[int] = []

    def app(environ: Any, start_response: Any) -> Any:
        runs.append(1)
        start_response("201 Created", [])
        return [b"done"]

    shop = guarded(app)
    assert not Exchange(REQUEST_METHOD="post").run(shop).is_replay
    assert Exchange(REQUEST_METHOD="POST").run(shop).is_replay and len(runs) == 1


def test_a_policy_of_the_middleware_needs_a_route_under_wsgi() -> None:
    """It would be for no request."""
    with pytest.raises(UsageError, match="needs a route"):
        DibsMiddleware(lambda e, s: [], dibs="redis://127.0.0.1:1", policies=[Policy(window=1)])
