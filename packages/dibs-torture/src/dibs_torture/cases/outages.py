"""Outages: the store hangs or is down, and every client still gets an answer."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from ..adapter import Store
from ..case import case
from ..harness import Harness
from ..notifier import eventually, expect, settle

ASKED = 200  # turns of the event loop in which a request gets as far as the store


def _store(harness: Harness) -> Store:
    store = harness.adapter.store
    assert store is not None  # or the case would not have been tried
    return store


@contextmanager
def _frozen(harness: Harness) -> Generator[None]:
    _store(harness).freeze()
    try:
        yield
    finally:
        _store(harness).thaw()


@contextmanager
def _killed(harness: Harness) -> Generator[None]:
    _store(harness).kill()
    try:
        yield
    finally:
        _store(harness).restart()


async def _warm(harness: Harness) -> None:
    harness.expect_response(await harness.request())
    harness.use_new_key()


async def _asked(harness: Harness) -> str:
    began = time.monotonic()
    answer = await harness.request()
    took = f"after {time.monotonic() - began:.1f} s"
    if answer.error is not None:
        return f"raised {type(answer.error).__name__} {took}, a server makes it a 500"
    expect(answer.complete, f"no whole answer: {answer.seen}")
    return f"answered {answer.status} {took}"


@case("store")
async def store_hangs(harness: Harness) -> str:
    """While the store hangs, a guarded request gets some answer in time."""
    await _warm(harness)
    with _frozen(harness):
        return await _asked(harness)


@case("store")
async def store_gone(harness: Harness) -> str:
    """While the store is down, a guarded request gets some answer in time."""
    await _warm(harness)
    with _killed(harness):
        return await _asked(harness)


@case("store")
async def store_hangs_midway(harness: Harness) -> None:
    """Work that is done when the store hangs is answered in time, and the call ends."""
    await _warm(harness)
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    with _frozen(harness):
        release.set()
        await first.ended()
    harness.expect_response(first)


@case("store")
async def store_gone_midway(harness: Harness) -> None:
    """Work that is done when the store is gone is answered in time, and the call ends."""
    await _warm(harness)
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    with _killed(harness):
        release.set()
        await first.ended()
    harness.expect_response(first)


@case("store", "retry")
async def cancelled_while_claiming(harness: Harness) -> None:
    """A call that is cancelled while it asks the store leaves no claim: later, a retry runs."""
    await _warm(harness)
    with _frozen(harness):
        first = harness.start_request()
        await settle(ASKED)
        await first.cancel()
    await eventually(lambda: _is_answered(harness), within=harness.adapter.within)


async def _is_answered(harness: Harness) -> None:
    retry = await harness.request()
    expect(retry.complete and retry.status == 201, f"the retry got {retry.seen}")


@case("store")
async def unguarded_without_store(harness: Harness) -> None:
    """A request that is not guarded does not need the store."""
    await _warm(harness)
    with _frozen(harness):
        harness.expect_response(
            await harness.request(route=harness.adapter.open, keys=[], body=[b""])
        )


@case("store", "memory")
async def store_returns(harness: Harness) -> None:
    """When the store is back, so is the guard."""
    await _warm(harness)
    with _killed(harness):
        await _asked(harness)
    await eventually(lambda: _is_guarded(harness), within=harness.adapter.within)


async def _is_guarded(harness: Harness) -> None:
    # Repeated until the time is over.
    harness.use_new_key()
    first = await harness.request()
    harness.expect_response(first)
    await harness.expect_remembered(first.response)
