"""The ASGI middleware: what it lets through, what it tells, and when a claim ends."""

import asyncio
import itertools
import math
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from dibs import AsyncDibs, Event, UsageError, claims
from dibs._http.bodies import SHORT, Spool
from dibs.integrations.asgi import DibsMiddleware, Policy, RequestBody
from dibs.testing import Server

from . import DISCONNECT, App, Call, answer, is_problem, lifespan, read

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

ROUTE = "POST /orders"
KEYED = {"idempotency-key": "k-1"}
REPLAY: dict[str, Any] = {"after": "replay", "key": "required"}


@asynccontextmanager
async def guarding(
    app: App, server: Server, *, route: str = ROUTE, user: Any = None, **policy: Any
) -> AsyncIterator[DibsMiddleware]:
    """*app* behind the middleware; budget enough for a machine that is busy."""
    policies = [Policy(route, **{"window": 60, **policy})]
    async with AsyncDibs(server.url, budget=5) as dibs:
        yield DibsMiddleware(app, dibs=dibs, policies=policies, user=user, secret="of the tests")


class Shop:
    """An application that counts what it does; told what to do, or makes an order."""

    def __init__(self, *steps: Any) -> None:
        self.runs = 0
        self.read: list[bytes] = []
        self.begun = asyncio.Event()
        self._steps = steps

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.read.append(await read(receive))
        self.runs += 1
        self.begun.set()
        step = self._steps[min(self.runs, len(self._steps)) - 1] if self._steps else answer
        await step(send)


def gated() -> tuple[asyncio.Event, Any]:
    """Work that lasts until its gate is opened."""
    gate = asyncio.Event()

    async def work(send: Any) -> None:
        await gate.wait()
        await answer(send)

    return gate, work


def started(status: int = 200, headers: Any = ()) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


# ---- a double click


@pytest.mark.parametrize("after", ["release", "hold", "replay"])
async def test_of_many_at_once_one_runs_under_asgi(valkey: Server, after: Any) -> None:
    """In one process or in two: the others are told 429, and for how long."""
    gate, work = gated()
    shop = Shop(work)
    async with (
        guarding(shop, valkey, after=after) as one,
        guarding(shop, valkey, after=after) as two,
    ):
        calls = [Call(app) for app in (one, two) * 5]
        tasks = [call.start() for call in calls]
        await shop.begun.wait()
        while sum(task.done() for task in tasks) < len(calls) - 1:
            await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(*tasks)
        refused = [call for call in calls if call.status == 429]
        assert shop.runs == 1 and len(refused) == len(calls) - 1
        for call in refused:
            assert is_problem(call.json, call.headers, 429) and call.json["state"] == "running"
            assert 1 <= call.json["retryAfter"] <= (10 if after == "release" else 60)


async def test_released_the_next_one_runs(valkey: Server) -> None:
    """With "release" nothing is left behind: the same may be submitted again at once."""
    shop = Shop()
    async with guarding(shop, valkey) as app:
        for number in (1, 2):
            call = await Call(app).run()
            assert (call.status, shop.runs, valkey.keys()) == (201, number, [])
            assert not call.is_replay


async def test_a_claim_that_was_handed_over_outlives_the_response(valkey: Server) -> None:
    """A job continues it: the end of the request does not free its key."""

    async def hand_over(send: Any) -> None:
        [claim] = claims.current_claims()
        await claim.detach(ttl=30)  # type: ignore[attr-defined]
        await answer(send)

    async with guarding(Shop(hand_over), valkey) as app:
        assert (await Call(app).run()).status == 201
        assert len(valkey.keys()) == 1
        assert (await Call(app).run()).status == 429


async def test_held_it_is_refused_for_the_rest_of_the_window(valkey: Server) -> None:
    """Retry-After is what the store says, rounded up; the message is in the body."""
    shop = Shop()
    async with guarding(shop, valkey, after="hold", message="請稍候…") as app:
        await Call(app).run()
        [key] = valkey.keys()
        call = await Call(app).run()
        left = math.ceil(valkey.client().pttl(key) / 1000)
        assert shop.runs == 1 and is_problem(call.json, call.headers, 429)
        assert call.json["retryAfter"] in (left, left + 1) and 50 < left <= 60
        assert call.json["message"] == "請稍候…" and call.json["state"] == "done"
        assert (await Call(app, body=b'{"other":1}').run()).status == 201


async def test_retry_after_is_true_under_asgi(valkey: Server) -> None:
    """Who waits as long as told gets through; who does not, does not."""
    shop = Shop()
    async with guarding(shop, valkey, after="hold", window=2) as app:
        await Call(app).run()
        refused = await Call(app).run()
        assert refused.headers["retry-after"] in ("1", "2")
        await asyncio.sleep(int(refused.headers["retry-after"]))
        assert (await Call(app).run()).status == 201 and shop.runs == 2


async def test_work_that_outlasts_the_interval_is_still_guarded(valkey: Server) -> None:
    """The claim is kept alive while it works, and gone afterwards."""
    gate, work = gated()
    shop = Shop(work)
    async with guarding(shop, valkey, window=0.3, lease=0.6) as one:
        async with guarding(shop, valkey, window=0.3, lease=0.6) as two:
            first = Call(one).start()
            await shop.begun.wait()
            await asyncio.sleep(1)
            assert (await Call(two).run()).status == 429
            gate.set()
            assert (await first).status == 201
            assert (await Call(two).run()).status == 201 and shop.runs == 2


# ---- the client's key


async def test_a_retry_gets_the_first_answer_under_asgi(valkey: Server) -> None:
    """Status, body and headers, marked; nothing of the person or the connection."""
    headers = [
        ("content-type", "text/plain"), ("location", "/orders/17"), ("set-cookie", "session=1"),
        ("connection", "close"), ("access-control-allow-origin", "*"), ("date", "now"),
        ("link", "</a>"), ("link", "</b>"), ("x-name", "caf\xe9"),
    ]  # fmt: skip

    async def work(send: Any) -> None:
        await answer(send, 202, b"\x00\xffbinary", headers)

    shop = Shop(work)
    async with guarding(shop, valkey, **REPLAY) as app:
        first = await Call(app, headers=KEYED).run()
        assert first.header_lines == headers and not first.is_replay
        again = await Call(app, headers={"idempotency-key": '"k-1"'}).run()
        assert (again.status, again.body, shop.runs) == (202, b"\x00\xffbinary", 1)
        assert again.header_lines == [
            ("content-type", "text/plain"), ("location", "/orders/17"), ("link", "</a>"),
            ("link", "</b>"), ("x-name", "caf\xe9"), ("idempotent-replayed", "true"),
            ("content-length", "8"),
        ]  # fmt: skip


async def test_the_same_key_while_the_first_is_at_work(valkey: Server) -> None:
    """409 with Retry-After; another payload is 422 already then, and later."""
    gate, work = gated()
    shop = Shop(work)
    async with guarding(shop, valkey, message="one moment", **REPLAY) as app:
        first = Call(app, headers=KEYED).start()
        await shop.begun.wait()
        running = await Call(app, headers=KEYED).run()
        assert is_problem(running.json, running.headers, 409)
        assert running.json["message"] == "one moment" and 1 <= running.json["retryAfter"] <= 10
        for _ in range(2):
            other = await Call(app, headers=KEYED, body=b'{"other":1}').run()
            assert is_problem(other.json, other.headers, 422)
            gate.set()
            await first
        assert shop.runs == 1


@pytest.mark.parametrize(
    "lines", [[], [""], ["a b"], ["a", "b"], ["a, b"], ['"a'], ["k" * 256], ["caf\xe9"]], ids=str
)
async def test_a_key_that_is_missing_or_malformed(valkey: Server, lines: list[str]) -> None:
    """400, and nothing is done or stored."""
    shop = Shop()
    async with guarding(shop, valkey, **REPLAY) as app:
        call = await Call(app, headers=[("idempotency-key", line) for line in lines]).run()
        assert is_problem(call.json, call.headers, 400)
        assert shop.runs == 0 and valkey.keys() == []


async def test_an_optional_key_counts_where_it_is_sent(valkey: Server) -> None:
    """With it, it counts; without it, the request itself does."""
    shop = Shop()
    login = {"authorization": "Bearer a"}
    async with guarding(shop, valkey, after="replay", key="optional") as app:
        for headers in (login, KEYED, {"idempotency-key": "k-2"}):
            assert not (await Call(app, headers=headers).run()).is_replay
            assert (await Call(app, headers=headers).run()).is_replay
        assert shop.runs == 3


# ---- who it is


async def test_nobody_gets_the_answer_of_somebody_else_under_asgi(valkey: Server) -> None:
    """The same key and the same body of another person is another submission."""
    people = ["Bearer a", "Bearer b", "Basic a", "Bearer 10.0.0.1", "Token session=a"]
    shop = Shop()
    async with guarding(shop, valkey, **REPLAY) as app:
        for login in people:
            headers = {**KEYED, "authorization": login}
            assert not (await Call(app, headers=headers).run()).is_replay, login
            assert (await Call(app, headers=headers).run()).is_replay, login
        assert not (await Call(app, headers=KEYED).run()).is_replay
        assert shop.runs == len(people) + 1


async def test_without_a_key_the_unknown_are_told_apart_by_all_that_is_there(
    valkey: Server,
) -> None:
    """Address, cookies, browser: a client that differs in one of them is another person."""
    people: list[tuple[str | None, dict[str, str]]] = [
        ("10.0.0.1", {"cookie": "session=a"}),
        ("10.0.0.1", {"cookie": "session=b"}),
        ("10.0.0.1", {"cookie": "session=a; lang=en"}),
        ("10.0.0.1", {"user-agent": "phone"}),
        ("10.0.0.1", {}),
        ("10.0.0.2", {}),
        (None, {}),
        ("10.0.0.3", {"cookie": "10.0.0.1"}),
        ("10.0.0.3", {"user-agent": "10.0.0.1"}),
    ]
    shop = Shop()
    async with guarding(shop, valkey, after="hold") as app:
        for client, headers in people:
            assert (await Call(app, headers=headers, client=client).run()).status == 201
            assert (await Call(app, headers=headers, client=client).run()).status == 429
        assert shop.runs == len(people)


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_application_says_who_it_is_under_asgi(valkey: Server, is_async: bool) -> None:
    """By a function of the scope, plain or async; then nothing else of the request tells."""

    def name(scope: Any) -> Any:
        return dict(scope["headers"]).get(b"x-tenant")

    async def aname(scope: Any) -> Any:
        return name(scope)

    shop = Shop()
    async with guarding(shop, valkey, user=aname if is_async else name, **REPLAY) as app:
        for number, tenant in enumerate(("a", "b"), start=1):
            for login in ("Bearer 1", "Bearer 2"):
                headers = {**KEYED, "authorization": login, "x-tenant": tenant}
                await Call(app, headers=headers).run()
            assert shop.runs == number


async def test_who_cannot_be_told_is_not_served_under_asgi(valkey: Server) -> None:
    """What the function raises is raised; nothing is done, nothing is claimed."""

    def broken(scope: Any) -> str:
        raise LookupError("no such session")

    shop = Shop()
    async with guarding(shop, valkey, user=broken) as app:
        with pytest.raises(LookupError, match="no such session"):
            await Call(app).run()
        assert shop.runs == 0 and valkey.keys() == []


async def test_what_is_stored_and_told_holds_no_personal_data(valkey: Server) -> None:
    """Keys are hashes; events have the route as it is written, never a value of the request."""
    events: list[Event] = []
    secrets = ["U4711", "Bearer", "k-1", "a@b.c", "9001", "q=private"]

    async def quiet(send: Any) -> None:
        await answer(send, body=b"ok")

    shop = Shop(quiet)
    route = "PUT /orders/{id}"
    policy = Policy(route, window=60, **REPLAY)
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        app = DibsMiddleware(shop, dibs=dibs, policies=[policy], secret="s")
        headers = {**KEYED, "authorization": "Bearer U4711"}
        for body in (b'{"mail":"a@b.c"}', b'{"mail":"a@b.c"}', b'{"mail":"other"}'):
            await Call(app, "PUT /orders/9001?q=private", headers=headers, body=body).run()
    assert {event.kind for event in events} >= {"claimed", "completed", "replayed", "mismatch"}
    assert {event.name for event in events} == {route}
    [key] = valkey.keys()
    stored = key + str(valkey.client().get(key)) + str(events)
    assert not [secret for secret in secrets if secret in stored]


# ---- what an answer leaves behind


@pytest.mark.parametrize("status", [500, 503])
async def test_a_5xx_leaves_nothing_behind(valkey: Server, status: int) -> None:
    """It reaches the client, and a retry runs; on_error="hold" keeps the key."""

    async def broken(send: Any) -> None:
        await answer(send, status)

    shop = Shop(broken, answer)
    async with guarding(shop, valkey, **REPLAY) as app:
        assert (await Call(app, headers=KEYED).run()).status == status
        assert (await Call(app, headers=KEYED).run()).status == 201
    shop = Shop(broken)
    async with guarding(shop, valkey, after="hold", on_error="hold") as app:
        await Call(app).run()
        assert (await Call(app).run()).status == 429 and shop.runs == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429])
async def test_a_4xx_frees_a_cool_down(valkey: Server, status: int) -> None:
    """The user corrects the form and sends it again, at once."""

    async def refuse(send: Any) -> None:
        await answer(send, status)

    shop = Shop(refuse, answer)
    async with guarding(shop, valkey, after="hold", on_error="hold") as app:
        assert [(await Call(app).run()).status for _ in range(3)] == [status, 201, 429]


@pytest.mark.parametrize(
    ("status", "runs"), [(402, 1), (409, 1), (410, 1), (401, 2), (403, 2), (408, 2), (429, 2)]
)
async def test_a_4xx_is_replayed_unless_it_says_log_in_or_later(
    valkey: Server, status: int, runs: int
) -> None:
    """A failed login is never what a request gets once it is logged in."""

    async def refuse(send: Any) -> None:
        await answer(send, status)

    shop = Shop(refuse)
    async with guarding(shop, valkey, **REPLAY) as app:
        await Call(app, headers=KEYED).run()
        again = await Call(app, headers=KEYED).run()
        assert (again.status, again.is_replay, shop.runs) == (status, runs == 1, runs)


async def test_what_the_application_raises_is_raised(valkey: Server) -> None:
    """The very same, and the claim is gone: also when it had begun to answer."""
    error = LookupError("of the application")

    async def at_once(send: Any) -> None:
        raise error

    async def amid(send: Any) -> None:
        await send(started())
        await send(piece(b"half"))
        raise error

    for broken in (at_once, amid):
        shop = Shop(broken, answer)
        async with guarding(shop, valkey, **REPLAY) as app:
            with pytest.raises(LookupError) as caught:
                await Call(app, headers=KEYED).run()
            assert caught.value is error and valkey.keys() == []
            assert (await Call(app, headers=KEYED).run()).status == 201
        valkey.flush()


async def test_no_answer_is_no_success(valkey: Server) -> None:
    """An application that returns without one has done nothing that counts."""

    async def silent(send: Any) -> None:
        pass

    shop = Shop(silent, answer)
    async with guarding(shop, valkey, **REPLAY) as app:
        await Call(app, headers=KEYED).run()
        assert (await Call(app, headers=KEYED).run()).status == 201 and shop.runs == 2


async def test_a_cancelled_call_leaves_nothing_behind(valkey: Server) -> None:
    """It ends as cancelled, with the work in it; the next one runs at once."""
    _, work = gated()
    shop = Shop(work, answer)
    async with guarding(shop, valkey, **REPLAY) as app:
        first = Call(app, headers=KEYED).start()
        await shop.begun.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await Call(app, headers=KEYED).run()).status == 201 and shop.runs == 2


# ---- the last piece, and what comes after it


async def test_it_is_stored_before_the_last_piece_is_sent_under_asgi(valkey: Server) -> None:
    """A client that has the whole answer gets a correct answer when it submits again."""
    retries: list[Call] = []

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.body":
            retries.append(await Call(app, headers=KEYED).run())

    shop = Shop()
    async with guarding(shop, valkey, **REPLAY) as app:
        first = await Call(app, headers=KEYED, sending=sending).run()
        assert retries[0].is_replay and retries[0].body == first.body and shop.runs == 1


async def test_what_comes_after_the_answer_is_not_part_of_the_claim(valkey: Server) -> None:
    """A background task may last, fail or be cancelled: the answer stands."""
    gate = asyncio.Event()

    async def lasting(send: Any) -> None:
        await answer(send)
        await gate.wait()
        raise LookupError("in the background")

    shop = Shop(lasting)
    async with guarding(shop, valkey, **REPLAY) as app:
        call = Call(app, headers=KEYED)
        first = call.start()
        while len(call.sent) < 2:
            await asyncio.sleep(0.01)
        assert (await Call(app, headers=KEYED).run()).is_replay, "while it lasts"
        gate.set()
        with pytest.raises(LookupError):
            await first
        assert (await Call(app, headers=KEYED).run()).is_replay, "after it failed"
        cancelled = Call(app, headers={"idempotency-key": "k-2"})
        gate.clear()
        task = cancelled.start()
        while len(cancelled.sent) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await Call(app, headers={"idempotency-key": "k-2"}).run()).is_replay
        assert shop.runs == 2


# ---- streams


async def test_a_stream_passes_piece_by_piece(valkey: Server) -> None:
    """The client has the first piece before the second is made; a short one is kept."""
    turn = asyncio.Event()

    async def streaming(send: Any) -> None:
        await send(started())
        await send(piece(b"one "))
        await turn.wait()
        await send(piece(b"two"))
        await send(piece(b"", more=False))

    shop = Shop(streaming)
    async with guarding(shop, valkey, **REPLAY) as app:
        call = Call(app, headers=KEYED)
        first = call.start()
        while call.sent[-1:] != [piece(b"one ")]:
            await asyncio.sleep(0.01)
        turn.set()
        await first
        assert call.sent[1:] == [piece(b"one "), piece(b"two"), piece(b"", more=False)]
        again = await Call(app, headers=KEYED).run()
        assert again.is_replay and again.body == b"one two" and shop.runs == 1


async def test_what_is_too_long_to_be_kept_is_not_done_again_under_asgi(valkey: Server) -> None:
    """It reaches the client whole; a retry learns that it was done."""

    async def long(send: Any) -> None:
        await send(started())
        for _ in range(5):
            await send(piece(b"x" * 1000))
        await send(piece(b"", more=False))

    shop = Shop(long)
    async with guarding(shop, valkey, most=4000, **REPLAY) as app:
        assert len((await Call(app, headers=KEYED).run()).body) == 5000
        again = await Call(app, headers=KEYED).run()
        assert is_problem(again.json, again.headers, 409)
        assert again.json["type"] == "urn:dibs:already-done" and shop.runs == 1
        [key] = valkey.keys()
        assert valkey.client().strlen(key) < 200, "what stays is a note"


@pytest.mark.parametrize(
    "last",
    [
        {"type": "http.response.pathsend", "path": "/etc/hostname"},
        {"type": "http.response.zerocopysend", "file": 7},
    ],
    ids=["pathsend", "zerocopysend"],
)
async def test_an_answer_that_does_not_pass_here_is_not_done_again(
    valkey: Server, last: dict[str, Any]
) -> None:
    """A file that the server sends itself: it passes, and leaves a note."""

    async def file(send: Any) -> None:
        await send(started())
        await send(last)

    shop = Shop(file)
    async with guarding(shop, valkey, **REPLAY) as app:
        first = await Call(app, headers=KEYED).run()
        assert first.sent == [started(), last]
        assert (await Call(app, headers=KEYED).run()).status == 409 and shop.runs == 1


async def test_trailers_and_hints_pass(valkey: Server) -> None:
    """What is beside the answer is passed on in its place; a retry promises no trailers."""
    hint = {"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload"]}
    trailers = {"type": "http.response.trailers", "headers": [(b"x-sum", b"1")]}
    head = started(200, [(b"trailer", b"x-sum")])

    async def work(send: Any) -> None:
        for message in (hint, {**head, "trailers": True}, piece(b"ok", more=False), trailers):
            await send(message)

    shop = Shop(work)
    async with guarding(shop, valkey, **REPLAY) as app:
        first = await Call(app, headers=KEYED).run()
        assert first.sent == [hint, {**head, "trailers": True}, piece(b"ok", more=False), trailers]
        again = await Call(app, headers=KEYED).run()
        assert again.is_replay and again.body == b"ok" and "trailer" not in again.headers
        assert "trailers" not in again.sent[0]


# ---- a client that leaves


async def test_a_client_that_leaves_does_not_stop_the_work(valkey: Server) -> None:
    """It is done to its end and kept: the retry gets the answer."""
    gate, work = gated()
    shop = Shop(work)
    async with guarding(shop, valkey, **REPLAY) as app:
        call = Call(app, headers=KEYED)
        first = call.start()
        await shop.begun.wait()
        call.leave()
        await asyncio.sleep(0.05)
        gate.set()
        await first
        assert (await Call(app, headers=KEYED).run()).is_replay and shop.runs == 1


async def test_an_answer_to_nobody_is_kept(valkey: Server) -> None:
    """On a server whose send() fails when the client has left: the retry gets the answer."""

    async def gone(message: Any) -> None:
        raise BrokenPipeError("the client has left")

    shop = Shop()
    async with guarding(shop, valkey, **REPLAY) as app:
        with pytest.raises(BrokenPipeError):
            await Call(app, headers=KEYED, sending=gone).run()
        again = await Call(app, headers=KEYED).run()
        assert again.is_replay and again.status == 201 and shop.runs == 1


def leaving_at_two() -> Any:
    async def leaving(message: Any) -> None:
        if message.get("body") == b"two":
            raise ConnectionResetError("the client has left")

    return leaving


def three_pieces(raised: list[BaseException]) -> Any:
    async def streaming(send: Any) -> None:
        await send(started())
        try:
            for body in (b"one", b"two", b"three"):
                await send(piece(body))
            await send(piece(b"", more=False))
        except OSError as error:
            raised.append(error)
            raise

    return streaming


async def test_a_stream_that_its_client_leaves_is_kept_under_asgi(valkey: Server) -> None:
    """It is read to its end: the retry gets the whole of it, and the work is done once."""
    raised: list[BaseException] = []
    shop = Shop(three_pieces(raised))
    async with guarding(shop, valkey, **REPLAY) as app:
        await Call(app, headers=KEYED, sending=leaving_at_two()).run()
        again = await Call(app, headers=KEYED).run()
        assert again.is_replay and again.body == b"onetwothree" and shop.runs == 1 and not raised


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ({"window": 60, "after": "hold"}, 429),
        ({**REPLAY, "most": 4}, 409),
        ({"window": 60, "after": "release"}, 200),
        ({"window": 60, "after": "hold", "on_disconnect": "release"}, 200),
        ({**REPLAY, "on_disconnect": "release"}, 200),
        ({**REPLAY, "on_disconnect": "release", "on_error": "hold"}, 409),
    ],
)
async def test_a_stream_that_is_not_kept_ends_with_its_client(
    valkey: Server, policy: Any, status: int
) -> None:
    """The application gets the error. What it has done counts, unless the policy says otherwise."""
    raised: list[BaseException] = []
    shop = Shop(three_pieces(raised))
    headers = KEYED if policy.get("key") else {}
    async with guarding(shop, valkey, **policy) as app:
        with pytest.raises(ConnectionResetError):
            await Call(app, headers=headers, sending=leaving_at_two()).run()
        again = await Call(app, headers=headers).run()
        assert (
            again.status == status and len(raised) == 1 and shop.runs == (2 if status == 200 else 1)
        )
        if status == 409:
            assert again.json["type"] == "urn:dibs:already-done"


@pytest.mark.parametrize("kind", ["kept", "too long", "released"])
async def test_an_application_learns_that_nobody_waits_if_nothing_is_kept(
    valkey: Server, kind: str
) -> None:
    """One that listens for its client, as Starlette does for a stream, is not stopped by that."""
    policy = {**REPLAY, "most": 4} if kind == "too long" else dict(REPLAY)
    if kind == "released":
        policy["on_disconnect"] = "release"
    ended: list[str] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await send(started())
        await send(piece(b"one"))

        async def rest() -> None:
            for _ in range(5):
                await asyncio.sleep(0.01)
                await send(piece(b"two"))
            await send(piece(b"", more=False))

        listener, sender = asyncio.ensure_future(receive()), asyncio.ensure_future(rest())
        await asyncio.wait((listener, sender), return_when=asyncio.FIRST_COMPLETED)
        ended.append("sent" if sender.done() else "left")
        for each in (listener, sender):
            each.cancel()
            await asyncio.wait([each])

    async with guarding(listening, valkey, **policy) as app:
        call = Call(app, headers=KEYED)
        call.leave_after_body()
        await call.run()
        assert ended == ["sent" if kind == "kept" else "left"]
        again = Call(app, headers=KEYED)
        again.leave_after_body()
        await again.run()
        assert again.is_replay is (kind == "kept")


async def test_an_application_that_stops_amid_its_answer(valkey: Server) -> None:
    """As frameworks do when a stream's client has left: they return, and it is not done again."""

    async def stopping(send: Any) -> None:
        await send(started())
        await send(piece(b"one"))

    shop = Shop(stopping)
    async with guarding(shop, valkey, **REPLAY) as app:
        await Call(app, headers=KEYED).run()
        assert (await Call(app, headers=KEYED).run()).status == 409 and shop.runs == 1


async def test_the_application_is_told_the_truth_about_its_client(valkey: Server) -> None:
    """After the body, receive() waits until the client has really left."""
    received: list[str] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        listener = asyncio.ensure_future(receive())
        await asyncio.sleep(0.05)
        received.append("waits" if not listener.done() else "lied to")
        call.leave()
        received.append((await listener)["type"])
        await answer(send)

    async with guarding(listening, valkey) as app:
        call = Call(app)
        await call.run()
        assert received == ["waits", DISCONNECT["type"]]


async def test_a_request_that_breaks_off_is_not_done_under_asgi(valkey: Server) -> None:
    """What it was cannot be known, so nothing is done and nothing stays; the whole one runs."""
    runs: list[str] = []

    async def careless(scope: Any, receive: Any, send: Any) -> None:
        runs.append("done")  # it does not even look at the body
        await answer(send)

    async with guarding(careless, valkey, **REPLAY) as app:
        call = Call(app, headers=KEYED, body=[b'{"tea":', b""])
        call._inbox.pop()
        task = call.start()
        await asyncio.sleep(0.05)
        call.leave()
        await task
        assert runs == [] and call.sent == [] and valkey.keys() == []
        assert (await Call(app, headers=KEYED, body=b'{"tea":1}').run()).status == 201


# ---- the request's body


@pytest.mark.parametrize(
    "pieces",
    [
        [b"%06d" % number * 1000 for number in range(500)],
        [b"0123456789" * 12] * 10_000,
        [b"x" * 3_000_000],
        [b"", b"a", b"", b"b", b""],
    ],
    ids=["3 MB in 500 pieces", "1 MB in 10000 pieces", "3 MB in one", "empty ones"],
)
async def test_a_body_arrives_whole_and_in_order(valkey: Server, pieces: list[bytes]) -> None:
    """However long it is and however it was cut; and it is guarded all the same."""
    shop = Shop()
    async with guarding(shop, valkey, **REPLAY) as app:
        headers = {**KEYED, "content-length": str(sum(map(len, pieces)))}
        await Call(app, headers=headers, body=pieces).run()
        assert shop.read == [b"".join(pieces)]
        assert (await Call(app, headers=headers, body=pieces).run()).is_replay
        other = [b"other", *pieces]
        assert (await Call(app, headers=headers, body=other).run()).status == 422


@pytest.mark.parametrize("before", [0, SHORT])
async def test_a_body_in_tiny_pieces_costs_no_more_than_its_bytes(before: int) -> None:
    """A client decides how its body is cut: a byte at a time must not fill the memory."""
    count = 20_000
    pieces = itertools.chain([b"x" * before], itertools.repeat(b"x", count))
    coming = ({"type": "http.request", "body": each, "more_body": True} for each in pieces)

    async def receive() -> Any:
        return next(coming, {"type": "http.request", "body": b""})

    body = RequestBody(receive, Spool(1 << 30))
    policy = Policy("POST /orders", window=1, body_limit=1 << 30)
    tracemalloc.start()
    try:
        assert await body.read({}, policy) is None
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 8 * count
    assert await read(body.receive) == b"x" * (before + count)


async def test_an_upload_is_the_same_when_it_is_sent_twice(valkey: Server) -> None:
    """A form with a file of any size, whose boundary is another one each time: one runs."""
    for size in (10, 2_000_000):
        shop = Shop()
        async with guarding(shop, valkey, after="hold") as app:
            for boundary in ("first-boundary", "other-boundary"):
                head = f'--{boundary}\r\nContent-Disposition: form-data; name="f"; filename="a"'
                body = head.encode() + b"\r\n\r\n" + b"0" * size + f"\r\n--{boundary}--".encode()
                kind = f"multipart/form-data; boundary={boundary}"
                headers = {"content-type": kind, "content-length": str(len(body))}
                call = await Call(app, headers=headers, body=[body[:70], body[70:]]).run()
            assert call.status == 429 and shop.runs == 1
        valkey.flush()


# ---- what is not its business


async def test_a_request_without_a_policy_is_not_touched_at_all_under_asgi(valkey: Server) -> None:
    """The application gets the very objects that the server made."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    async def receive() -> Any: ...
    async def send(message: Any) -> None: ...

    async with guarding(app, valkey, route="* /orders/*") as guarded:
        for scope in (
            {"type": "http", "method": "GET", "path": "/orders/1"},
            {"type": "http", "method": "POST", "path": "/other"},
            {"type": "websocket", "path": "/orders/1"},
            {"type": "lifespan"},
        ):
            before = dict(scope)
            await guarded(scope, receive, send)
            assert all(
                one is other for one, other in zip(seen[-1], (scope, receive, send), strict=True)
            )
            assert scope == before
    assert valkey.keys() == []


# ---- outages


@pytest.mark.parametrize("how", ["frozen", "gone"])
async def test_in_an_outage_the_policy_decides_under_asgi(own_server: Server, how: str) -> None:
    """Open: it runs, unguarded. Closed: 503 with Retry-After, and nothing is done."""
    open_shop, closed_shop = Shop(), Shop()

    def policies(on_outage: Any) -> list[Policy]:
        return [Policy(ROUTE, window=60, on_outage=on_outage, after="replay", key="only")]

    async with AsyncDibs(own_server.url, budget=1) as dibs:
        is_open = DibsMiddleware(open_shop, dibs=dibs, policies=policies("open"))
        is_closed = DibsMiddleware(closed_shop, dibs=dibs, policies=policies("closed"))
        await Call(is_open, headers={"idempotency-key": "warm"}).run()
        own_server.freeze() if how == "frozen" else own_server.kill()
        async with asyncio.timeout(10):
            for number in (2, 3):
                assert (await Call(is_open, headers=KEYED).run()).status == 201
                assert open_shop.runs == number
                refused = await Call(is_closed, headers=KEYED).run()
                assert is_problem(refused.json, refused.headers, 503)
                assert refused.headers["retry-after"] == "1" and closed_shop.runs == 0
        own_server.thaw() if how == "frozen" else own_server.restart()
        async with asyncio.timeout(20):
            while not (await Call(is_closed, headers=KEYED).run()).is_replay:
                await asyncio.sleep(0.05)
        assert closed_shop.runs == 1


async def test_an_outage_midway_does_not_keep_the_answer_back(own_server: Server) -> None:
    """The work is done: its answer is sent, though it cannot be kept."""
    gate, work = gated()
    shop = Shop(work)
    async with AsyncDibs(own_server.url, budget=0.3) as dibs:
        app = DibsMiddleware(shop, dibs=dibs, policies=[Policy(ROUTE, window=60, **REPLAY)])
        first = Call(app, headers=KEYED).start()
        await shop.begun.wait()
        own_server.freeze()
        gate.set()
        async with asyncio.timeout(10):
            assert (await first).status == 201
        own_server.thaw()


# ---- beginning and end


async def living(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        return await answer(send)
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return None


async def test_a_url_is_opened_and_closed_with_the_application(valkey: Server) -> None:
    """Closed before the server gets the end; and the application may live again."""
    app = DibsMiddleware(living, dibs=valkey.url, policies=[Policy(ROUTE, window=60, **REPLAY)])
    for _ in range(2):
        tell = lifespan(app)
        assert await tell("lifespan.startup") == "lifespan.startup.complete"
        assert await is_guarded(app)
        clients = valkey.client().info("clients")["connected_clients"]
        assert await tell("lifespan.shutdown") == "lifespan.shutdown.complete"
        assert valkey.client().info("clients")["connected_clients"] < clients


async def is_guarded(app: App) -> bool:
    """True within a while: the budget of a URL is short, and the machine may be busy."""
    async with asyncio.timeout(20):
        while True:
            headers = {"idempotency-key": uuid4().hex}
            calls = [await Call(app, headers=headers).run() for _ in range(2)]
            if calls[1].is_replay:
                return calls[0].status == 201 and not calls[0].is_replay


@pytest.mark.parametrize("ending", ["raises", "returns"])
async def test_an_application_without_a_lifespan_is_guarded(valkey: Server, ending: str) -> None:
    """It raises or returns when it is asked; servers go on, and so does the guard."""

    async def without(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            return await answer(send)
        if ending == "raises":
            raise ValueError("no lifespan here")
        return None

    app = DibsMiddleware(without, dibs=valkey.url, policies=[Policy(ROUTE, window=60, **REPLAY)])
    try:
        await app({"type": "lifespan"}, asyncio.Queue().get, asyncio.Queue().put)
    except ValueError:
        assert ending == "raises"
    assert await is_guarded(app)
    await app._dibs.aclose()


def test_a_policy_of_the_middleware_needs_a_route_under_asgi() -> None:
    """UsageError, when the application is made."""
    with pytest.raises(UsageError, match="needs a route"):
        DibsMiddleware(living, dibs="redis://localhost", policies=[Policy(window=1)])


async def test_whoever_writes_to_the_store_writes_no_headers(valkey: Server) -> None:
    """A kept answer with a line break in a header is not given; it was done, and that is said."""

    async def work(send: Any) -> None:
        await answer(send, headers=[("x-a", "harmless")])

    shop = Shop(work)
    async with guarding(shop, valkey, **REPLAY) as app:
        await Call(app, headers=KEYED).run()
        [key] = valkey.keys()
        stored = valkey.client().get(key)
        assert isinstance(stored, bytes) and b"harmless" in stored
        valkey.client().set(
            key, stored.replace(b"harmless", rb"x\r\nset-cookie: a=b"), keepttl=True
        )
        again = await Call(app, headers=KEYED).run()
        assert again.status == 409 and "set-cookie" not in str(again.sent) and shop.runs == 1
