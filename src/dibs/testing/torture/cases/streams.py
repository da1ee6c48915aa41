"""Answers that are more than a small body: streams, big ones, and ASGI's extensions."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from ..case import case
from ..exchange import Answer, Exchange
from ..news import expect, quiet
from ..stage import Call
from ..trial import Trial

FRAMES = 3


def _stream_on_demand(trial: Trial) -> asyncio.Semaphore:
    """Let the app send one frame, and each next one, and the end, when it is told."""
    turns = asyncio.Semaphore(0)

    async def handler(call: Call) -> None:
        await call.start(200, headers=[(b"content-type", b"text/event-stream")])
        for number in range(FRAMES):
            await call.chunk(b"data: %d\n\n" % number)
            await turns.acquire()
        await call.chunk(b"", more=False)
        trial.mark("sent it all")

    trial.handle(handler)
    return turns


async def _see_it_live(trial: Trial, first: Exchange, turns: asyncio.Semaphore) -> None:
    for number in range(FRAMES):
        await first.arrived(number + 1)
        turns.release()
    await first.ended()
    trial.answered(first, status=200)
    expect(len(first.chunks) == FRAMES, f"{FRAMES} frames arrived as {len(first.chunks)}")


@case()
async def head_is_live(trial: Trial) -> None:
    """The head of an answer reaches the client when the app sends it, not with the first byte."""
    gate = asyncio.Event()

    async def handler(call: Call) -> None:
        await call.start()
        await gate.wait()
        await call.chunk(b'{"run":1}', more=False)

    trial.handle(handler)
    first = trial.post()
    await first.said("http.response.start")
    gate.set()
    await first.ended()
    trial.answered(first)


@case()
async def stream_is_live(trial: Trial) -> None:
    """A streamed answer reaches the client frame by frame, while the app is still sending."""
    turns = _stream_on_demand(trial)
    await _see_it_live(trial, trial.post(), turns)


@case("memory")
async def stream_retried(trial: Trial) -> str:
    """A retry of a stream that came to its end does not run."""
    turns = _stream_on_demand(trial)
    first = trial.post()
    await _see_it_live(trial, first, turns)
    return await trial.not_run_again(first.answer)


@case("memory")
async def stream_left(trial: Trial) -> str:
    """A client that leaves amid a stream does not stop the work; a retry does not run it again."""
    turns = _stream_on_demand(trial)
    first = trial.post()
    await first.arrived(1)
    first.leave()
    await quiet()
    for _ in range(FRAMES):
        turns.release()
    await first.ended()
    expect("sent it all" in trial.log, f"the work was stopped: {first.seen}")
    whole = b"".join(b"data: %d\n\n" % number for number in range(FRAMES))
    return await trial.not_run_again(Answer(200, whole, b"text/event-stream"))


@case()
async def endless_stream_left(trial: Trial) -> str:
    """An endless stream ends when its client has left: the server's OSError reaches the app."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            return await call.answer()
        await call.start(200)
        while True:
            await call.chunk(b"again ")
            await asyncio.sleep(0)

    trial.handle(handler)
    first = trial.post(pipe_breaks=True)
    await first.arrived(2)
    first.leave()
    await first.ended()
    retry = await trial.ask()
    expect(retry.complete, f"the retry got {retry.seen}")
    expect(not retry.body.startswith(b"again"), "half a stream was replayed")
    return f"the retry got {retry.status}"


@case()
async def oversized_answer(trial: Trial) -> None:
    """An answer too big to be stored reaches the client whole."""
    first = await _oversized(trial)
    expect(len(first.body) == trial.adapter.oversized, f"the client got {first.seen}")


@case("memory")
async def oversized_retried(trial: Trial) -> str:
    """A retry of a success that was too big to be stored does not run."""
    first = await _oversized(trial)
    return await trial.not_run_again(first.answer)


async def _oversized(trial: Trial) -> Exchange:
    async def handler(call: Call) -> None:
        await call.answer(200, b'"%s"' % (b"x" * (trial.adapter.oversized - 2)))

    trial.handle(handler)
    first = await trial.ask()
    trial.answered(first, status=200)
    return first


@case("memory")
async def early_hints(trial: Trial) -> None:
    """Early hints before an answer pass, and the answer after them is the one that counts."""
    hint = {"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]}
    await _with_an_aside(trial, hint)


@case("memory")
async def debug_message(trial: Trial) -> None:
    """A debug message before an answer passes, and does not count as one."""
    await _with_an_aside(trial, {"type": "http.response.debug", "info": {"template": "x"}})


async def _with_an_aside(trial: Trial, aside: dict[str, Any]) -> None:
    async def handler(call: Call) -> None:
        await call.send(dict(aside))
        await call.answer()

    trial.handle(handler)
    first = await trial.ask(facts={"extensions": {aside["type"]: {}}})
    trial.answered(first)
    expect(aside in first.sent, f"{aside['type']} did not pass")
    await trial.remembered()


@case("memory")
async def trailers(trial: Trial) -> str:
    """Trailers pass after the body, and a retry does not promise any that it does not send."""

    async def handler(call: Call) -> None:
        await call.start(trailers=True)
        await call.chunk(b'{"run":1}', more=False)
        await call.send({"type": "http.response.trailers", "headers": [(b"x-sum", b"1")]})

    trial.handle(handler)
    first = await trial.ask(facts={"extensions": {"http.response.trailers": {}}})
    trial.answered(first)
    passed = any(each["type"] == "http.response.trailers" for each in first.sent)
    expect(passed, "the trailers did not pass")
    return await trial.not_run_again()


@case("memory")
async def file_sent_by_path(trial: Trial) -> str:
    """An answer that is the path of a file passes, and a retry neither runs nor gets nothing."""
    with tempfile.NamedTemporaryFile() as file:
        path = file.name

        async def handler(call: Call) -> None:
            await call.start(200)
            if "http.response.pathsend" in call.scope["extensions"]:
                await call.send({"type": "http.response.pathsend", "path": path})
            else:  # taken away, as a middleware may
                await call.chunk(b"the file", more=False)

        trial.handle(handler)
        first = await trial.ask(facts={"extensions": {"http.response.pathsend": {}}})
        trial.answered(first, status=200)
        return await _retried_path(trial, first)


async def _retried_path(trial: Trial, first: Exchange) -> str:
    said = await trial.not_run_again(first.answer)
    retry = trial.lines[-1]
    sent = [[each.get("path") for each in line.sent if "path" in each] for line in (first, retry)]
    same = "replay" not in said or sent[0] == sent[1]
    expect(same, "the retry got the head of the first answer, and no file")
    return said
