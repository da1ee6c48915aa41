"""What is in the store: how long it stays, who knows of it, and what it gives away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..adapter import Stored
from ..asgi import App, Headers
from ..case import case
from ..lifespan import beside
from ..news import expect
from ..stage import JSON, Call
from ..trial import Trial

LENIENCE = 1.5  # how much longer than it says something may stay: clocks, jitter, a margin
SECRETS: Headers = [
    (b"authorization", b"Bearer torture-secret-token"),
    (b"cookie", b"session=torture-secret-session"),
    (b"x-api-key", b"torture-secret-api-key"),
]
# Of one exchange: in a replay they would send whoever looks for it to the first one.
TRACES: Headers = [
    (b"x-request-id", b"torture-1"),
    (b"x-correlation-id", b"torture-1"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
]


@case("lease")
async def work_outlasts_its_lease(trial: Trial) -> None:
    """A claim is kept alive while the work runs: long after its lease, a duplicate does not run."""
    gate = trial.work_behind_a_gate()
    first = trial.post()
    await trial.marked("working")
    await asyncio.sleep(2 * (trial.adapter.lease or 0))  # the store's own time: nothing to wait for
    duplicate = trial.post()
    await trial.parked([duplicate])
    gate.set()
    await first.ended()
    await duplicate.ended()
    trial.answered(first)


@case("lease", "contents")
async def lease_ends_by_itself(trial: Trial) -> str:
    """What is in the store while the work runs ends soon after its process has died."""
    known = {each.key for each in _contents(trial)}
    gate = trial.work_behind_a_gate()
    first = trial.post()
    await trial.marked("working")
    new = [each for each in _contents(trial) if each.key not in known]
    gate.set()
    await first.ended()
    expect(new, "nothing is in the store while the work runs")
    return _ends_within(new, trial.adapter.lease or 0)


@case("window", "contents", "memory")
async def result_ends_with_its_window(trial: Trial) -> str:
    """What a success leaves in the store ends when its window is over."""
    known = {each.key for each in _contents(trial)}
    trial.answered(await trial.ask())
    new = [each for each in _contents(trial) if each.key not in known]
    expect(new, "a success leaves nothing in the store")
    return _ends_within(new, trial.adapter.window or 0)


def _ends_within(new: list[Stored], most: float) -> str:
    for each in new:
        expect(each.left is not None, "something in the store has no end")
        expect((each.left or 0) <= LENIENCE * most, f"it stays for {each.left:.0f} s, not {most:g}")
    return f"at most {max(each.left or 0 for each in new):.0f} s"


def _contents(trial: Trial) -> list[Stored]:
    assert trial.adapter.contents is not None  # or the case would not have been tried
    return list(trial.adapter.contents())


@case("contents")
async def secrets_stay_out_of_the_store(trial: Trial) -> None:
    """No credential of a request is in the store, neither while it runs nor afterwards."""
    gate = trial.work_behind_a_gate()
    first = trial.post(headers=SECRETS)
    await trial.marked("working")
    _no_secret(trial, "while it runs")
    gate.set()
    await first.ended()
    trial.answered(first)
    _no_secret(trial, "afterwards")


def _no_secret(trial: Trial, when: str) -> None:
    there = b"".join(each.key + each.value for each in _contents(trial))
    expect(b"torture-secret" not in there, f"a credential is in the store {when}")


@case("shared store", "memory")
async def another_instance(trial: Trial) -> None:
    """Another process of the application knows what was done: a retry there does not run."""
    first = await trial.ask()
    trial.answered(first)
    async with beside(trial) as other:
        await trial.remembered(first.answer, outer=_in_place(other))


@case("shared store")
async def another_instance_while_running(trial: Trial) -> None:
    """Another process of the application knows what is running: a duplicate there does not run."""
    gate = trial.work_behind_a_gate()
    first = trial.post()
    await trial.marked("working")
    async with beside(trial) as other:
        duplicate = trial.post(outer=_in_place(other))
        await trial.parked([duplicate])
        gate.set()
        await first.ended()
        await duplicate.ended()
    trial.answered(first)


@case("other service", "memory")
async def another_service(trial: Trial) -> None:
    """Another application on the same store has keys of its own: the same request runs there."""
    trial.answered(await trial.ask())
    async with beside(trial, trial.adapter.other_service) as other:
        answer = await trial.ask(outer=_in_place(other))
        expect(trial.runs == 2, f"the same in another application did not run: {answer.seen}")


def _in_place(other: App) -> Callable[[App], App]:
    return lambda app: other


@case("replay")
async def replay_has_no_trace_of_the_first(trial: Trial) -> None:
    """Ids of the first exchange are not repeated: logs would point to the wrong one."""

    async def handler(call: Call) -> None:
        await call.answer(headers=[*JSON, *TRACES])

    trial.handle(handler)
    first = await trial.ask()
    trial.answered(first)
    replay = await trial.remembered()
    again = [name.decode() for name, value in TRACES if (name, value) in replay.headers]
    expect(not again, f"replayed: {', '.join(again)}")
