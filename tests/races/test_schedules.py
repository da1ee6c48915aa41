"""Scheduled functions on machines that die, stop and are shut down."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs import AsyncDibs, Event
from dibs.scheduler import main
from dibs.testing import Child, Server, aeventually, eventually
from tests import scheduled_runs

Spawn = Callable[..., Child]
NOON = 1_731_412_800.0


def test_machines_that_die_complete_each_run_once(valkey: Server) -> None:
    """Clocks apart, one machine after the other killed: no run twice, none lost.

    `python -m tests.scheduled_runs` does the same for some minutes, with clocks 30 s apart.
    """
    verdict = scheduled_runs.run(
        valkey.url, 10, schedules=6, every=3, ttl=2.0, takes=0.5, seed=3, apart=2.0, count=3
    )
    assert verdict.runs >= 6
    assert verdict.is_right, verdict


def machine(url: str, now: float, every: int, stuck: bool) -> None:
    """Run a function whose run is due *now*; *stuck*: and wait for a line before it ends."""
    import time

    from dibs import Dibs

    with Dibs(url, budget=5) as dibs:

        @dibs.scheduled(every=every, key="work", ttl=1.5)
        def work(run) -> None:  # type: ignore[no-untyped-def]
            print("begin", int(run.at.timestamp()), run.lease.fence, flush=True)
            if stuck:
                input()
            print("end", flush=True)

        scheduler = dibs.scheduler()
        scheduler.clock, scheduler.server_time = lambda: now, lambda _: int(now * 1000)
        with scheduler:
            print("ready", flush=True)
            time.sleep(60)


def begun(machine: Child) -> list[str]:
    assert machine.line(within=60) == "ready"
    return machine.line(within=60).split()


def last(server: Server) -> float:
    """The last run that is over, in seconds."""
    return int(server.client().get("scheduled-last:work").split()[0]) / 1000


def test_a_run_is_taken_over_from_a_machine_that_died(valkey: Server, spawn: Spawn) -> None:
    """Within the same run: after its short lease, and not at the next one, a day later."""
    midnight = NOON - 12 * 3600
    valkey.client().set("scheduled-last:work", f"{midnight - 86400:.0f}000 web-1:1")
    first = spawn(machine, valkey.url, NOON, 86400, True)
    began = begun(first)
    second = spawn(machine, valkey.url, NOON, 86400, False)
    first.kill()
    taken = begun(second)
    assert taken[:2] == began[:2] == ["begin", f"{midnight:.0f}"]
    assert int(taken[2]) > int(began[2])  # the fence
    assert second.line() == "end"
    eventually(lambda: last(valkey) == midnight)


def test_a_machine_that_was_stopped_does_not_undo_what_others_recorded(
    valkey: Server, spawn: Spawn
) -> None:
    """It resumes when its run was taken over: its own end is late, and moves nothing back."""
    valkey.client().set("scheduled-last:work", f"{NOON - 60:.0f}000 web-1:1")
    first = spawn(machine, valkey.url, NOON, 60, True)
    assert begun(first)[0] == "begin"
    first.freeze()
    second = spawn(machine, valkey.url, NOON + 60, 60, False)
    assert begun(second)[1] == f"{NOON + 60:.0f}"
    eventually(lambda: last(valkey) == NOON + 60)
    first.thaw()
    first.tell()
    assert first.line() == "end"
    eventually(lambda: not valkey.client().exists("scheduled:{scheduled-last:work}"))
    assert last(valkey) == NOON + 60


async def test_a_run_that_is_cancelled_at_the_end_is_taken_over_at_once(valkey: Server) -> None:
    """After `drain` the function is cancelled and its run released, though its lease is long."""
    events: list[Event] = []
    ran: list[str] = []
    async with (
        AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(valkey.url, budget=5) as two,
    ):

        @one.scheduled(every=60, key="long", ttl=60)
        async def slow() -> None:
            ran.append("one")
            await asyncio.Event().wait()

        @two.scheduled(every=60, key="long", ttl=60)
        async def quick() -> None:
            ran.append("two")

        clock = [NOON]
        first, second = one.scheduler(drain=0), two.scheduler()
        first.clock = second.clock = lambda: clock[0]
        first.server_time = second.server_time = lambda _: int(clock[0] * 1000)
        await first.__aenter__()
        await aeventually(lambda: valkey.client().exists("scheduled-last:long"))
        clock[0] += 60
        first.look()
        await aeventually(lambda: ran == ["one"])
        async with second:
            await first.__aexit__()
            await aeventually(lambda: ran == ["one", "two"])
    assert [event.cause for event in events if event.kind == "failed"] == ["stopped"]


async def test_a_scheduler_ends_with_the_tasks_that_its_loop_cancels(valkey: Server) -> None:
    """As `asyncio.run` cancels all tasks, and waits for them: nothing continues."""
    events: list[Event] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="long", ttl=60)
        async def long() -> None:
            await asyncio.Event().wait()

        clock = [NOON]
        scheduler = dibs.scheduler(drain=0)
        scheduler.clock, scheduler.server_time = lambda: clock[0], lambda _: int(clock[0] * 1000)
        before = asyncio.all_tasks()
        await scheduler.__aenter__()
        tasks = asyncio.all_tasks() - before
        await aeventually(lambda: valkey.client().exists("scheduled-last:long"))
        clock[0] += 60
        scheduler.look()
        await aeventually(lambda: "started" in [event.kind for event in events])
        for task in tasks:
            task.cancel()
        _, left = await asyncio.wait(tasks, timeout=60)
        await scheduler.__aexit__()
        assert not left
    assert [event.cause for event in events if event.kind == "failed"] == ["stopped"]


async def test_a_task_whose_lease_is_lost_is_cancelled(valkey: Server) -> None:
    """Its run is not recorded: another machine does it, from the beginning."""
    events: list[Event] = []
    ran: list[int] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="long", ttl=0.6)
        async def long() -> None:
            ran.append(1)
            if len(ran) == 1:
                await asyncio.Event().wait()

        clock = [NOON]
        scheduler = dibs.scheduler()
        scheduler.clock, scheduler.server_time = lambda: clock[0], lambda _: int(clock[0] * 1000)
        async with scheduler:
            await aeventually(lambda: valkey.client().exists("scheduled-last:long"))
            clock[0] += 60
            scheduler.look()
            await aeventually(lambda: ran == [1])
            valkey.client().delete("scheduled:{scheduled-last:long}")
            await aeventually(lambda: ran == [1, 1])
            await aeventually(lambda: events[-1].kind in ("finished", "released"))
    assert [event.cause for event in events if event.kind == "failed"] == ["lease_lost"]


# ------------------------------------------------------------------------------------- the runner

PROGRAM = """
import asyncio, time
from dibs import AsyncDibs, Dibs

adibs = AsyncDibs({url!r}, namespace="a:")
dibs = Dibs({url!r}, namespace="s:")
nothing = 7

@adibs.scheduled(every=1, key="tick")
async def tick() -> None:
    print("begin", flush=True)
    await asyncio.sleep(0.8)
    print("end", flush=True)

@dibs.scheduled(every=1, key="tick")
def tack() -> None:
    print("begin", flush=True)
    time.sleep(0.8)
    print("end", flush=True)
"""
RUNNER = """
import sys
sys.path.insert(0, {folder!r})
from dibs.scheduler import main
sys.exit(main([{target!r}]))
"""


@pytest.mark.parametrize("name", ["adibs", "dibs"])
def test_a_runner_ends_cleanly_on_sigterm(
    name: str, valkey: Server, spawn: Spawn, tmp_path: Path
) -> None:
    """A run that has begun is finished, its end is recorded, and the exit status is 0."""
    (tmp_path / "program.py").write_text(PROGRAM.format(url=valkey.url))
    runner = spawn(RUNNER.format(folder=str(tmp_path), target=f"program:{name}"))
    assert runner.line(within=60) == "begin"
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.lines()[:1] == ["end"]
    prefix = name[0] if name == "adibs" else "s"
    assert not valkey.client().exists(f"{prefix}:scheduled:{{{prefix}:scheduled-last:tick}}")


EARLY = """
import logging
import os
import signal

class Ending(logging.Handler):
    def emit(self, record):
        if ": scheduled " in record.getMessage():  # said before the first run is looked for
            os.kill(os.getpid(), signal.SIGTERM)

logging.getLogger("dibs").addHandler(Ending())
"""


@pytest.mark.parametrize("name", ["adibs", "dibs"])
def test_a_runner_that_is_ended_as_it_starts_ends_cleanly(
    name: str, valkey: Server, spawn: Spawn, tmp_path: Path
) -> None:
    """A signal may come before the program waits for one: the exit status is 0 then, too."""
    (tmp_path / "program.py").write_text(EARLY + PROGRAM.format(url=valkey.url))
    runner = spawn(RUNNER.format(folder=str(tmp_path), target=f"program:{name}"))
    assert set(runner.lines()) <= {"begin", "end"}  # an AssertionError: it failed


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("program", "not of the form package.module:name"),
        ("nowhere.at_all:dibs", "there is no module 'nowhere.at_all' here"),
        ("some_program:nothing", "some_program:nothing is not a Dibs or an AsyncDibs, but int"),
        ("some_program:missing.part", "the module 'some_program' has no 'missing.part'"),
    ],
)
def test_a_runner_says_what_it_cannot_find(
    target: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One sentence, and exit status 2."""
    (tmp_path / "some_program.py").write_text("nothing = 7")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([target])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_runner_passes_on_what_is_wrong_inside_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing module that lacks another one is not reported as missing."""
    (tmp_path / "broken_program.py").write_text("import nothing_of_the_kind")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_the_kind"):
        main(["broken_program:dibs"])
