"""Answers that are more than a small body: streams, big ones, and ASGI's extensions."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from ..application import Call
from ..case import case
from ..exchange import Exchange, Response
from ..harness import Harness
from ..notifier import expect, settle

FRAMES = 3


def _stream_on_demand(harness: Harness) -> asyncio.Semaphore:
    """Let the app send one frame, and each next one, and the end, when it is asked to."""
    turns = asyncio.Semaphore(0)

    async def handler(call: Call) -> None:
        await call.start(200, headers=[(b"content-type", b"text/event-stream")])
        for number in range(FRAMES):
            await call.chunk(b"data: %d\n\n" % number)
            await turns.acquire()
        await call.chunk(b"", more=False)
        harness.mark("sent it all")

    harness.handle(handler)
    return turns


async def _see_it_live(harness: Harness, first: Exchange, turns: asyncio.Semaphore) -> None:
    for number in range(FRAMES):
        await first.arrived(number + 1)
        turns.release()
    await first.ended()
    harness.expect_response(first, status=200)
    expect(len(first.chunks) == FRAMES, f"{FRAMES} frames arrived as {len(first.chunks)}")


@case()
async def head_is_live(harness: Harness) -> None:
    """The head of an answer reaches the client when the app sends it, not with the first byte."""
    release = asyncio.Event()

    async def handler(call: Call) -> None:
        await call.start()
        await release.wait()
        await call.chunk(b'{"run":1}', more=False)

    harness.handle(handler)
    first = harness.start_request()
    await first.wait_sent("http.response.start")
    release.set()
    await first.ended()
    harness.expect_response(first)


@case()
async def stream_is_live(harness: Harness) -> None:
    """A streamed answer reaches the client frame by frame, while the app is still sending."""
    turns = _stream_on_demand(harness)
    await _see_it_live(harness, harness.start_request(), turns)


@case("memory")
async def stream_retried(harness: Harness) -> str:
    """A retry of a stream that came to its end does not run."""
    turns = _stream_on_demand(harness)
    first = harness.start_request()
    await _see_it_live(harness, first, turns)
    return await harness.expect_not_rerun(first.response)


@case("memory")
async def stream_left(harness: Harness) -> str:
    """A client that leaves amid a stream does not stop the work; a retry does not run it again."""
    turns = _stream_on_demand(harness)
    first = harness.start_request()
    await first.arrived(1)
    first.disconnect()
    await settle()
    for _ in range(FRAMES):
        turns.release()
    await first.ended()
    expect("sent it all" in harness.log, f"the work was stopped: {first.seen}")
    whole = b"".join(b"data: %d\n\n" % number for number in range(FRAMES))
    return await harness.expect_not_rerun(Response(200, whole, b"text/event-stream"))


@case()
async def endless_stream_left(harness: Harness) -> str:
    """An endless stream ends when its client has left: the server's OSError reaches the app."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            return await call.respond()
        await call.start(200)
        while True:
            await call.chunk(b"again ")
            await asyncio.sleep(0)

    harness.handle(handler)
    first = harness.start_request(send_raises=True)
    await first.arrived(2)
    first.disconnect()
    await first.ended()
    retry = await harness.request()
    expect(retry.complete, f"the retry got {retry.seen}")
    expect(not retry.body.startswith(b"again"), "half a stream was replayed")
    return f"the retry got {retry.status}"


@case()
async def oversized_answer(harness: Harness) -> None:
    """An answer too big to be stored reaches the client whole."""
    first = await _oversized(harness)
    expect(len(first.body) == harness.adapter.oversized, f"the client got {first.seen}")


@case("memory")
async def oversized_retried(harness: Harness) -> str:
    """A retry of a success that was too big to be stored does not run."""
    first = await _oversized(harness)
    return await harness.expect_not_rerun(first.response)


async def _oversized(harness: Harness) -> Exchange:
    async def handler(call: Call) -> None:
        await call.respond(200, b'"%s"' % (b"x" * (harness.adapter.oversized - 2)))

    harness.handle(handler)
    first = await harness.request()
    harness.expect_response(first, status=200)
    return first


@case("memory")
async def early_hints(harness: Harness) -> None:
    """Early hints before an answer pass, and the answer after them is the one that counts."""
    hint = {"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]}
    await _with_an_aside(harness, hint)


@case("memory")
async def debug_message(harness: Harness) -> None:
    """A debug message before an answer passes, and does not count as one."""
    await _with_an_aside(harness, {"type": "http.response.debug", "info": {"template": "x"}})


async def _with_an_aside(harness: Harness, aside: dict[str, Any]) -> None:
    async def handler(call: Call) -> None:
        await call.send(dict(aside))
        await call.respond()

    harness.handle(handler)
    first = await harness.request(scope={"extensions": {aside["type"]: {}}})
    harness.expect_response(first)
    expect(aside in first.sent, f"{aside['type']} did not pass")
    await harness.expect_remembered()


@case("memory")
async def trailers(harness: Harness) -> str:
    """Trailers pass after the body, and a retry does not promise any that it does not send."""

    async def handler(call: Call) -> None:
        await call.start(trailers=True)
        await call.chunk(b'{"run":1}', more=False)
        await call.send({"type": "http.response.trailers", "headers": [(b"x-sum", b"1")]})

    harness.handle(handler)
    first = await harness.request(scope={"extensions": {"http.response.trailers": {}}})
    harness.expect_response(first)
    passed = any(each["type"] == "http.response.trailers" for each in first.sent)
    expect(passed, "the trailers did not pass")
    return await harness.expect_not_rerun()


@case("memory")
async def file_sent_by_path(harness: Harness) -> str:
    """An answer that is the path of a file passes, and a retry neither runs nor gets nothing."""
    with tempfile.NamedTemporaryFile() as file:
        path = file.name

        async def handler(call: Call) -> None:
            await call.start(200)
            if "http.response.pathsend" in call.scope["extensions"]:
                await call.send({"type": "http.response.pathsend", "path": path})
            else:  # taken away, as a middleware may
                await call.chunk(b"the file", more=False)

        harness.handle(handler)
        first = await harness.request(scope={"extensions": {"http.response.pathsend": {}}})
        harness.expect_response(first, status=200)
        return await _retried_path(harness, first)


async def _retried_path(harness: Harness, first: Exchange) -> str:
    said = await harness.expect_not_rerun(first.response)
    retry = harness.connections[-1]
    sent = [
        [each.get("path") for each in exchange.sent if "path" in each]
        for exchange in (first, retry)
    ]
    same = "replay" not in said or sent[0] == sent[1]
    expect(same, "the retry got the head of the first answer, and no file")
    return said
