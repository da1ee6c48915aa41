"""The work and its claim: what runs, what does not, and what an accident leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ..application import JSON, Call, HandlerError
from ..asgi import App, Headers, Receive, Scope, Send
from ..cancellation import Cancellation
from ..case import case
from ..exchange import Exchange
from ..harness import Harness
from ..notifier import expect

ROUNDS = 8
PAUSES = 100  # more than a call has
HOUR = 3600  # seconds: the longest Retry-After that makes sense


@case()
async def duplicates_at_once(harness: Harness) -> None:
    """Of five equal requests that arrive in one moment, one runs."""
    release = harness.block_handler()
    requests = [harness.start_request() for _ in range(5)]
    await harness.wait_mark("working")
    if not harness.adapter.waits:
        await harness.notifier.until(
            lambda: sum(each.done for each in requests) >= 4 or harness.runs > 1,
            lambda: f"a duplicate was not refused: {[each.seen for each in requests]}",
        )
    release.set()
    for each in requests:
        await each.ended()
    expect(harness.runs == 1, f"{harness.runs} of five equal requests ran")
    answered = [each for each in requests if each.status == 201]
    expect(answered, "none of five equal requests was answered")
    for each in requests:
        if each not in answered:
            harness.expect_refused(each)


@case()
async def duplicates_while_running(harness: Harness) -> None:
    """Duplicates of a running request do not run, however many come, one after the other."""
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    duplicates: list[Exchange] = []
    for _ in range(3):
        duplicates.append(harness.start_request())
        await harness.wait_refused(duplicates)
    release.set()
    await first.ended()
    harness.expect_response(first)
    for each in duplicates:
        await each.ended()
        if not harness.adapter.waits:
            harness.expect_refused(each)
    expect(harness.runs == 1, f"the app ran {harness.runs} times")


@case("prompt refusal")
async def refusal_says_when(harness: Harness) -> str:
    """Who is refused because the first is running gets a Retry-After, of an hour at most."""
    duplicate = await harness.refusal()
    after = (duplicate.header("retry-after") or b"").decode("latin-1")
    expect(after, f"{duplicate.status} without Retry-After")
    is_time = after.endswith("GMT") or (after.isdigit() and 1 <= int(after) <= HOUR)
    expect(is_time, f"Retry-After: {after}")
    return f"Retry-After: {after}"


@case("prompt refusal")
async def refusal_is_not_cached(harness: Harness) -> None:
    """A refusal is not cacheable: it is true for a moment only."""
    duplicate = await harness.refusal()
    said = (duplicate.header("cache-control") or b"").decode("latin-1").lower()
    words = {word.strip() for word in said.split(",")}
    lasts = [word for word in words if "max-age=" in word and not word.endswith("=0")]
    is_kept = ("public" in words or lasts) and "no-store" not in words
    expect(not is_kept, f"a refusal says Cache-Control: {said}")


@case()
async def guarded_twice(harness: Harness) -> str:
    """A request that passes the middleware twice runs, or is an error: not its own duplicate."""
    once = await harness.request(outer=harness.wrap)
    is_error = once.error is not None or (once.status or 0) >= 500
    expect(is_error or harness.runs == 1, f"it did not run: {once.seen}")
    return "an error" if is_error else "runs"


# ---- answers that are not final


async def _is_no_result(harness: Harness, status: int, headers: Headers, body: bytes) -> None:
    """An answer of this kind is not kept; the retry, with *body*, runs."""
    harness.use_new_key()
    answers = [status]

    async def handler(call: Call) -> None:
        await call.respond(answers.pop() if answers else 201, headers=[*JSON, *headers])

    harness.handle(handler)
    harness.expect_response(await harness.request(), status=status)
    await harness.expect_rerun(body=[body or harness.payload])


@case("key", "memory")
async def later_is_no_result(harness: Harness) -> None:
    """An answer that asks the client to come back is not kept: it comes back, and runs."""
    for status in (409, 425, 429):
        await _is_no_result(harness, status, [(b"retry-after", b"1")], b"")
    await _is_no_result(harness, 423, [], b"")


@case("key", "memory")
async def login_is_no_result(harness: Harness) -> None:
    """An answer that asks for a login is not kept: the client logs in, and runs."""
    for status in (401, 403):
        await _is_no_result(harness, status, [], b"")


@case("key", "memory")
async def invalid_is_no_result(harness: Harness) -> None:
    """A request that was not valid may be corrected under its key."""
    for status in (400, 422):
        await _is_no_result(harness, status, [], b'{"item":"corrected"}')


@case("memory")
async def duplicate_cancelled(harness: Harness) -> None:
    """A duplicate that is cancelled, at any moment, does not affect the running request."""
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    for cancellation in _cancellations(1 if harness.adapter.waits else ROUNDS):
        duplicate = harness.start_request(outer=cancellation)
        await harness.wait_refused([duplicate])
        await duplicate.cancel()
    release.set()
    await first.ended()
    harness.expect_response(first)
    await harness.expect_remembered()


@case("retry")
async def handler_cancelled(harness: Harness) -> None:
    """A call that is cancelled ends as cancelled, with the work in it; a retry runs at once."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            return await call.respond()
        harness.mark("working")
        try:
            await asyncio.Event().wait()
        finally:
            harness.mark("ended")

    harness.handle(handler)
    first = harness.start_request()
    await harness.wait_mark("working")
    await first.cancel()
    swallowed = f"the cancellation did not come out: {first.seen}"
    expect(isinstance(first.error, asyncio.CancelledError), swallowed)
    expect("ended" in harness.log, "the call ended, and the work in it went on")
    await harness.expect_rerun()


@case("retry")
async def cancelled_at_any_moment(harness: Harness) -> None:
    """A call that is cancelled at any moment leaves no claim: a retry is answered at once."""

    async def handler(call: Call) -> None:
        await asyncio.sleep(0)
        await call.respond()
        await asyncio.sleep(0)

    harness.handle(handler)
    harness.expect_response(await harness.request())  # connected, from now on
    for cancellation in _cancellations():
        harness.use_new_key()
        before = harness.runs
        first = await harness.request(outer=cancellation)
        had_run = harness.runs > before
        retry = await harness.request()
        if harness.adapter.after == "hold" and had_run:
            continue  # done, for all that it knows: a refusal is right
        answered = retry.complete and retry.status == 201
        expect(answered, f"{cancellation}: the retry got {retry.seen}")
        once = harness.runs == before + 1 or harness.adapter.after == "release"
        expect(once or not first.complete, f"{cancellation}, the answer was out: the retry ran")


@case("retry")
async def deadline_outside(harness: Harness) -> None:
    """An outer layer's deadline works: its cancellation comes back to it, and a retry runs."""
    limits: list[asyncio.Timeout] = []

    def outer(app: App) -> App:
        async def limited(scope: Scope, receive: Receive, send: Send) -> None:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await app(scope, receive, send)

        return limited

    harness.block_handler()
    first = harness.start_request(outer=outer)
    await harness.wait_mark("working")
    limits[0].reschedule(asyncio.get_running_loop().time())
    await first.ended()
    expect(isinstance(first.error, TimeoutError), f"no TimeoutError came out: {first.seen}")
    harness.handle(Call.respond)
    await harness.expect_rerun()


@case()
async def deadline_inside(harness: Harness) -> None:
    """The app's own deadline works: it ends what it was set for, and nothing else."""

    async def handler(call: Call) -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            await call.respond()

    harness.handle(handler)
    first = await harness.request()
    harness.expect_response(first)
    expect(first.error is None, f"something came out of the app: {first.seen}")


@case("retry")
async def handler_raises(harness: Harness) -> None:
    """What the app raises reaches the server, and a retry runs."""

    async def handler(call: Call) -> None:
        if call.run == 1:
            raise HandlerError("on request")
        await call.respond()

    harness.handle(handler)
    first = await harness.request()
    expect(isinstance(first.error, HandlerError), f"the app's exception got lost: {first.seen}")
    await harness.expect_rerun()


@case("retry")
async def server_error(harness: Harness) -> None:
    """A 5xx of the app reaches the client and is not kept: a retry runs."""

    async def handler(call: Call) -> None:
        await call.respond(503 if call.run == 1 else 201)

    harness.handle(handler)
    harness.expect_response(await harness.request(), status=503)
    await harness.expect_rerun()


@case()
async def client_error(harness: Harness) -> str:
    """A 4xx of the app is kept or not, but for every retry alike."""

    async def handler(call: Call) -> None:
        await call.respond(402)

    harness.handle(handler)
    first = await harness.request()
    harness.expect_response(first, status=402)
    policies: list[str] = []
    for _ in range(2):
        before = harness.runs
        retry = await harness.request()
        same = retry.response == first.response
        kept = "kept and replayed" if same else f"kept, retries get {retry.status}"
        policies.append("not kept, retries run" if harness.runs > before else kept)
    expect(policies[0] == policies[1], f"first {policies[0]}, then {policies[1]}")
    return policies[0]


@case("memory")
async def background_task_fails(harness: Harness) -> None:
    """A background task that fails after the answer does not undo it: a retry does not run."""

    async def handler(call: Call) -> None:
        await call.respond()
        raise HandlerError("in a background task")

    harness.handle(handler)
    first = await harness.request()
    harness.expect_response(first)
    await harness.expect_remembered()


@case("memory")
async def background_task_lasts(harness: Harness) -> None:
    """A background task delays neither the answer nor a retry: the result is stored at once."""
    release = asyncio.Event()

    async def handler(call: Call) -> None:
        await call.respond()
        await release.wait()

    harness.handle(handler)
    first = harness.start_request()
    await first.answered()
    await harness.expect_remembered()
    release.set()
    await first.ended()
    harness.expect_response(first)


@case("memory")
async def background_task_cancelled(harness: Harness) -> None:
    """A background task that is cancelled after the answer does not undo it."""

    async def handler(call: Call) -> None:
        await call.respond()
        await asyncio.Event().wait()

    harness.handle(handler)
    first = harness.start_request()
    await first.answered()
    await first.cancel()
    harness.expect_response(first)
    await harness.expect_remembered()


@case("memory")
async def stored_before_the_last_byte(harness: Harness) -> None:
    """A retry that is sent the moment the client has the last byte finds the result stored."""
    retries: list[asyncio.Task[Exchange]] = []

    async def on_last_byte() -> None:
        retries.append(asyncio.create_task(harness.expect_remembered()))
        if not harness.adapter.waits:  # or it would wait for us
            await asyncio.wait(retries)

    first = harness.start_request(on_last_byte=on_last_byte)
    await first.ended()
    expect(retries, f"no whole answer: {first.seen}")
    await retries[0]


@case("retry")
async def no_answer(harness: Harness) -> None:
    """An app that returns without an answer is no success: a retry runs."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            await call.respond()

    harness.handle(handler)
    first = await harness.request()
    invented = first.status is not None and first.status < 500
    expect(not invented, f"an answer was made up: {first.seen}")
    await harness.expect_rerun()


@case("retry")
async def head_then_raises(harness: Harness) -> None:
    """An app that starts an answer and raises has not answered: a retry runs."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            return await call.respond()
        await call.start()
        raise HandlerError("after the head")

    harness.handle(handler)
    first = await harness.request()
    expect(isinstance(first.error, HandlerError), f"the app's exception got lost: {first.seen}")
    await harness.expect_rerun()


@case("retry")
async def body_breaks_off(harness: Harness) -> None:
    """An app that raises amid its answer has not answered: a retry runs, half an answer is none."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            return await call.respond()
        await call.start()
        await call.chunk(b'{"run":')
        raise HandlerError("after half a body")

    harness.handle(handler)
    first = await harness.request()
    expect(isinstance(first.error, HandlerError), f"the app's exception got lost: {first.seen}")
    await harness.expect_rerun()


def _cancellations(rounds: int = ROUNDS) -> Iterator[Cancellation]:
    # At the first pause of a call, the second, and so on, until a call ends before that pause.
    # Again and again, because a reply that is quick enough leaves no pause.
    for late in (False, True) * rounds:
        for pause in range(1, PAUSES):
            cancellation = Cancellation(pause, late=late)
            yield cancellation
            if not cancellation.done:
                break
