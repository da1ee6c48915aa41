"""Clients: they leave when they like, send their body in pieces, and must not be lied about."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from ..case import case
from ..exchange import DISCONNECT, Exchange
from ..news import expect, quiet
from ..stage import Call, ClientLeft
from ..trial import Trial

PIECE = 64 * 1024


@case("memory")
async def client_leaves(trial: Trial) -> None:
    """A client that leaves before the answer does not stop the work; its retry does not run."""
    await _left_early(trial, pipe_breaks=False)


@case("memory")
async def client_leaves_and_sending_fails(trial: Trial) -> None:
    """The same on a server that raises OSError when the answer is sent to nobody (ASGI 2.4)."""
    await _left_early(trial, pipe_breaks=True)


async def _left_early(trial: Trial, *, pipe_breaks: bool) -> None:
    gate = trial.work_behind_a_gate()
    first = trial.post(pipe_breaks=pipe_breaks)
    await trial.marked("working")
    first.leave()
    await quiet()
    gate.set()
    await first.ended()
    await trial.remembered()


@case()
async def disconnect_is_true(trial: Trial) -> None:
    """In a guarded request the app is told that the client has left when it has, not earlier."""
    await _told_the_truth(trial, lambda: trial.post())


@case()
async def disconnect_is_true_elsewhere(trial: Trial) -> None:
    """In a request that is not guarded, a second receive() waits for what really comes next."""
    await _told_the_truth(trial, lambda: trial.post(route=trial.adapter.open, keys=[], body=[b""]))


async def _told_the_truth(trial: Trial, begin: Callable[[], Exchange]) -> None:
    async def handler(call: Call) -> None:
        await call.read()
        trial.mark("listening")
        message = await call.receive()
        trial.mark(message["type"])
        await call.answer()

    trial.handle(handler)
    first = begin()
    await trial.marked("listening")
    await quiet()
    expect(trial.log == ["listening"], f"the app was told {trial.log[-1]}, and nobody had left")
    first.leave()
    await trial.marked(DISCONNECT)
    await first.ended()


@case()
async def receive_is_cancelled(trial: Trial) -> None:
    """An app that stops listening and listens again has missed nothing."""

    async def handler(call: Call) -> None:
        await call.read()
        listener = asyncio.ensure_future(call.receive())
        await quiet(5)
        listener.cancel()
        await asyncio.wait([listener])
        trial.mark("listening again")
        trial.mark((await call.receive())["type"])

    trial.handle(handler)
    first = trial.post()
    await trial.marked("listening again")
    await quiet()
    expect(DISCONNECT not in trial.log, "the app was told of a disconnect, and nobody had left")
    first.leave()
    await trial.marked(DISCONNECT)


@case()
async def watcher_beside_the_answer(trial: Trial) -> None:
    """An app may watch for the disconnect beside its answer, and stop watching when it is sent."""

    async def handler(call: Call) -> None:
        await call.read()
        watcher = asyncio.ensure_future(call.receive())
        await quiet(5)
        expect(not watcher.done(), "the watcher was told of a disconnect, and nobody had left")
        await call.answer()
        watcher.cancel()
        await asyncio.wait([watcher])

    trial.handle(handler)
    first = await trial.ask()
    if isinstance(first.error, AssertionError):
        raise first.error
    expect(first.error is None, f"something came out of the app: {first.seen}")
    trial.answered(first)


@case()
async def body_in_pieces(trial: Trial) -> None:
    """A request's body arrives whole and in order; how it was cut does not matter to a retry."""

    async def handler(call: Call) -> None:
        await call.answer(201, await call.read())

    trial.handle(handler)
    pieces = [trial.payload[:5], b"", trial.payload[5:9], trial.payload[9:], b""]
    first = await trial.ask(body=pieces)
    trial.answered(first)
    expect(first.body == trial.payload, f"the app read {first.body!r}")
    if trial.adapter.after != "release":
        await trial.remembered(first.answer)


@case("retry")
async def upload_breaks_off(trial: Trial) -> None:
    """A request that ends before its body does is never run as if it were whole; a retry runs."""
    read: list[bytes] = []

    async def handler(call: Call) -> None:
        read.append(await call.read())
        await call.answer()

    trial.handle(handler)
    first = trial.post(body=[trial.payload[:7]], unfinished=True)
    await trial.news.until(lambda: first.hungry, lambda: f"nobody reads the body: {first.seen}")
    first.leave()
    await first.ended()
    expect(not read, f"the app read {len(read[:1])} body as whole that was not")
    ended = first.error is None or isinstance(first.error, ClientLeft)
    expect(ended, f"the middleware raised: {first.seen}")
    before = trial.runs
    retry = await trial.ask()
    expect(trial.runs == before + 1, f"the retry did not run: {retry.seen}")
    trial.answered(retry)
    expect(read == [trial.payload], "the retry's body did not arrive")


@case()
async def big_body(trial: Trial) -> str:
    """A big request arrives whole, or is refused with 413 before it runs."""
    body, first = await _big(trial)
    if first.status == 413:
        expect(trial.runs == 0, "refused with 413, and run")
        return "refused with 413"
    trial.answered(first)
    expect(first.body == _digest(b"".join(body)), "the app read something else than was sent")
    return "arrived whole"


@case("memory")
async def big_body_retried(trial: Trial) -> str:
    """A big request is guarded like a small one: its retry does not run."""
    body, first = await _big(trial)
    if first.status == 413:
        return "refused with 413"
    trial.answered(first)
    await trial.remembered(first.answer, body=body)
    return "guarded"


@case("memory")
async def big_body_cut_otherwise(trial: Trial) -> str:
    """How the server cuts a big request does not matter: cut otherwise, its retry does not run."""
    body, first = await _big(trial)
    if first.status == 413:
        return "refused with 413"
    trial.answered(first)
    whole = b"".join(body)
    for size in (len(whole), 2**20 - 1, 2**20 + 1):
        await trial.remembered(first.answer, body=_cut(whole, size))
    return "guarded"


@case("key", "memory")
async def big_body_with_another_end(trial: Trial) -> str:
    """A big request whose last byte differs is another payload under the same key."""
    body, first = await _big(trial)
    if first.status == 413:
        return "refused with 413"
    trial.answered(first)
    other = await trial.ask(body=[*body[:-1], body[-1][:-1] + b"!"])
    expect(trial.runs == 1, "another payload ran under the same key")
    refused = other.complete and other.status in trial.adapter.mismatch
    expect(refused, f"another payload under the same key got {other.seen}")
    return f"refused with {other.status}"


@case("memory")
async def body_of_a_duplicate_is_read(trial: Trial) -> str:
    """A duplicate is answered when its body is read: else the client that sends it is cut off."""
    body, first = await _big(trial)
    if first.status == 413:
        return "refused with 413"
    trial.answered(first)
    retry = await trial.remembered(first.answer, body=body)
    expect(not retry.unread, f"{retry.unread} pieces of the body were not read")
    return "read to its end"


def _cut(whole: bytes, size: int) -> list[bytes]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _digest(body: bytes) -> bytes:
    return b'"%s"' % hashlib.sha256(body).hexdigest().encode()


async def _big(trial: Trial) -> tuple[list[bytes], Exchange]:
    async def handler(call: Call) -> None:
        await call.answer(201, _digest(await call.read()))

    trial.handle(handler)
    count = -(-trial.adapter.big // PIECE)
    body = [number.to_bytes(4) * (PIECE // 4) for number in range(count)]
    body[0] = trial.payload + body[0]
    return body, await trial.ask(body=body)
