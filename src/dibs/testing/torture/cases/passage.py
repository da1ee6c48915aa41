"""Passing through: what is not the middleware's business reaches the app as it was."""

from __future__ import annotations

import copy
from contextvars import ContextVar
from typing import Any

from ..asgi import App, Receive, Scope, Send
from ..case import case
from ..lifespan import lifespan_scope
from ..news import expect, quiet
from ..stage import Call
from ..trial import Trial

visitor: ContextVar[str] = ContextVar("visitor", default="nobody")


@case()
async def other_methods(trial: Trial) -> None:
    """GET, HEAD and OPTIONS on the guarded path run each time, key or not."""
    path = trial.adapter.guarded.partition(" ")[2]
    for method in ("GET", "HEAD", "OPTIONS"):
        await _runs_each_time(trial, f"{method} {path}", with_key=True)


@case()
async def open_route(trial: Trial) -> None:
    """A request that is not guarded runs each time, and its answer is not touched."""
    await _runs_each_time(trial, trial.adapter.open, with_key=False)


@case("unguarded post")
async def unguarded_post(trial: Trial) -> None:
    """A POST that is not guarded runs each time, and its answer is not touched."""
    await _runs_each_time(trial, trial.adapter.unguarded or "", with_key=False)


async def _runs_each_time(trial: Trial, route: str, *, with_key: bool) -> None:
    keys = [trial.key.encode()] if with_key else []
    before = trial.runs
    for number in (1, 2):
        answer = await trial.ask(route=route, keys=keys, body=[b""])
        trial.answered(answer)
        expect(trial.runs == before + number, f"{route} did not run the second time")
        expect(answer.headers == [(b"content-type", b"application/json")], "headers were changed")


@case("unguarded post")
async def unguarded_upload(trial: Trial) -> None:
    """The body of a request that is not guarded is not collected: the app reads as it comes."""

    async def handler(call: Call) -> None:
        trial.mark(str((await call.receive())["body"], "ascii"))
        trial.mark(str((await call.receive())["body"], "ascii"))
        await call.answer()

    trial.handle(handler)
    route = trial.adapter.unguarded or ""
    first = trial.post(route=route, keys=[], body=[b"one"], unfinished=True)
    await trial.news.until(
        lambda: trial.log or first.hungry or first.done,
        lambda: f"nobody reads the body: {first.seen}",
    )
    expect(trial.log, "the body was collected before the app was called")
    first.feed(b"two", more=False)
    await first.ended()
    trial.answered(first)
    expect(trial.log == ["one", "two"], f"the app read {trial.log}")


@case("unguarded post")
async def unguarded_stream(trial: Trial) -> None:
    """The answer to a request that is not guarded is not collected: it arrives as it is sent."""
    gate = trial.work_behind_a_gate()

    async def handler(call: Call) -> None:
        await call.start()
        await call.chunk(b"one")
        await gate.wait()
        await call.chunk(b"two", more=False)

    trial.handle(handler)
    first = trial.post(route=trial.adapter.unguarded or "", keys=[])
    await first.arrived(1)
    gate.set()
    await first.ended()
    trial.answered(first)


@case()
async def websocket(trial: Trial) -> None:
    """A websocket passes, message by message, with its scope."""
    scopes: list[Scope] = []

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        trial.mark((await receive())["type"])
        await send({"type": "websocket.accept", "subprotocol": "torture"})
        await send({"type": "websocket.send", "text": (await receive())["text"]})
        trial.mark((await receive())["type"])

    trial.stage.sockets = echo
    scope = _websocket_scope()
    line = trial.open(dict(scope))
    line.tell({"type": "websocket.connect"})
    await line.said("websocket.accept")
    line.tell({"type": "websocket.receive", "text": "hello"})
    await line.said("websocket.send")
    line.tell({"type": "websocket.disconnect", "code": 1000})
    await line.ended()
    expect(line.error is None, f"the websocket ended badly: {line.seen}")
    expect(trial.log == ["websocket.connect", "websocket.disconnect"], f"it heard {trial.log}")
    expect(line.sent[-1].get("text") == "hello", f"the echo was {line.sent[-1]}")
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


@case(lives=False)
async def lifespan(trial: Trial) -> None:
    """The app's startup and shutdown pass, once each, and its state reaches the requests."""
    line = trial.open(lifespan_scope(trial.state))
    line.tell({"type": "lifespan.startup"})
    await line.said("lifespan.startup.complete")
    await quiet()
    expect(len(line.sent) == 1, f"after the startup came {line.seen}")
    expect(trial.state == {"torture": "started"}, f"the state is {trial.state}")
    trial.answered(await trial.ask())
    line.tell({"type": "lifespan.shutdown"})
    await line.ended()
    expect(line.error is None, f"the lifespan ended badly: {line.seen}")
    kinds = [message["type"] for message in line.sent]
    passed = kinds == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    expect(passed, f"the server heard {kinds}")


@case(lives=False)
async def failed_startup(trial: Trial) -> None:
    """An app that cannot start says so to the server, in its own words."""

    async def doomed(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    trial.stage.lifespan = doomed
    line = trial.open(lifespan_scope(trial.state))
    line.tell({"type": "lifespan.startup"})
    await line.said("lifespan.startup.failed")
    said = [message.get("message") for message in line.sent]
    expect(said == ["no database"], f"the server heard {line.seen}")
    await line.ended()


@case()
async def scope_is_kept(trial: Trial) -> None:
    """The app sees the whole scope, what others put there included; the state is no copy."""
    seen: list[Scope] = []

    async def handler(call: Call) -> None:
        seen.append(call.scope)
        call.scope["state"]["written"] = "by the app"
        await call.answer()

    trial.handle(handler)
    facts = {
        "state": {"user": object()},
        "extensions": {"torture.extension": {"x": 1}, "tls": {}},
        "query_string": b"a=1&b=%20",
        "root_path": "/mounted",
        "path_params": {"id": "7"},
        "torture.private": ["kept"],
    }
    first = trial.post(facts=facts)
    sent = {name: copy.copy(value) for name, value in first.scope.items() if name != "state"}
    await first.ended()
    trial.answered(first)
    _same_scope(sent, seen[0])
    _same_scope(sent, first.scope)
    expect(seen[0]["state"] is facts["state"], "the app's state is a copy")


def _same_scope(sent: Scope, seen: Scope) -> None:
    changed = [name for name, value in sent.items() if seen.get(name) != value]
    expect(not changed, f"changed in the scope: {', '.join(changed)}")


@case()
async def context_reaches_the_app(trial: Trial) -> None:
    """What outer layers have set in context variables is there when the app runs."""

    def outer(app: App) -> App:
        async def setting(scope: Scope, receive: Receive, send: Send) -> None:
            token = visitor.set("from outside")
            try:
                await app(scope, receive, send)
            finally:
                visitor.reset(token)

        return setting

    async def handler(call: Call) -> None:
        trial.mark(visitor.get())
        await call.answer()

    trial.handle(handler)
    trial.answered(await trial.ask(outer=outer))
    expect(trial.log == ["from outside"], f"the app saw {trial.log}")
