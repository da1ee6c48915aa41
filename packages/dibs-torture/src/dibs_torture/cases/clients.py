"""Clients: they leave when they like, send their body in pieces, and must not be lied about."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from ..application import Call, ClientDisconnected
from ..case import case
from ..exchange import DISCONNECT, Exchange
from ..harness import Harness
from ..notifier import expect, settle

PIECE = 64 * 1024


@case("memory")
async def client_leaves(harness: Harness) -> None:
    """A client that leaves before the answer does not stop the work; its retry does not run."""
    await _left_early(harness, send_raises=False)


@case("memory")
async def client_leaves_and_sending_fails(harness: Harness) -> None:
    """The same on a server whose `send` raises OSError once the client has left (ASGI 2.4)."""
    await _left_early(harness, send_raises=True)


async def _left_early(harness: Harness, *, send_raises: bool) -> None:
    release = harness.block_handler()
    first = harness.start_request(send_raises=send_raises)
    await harness.wait_mark("working")
    first.disconnect()
    await settle()
    release.set()
    await first.ended()
    await harness.expect_remembered()


@case()
async def disconnect_is_true(harness: Harness) -> None:
    """In a guarded request the app gets http.disconnect when the client has left, not earlier."""
    await _disconnect_is_reported(harness, lambda: harness.start_request())


@case()
async def disconnect_is_true_elsewhere(harness: Harness) -> None:
    """In a request that is not guarded, a second receive() waits for what really comes next."""
    await _disconnect_is_reported(
        harness, lambda: harness.start_request(route=harness.adapter.open, keys=[], body=[b""])
    )


async def _disconnect_is_reported(harness: Harness, begin: Callable[[], Exchange]) -> None:
    async def handler(call: Call) -> None:
        await call.read()
        harness.mark("listening")
        message = await call.receive()
        harness.mark(message["type"])
        await call.respond()

    harness.handle(handler)
    first = begin()
    await harness.wait_mark("listening")
    await settle()
    expect(harness.log == ["listening"], f"the app got {harness.log[-1]}, and nobody had left")
    first.disconnect()
    await harness.wait_mark(DISCONNECT)
    await first.ended()


@case()
async def receive_is_cancelled(harness: Harness) -> None:
    """An app that stops listening and listens again has missed nothing."""

    async def handler(call: Call) -> None:
        await call.read()
        listener = asyncio.ensure_future(call.receive())
        await settle(5)
        listener.cancel()
        await asyncio.wait([listener])
        harness.mark("listening again")
        harness.mark((await call.receive())["type"])

    harness.handle(handler)
    first = harness.start_request()
    await harness.wait_mark("listening again")
    await settle()
    expect(DISCONNECT not in harness.log, "the app got a disconnect, and nobody had left")
    first.disconnect()
    await harness.wait_mark(DISCONNECT)


@case()
async def watcher_beside_the_answer(harness: Harness) -> None:
    """An app may watch for the disconnect beside its answer, and stop watching when it is sent."""

    async def handler(call: Call) -> None:
        await call.read()
        watcher = asyncio.ensure_future(call.receive())
        await settle(5)
        expect(not watcher.done(), "the watcher got a disconnect, and nobody had left")
        await call.respond()
        watcher.cancel()
        await asyncio.wait([watcher])

    harness.handle(handler)
    first = await harness.request()
    if isinstance(first.error, AssertionError):
        raise first.error
    expect(first.error is None, f"something came out of the app: {first.seen}")
    harness.expect_response(first)


@case()
async def body_in_pieces(harness: Harness) -> None:
    """A request's body arrives whole and in order; how it was cut does not matter to a retry."""

    async def handler(call: Call) -> None:
        await call.respond(201, await call.read())

    harness.handle(handler)
    pieces = [harness.payload[:5], b"", harness.payload[5:9], harness.payload[9:], b""]
    first = await harness.request(body=pieces)
    harness.expect_response(first)
    expect(first.body == harness.payload, f"the app read {first.body!r}")
    if harness.adapter.after != "release":
        await harness.expect_remembered(first.response)


@case("retry")
async def upload_breaks_off(harness: Harness) -> None:
    """A request that ends before its body does is never run as if it were whole; a retry runs."""
    read: list[bytes] = []

    async def handler(call: Call) -> None:
        read.append(await call.read())
        await call.respond()

    harness.handle(handler)
    first = harness.start_request(body=[harness.payload[:7]], unfinished=True)
    await harness.notifier.until(
        lambda: first.waiting_for_message, lambda: f"nobody reads the body: {first.seen}"
    )
    first.disconnect()
    await first.ended()
    expect(not read, f"the app read {len(read[:1])} body as whole that was not")
    ended = first.error is None or isinstance(first.error, ClientDisconnected)
    expect(ended, f"the middleware raised: {first.seen}")
    before = harness.runs
    retry = await harness.request()
    expect(harness.runs == before + 1, f"the retry did not run: {retry.seen}")
    harness.expect_response(retry)
    expect(read == [harness.payload], "the retry's body did not arrive")


@case()
async def big_body(harness: Harness) -> str:
    """A big request arrives whole, or is refused with 413 before it runs."""
    body, first = await _big(harness)
    if first.status == 413:
        expect(harness.runs == 0, "refused with 413, and run")
        return "refused with 413"
    harness.expect_response(first)
    expect(first.body == _digest(b"".join(body)), "the app read something else than was sent")
    return "arrived whole"


@case("memory")
async def big_body_retried(harness: Harness) -> str:
    """A big request is guarded like a small one: its retry does not run."""
    body, first = await _big(harness)
    if first.status == 413:
        return "refused with 413"
    harness.expect_response(first)
    await harness.expect_remembered(first.response, body=body)
    return "guarded"


@case("memory")
async def big_body_cut_otherwise(harness: Harness) -> str:
    """How the server cuts a big request does not matter: cut otherwise, its retry does not run."""
    body, first = await _big(harness)
    if first.status == 413:
        return "refused with 413"
    harness.expect_response(first)
    whole = b"".join(body)
    for size in (len(whole), 2**20 - 1, 2**20 + 1):
        await harness.expect_remembered(first.response, body=_cut(whole, size))
    return "guarded"


@case("key", "memory")
async def big_body_with_another_end(harness: Harness) -> str:
    """A big request whose last byte differs is another payload under the same key."""
    body, first = await _big(harness)
    if first.status == 413:
        return "refused with 413"
    harness.expect_response(first)
    other = await harness.request(body=[*body[:-1], body[-1][:-1] + b"!"])
    expect(harness.runs == 1, "another payload ran under the same key")
    refused = other.complete and other.status in harness.adapter.mismatch
    expect(refused, f"another payload under the same key got {other.seen}")
    return f"refused with {other.status}"


@case("memory")
async def body_of_a_duplicate_is_read(harness: Harness) -> str:
    """A duplicate is answered when its body is read: else the client that sends it is cut off."""
    body, first = await _big(harness)
    if first.status == 413:
        return "refused with 413"
    harness.expect_response(first)
    retry = await harness.expect_remembered(first.response, body=body)
    expect(not retry.unread, f"{retry.unread} pieces of the body were not read")
    return "read to its end"


def _cut(whole: bytes, size: int) -> list[bytes]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _digest(body: bytes) -> bytes:
    return b'"%s"' % hashlib.sha256(body).hexdigest().encode()


async def _big(harness: Harness) -> tuple[list[bytes], Exchange]:
    async def handler(call: Call) -> None:
        await call.respond(201, _digest(await call.read()))

    harness.handle(handler)
    count = -(-harness.adapter.big // PIECE)
    body = [number.to_bytes(4) * (PIECE // 4) for number in range(count)]
    body[0] = harness.payload + body[0]
    return body, await harness.request(body=body)
