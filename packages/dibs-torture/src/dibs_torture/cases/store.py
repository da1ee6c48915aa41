"""What is in the store: how long it stays, who knows of it, and what it gives away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..adapter import Stored
from ..application import JSON, Call
from ..asgi import App, Headers
from ..case import case
from ..harness import Harness
from ..lifespan import second_instance
from ..notifier import expect

LENIENCE = 1.5  # how much longer than it says something may stay: clocks, jitter, a margin
SHORT = 12  # bytes of a part of a key that may occur by chance
SECRETS: Headers = [
    (b"authorization", b"Bearer torture-secret-token"),
    (b"cookie", b"session=torture-secret-session"),
    (b"x-api-key", b"torture-secret-api-key"),
]
# They identify one exchange: in a replay they would point to the first request.
TRACES: Headers = [
    (b"x-request-id", b"torture-1"),
    (b"x-correlation-id", b"torture-1"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
]


@case("lease")
async def work_outlasts_its_lease(harness: Harness) -> None:
    """A claim is kept alive while the work runs: long after its lease, a duplicate does not run."""
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    await asyncio.sleep(
        2 * (harness.adapter.lease or 0)
    )  # the store's own time: nothing to wait for
    duplicate = harness.start_request()
    await harness.wait_refused([duplicate])
    release.set()
    await first.ended()
    await duplicate.ended()
    harness.expect_response(first)


@case("lease", "memory")
async def work_that_blocks_its_loop(harness: Harness) -> str:
    """Work that stops the event loop for longer than its lease is done: a retry does not run."""

    async def handler(call: Call) -> None:
        time.sleep(1.5 * (harness.adapter.lease or 0))  # noqa: ASYNC251 – that is the case
        await call.respond()

    harness.handle(handler)
    harness.expect_response(await harness.request())
    return await harness.expect_not_rerun()


@case("full store", "lease", "memory")
async def full_store(harness: Harness) -> str:
    """Work whose answer does not fit into the store is done: a retry does not run."""
    full = harness.adapter.full
    assert full is not None  # or the case would not have been tried

    async def handler(call: Call) -> None:
        if call.run == 1:
            full(True)
        await call.respond()

    harness.handle(handler)
    try:
        harness.expect_response(await harness.request())
    finally:
        full(False)
    await asyncio.sleep(1.5 * (harness.adapter.lease or 0))  # a claim alone would be over by then
    return await harness.expect_not_rerun()


@case("lease", "contents")
async def lease_ends_by_itself(harness: Harness) -> str:
    """What is in the store while the work runs ends soon after its process has died."""
    known = {each.key for each in await _contents(harness)}
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    new = [each for each in await _contents(harness) if each.key not in known]
    release.set()
    await first.ended()
    expect(new, "nothing is in the store while the work runs")
    return _ends_within(new, harness.adapter.lease or 0)


@case("window", "contents", "memory")
async def result_ends_with_its_window(harness: Harness) -> str:
    """What a success leaves in the store ends when its window is over."""
    known = {each.key for each in await _contents(harness)}
    harness.expect_response(await harness.request())
    new = [each for each in await _contents(harness) if each.key not in known]
    expect(new, "a success leaves nothing in the store")
    return _ends_within(new, harness.adapter.window or 0)


def _ends_within(new: list[Stored], most: float) -> str:
    for each in new:
        expect(each.ttl is not None, "something in the store has no end")
        expect((each.ttl or 0) <= LENIENCE * most, f"it stays for {each.ttl:.0f} s, not {most:g}")
    return f"at most {max(each.ttl or 0 for each in new):.0f} s"


async def _contents(harness: Harness) -> list[Stored]:
    """All that is in the store; read in a thread, so that leases are renewed meanwhile."""
    assert harness.adapter.contents is not None  # or the case would not have been tried
    return list(await asyncio.to_thread(harness.adapter.contents))


@case("contents")
async def secrets_stay_out_of_the_store(harness: Harness) -> None:
    """No credential of a request is in the store, neither while it runs nor afterwards."""
    release = harness.block_handler()
    first = harness.start_request(headers=SECRETS)
    await harness.wait_mark("working")
    await _no_secret(harness, "while it runs")
    release.set()
    await first.ended()
    harness.expect_response(first)
    await _no_secret(harness, "afterwards")


@case("contents", "prompt refusal")
async def store_key_stays_inside(harness: Harness) -> None:
    """A refusal does not say under which key the store has the request."""
    known = {each.key for each in await _contents(harness)}
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    new = {each.key for each in await _contents(harness)} - known
    duplicate = harness.start_request()
    await harness.wait_refused([duplicate])
    release.set()
    await first.ended()
    said = b"\n".join([duplicate.body, *(value for _, value in duplicate.headers)])
    words = {word for key in new for word in (key, *key.split(b":")) if len(word) > SHORT}
    expect(not any(word in said for word in words), "the key of the store is in the refusal")


async def _no_secret(harness: Harness, when: str) -> None:
    there = b"".join(each.key + each.value for each in await _contents(harness))
    expect(b"torture-secret" not in there, f"a credential is in the store {when}")


@case("shared store", "memory")
async def another_instance(harness: Harness) -> None:
    """Another process of the application knows what was done: a retry there does not run."""
    first = await harness.request()
    harness.expect_response(first)
    async with second_instance(harness) as other:
        await harness.expect_remembered(first.response, outer=_instead(other))


@case("shared store")
async def another_instance_while_running(harness: Harness) -> None:
    """Another process of the application knows what is running: a duplicate there does not run."""
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    async with second_instance(harness) as other:
        duplicate = harness.start_request(outer=_instead(other))
        await harness.wait_refused([duplicate])
        release.set()
        await first.ended()
        await duplicate.ended()
    harness.expect_response(first)


@case("other service", "memory")
async def another_service(harness: Harness) -> None:
    """Another application on the same store has its own keys: the same request runs there."""
    harness.expect_response(await harness.request())
    async with second_instance(harness, harness.adapter.other_service) as other:
        answer = await harness.request(outer=_instead(other))
        expect(harness.runs == 2, f"the same in another application did not run: {answer.seen}")


def _instead(other: App) -> Callable[[App], App]:
    return lambda app: other


@case("replay")
async def replay_has_no_trace_of_the_first(harness: Harness) -> None:
    """Ids of the first exchange are not repeated: logs would point to the wrong one."""

    async def handler(call: Call) -> None:
        await call.respond(headers=[*JSON, *TRACES])

    harness.handle(handler)
    first = await harness.request()
    harness.expect_response(first)
    replay = await harness.expect_remembered()
    again = [name.decode() for name, value in TRACES if (name, value) in replay.headers]
    expect(not again, f"replayed: {', '.join(again)}")
