"""Passing through: what is not the middleware's business reaches the app as it was."""

from __future__ import annotations

import copy
from contextvars import ContextVar
from typing import Any

from ..application import Call
from ..asgi import App, Receive, Scope, Send
from ..case import case
from ..harness import Harness
from ..lifespan import lifespan_scope
from ..notifier import expect, settle

visitor: ContextVar[str] = ContextVar("visitor", default="nobody")


@case()
async def other_methods(harness: Harness) -> None:
    """GET, HEAD and OPTIONS on the guarded path run each time, key or not."""
    path = harness.adapter.guarded.partition(" ")[2]
    for method in ("GET", "HEAD", "OPTIONS"):
        await _runs_each_time(harness, f"{method} {path}", with_key=True)


@case()
async def open_route(harness: Harness) -> None:
    """A request that is not guarded runs each time, and its answer is not touched."""
    await _runs_each_time(harness, harness.adapter.open, with_key=False)


@case("unguarded post")
async def unguarded_post(harness: Harness) -> None:
    """A POST that is not guarded runs each time, and its answer is not touched."""
    await _runs_each_time(harness, harness.adapter.unguarded or "", with_key=False)


async def _runs_each_time(harness: Harness, route: str, *, with_key: bool) -> None:
    keys = [harness.key.encode()] if with_key else []
    before = harness.runs
    for number in (1, 2):
        answer = await harness.request(route=route, keys=keys, body=[b""])
        harness.expect_response(answer)
        expect(harness.runs == before + number, f"{route} did not run the second time")
        expect(answer.headers == [(b"content-type", b"application/json")], "headers were changed")


@case("unguarded post")
async def unguarded_upload(harness: Harness) -> None:
    """The body of a request that is not guarded is not collected: the app reads as it comes."""

    async def handler(call: Call) -> None:
        harness.mark(str((await call.receive())["body"], "ascii"))
        harness.mark(str((await call.receive())["body"], "ascii"))
        await call.respond()

    harness.handle(handler)
    route = harness.adapter.unguarded or ""
    first = harness.start_request(route=route, keys=[], body=[b"one"], unfinished=True)
    await harness.notifier.until(
        lambda: harness.log or first.waiting_for_message or first.done,
        lambda: f"nobody reads the body: {first.seen}",
    )
    expect(harness.log, "the body was collected before the app was called")
    first.feed(b"two", more=False)
    await first.ended()
    harness.expect_response(first)
    expect(harness.log == ["one", "two"], f"the app read {harness.log}")


@case("unguarded post")
async def unguarded_stream(harness: Harness) -> None:
    """The answer to a request that is not guarded is not collected: it arrives as it is sent."""
    release = harness.block_handler()

    async def handler(call: Call) -> None:
        await call.start()
        await call.chunk(b"one")
        await release.wait()
        await call.chunk(b"two", more=False)

    harness.handle(handler)
    first = harness.start_request(route=harness.adapter.unguarded or "", keys=[])
    await first.arrived(1)
    release.set()
    await first.ended()
    harness.expect_response(first)


@case()
async def websocket(harness: Harness) -> None:
    """A websocket passes, message by message, with its scope."""
    scopes: list[Scope] = []

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        harness.mark((await receive())["type"])
        await send({"type": "websocket.accept", "subprotocol": "torture"})
        await send({"type": "websocket.send", "text": (await receive())["text"]})
        harness.mark((await receive())["type"])

    harness.application.websocket = echo
    scope = _websocket_scope()
    connection = harness.connect(dict(scope))
    connection.deliver({"type": "websocket.connect"})
    await connection.wait_sent("websocket.accept")
    connection.deliver({"type": "websocket.receive", "text": "hello"})
    await connection.wait_sent("websocket.send")
    connection.deliver({"type": "websocket.disconnect", "code": 1000})
    await connection.ended()
    expect(connection.error is None, f"the websocket ended badly: {connection.seen}")
    expect(harness.log == ["websocket.connect", "websocket.disconnect"], f"it got {harness.log}")
    expect(connection.sent[-1].get("text") == "hello", f"the echo was {connection.sent[-1]}")
    _same_scope(scope, scopes[0])


def _websocket_scope() -> dict[str, Any]:
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": "/socket",
        "raw_path": b"/socket",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"torture.test")],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
        "subprotocols": ["torture"],
        "state": {},
        "extensions": {"websocket.http.response": {}},
    }


@case(with_lifespan=False)
async def lifespan(harness: Harness) -> None:
    """The app's startup and shutdown pass, once each, and its state reaches the requests."""
    connection = harness.connect(lifespan_scope(harness.state))
    connection.deliver({"type": "lifespan.startup"})
    await connection.wait_sent("lifespan.startup.complete")
    await settle()
    expect(len(connection.sent) == 1, f"after the startup came {connection.seen}")
    expect(harness.state == {"torture": "started"}, f"the state is {harness.state}")
    harness.expect_response(await harness.request())
    connection.deliver({"type": "lifespan.shutdown"})
    await connection.ended()
    expect(connection.error is None, f"the lifespan ended badly: {connection.seen}")
    kinds = [message["type"] for message in connection.sent]
    passed = kinds == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    expect(passed, f"the server got {kinds}")


@case(with_lifespan=False)
async def failed_startup(harness: Harness) -> None:
    """An app that cannot start says so to the server, in its own words."""

    async def doomed(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    harness.application.lifespan = doomed
    connection = harness.connect(lifespan_scope(harness.state))
    connection.deliver({"type": "lifespan.startup"})
    await connection.wait_sent("lifespan.startup.failed")
    said = [message.get("message") for message in connection.sent]
    expect(said == ["no database"], f"the server got {connection.seen}")
    await connection.ended()


@case()
async def scope_is_kept(harness: Harness) -> None:
    """The app sees the whole scope, what others put there included; the state is no copy."""
    seen: list[Scope] = []

    async def handler(call: Call) -> None:
        seen.append(call.scope)
        call.scope["state"]["written"] = "by the app"
        await call.respond()

    harness.handle(handler)
    more = {
        "state": {"user": object()},
        "extensions": {"torture.extension": {"x": 1}, "tls": {}},
        "query_string": b"a=1&b=%20",
        "root_path": "/mounted",
        "path_params": {"id": "7"},
        "torture.private": ["kept"],
    }
    first = harness.start_request(scope=more)
    sent = {name: copy.copy(value) for name, value in first.scope.items() if name != "state"}
    await first.ended()
    harness.expect_response(first)
    _same_scope(sent, seen[0])
    _same_scope(sent, first.scope)
    expect(seen[0]["state"] is more["state"], "the app's state is a copy")


def _same_scope(sent: Scope, seen: Scope) -> None:
    changed = [name for name, value in sent.items() if seen.get(name) != value]
    expect(not changed, f"changed in the scope: {', '.join(changed)}")


@case()
async def context_reaches_the_app(harness: Harness) -> None:
    """The app sees the context variables that outer layers have set."""

    def outer(app: App) -> App:
        async def setting(scope: Scope, receive: Receive, send: Send) -> None:
            token = visitor.set("from outside")
            try:
                await app(scope, receive, send)
            finally:
                visitor.reset(token)

        return setting

    async def handler(call: Call) -> None:
        harness.mark(visitor.get())
        await call.respond()

    harness.handle(handler)
    harness.expect_response(await harness.request(outer=outer))
    expect(harness.log == ["from outside"], f"the app saw {harness.log}")
