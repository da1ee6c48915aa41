"""Many threads, one Dibs."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from dibs import Dibs, Event, Unavailable, UsageError
from dibs._core.causes import cause_for
from dibs._transport import pooled
from dibs._transport.pool import ThreadConnection
from dibs._transport.subscriber import Subscriber
from dibs.testing import Child, FaultProxy, Server, eventually


def renewers() -> int:
    return sum(thread.name == "dibs renewer" for thread in threading.enumerate())


def test_one_renewer_for_many_threads(valkey: Server) -> None:
    """Forty threads renew at once: one renewer thread, and none of the leases is forgotten.

    Two that begin in the same moment may start two; the older one ends when it looks.
    """
    most = 0
    with Dibs(valkey.url, budget=5) as dibs, ThreadPoolExecutor(40) as pool:
        start, held = threading.Barrier(40), threading.Barrier(41)

        def work(number: int) -> bool:
            start.wait()
            with dibs.hold(f"user:{number}", ttl=1.5, renew=True) as lease:
                held.wait()
                time.sleep(2.5)
                return lease.lost

        futures = [pool.submit(work, number) for number in range(40)]
        held.wait()
        eventually(lambda: renewers() == 1)
        while not all(future.done() for future in futures):
            most = max(most, renewers())
            time.sleep(0.01)
        assert not any(future.result() for future in futures)
    assert most == 1


def test_keeping_again_right_after_the_last_one_ended(valkey: Server) -> None:
    """A renewer that is just ending does not swallow the next lease."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        for _ in range(150):
            with dibs.hold("user:1", ttl=5, renew=True):
                time.sleep(0.0005)
        events.clear()
        with dibs.hold("user:1", ttl=4, renew=True):
            eventually(lambda: "renewed" in [event.kind for event in events])


def test_the_first_call_keeps_to_its_limits(valkey: Server) -> None:
    """Opening and asking have a limit each, also when the reply is lost."""
    with FaultProxy(valkey.port) as proxy:
        proxy.delay(requests=0.05, replies=0.05)
        proxy.swallow_replies(count=2, match=b"user:1")
        with Dibs(proxy.url, budget=0.5) as dibs:
            since = time.monotonic()
            with dibs.hold("user:1", ttl=5):
                assert time.monotonic() - since < 2 + 0.5 + 20  # the last: for a busy machine


def test_without_a_thread_to_renew_it_nothing_is_taken(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the interpreter shuts down: Unavailable, with a code; a value is loaded all the same.

    Python 3.12 starts no thread for a worker that goes on after the main thread has ended.
    """

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with Dibs(valkey.url, budget=5) as dibs:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(Unavailable, match="no thread") as caught, dibs.claim("a", window=5):
            raise AssertionError
        assert caught.value.cause == "no_thread"
        with pytest.raises(Unavailable), dibs.hold("a", ttl=5, renew=True):
            raise AssertionError
        assert valkey.keys() == []
        assert dibs.get_or_load("menu", lambda: 17, ttl=5) == 17
        with dibs.hold("a", ttl=5) as lease:
            assert lease.guarded


def test_threads_share_few_connections(valkey: Server) -> None:
    """Connections are used again: as many as threads ask at once, not one for each call."""
    with FaultProxy(valkey.port) as proxy, Dibs(proxy.url, budget=5) as dibs:

        def work(number: int) -> None:
            for turn in range(20):
                with dibs.hold(f"user:{number}:{turn}", ttl=5):
                    pass

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert proxy.connections <= 9


def test_two_hundred_threads_at_once_on_a_cold_dibs(valkey: Server) -> None:
    """They share few handshakes: all of them are guarded, and no breaker opens."""
    events: list[str] = []
    with Dibs(valkey.url, budget=2, listeners=[lambda event: events.append(event.kind)]) as dibs:
        start = threading.Barrier(200)

        def work(number: int) -> bool:
            start.wait()
            with dibs.hold(f"user:{number}", ttl=5) as lease:
                return lease.guarded

        with ThreadPoolExecutor(200) as pool:
            assert all(pool.map(work, range(200)))
    assert "outage" not in events


def guarded_of(dibs: Dibs, threads: int, seconds: float) -> list[bool]:
    """Whether each lease that *threads* took within *seconds*, one at least, was guarded."""
    until = time.monotonic() + seconds
    found: list[bool] = []

    def work(number: int) -> None:
        while True:
            with dibs.hold(f"user:{number}", ttl=5) as lease:
                found.append(lease.guarded)
            if time.monotonic() > until:
                return

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work, number) for number in range(threads)]:
            future.result()
    return found


def test_connections_that_all_break_at_once_are_not_an_outage(valkey: Server) -> None:
    """A proxy that restarts, CLIENT KILL: every thread reconnects, and none goes unguarded."""
    with FaultProxy(valkey.port) as proxy, Dibs(proxy.url, budget=5) as dibs:
        cutter = threading.Timer(0.3, proxy.cut)
        cutter.start()
        guarded = guarded_of(dibs, threads=30, seconds=0.8)
        cutter.join()
    assert all(guarded)


def test_a_server_that_takes_no_more_connections_serves_all_threads(
    start_server: Callable[..., Server],
) -> None:
    """They share those that there are: `maxclients` is reached, but the server is well."""
    server = start_server(config=("--maxclients", "8"))
    with Dibs(server.url, budget=5) as dibs:
        guarded = guarded_of(dibs, threads=30, seconds=0.8)
    assert len(guarded) >= 30
    assert all(guarded)


def test_a_process_without_file_descriptors_shares_its_connections(
    valkey: Server, spawn: Callable[..., Child]
) -> None:
    """All threads are served by the connections that are open."""
    assert spawn(without_descriptors, valkey.url).result() == [True]


def without_descriptors(url: str) -> list[bool]:
    import os
    import resource
    import threading

    from dibs import Dibs

    with Dibs(url, budget=5) as dibs:
        dibs.peek("user:0")
        most = len(os.listdir("/proc/self/fd")) + 3
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        found: set[bool] = set()

        def work(number: int) -> None:
            for _ in range(20):
                with dibs.hold(f"user:{number}", ttl=5) as lease:
                    found.add(lease.guarded)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(found)


def test_connections_that_the_server_closed_are_closed_here_too(
    start_server: Callable[..., Server], spawn: Callable[..., Child]
) -> None:
    """A burst leaves idle connections; the server ends them after a second; no socket stays."""
    server = start_server("valkey")
    server.client().config_set("timeout", 1)
    with FaultProxy(server.port) as proxy:
        proxy.delay(replies=0.05)
        opened, kept = spawn(one_caller_after_a_burst, proxy.url).result()
        assert opened > 5
        assert kept == 1


def one_caller_after_a_burst(url: str) -> tuple[int, int]:
    import time
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from dibs import Dibs

    def sockets() -> int:
        return sum(path.is_socket() for path in Path("/proc/self/fd").iterdir())

    before = sockets()
    with Dibs(url, budget=5) as dibs:
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda number: dibs.try_hold(f"user:{number}", ttl=5), range(40)))
        opened = sockets() - before
        end = time.monotonic() + 20
        while sockets() - before > 1 and time.monotonic() < end:
            dibs.peek("user:1")
        return opened, sockets() - before


def test_all_threads_leave_a_server_that_was_demoted(
    start_server: Callable[..., Server],
) -> None:
    """Its successor has the same address, and no connection was closed: those that other threads
    were using when one thread noticed are not used again."""
    old, new = start_server(), start_server()
    with (
        FaultProxy(old.port) as proxy,
        Dibs(proxy.url, budget=30) as dibs,
        ThreadPoolExecutor(8) as pool,
    ):

        def all_at_once(turn: int) -> list[bool]:
            """Each thread waits for its reply, on a connection that no other thread can use."""
            proxy.delay(replies=0.2)
            leases = [pool.submit(dibs.try_hold, f"{turn}:{each}", ttl=60) for each in range(8)]
            return [lease is not None and lease.guarded for lease in map(Future.result, leases)]

        assert all(all_at_once(1))
        old.client().replicaof("127.0.0.1", new.port)
        proxy.move_to(new.port)
        assert not all(all_at_once(2)), "nobody has noticed before"
        assert all(all_at_once(3))


def test_a_thread_that_learns_of_an_outage_late_does_not_begin_another(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it takes its last look at a silent connection, the server is back: that is no news."""
    looks, recovered = threading.Event(), threading.Event()
    read = ThreadConnection.read

    def last_look(connection: ThreadConnection, request: Any, limit: float | None = None) -> Any:
        if limit == 0.0:
            looks.set()
            assert recovered.wait(60)
        return read(connection, request, limit)

    monkeypatch.setattr(ThreadConnection, "read", last_look)
    with FaultProxy(valkey.port) as line, Dibs(line.url, budget=1, connect=60) as dibs:
        transport, [breaker] = dibs._store.transport, dibs._store.transport.breakers
        with dibs.hold("user:1", ttl=5):
            pass
        with ThreadPoolExecutor(1) as pool:
            line.hold_replies(match=b"user:1")
            line.refuse()
            caller = pool.submit(dibs.try_hold, "user:1", ttl=5)
            eventually(lambda: line.triggered == 1)
            transport._trip_breaker(cause_for("silent"))  # as a thread that was silenced before
            assert looks.wait(60)
            line.accept()
            eventually(lambda: breaker.recoveries == 1, within=90)
            recovered.set()
            lease = caller.result()
            assert lease is not None and not lease.guarded
        assert (breaker.is_open, breaker.recoveries) == (False, 1)


@pytest.mark.parametrize("meanwhile", ["closed", "reconnected"])
def test_a_subscriber_that_begins_when_its_connection_is_no_longer_wanted(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """The client is closed, or its server is elsewhere: neither thread nor socket stays."""

    made: list[Subscriber] = []

    def begin(connection: ThreadConnection, *args: Any) -> Subscriber:
        if meanwhile == "closed":
            dibs.close()
        else:
            dibs._store.transport.reconnect()
        monkeypatch.undo()
        valkey.client().delete("user:1")
        made.append(Subscriber(connection, *args))
        return made[0]

    monkeypatch.setattr(pooled, "Subscriber", begin)
    with Dibs(valkey.url, budget=5) as dibs:
        valkey.client().set("user:1", "another")
        with contextlib.suppress(UsageError):  # it is closed
            dibs.try_hold("user:1", ttl=5, wait=60)
        eventually(lambda: made[0]._connection.is_closed)


def test_a_handler_that_raises_while_the_subscriber_starts(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread runs, but start() raised: it ends, with its connection."""
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_and_raise(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "dibs subscriber":
            monkeypatch.undo()
            started.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_raise)
    with Dibs(valkey.url, budget=5) as dibs:
        valkey.client().set("user:1", "another")
        with pytest.raises(KeyboardInterrupt):
            dibs.try_hold("user:1", ttl=5, wait=60)
        valkey.client().delete("user:1")
        started[0].join(timeout=60)
        assert not started[0].is_alive()
        with dibs.hold("user:1", ttl=5, wait=60) as lease:
            assert lease.guarded


def test_a_connection_for_whose_subscriber_there_is_no_thread(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used for requests again, and as often as before it is asked whether one has come."""
    looks: list[float] = []
    look_every, start = ThreadConnection.look_every, threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "dibs subscriber":
            raise RuntimeError("can't start new thread")
        start(thread)

    def note(connection: ThreadConnection, seconds: float) -> None:
        looks.append(seconds)
        look_every(connection, seconds)

    with Dibs(valkey.url, budget=5) as dibs:
        dibs.peek("user:1")
        monkeypatch.setattr(ThreadConnection, "look_every", note)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        valkey.client().set("user:1", "another", px=50)
        with dibs.hold("user:1", ttl=5, wait=60) as lease:
            assert lease.guarded
        assert looks == []


def test_the_late_reply_to_a_renewal_does_not_cut_an_extension_short(valkey: Server) -> None:
    """They are asked on two connections, and the later one is answered first."""
    events: list[Event] = []
    with (
        FaultProxy(valkey.port) as line,
        Dibs(line.url, budget=60, listeners=[events.append]) as dibs,
        dibs.hold("user:1", ttl=3, renew=True) as lease,
    ):
        line.hold_replies(match=lease.token.encode())
        eventually(lambda: line.triggered == 1)
        assert lease.extend(600)
        line.deliver()
        eventually(lambda: "renewed" in [event.kind for event in events])
        assert lease.remaining > 300


def test_what_is_delivered_after_an_outage_has_the_effect_of_one(valkey: Server) -> None:
    """The server ends the connection on which it was not answered, before it is repeated."""
    others = valkey.client()
    before = len(others.client_list())
    with FaultProxy(valkey.port) as line, Dibs(line.url, budget=0.5, connect=1) as dibs:
        with dibs.claim("order:1", window=600, after="hold"):
            for _ in range(3):  # the end, its repetition, and what is delivered after that
                line.hold_requests(match=b"order:1")
        eventually(lambda: line.triggered == 3, within=90)
        eventually(lambda: b" done " in (others.get("order:1") or b""), within=90)
        others.delete("order:1")  # as `dibs release` does
        dibs.close()
        line.deliver()
        eventually(lambda: len(others.client_list()) == before)
        assert valkey.keys() == []


def test_a_log_that_hangs_holds_up_nobody_but_who_writes_it(own_server: Server) -> None:
    """The first caller in an outage writes a line; the others are answered within their budget."""
    writes, is_written = threading.Event(), threading.Event()

    class Hanging(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            writes.set()
            assert is_written.wait(60)

    handler = Hanging()
    logging.getLogger("dibs").addHandler(handler)
    try:
        with Dibs(own_server.url, budget=0.2) as dibs, ThreadPoolExecutor(2) as pool:
            own_server.kill()
            first = pool.submit(dibs.try_hold, "user:1", ttl=5)
            assert writes.wait(60)
            second = pool.submit(dibs.try_hold, "user:2", ttl=5)
            lease = second.result(timeout=30)
            assert lease is not None and not lease.guarded
            assert not first.done()
            is_written.set()
    finally:
        is_written.set()
        logging.getLogger("dibs").removeHandler(handler)
