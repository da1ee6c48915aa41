"""The torture suite sees what it says: a faithful middleware passes, and every flaw is found."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import functools
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from dibs import AsyncDibs, UsageError
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.testing import Server
from dibs.testing.torture import CASES, Adapter, App, Case, Report, Wrap, torture
from dibs.testing.torture.__main__ import main
from dibs.testing.torture.asgi import Headers, Message, Receive, Scope, Send
from dibs.testing.torture.subjects import Subject, stored_in

LIMIT = 64 * 1024
BUDGET = 2.0
SMALL = Adapter(big=2 * LIMIT, oversized=2 * LIMIT, within=20, also_guarded="POST /guarded/also")
PERSONAL = {b"set-cookie", b"connection", b"keep-alive", b"date"}
PERSONAL |= {b"proxy-authenticate", b"www-authenticate"}
PERSONAL |= {b"x-request-id", b"x-correlation-id", b"traceparent"}
NAMES = {case.name for case in CASES}
STORES = {"store", "shared store", "contents", "lease", "other service"}
OUTAGES = {case.name for case in CASES if STORES & set(case.needs)}
OPTIONAL = {"keyless_runs", "keyless_is_guarded"}


# ------------------------------------------------------------- a middleware that keeps them all


@dataclass
class Record:
    """What is known of a key; without an answer, it is still running."""

    payload: bytes
    answer: tuple[int, Headers, bytes | None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Faithful:
    """Guards POST /guarded and all below it, in the memory of one process."""

    def __init__(
        self, app: App, *, after: str = "replay", keyed: bool = True, waits: bool = False
    ) -> None:
        self.app = app
        self.after = after
        self.keyed = keyed
        self.waits = waits
        self.records: dict[bytes, Record] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.guards(scope):
            return await self.app(scope, receive, send)
        keys = [value for name, value in scope["headers"] if name == b"idempotency-key"]
        if self.keyed and not self.fits(keys):
            return await refuse(send, 400)
        body, receive = await self.read(receive)
        if body is None:
            return await self.app(scope, receive, send)
        payload = self.payload(scope, body)
        key = self.who(scope) + (self.bare(keys[0]) if self.keyed else payload)
        if record := self.records.get(key):
            return await self.duplicate(record, payload, scope, send)
        return await self.run(key, payload, scope, receive, send)

    def guards(self, scope: Scope) -> bool:
        """Whether it is a POST below /guarded, as the application sees its path."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return False
        return scope["path"].removeprefix(scope["root_path"]).startswith("/guarded")

    def who(self, scope: Scope) -> bytes:
        """Who submits, and where to; without a name and a key, whatever tells people apart."""
        heads = dict(scope["headers"])
        who = heads.get(b"authorization", b"")
        if not self.keyed and not who:
            who = f"{scope['client'][0]} ".encode() + heads.get(b"cookie", b"")
        return b"%b %b " % (scope["path"].encode(), who)

    def payload(self, scope: Scope, body: bytes) -> bytes:
        """Everything that is submitted: the query, what kind of body it is, and the body."""
        kind = dict(scope["headers"]).get(b"content-type", b"")
        return b"%b %b %b" % (scope["query_string"], kind, body)

    def fits(self, keys: list[bytes]) -> bool:
        """Whether there is one key, of a decent length, of visible characters."""
        key = self.bare(keys[0]) if len(keys) == 1 else b""
        return 0 < len(key) <= 255 and all(32 < byte < 127 and byte != 34 for byte in key)

    def bare(self, key: bytes) -> bytes:
        """The key without its quotes."""
        quoted = len(key) > 1 and key[:1] == key[-1:] == b'"'
        return key[1:-1] if quoted else key

    async def read(self, receive: Receive) -> tuple[bytes | None, Receive]:
        """The whole body, and a receive that starts over and then goes on."""
        messages: list[Message] = []
        while not messages or messages[-1].get("more_body"):
            messages.append(await receive())
        gone = messages[-1]["type"] == "http.disconnect"
        body = None if gone else b"".join(message["body"] for message in messages)

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        return body, again

    async def run(
        self, key: bytes, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the app do the work, and remember what came of it."""
        record = self.records[key] = Record(body)

        async def whole(*answer: Any) -> None:
            await asyncio.sleep(0)  # as if the store were far away
            self.settle(key, record, *answer)

        try:
            await asyncio.sleep(0)
            await self.app(scope, receive, Recorder(send, whole).send)
        finally:
            if record.answer is None:
                self.forget(key, record)

    def settle(
        self, key: bytes, record: Record, status: int, headers: Headers, body: bytes | None
    ) -> None:
        """The answer is whole, and about to be sent."""
        if status >= 500 or status == 404 or self.after == "release":
            return self.forget(key, record)
        record.answer = status, self.kept(headers), body
        return record.ended.set()

    def kept(self, headers: Headers) -> Headers:
        """The headers that a replay may have."""
        return [(name, value) for name, value in headers if name not in PERSONAL]

    def forget(self, key: bytes, record: Record) -> None:
        """Nothing came of it that must be remembered."""
        if self.records.get(key) is record:
            del self.records[key]
        record.ended.set()

    async def duplicate(self, record: Record, body: bytes, scope: Scope, send: Send) -> None:
        """Answer in place of the app."""
        if record.payload != body:
            return await refuse(send, 422)
        if self.waits:
            await record.ended.wait()
        if record.answer is None or self.after != "replay" or record.answer[2] is None:
            return await refuse(send, 409)
        status, headers, stored = record.answer
        packed = (b"content-encoding", b"gzip") in headers
        if packed and b"gzip" not in dict(scope["headers"]).get(b"accept-encoding", b""):
            return await refuse(send, 409)
        mark = (b"idempotent-replayed", b"true")
        await send({"type": "http.response.start", "status": status, "headers": [*headers, mark]})
        return await send({"type": "http.response.body", "body": stored})


class Recorder:
    """Passes an answer on frame by frame, and tells when it is whole, before its last frame."""

    def __init__(self, send: Send, whole: Callable[..., Awaitable[None]]) -> None:
        self._send = send
        self._whole = whole
        self._head: Message = {}
        self._body = b""
        self._storable = True

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._head = message
        self._body += message.get("body", b"")
        self._storable &= kind != "http.response.pathsend" and len(self._body) <= LIMIT
        last = kind in ("http.response.body", "http.response.pathsend")
        if last and not message.get("more_body"):
            body = self._body if self._storable else None
            await self._whole(self._head["status"], list(self._head["headers"]), body)
        try:
            await self._send(message)
        except OSError:
            if kind != "http.response.start":  # the rest may still come, and be stored
                raise


async def refuse(send: Send, status: int) -> None:
    headers = [(b"content-type", b"text/plain"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"refused"})


# ----------------------------------------------------------------------------- … and its flaws


class Late(Faithful):
    """Remembers an answer when the app has returned."""

    async def run(
        self, key: bytes, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        record, answers = Record(body), list[Any]()
        self.records[key] = record

        async def whole(*answer: Any) -> None:
            answers.append(answer)

        try:
            await self.app(scope, receive, Recorder(send, whole).send)
        except BaseException:
            self.forget(key, record)
            raise
        self.settle(key, record, *answers[0]) if answers else self.forget(key, record)


class Forgetful(Faithful):
    """Does not know that a cancellation is no Exception."""

    def forget(self, key: bytes, record: Record) -> None:
        if not isinstance(sys.exception(), asyncio.CancelledError):
            super().forget(key, record)


class Nervous(Faithful):
    """Gives the key back whoever asks for it."""

    async def duplicate(self, record: Record, body: bytes, scope: Scope, send: Send) -> None:
        await super().duplicate(record, body, scope, send)
        self.records.clear()


class Blind(Faithful):
    """Does not look at the payload."""

    async def duplicate(self, record: Record, body: bytes, scope: Scope, send: Send) -> None:
        await super().duplicate(record, record.payload, scope, send)


class Impatient(Faithful):
    """Answers a duplicate before it has read what is submitted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.guards(scope):
            keys = [value for name, value in scope["headers"] if name == b"idempotency-key"]
            record = self.records.get(self.who(scope) + self.bare((keys or [b""])[0]))
            if record is not None and record.answer is not None:
                return await self.duplicate(record, record.payload, scope, send)
        return await super().__call__(scope, receive, send)


class Parrot(Faithful):
    """Repeats every header."""

    def kept(self, headers: Headers) -> Headers:
        return headers


class Careless(Faithful):
    """Takes the first line of the header for the key, whatever it is."""

    def fits(self, keys: list[bytes]) -> bool:
        return bool(keys)

    def bare(self, key: bytes) -> bytes:
        return key


async def greedy(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Collects the body of every request, and says afterwards that the client has left."""
    if scope["type"] != "http":
        return await app(scope, receive, send)
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())

    async def again() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    return await app(scope, again, send)


async def hoarding(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends every answer when the app has returned."""
    if scope["type"] != "http":
        return await app(scope, receive, send)
    messages: list[Message] = []

    async def later(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, later)
    for message in messages:
        await send(message)
    return None


async def soothing(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Keeps the app's exceptions to itself."""
    try:
        await app(scope, receive, send)
    except Exception:
        return


async def numb(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Does not tell the app that nobody listens any more."""

    async def anyway(message: Message) -> None:
        try:
            await send(message)
        except OSError:
            return

    await app(scope, receive, anyway)


async def aloof(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Runs the app in a task that knows nothing of its caller, and outlives it."""
    work = app(scope, receive, send)
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())  # type: ignore[arg-type]
    await asyncio.shield(task)


async def narrow(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Knows HTTP and nothing else."""
    if scope["type"] == "http":
        await app(scope, receive, send)


async def tidy(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Hands on only what it knows."""
    if scope["type"] != "http":
        return await app(scope, receive, send)
    kept = {name: value for name, value in scope.items() if "." not in name}
    return await app(kept | {"state": dict(scope["state"])}, receive, send)


async def hasty(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Stops the app when the client has left."""
    if scope["type"] != "http" or scope["path"] != "/guarded":
        return await app(scope, receive, send)
    work = asyncio.ensure_future(app(scope, receive, send))
    client = asyncio.ensure_future(receive_until_gone(receive))
    try:
        await asyncio.wait([work, client], return_when=asyncio.FIRST_COMPLETED)
    finally:
        client.cancel()
        work.cancel()
        await asyncio.wait([client, work])
    return await work


async def receive_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def around(layer: Callable[[App, Scope, Receive, Send], Any]) -> Wrap:
    return lambda app: functools.partial(layer, Faithful(app))


BACKGROUND = {"background_task_fails", "background_task_lasts", "background_task_cancelled"}
LEAVING = {"client_leaves", "client_leaves_and_sending_fails"}
STREAMS = {"stream_is_live", "stream_retried", "stream_left", "endless_stream_left"}
PAYLOADS = {"other_payload", "other_query", "payloads_that_begin_alike", "other_file"}
PAYLOADS |= {"json_is_no_form", "big_body_with_another_end"}
FLAWS: dict[str, tuple[Wrap, set[str]]] = {
    "late": (
        Late,
        {*BACKGROUND, "stored_before_the_last_byte", "client_leaves_and_sending_fails"}
        | {"cancelled_at_any_moment"},
    ),
    "forgetful": (Forgetful, {"handler_cancelled", "cancelled_at_any_moment", "deadline_outside"}),
    "nervous": (
        Nervous,
        {"duplicates_at_once", "duplicates_while_running", "duplicate_cancelled"}
        | {"client_error", "replay_lasts", "other_payload", "cookies_change"}
        | {"big_body_cut_otherwise", "other_user"},
    ),
    "blind": (Blind, PAYLOADS),
    "impatient": (Impatient, {*PAYLOADS, "body_of_a_duplicate_is_read"}),
    "parrot": (Parrot, {"replay_drops_the_personal", "replay_has_no_trace_of_the_first"}),
    "careless": (Careless, {"empty_key", "two_keys", "quoted_key", "long_key", "odd_key"}),
    "greedy": (
        around(greedy),
        {"disconnect_is_true", "disconnect_is_true_elsewhere", "receive_is_cancelled"}
        | {"watcher_beside_the_answer", "unguarded_upload"},
    ),
    "hoarding": (around(hoarding), {*BACKGROUND, *STREAMS, "head_is_live", "unguarded_stream"}),
    "soothing": (around(soothing), {"handler_raises", "head_then_raises", "body_breaks_off"}),
    "numb": (around(numb), {"endless_stream_left"}),
    "aloof": (
        around(aloof),
        {"handler_cancelled", "deadline_outside", "background_task_cancelled"}
        | {"context_reaches_the_app"},
    ),
    "narrow": (around(narrow), {"websocket", "lifespan", "failed_startup"}),
    "tidy": (around(tidy), {"scope_is_kept"}),
    "hasty": (
        around(hasty),
        {*LEAVING, "stream_left", "watcher_beside_the_answer"},
    ),
}
HARMLESS_WITHOUT_A_GUARD = {
    *("handler_cancelled", "deadline_outside", "deadline_inside", "handler_raises"),
    *("server_error", "client_error", "no_answer", "head_then_raises", "body_breaks_off"),
    *("answer_is_untouched", "head_is_live", "stream_is_live", "endless_stream_left"),
    *("oversized_answer", "disconnect_is_true", "disconnect_is_true_elsewhere"),
    *("receive_is_cancelled", "watcher_beside_the_answer", "upload_breaks_off", "big_body"),
    *("other_user_while_running", "other_path", "other_query", "not_found_is_no_result"),
    *("payloads_that_begin_alike", "other_file", "json_is_no_form", "unknown_client"),
    *("other_methods", "open_route", "unguarded_post", "unguarded_upload", "unguarded_stream"),
    *("websocket", "lifespan", "failed_startup", "scope_is_kept", "context_reaches_the_app"),
}


def tortured(wrap: Wrap, adapter: Adapter = SMALL, cases: Sequence[Case] = CASES) -> Report:
    """In a loop without asyncio's debugging, which makes it twenty times as long."""
    return asyncio.run(torture(wrap, adapter=adapter, cases=cases))


def failed(report: Report) -> set[str]:
    return {verdict.case for verdict in report.failed}


def test_a_faithful_middleware_keeps_every_promise() -> None:
    """All cases can be passed at once, and only those that need a store do not apply."""
    report = tortured(Faithful)
    assert not report.failed, report
    assert {verdict.case for verdict in report.not_applicable} == OUTAGES | OPTIONAL


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found_where_it_is(flaw: str) -> None:
    """Each flaw breaks the promises that it touches, and no other."""
    wrap, broken = FLAWS[flaw]
    sound = [case for case in CASES if case.name not in broken]
    assert failed(tortured(wrap, SMALL, sound)) == set()
    # What is bound to fail need not be waited for.
    hurried = dataclasses.replace(SMALL, within=0.3)
    ill = [case for case in CASES if case.name in broken]
    assert failed(tortured(wrap, hurried, ill)) == broken


def test_no_guard_at_all_is_found() -> None:
    """An app without a middleware breaks whatever a middleware is for, and nothing else."""
    assert failed(tortured(bare)) == NAMES - HARMLESS_WITHOUT_A_GUARD - OUTAGES - OPTIONAL


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("after", ["replay", "hold", "release"])
def test_a_guard_of_any_kind_can_pass(after: Any, keyed: bool, waits: bool) -> None:
    """A guard without keys, without replays or without a memory is asked what makes sense."""
    header = "Idempotency-Key" if keyed else None
    adapter = dataclasses.replace(SMALL, after=after, header=header, waits=waits)
    report = tortured(
        lambda app: Faithful(app, after=after, keyed=keyed, waits=waits), adapter=adapter
    )
    assert not report.failed, report
    assert len(report.passed) >= 30


def test_what_does_not_apply_says_why() -> None:
    """A case is not tried if its need is not met, or if the adapter exempts it; both say why."""
    adapter = Adapter(after="hold", on_error="hold", exempt={"big_body": "bodies are small here"})
    report = tortured(lambda app: Faithful(app, after="hold"), adapter)
    reasons = {verdict.case: verdict.seen for verdict in report.not_applicable}
    assert reasons["replay_of_json"] == "it does not replay"
    assert reasons["handler_raises"] == "a failure keeps the key"
    assert reasons["big_body"] == "bodies are small here"
    assert reasons["store_hangs"] == "no store to stop was given"


async def test_a_task_left_behind_breaks_the_promise() -> None:
    """Whatever a middleware starts must end with it; the suite ends it, and tells."""

    async def littering(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        if scope["type"] == "http":
            litter.append(asyncio.ensure_future(asyncio.Event().wait()))

    litter: list[Any] = []
    report = await torture(around(littering), cases=[named("open_route"), named("websocket")])
    assert [verdict.outcome for verdict in report.verdicts] == ["failed", "passed"]
    assert "tasks were left behind: Event.wait" in report.failed[0].seen
    assert all(task.cancelled() for task in litter)


async def test_a_middleware_that_cannot_be_put_on_fails() -> None:
    """What `wrap` raises is a verdict, not a crash of the suite."""

    def wrap(app: App) -> App:
        raise RuntimeError("no such option")

    verdict = await named("open_route").check(wrap)
    assert verdict.failed
    assert "no such option" in verdict.seen


async def test_a_server_out_of_order_is_noticed() -> None:
    """A middleware that sends frames where a server would refuse them breaks a promise."""

    async def twice(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        if scope["type"] == "http":
            with contextlib.suppress(RuntimeError):
                await refuse(send, 500)

    verdict = await named("open_route").check(around(twice), adapter=SMALL)
    assert verdict.failed
    assert verdict.seen == "http.response.start was sent after the end of the answer"


async def test_hooks_and_lifespan_frame_each_case() -> None:
    """The order is: startup hook, wrap, lifespan; the case; lifespan, shutdown hook."""
    log: list[str] = []

    async def startup() -> None:
        log.append("startup hook")

    async def shutdown() -> None:
        log.append("shutdown hook")

    async def watching(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        log.append(f"{scope['type']} begins")
        await app(scope, receive, send)
        log.append(f"{scope['type']} ends")

    adapter = Adapter(startup=startup, shutdown=shutdown)
    verdict = await named("handler_raises").check(around(watching), adapter=adapter)
    assert not verdict.failed
    assert log[:3] == ["startup hook", "lifespan begins", "http begins"]
    assert log[-2:] == ["lifespan ends", "shutdown hook"]


@pytest.mark.parametrize(
    "options",
    [
        {"guarded": "/guarded"},
        {"also_guarded": "guarded"},
        {"keyless": "pass"},
        {"lease": 0},
        {"open": "get /"},
        {"after": "keep"},
        {"on_error": "ignore"},
        {"within": 0},
        {"big": -1},
        {"running": ()},
    ],
)
def test_an_adapter_that_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    """A mistake in an adapter is told when it is made."""
    with pytest.raises(UsageError):
        Adapter(**options)


async def test_an_exemption_must_name_a_case() -> None:
    """A case that was renamed does not stay exempt in silence."""
    with pytest.raises(UsageError, match="no_such_case"):
        await torture(Faithful, adapter=Adapter(exempt={"no_such_case": "why not"}))


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_every_case_has_a_name_and_a_promise() -> None:
    """Names are unique, and each promise is a sentence."""
    assert len(NAMES) == len(CASES) >= 70
    for case in CASES:
        assert case.promise.endswith(".")
        assert str(case) == case.name


def test_the_page_has_every_case() -> None:
    """docs/torture.md lists every case with its promise, word for word, and every option."""
    page = (Path(__file__).parents[1] / "docs/torture.md").read_text("utf-8")
    for case in CASES:
        assert f"| `{case.name}` | {case.promise} |" in page
    for option in dataclasses.fields(Adapter):
        assert re.search(rf"^\|.*`{option.name}`.* \|", page, re.MULTILINE), option.name


# ------------------------------------------------------------------------------- our own, for real


def seen_from(server: Server, **options: Any) -> Adapter:
    """An adapter for all cases, those that look into the store included."""
    stored = {"store": server, "contents": functools.partial(stored_in, server)}
    times = {"lease": 2.0, "window": 60.0}
    return Adapter(also_guarded="POST /guarded/also", **(stored | times | options))


def our_own(server: Server, policy: Policy, adapter: Adapter) -> Subject:
    """DibsMiddleware, with a budget that has room: an overloaded machine is not an outage."""
    opened: list[AsyncDibs] = []

    def wrap(app: App, service: str = "") -> App:
        opened.append(AsyncDibs(server.url, budget=BUDGET))
        return DibsMiddleware(app, dibs=opened[-1], policies=[policy], service=service)

    async def shutdown() -> None:
        while opened:
            await opened.pop().aclose()

    other = functools.partial(wrap, service="another")
    adapter = dataclasses.replace(adapter, shutdown=shutdown, within=20, other_service=other)
    return Subject("dibs", wrap, adapter)


@pytest.fixture(scope="module")
def ours() -> Iterator[Subject]:
    policy = Policy("POST /guarded*", after="replay", key="required", window=60, lease=2)
    with Server.start("valkey") as server:
        yield our_own(server, policy, seen_from(server))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_our_own_middleware(case: Case, ours: Subject) -> None:
    """DibsMiddleware keeps every promise, on a real Valkey, outages included."""
    verdict = await case.check(ours.wrap, adapter=ours.adapter)
    assert verdict.outcome == ("not applicable" if case.name in OPTIONAL else "passed"), verdict


@pytest.mark.parametrize("after", ["hold", "release"])
def test_our_own_guard_without_keys(after: Any, valkey: Server) -> None:
    """DibsMiddleware as a guard for forms: no keys, no replays, and every promise that is left."""
    policy = Policy("POST /guarded*", after=after, window=60, lease=2)
    guard = our_own(valkey, policy, seen_from(valkey, store=None, header=None, after=after))
    report = tortured(guard.wrap, guard.adapter)
    assert not report.failed, report


# What depends on whether a request carries a key, and on who is known.
KEYS = {case.name for case in CASES if {"key", "users", "keyless runs"} & set(case.needs)}
KEYS |= {"keyless_is_guarded", "unknown_client", "two_keys", "other_query", "other_path"}


@pytest.mark.parametrize(("key", "keyless"), [("only", "run"), ("optional", "guard")])
def test_our_own_guard_with_keys_that_are_not_required(
    key: Any, keyless: Any, valkey: Server
) -> None:
    """`key="only"` lets pass what carries none, `key="optional"` guards it by its content."""
    policy = Policy("POST /guarded*", after="replay", key=key, window=60, lease=2)
    adapter = seen_from(valkey, store=None, required=False, keyless=keyless)
    guard = our_own(valkey, policy, adapter)
    chosen = [case for case in CASES if case.name in KEYS]
    report = tortured(guard.wrap, guard.adapter, chosen)
    assert not report.failed, report
    wanted = "keyless_runs" if keyless == "run" else "keyless_is_guarded"
    assert wanted in {verdict.case for verdict in report.passed}


# ----------------------------------------------------------------------------------- the command


def faithful(app: App) -> App:
    return Faithful(app)


def bare(app: App) -> App:
    return app


def test_the_command_prints_a_table_and_says_yes(capsys: pytest.CaptureFixture[str]) -> None:
    """A middleware that keeps its promises: a table, and exit status 0."""
    adapter = f"{__name__}:SMALL"
    assert main([f"{__name__}:faithful", "--adapter", adapter, "--case", "open_route"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["case", f"{__name__}:faithful"]
    assert lines[1].split() == ["open_route", "passed"]
    assert lines[2].split() == ["passed", "1"]


def test_the_command_says_no_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    """A broken promise: exit status 1, and what was seen; two middlewares share a table."""
    options = ["--case", "quoted_key", "--case", "open_route", "--within", "20"]
    assert main([f"{__name__}:bare", f"{__name__}:faithful", *options]) == 1
    said = capsys.readouterr().out
    assert re.search(r"^quoted_key +FAILED +passed$", said, re.MULTILINE)
    assert "FAILED  quoted_key: the retry ran the app again" in said


def test_the_command_knows_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    """`dibs` is a name that the command knows; it starts a server for it."""
    assert main(["dibs", "--case", "missing_key", "--within", "20"]) == 0
    assert f"dibs {version('dibs')}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "known: dibs, idemkit, asgi-idempotency-header"),
        (["no.such:thing"], "no.such:thing cannot be imported"),
        (["dibs", "--case", "no_such_case"], "no such case: no_such_case"),
        (["idemkit"], "pip install idemkit"),
        (["asgi-idempotency-header"], "pip install asgi-idempotency-header"),
        ([], "name what to try"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A target that cannot be tried: exit status 2, and a sentence that helps."""
    monkeypatch.setitem(sys.modules, "idemkit", None)
    monkeypatch.setitem(sys.modules, "idempotency_header_middleware", None)
    assert main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_the_command_lists_its_cases() -> None:
    """`python -m dibs.testing.torture --list` works, and names every case with its promise."""
    command = [sys.executable, "-m", "dibs.testing.torture", "--list"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"{case.name}: {case.promise}" for case in CASES]


def test_the_suite_needs_no_framework() -> None:
    """Importing the suite loads no framework, and no middleware that it knows by name."""
    code = "import sys, dibs.testing.torture.__main__; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {"starlette", "fastapi", "idemkit", "dibs.integrations", "anyio"} & set(loaded)
