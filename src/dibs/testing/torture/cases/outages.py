"""Outages: the store hangs or is gone, and everybody still gets an answer."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from ...patience import aeventually
from ..adapter import Store
from ..case import case
from ..news import expect, quiet
from ..trial import Trial

ASKED = 200  # turns of the event loop in which a request gets as far as the store


def _store(trial: Trial) -> Store:
    store = trial.adapter.store
    assert store is not None  # or the case would not have been tried
    return store


@contextmanager
def _frozen(trial: Trial) -> Generator[None]:
    _store(trial).freeze()
    try:
        yield
    finally:
        _store(trial).thaw()


@contextmanager
def _killed(trial: Trial) -> Generator[None]:
    _store(trial).kill()
    try:
        yield
    finally:
        _store(trial).restart()


async def _warm(trial: Trial) -> None:
    trial.answered(await trial.ask())
    trial.renew()


async def _asked(trial: Trial) -> str:
    began = time.monotonic()
    answer = await trial.ask()
    took = f"after {time.monotonic() - began:.1f} s"
    if answer.error is not None:
        return f"raised {type(answer.error).__name__} {took}, a server makes it a 500"
    expect(answer.complete, f"no whole answer: {answer.seen}")
    return f"answered {answer.status} {took}"


@case("store")
async def store_hangs(trial: Trial) -> str:
    """While the store hangs, a guarded request gets an answer in time, whatever it is."""
    await _warm(trial)
    with _frozen(trial):
        return await _asked(trial)


@case("store")
async def store_gone(trial: Trial) -> str:
    """While the store is gone, a guarded request gets an answer in time, whatever it is."""
    await _warm(trial)
    with _killed(trial):
        return await _asked(trial)


@case("store")
async def store_hangs_midway(trial: Trial) -> None:
    """Work that is done when the store hangs is answered in time, and the call ends."""
    await _warm(trial)
    gate = trial.work_behind_a_gate()
    first = trial.post()
    await trial.marked("working")
    with _frozen(trial):
        gate.set()
        await first.ended()
    trial.answered(first)


@case("store")
async def store_gone_midway(trial: Trial) -> None:
    """Work that is done when the store is gone is answered in time, and the call ends."""
    await _warm(trial)
    gate = trial.work_behind_a_gate()
    first = trial.post()
    await trial.marked("working")
    with _killed(trial):
        gate.set()
        await first.ended()
    trial.answered(first)


@case("store", "retry")
async def cancelled_while_claiming(trial: Trial) -> None:
    """A call that is cancelled while it asks the store leaves no claim: later, a retry runs."""
    await _warm(trial)
    with _frozen(trial):
        first = trial.post()
        await quiet(ASKED)
        await first.cancel()
    await aeventually(lambda: _is_answered(trial), within=trial.adapter.within)


async def _is_answered(trial: Trial) -> bool:
    retry = await trial.ask()
    expect(retry.complete and retry.status == 201, f"the retry got {retry.seen}")
    return True


@case("store")
async def unguarded_without_store(trial: Trial) -> None:
    """A request that is not guarded does not need the store."""
    await _warm(trial)
    with _frozen(trial):
        trial.answered(await trial.ask(route=trial.adapter.open, keys=[], body=[b""]))


@case("store", "memory")
async def store_returns(trial: Trial) -> None:
    """When the store is back, so is the guard."""
    await _warm(trial)
    with _killed(trial):
        await _asked(trial)
    await aeventually(lambda: _is_guarded(trial), within=trial.adapter.within)


async def _is_guarded(trial: Trial) -> bool:
    # A broken promise is an AssertionError: it is asked again, until the time is over.
    trial.renew()
    first = await trial.ask()
    trial.answered(first)
    await trial.remembered(first.answer)
    return True
