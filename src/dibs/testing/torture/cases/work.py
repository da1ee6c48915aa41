"""The work and its claim: what runs, what does not, and what an accident leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ..asgi import App, Receive, Scope, Send
from ..case import case
from ..exchange import Exchange
from ..interruption import Interruption
from ..news import expect
from ..stage import Breakdown, Call
from ..trial import Trial

ROUNDS = 8
PAUSES = 100  # more than a call has


@case()
async def duplicates_at_once(trial: Trial) -> None:
    """Of five equal requests that arrive in one moment, one runs."""
    gate = trial.work_behind_a_gate()
    requests = [trial.post() for _ in range(5)]
    await trial.marked("working")
    if not trial.adapter.waits:
        await trial.news.until(
            lambda: sum(each.done for each in requests) >= 4 or trial.runs > 1,
            lambda: f"a duplicate was not refused: {[each.seen for each in requests]}",
        )
    gate.set()
    for each in requests:
        await each.ended()
    expect(trial.runs == 1, f"{trial.runs} of five equal requests ran")
    answered = [each for each in requests if each.status == 201]
    expect(answered, "none of five equal requests was answered")
    for each in requests:
        if each not in answered:
            trial.refused(each)


@case()
async def duplicates_while_running(trial: Trial) -> None:
    """Duplicates of a running request do not run, however many come, one after the other."""
    gate = trial.work_behind_a_gate()
    first = trial.post()
    await trial.marked("working")
    duplicates: list[Exchange] = []
    for _ in range(3):
        duplicates.append(trial.post())
        await trial.parked(duplicates)
    gate.set()
    await first.ended()
    trial.answered(first)
    for each in duplicates:
        await each.ended()
        if not trial.adapter.waits:
            trial.refused(each)
    expect(trial.runs == 1, f"the app ran {trial.runs} times")


@case("prompt refusal")
async def refusal_says_when(trial: Trial) -> str:
    """Who is refused because the first is running is told when to come back: Retry-After."""
    duplicate = await trial.refusal()
    after = (duplicate.header("retry-after") or b"").decode("latin-1")
    expect(after, f"{duplicate.status} without Retry-After")
    expect(after.endswith("GMT") or (after.isdigit() and int(after) >= 1), f"Retry-After: {after}")
    return f"Retry-After: {after}"


@case("memory")
async def duplicate_cancelled(trial: Trial) -> None:
    """A duplicate that is cancelled, at whatever moment, leaves the running request alone."""
    gate = trial.work_behind_a_gate()
    first = trial.post()
    await trial.marked("working")
    for blow in _blows(1 if trial.adapter.waits else ROUNDS):
        duplicate = trial.post(outer=blow)
        await trial.parked([duplicate])
        await duplicate.cancel()
    gate.set()
    await first.ended()
    trial.answered(first)
    await trial.remembered()


@case("retry")
async def handler_cancelled(trial: Trial) -> None:
    """A call that is cancelled ends as cancelled, with the work in it; a retry runs at once."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            return await call.answer()
        trial.mark("working")
        try:
            await asyncio.Event().wait()
        finally:
            trial.mark("ended")

    trial.handle(handler)
    first = trial.post()
    await trial.marked("working")
    await first.cancel()
    swallowed = f"the cancellation did not come out: {first.seen}"
    expect(isinstance(first.error, asyncio.CancelledError), swallowed)
    expect("ended" in trial.log, "the call ended, and the work in it went on")
    await trial.runs_again()


@case("retry")
async def cancelled_at_any_moment(trial: Trial) -> None:
    """A call that is cancelled at whatever moment leaves no claim: a retry is answered at once."""

    async def handler(call: Call) -> None:
        await asyncio.sleep(0)
        await call.answer()
        await asyncio.sleep(0)

    trial.handle(handler)
    trial.answered(await trial.ask())  # connected, from now on
    for blow in _blows():
        trial.renew()
        before = trial.runs
        first = await trial.ask(outer=blow)
        had_run = trial.runs > before
        retry = await trial.ask()
        if trial.adapter.after == "hold" and had_run:
            continue  # done, for all that it knows: a refusal is right
        answered = retry.complete and retry.status == 201
        expect(answered, f"{blow}: the retry got {retry.seen}")
        once = trial.runs == before + 1 or trial.adapter.after == "release"
        expect(once or not first.complete, f"{blow}, the answer was out: the retry ran")


@case("retry")
async def deadline_outside(trial: Trial) -> None:
    """An outer layer's deadline works: its cancellation comes back to it, and a retry runs."""
    limits: list[asyncio.Timeout] = []

    def outer(app: App) -> App:
        async def limited(scope: Scope, receive: Receive, send: Send) -> None:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await app(scope, receive, send)

        return limited

    trial.work_behind_a_gate()
    first = trial.post(outer=outer)
    await trial.marked("working")
    limits[0].reschedule(asyncio.get_running_loop().time())
    await first.ended()
    expect(isinstance(first.error, TimeoutError), f"no TimeoutError came out: {first.seen}")
    trial.handle(Call.answer)
    await trial.runs_again()


@case()
async def deadline_inside(trial: Trial) -> None:
    """The app's own deadline works: it ends what it was set for, and nothing else."""

    async def handler(call: Call) -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            await call.answer()

    trial.handle(handler)
    first = await trial.ask()
    trial.answered(first)
    expect(first.error is None, f"something came out of the app: {first.seen}")


@case("retry")
async def handler_raises(trial: Trial) -> None:
    """What the app raises reaches the server, and a retry runs."""

    async def handler(call: Call) -> None:
        if call.run == 1:
            raise Breakdown("told to")
        await call.answer()

    trial.handle(handler)
    first = await trial.ask()
    expect(isinstance(first.error, Breakdown), f"the app's exception got lost: {first.seen}")
    await trial.runs_again()


@case("retry")
async def server_error(trial: Trial) -> None:
    """A 5xx of the app reaches the client and is not kept: a retry runs."""

    async def handler(call: Call) -> None:
        await call.answer(503 if call.run == 1 else 201)

    trial.handle(handler)
    trial.answered(await trial.ask(), status=503)
    await trial.runs_again()


@case()
async def client_error(trial: Trial) -> str:
    """A 4xx of the app is kept or not, but for every retry alike."""

    async def handler(call: Call) -> None:
        await call.answer(402)

    trial.handle(handler)
    first = await trial.ask()
    trial.answered(first, status=402)
    policies: list[str] = []
    for _ in range(2):
        before = trial.runs
        retry = await trial.ask()
        same = retry.answer == first.answer
        kept = "kept and replayed" if same else f"kept, retries get {retry.status}"
        policies.append("not kept, retries run" if trial.runs > before else kept)
    expect(policies[0] == policies[1], f"first {policies[0]}, then {policies[1]}")
    return policies[0]


@case("memory")
async def background_task_fails(trial: Trial) -> None:
    """A background task that fails after the answer does not undo it: a retry does not run."""

    async def handler(call: Call) -> None:
        await call.answer()
        raise Breakdown("in a background task")

    trial.handle(handler)
    first = await trial.ask()
    trial.answered(first)
    await trial.remembered()


@case("memory")
async def background_task_lasts(trial: Trial) -> None:
    """A background task delays neither the answer nor a retry: the result is there at once."""
    gate = asyncio.Event()

    async def handler(call: Call) -> None:
        await call.answer()
        await gate.wait()

    trial.handle(handler)
    first = trial.post()
    await first.answered()
    await trial.remembered()
    gate.set()
    await first.ended()
    trial.answered(first)


@case("memory")
async def background_task_cancelled(trial: Trial) -> None:
    """A background task that is cancelled after the answer does not undo it."""

    async def handler(call: Call) -> None:
        await call.answer()
        await asyncio.Event().wait()

    trial.handle(handler)
    first = trial.post()
    await first.answered()
    await first.cancel()
    trial.answered(first)
    await trial.remembered()


@case("memory")
async def stored_before_the_last_byte(trial: Trial) -> None:
    """A retry that is sent the moment the client has the last byte finds the result stored."""
    retries: list[asyncio.Task[Exchange]] = []

    async def at_the_end() -> None:
        retries.append(asyncio.create_task(trial.remembered()))
        if not trial.adapter.waits:  # or it would wait for us
            await asyncio.wait(retries)

    first = trial.post(at_the_end=at_the_end)
    await first.ended()
    expect(retries, f"no whole answer: {first.seen}")
    await retries[0]


@case("retry")
async def no_answer(trial: Trial) -> None:
    """An app that returns without an answer is no success: a retry runs."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            await call.answer()

    trial.handle(handler)
    first = await trial.ask()
    invented = first.status is not None and first.status < 500
    expect(not invented, f"an answer was made up: {first.seen}")
    await trial.runs_again()


@case("retry")
async def head_then_raises(trial: Trial) -> None:
    """An app that starts an answer and raises has not answered: a retry runs."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            return await call.answer()
        await call.start()
        raise Breakdown("after the head")

    trial.handle(handler)
    first = await trial.ask()
    expect(isinstance(first.error, Breakdown), f"the app's exception got lost: {first.seen}")
    await trial.runs_again()


@case("retry")
async def body_breaks_off(trial: Trial) -> None:
    """An app that raises amid its answer has not answered: a retry runs, half an answer is none."""

    async def handler(call: Call) -> None:
        if call.run > 1:
            return await call.answer()
        await call.start()
        await call.chunk(b'{"run":')
        raise Breakdown("after half a body")

    trial.handle(handler)
    first = await trial.ask()
    expect(isinstance(first.error, Breakdown), f"the app's exception got lost: {first.seen}")
    await trial.runs_again()


def _blows(rounds: int = ROUNDS) -> Iterator[Interruption]:
    # At the first pause of a call, the second, and so on, until a call ends before its blow.
    # Again and again, because a reply that is quick enough leaves no pause to strike at.
    for late in (False, True) * rounds:
        for pause in range(1, PAUSES):
            blow = Interruption(pause, late=late)
            yield blow
            if not blow.struck:
                break
