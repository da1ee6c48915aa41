"""Signal handlers that use dibs, or raise, wherever their thread happens to be."""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from dibs import Dibs, Event, Unavailable
from dibs._core.lease import LeaseState
from dibs._sync.renewer import Renewer
from dibs.testing import FaultProxy, Server, eventually

from ..conftest import Spawn


def use_it_inside_its_own_lock(url: str) -> list[bool]:
    from dibs import Dibs

    with Dibs(url, budget=5) as dibs:
        with (
            dibs._leases.waiters.guard,
            dibs._leases.renewer.guard,
        ):  # as if the signal had come in here
            with dibs.hold("user:1", ttl=5, renew=True) as lease:
                seen = [lease.guarded, dibs.try_hold("user:1", ttl=5, wait=0.05) is None]
            seen.append(dibs.try_hold("user:1", ttl=5, wait=0.05) is not None)
    return seen


def test_a_handler_does_not_wait_for_its_own_thread(valkey: Server, spawn: Spawn) -> None:
    """The interrupted code has the lock: the handler continues, it does not wait for ever."""
    assert spawn(use_it_inside_its_own_lock, valkey.url).result(within=90) == [True, True, True]


def interrupt_it_everywhere(url: str, rounds: int) -> list[object]:
    import signal
    import time

    from dibs import Dibs

    handled = 0
    with Dibs(url, budget=5) as dibs:

        def handler(signum: int, frame: object) -> None:
            nonlocal handled
            with dibs.hold(f"signal:{handled}", ttl=5, renew=True):
                handled += 1
            # Not periodic: handlers that take longer than the period would never end.
            signal.setitimer(signal.ITIMER_REAL, 0.0003)

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        until = time.monotonic() + 20
        lost = done = 0
        while done < rounds and time.monotonic() < until:
            with dibs.hold("user:1", ttl=5, renew=True, wait=5) as lease:
                lost += lease.lost
            done += 1
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return [done, handled > 10, lost]


def test_signals_at_any_moment(valkey: Server, spawn: Spawn) -> None:
    """A thousand signals into holds, renewals and releases: no deadlock, no lease lost."""
    assert spawn(interrupt_it_everywhere, valkey.url, 400).result(within=90) == [400, True, 0]
    assert valkey.keys() == []


def wake_the_waiter_from_a_handler(url: str) -> bool:
    import signal
    import threading

    from dibs import Dibs

    with Dibs(url, budget=5) as dibs:
        lease = dibs.try_hold("user:1", ttl=60)
        assert lease is not None
        signal.signal(signal.SIGALRM, lambda *_: lease.release())
        threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGALRM)).start()
        with dibs.hold("user:1", ttl=5, wait=15) as mine:
            return mine.guarded


def test_a_handler_wakes_the_thread_that_it_interrupts(valkey: Server, spawn: Spawn) -> None:
    """The handler releases what its own thread waits for."""
    assert spawn(wake_the_waiter_from_a_handler, valkey.url).result(within=90) is True


def read_a_changed_value_while_signals_come(url: str, server: str) -> list[int]:
    import signal
    import threading
    import time

    import redis

    from dibs import Dibs

    values = iter(range(100))
    signal.signal(signal.SIGALRM, lambda *_: None)
    with Dibs(url, budget=1) as dibs, redis.Redis.from_url(server) as other:

        @dibs.cached("menu:{branch}", ttl=600, local=True)
        def menu(branch: str) -> int:
            return next(values)

        seen = [menu("b1"), menu("b1")]
        [reading] = [each for each in threading.enumerate() if each.name == "dibs subscriber"]
        assert reading.ident is not None
        print("read", flush=True)
        input()
        other.delete("menu:b1")
        time.sleep(0.2)  # until the push is lost; nothing shows that from outside
        print("deleted", flush=True)
        input()
        until = time.monotonic() + 15
        while seen[-1] == 0 and time.monotonic() < until:
            time.sleep(0.3)
            if reading.is_alive():
                signal.pthread_kill(reading.ident, signal.SIGALRM)
            seen.append(menu("b1"))
        return [seen[0], seen[1], seen[-1]]


def test_signals_do_not_hide_a_silent_connection(own_server: Server, spawn: Spawn) -> None:
    """An interrupted read of a socket starts again, and with it the wait of the kernel."""
    with FaultProxy(own_server.port) as line:
        child = spawn(read_a_changed_value_while_signals_come, line.url, own_server.url)
        assert child.line() == "read"
        line.black_hole()
        child.tell()
        assert child.line() == "deleted"
        line.heal()  # for new connections: one that has lost bytes stays silent
        child.tell()
        assert child.result(within=90) == [0, 0, 1]


def meet_a_hung_server_while_signals_come(url: str, armed: str) -> list[object]:
    import signal

    from dibs import Dibs

    handled = 0

    def handler(signum: int, frame: object) -> None:
        nonlocal handled
        handled += 1

    def arm() -> None:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)

    if armed == "before":
        arm()
    with Dibs(url, budget=0.25) as dibs:
        with dibs.hold("user:1", ttl=5):
            pass
        if armed == "after":
            arm()
            dibs._store.transport._pool.sweep_at = 0.0  # a second later
            with dibs.hold("user:1", ttl=5):
                pass
        print("ready", flush=True)
        input()
        handled = 0
        with dibs.hold("user:1", ttl=5) as lease:
            during = handled
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        return [lease.guarded, during]


@pytest.mark.only_on("linux")
@pytest.mark.parametrize("armed", ["before", "after"])
def test_signals_do_not_stretch_the_budget(own_server: Server, spawn: Spawn, armed: str) -> None:
    """A profiler's timer, every 2 ms: the wait of the kernel would restart with each signal.

    Signals are the clock here: if the machine is slow, fewer of them are handled.
    """
    child = spawn(meet_a_hung_server_while_signals_come, own_server.url, armed)
    assert child.line(within=60) == "ready"
    own_server.freeze()
    child.tell()
    guarded, during = child.result(within=60)
    assert guarded is False
    assert during < 450, "that is 0.9 s; the budget is 0.25 s"


class TimeIsUp(Exception):
    """What a job queue raises in its workers: a soft time limit."""


def refusing_threads(monkeypatch: pytest.MonkeyPatch, error: BaseException, times: int) -> None:
    """The system has no thread for the renewer, the first *times*."""
    start = threading.Thread.start
    left = [times]

    def refuse(thread: threading.Thread) -> Any:
        if thread.name == "dibs renewer" and left[0]:
            left[0] -= 1
            raise error
        return start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(RuntimeError("can't start new thread"), Unavailable), (TimeIsUp(), TimeIsUp)],
)
@pytest.mark.parametrize("verb", ["hold", "claim"])
def test_a_renewer_that_cannot_be_started_once(
    valkey: Server,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
    verb: str,
) -> None:
    """The caller gets an error, the key is released; the next one is renewed, close() is quiet."""
    refusing_threads(monkeypatch, error, 1)
    with Dibs(valkey.url, budget=5) as dibs:

        def guarded() -> Any:
            if verb == "hold":
                return dibs.hold("user:1", ttl=0.6, renew=True)
            return dibs.claim("user:1", window=60, lease=0.6)

        with pytest.raises(raised), guarded():
            pytest.fail("not kept alive")
        assert valkey.keys() == []
        with guarded() as held:
            threading.Event().wait(1.2)
            assert not held.lost
            assert valkey.keys() == ["user:1"]
        assert valkey.keys() == []


def test_a_load_whose_lock_cannot_be_kept_alive_frees_it(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value is loaded all the same, and the next caller does not wait for the lock."""
    refusing_threads(monkeypatch, RuntimeError("can't start new thread"), 1)
    with Dibs(valkey.url, budget=5) as dibs:
        assert dibs.get_or_load("menu:1", lambda: 1, ttl=60, lock_ttl=60) == 1
        assert [key for key in valkey.keys() if "lock" in key] == []
        assert dibs.get_or_load("menu:1", lambda: 1, ttl=60, lock_ttl=60) == 1


def test_closing_after_the_renewer_could_not_be_started(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing to join: close() does not raise."""
    refusing_threads(monkeypatch, RuntimeError("can't start new thread"), 1000)
    dibs = Dibs(valkey.url, budget=5)
    for _ in range(3):
        with pytest.raises(Unavailable), dibs.hold("user:1", ttl=5, renew=True):
            pytest.fail("not kept alive")
    dibs.close()
    assert valkey.keys() == []


def test_a_handler_that_raises_while_the_renewer_starts(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread runs, but start() raised: leases are renewed, by one thread."""
    start = threading.Thread.start
    interrupted = [False]

    def start_and_raise(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "dibs renewer" and not interrupted[0]:
            interrupted[0] = True
            signal.raise_signal(signal.SIGUSR1)

    def handler(signum: int, frame: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGUSR1, handler)
    monkeypatch.setattr(threading.Thread, "start", start_and_raise)
    try:
        with Dibs(valkey.url, budget=5) as dibs:
            with pytest.raises(TimeIsUp), dibs.hold("user:1", ttl=5, renew=True):
                pytest.fail("interrupted before")
            with dibs.hold("user:1", ttl=0.6, renew=True) as lease:
                threading.Event().wait(1.0)
                assert not lease.lost
                renewers = [each for each in threading.enumerate() if each.name == "dibs renewer"]
                assert len(renewers) == 1
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("verb", ["claim", "hold"])
@pytest.mark.filterwarnings("ignore:.* not entered:RuntimeWarning")
def test_a_handler_that_raises_before_the_block_begins(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The caller has no lease to end: it is not renewed, and the key is free again."""

    def keep_and_raise(renewer: Renewer, lease: LeaseState) -> None:
        keep(renewer, lease)
        sys.setprofile(raise_after_return)

    def raise_after_return(frame: FrameType, event: str, arg: object) -> None:
        if event == "return" and frame.f_code.co_name == "keep_and_raise":
            return
        sys.setprofile(None)
        raise TimeIsUp

    keep = Renewer.keep
    monkeypatch.setattr(Renewer, "keep", keep_and_raise)
    with Dibs(valkey.url, budget=5) as dibs:
        guard: Any = dibs.hold("user:1", ttl=0.6, renew=True)
        if verb == "claim":
            guard = dibs.claim("user:1", window=60, lease=0.6)
        with pytest.raises(TimeIsUp), guard:
            pytest.fail("interrupted before")
        del guard
        eventually(lambda: valkey.keys() == [], within=90)


def test_a_renewer_goes_on_after_an_error_that_nobody_expected(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the leases are renewed all the same."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        ask_all = dibs._store.ask_all
        failed: list[bool] = []

        def fail_once(*args: Any) -> Any:
            if not failed:
                failed.append(True)
                raise MemoryError
            return ask_all(*args)

        monkeypatch.setattr(dibs._store, "ask_all", fail_once)
        with dibs.hold("user:1", ttl=0.9, renew=True) as lease:
            eventually(lambda: "renewed" in [event.kind for event in events])
            assert failed and not lease.lost
    assert "renewing leases failed" in caplog.text


def fork_with_something_dropped(url: str) -> list[object]:
    import gc
    import os

    from dibs import Dibs

    leaked: list[str] = []

    def listener(event: object) -> None:
        if getattr(event, "kind", "") == "leaked":
            leaked.append(getattr(event, "name", ""))

    dibs = Dibs(url, budget=5, listeners=[listener])
    with Dibs("redis://127.0.0.1:1", listeners=[listener]) as out:
        unguarded = out.claim("out:1", window=60).__enter__()
        held = dibs.hold("held:1", ttl=60, renew=True)
        held.__enter__()
        lost = dibs.claim("lost:1", window=60).__enter__()
        lost._leases.lose(lost._lease, "ended by the program")
        dibs._events.dropped.append(("dropped:*", 1.0))  # collected, and not yet reported
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                leaked.clear()
                del unguarded, held, lost
                gc.collect()
                dibs.peek("user:1")
                with dibs.hold("mine:1", ttl=5):
                    pass
                out._events.emit_dropped()
                os.write(writer, repr(leaked).encode())
            finally:
                os._exit(0)
        os.wait()
        child = os.read(reader, 1000).decode()
        del unguarded, held, lost
        gc.collect()
        dibs._events.emit_dropped()
        out._events.emit_dropped()
    dibs.close()
    return [child, sorted(leaked)]


def test_only_the_parent_tells_what_the_parent_dropped(valkey: Server, spawn: Spawn) -> None:
    """After a fork both halves collect the same objects: one of them had leased them."""
    child, parent = spawn(fork_with_something_dropped, valkey.url).result()
    assert child == "[]"
    assert parent == ["dropped:*", "held:*", "lost:*", "out:*"]


def raise_in_main_thread_when(is_there: Callable[[], object]) -> threading.Thread:
    """Have the handler of SIGUSR1 raise in the main thread, wherever that is by then."""

    def wait_and_raise() -> None:
        eventually(is_there)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGUSR1)

    def handler(signum: int, frame: object) -> None:
        raise TimeIsUp

    signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=wait_and_raise)
    thread.start()
    return thread


@pytest.mark.parametrize("phase", ["sent", "sent again", "connecting"])
def test_a_handler_that_raises_while_a_key_is_released(valkey: Server, phase: str) -> None:
    """The release continues, though its first connection is ended before it arrives there."""
    held = {"sent": 1, "sent again": 2, "connecting": 0}[phase]
    with FaultProxy(valkey.port) as line, Dibs(line.url, budget=2, connect=60) as dibs:
        lease = dibs.try_hold("user:1", ttl=300)
        assert lease is not None
        before = line.connections
        for _ in range(held):
            line.hold_requests(match=b"user:1")
        if not held:
            line.stall(replies=True)
            line.cut()
        raised = raise_in_main_thread_when(
            lambda: line.triggered == held and (held or line.connections > before)
        )
        with pytest.raises(TimeIsUp):
            lease.release()
        raised.join()
        if not held:
            line.heal()
        dibs.peek("user:2")  # on another connection: the server ends those that were left
        line.deliver()
        eventually(lambda: valkey.keys() == [], within=30)
