# Generated from tests/behaviour/_async/test_delivered_later.py by unasync.py – do not edit.
"""Releases that the store could not take: they are delivered once it answers again."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redis import Redis
from redis.exceptions import ResponseError

from dibs import Dibs, Event
from dibs.testing import FaultProxy, Server

from .._threads import eventually, sleep
from ..events import kinds
from .outages import BUDGET, timed


def test_a_release_that_could_not_be_delivered_is_delivered_later(
    own_server: Server,
) -> None:
    """Released while the server was out: the key goes when it is back, not after its ttl."""
    events: list[Event] = []
    with Dibs(own_server.url, budget=BUDGET, listeners=[events.append]) as dibs:
        lease = dibs.try_hold("user:1", ttl=60)
        assert lease is not None
        own_server.freeze()
        assert lease.release() is False
        own_server.thaw()
        eventually(lambda: "recovered" in kinds(events), within=90)
        eventually(lambda: own_server.keys() == [])


def test_a_release_that_a_busy_server_refused_is_delivered_later(
    start_server: Callable[..., Server],
) -> None:
    """It answers BUSY while a script runs: the key is released when it can serve again."""
    server = start_server(config=("--busy-reply-threshold", "50"))
    with Dibs(server.url, budget=5) as dibs:
        lease = dibs.try_hold("user:42", ttl=600)
        assert lease is not None
        with running_a_script(server):
            assert not lease.release()
        eventually(lambda: server.keys() == [], within=90)


@contextmanager
def running_a_script(server: Server) -> Iterator[None]:
    """The server answers BUSY."""

    def run() -> None:
        with contextlib.suppress(ResponseError):
            server.client().eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    with Redis(port=server.port, protocol=2) as client:  # not over the line of a condition
        while True:
            try:
                client.get("user:0")
            except ResponseError:
                break
        yield
        client.script_kill()
    thread.join()


def test_a_release_during_the_outage_is_delivered_later(own_server: Server) -> None:
    """Released when the outage was known already: the same."""
    events: list[Event] = []
    with Dibs(own_server.url, budget=BUDGET, listeners=[events.append]) as dibs:
        lease = dibs.try_hold("user:1", ttl=60)
        assert lease is not None
        own_server.freeze()
        assert not (timed(dibs, "other:1"))[1]
        assert lease.release() is False
        own_server.thaw()
        eventually(lambda: "recovered" in kinds(events), within=90)
        eventually(lambda: own_server.keys() == [])


def test_an_outage_longer_than_the_ttl_leaves_no_key_of_nobody(own_server: Server) -> None:
    """A stopped server takes the key when it resumes, after its caller has gone: the key is
    released."""
    events: list[Event] = []
    with Dibs(own_server.url, budget=BUDGET, listeners=[events.append]) as dibs:
        timed(dibs, "warm:up")
        own_server.freeze()
        with dibs.hold("user:1", ttl=0.5) as lease:
            assert not lease.guarded
        sleep(0.8)
        own_server.thaw()
        eventually(lambda: "recovered" in kinds(events), within=90)
        with dibs.hold("user:1", ttl=30) as lease:
            assert lease.guarded


def test_a_broken_release_does_not_hide_what_is_owed(own_server: Server) -> None:
    """Many releases to deliver at once, and a connection that breaks: none is lost."""
    with FaultProxy(own_server.port) as line:
        with Dibs(line.url, budget=0.5) as dibs:
            leases = [dibs.try_hold(f"user:{n}", ttl=60) for n in range(20)]
            own_server.freeze()
            for lease in leases:
                assert lease is not None
                lease.release()
            line.cut()
            own_server.thaw()
            eventually(lambda: own_server.keys() == [], within=90)


def test_the_lock_of_a_load_that_an_outage_hid_is_given_back(own_server: Server) -> None:
    """The caller has loaded on its own since; the next ones need not wait until the lock ends."""
    events: list[Event] = []

    def load() -> str:
        return "soup"

    with Dibs(own_server.url, budget=BUDGET, listeners=[events.append]) as dibs:
        dibs.get_or_load("menu:0", load, ttl=60)
        own_server.freeze()
        assert dibs.get_or_load("menu:1", load, ttl=60, lock_ttl=600) == "soup"
        own_server.thaw()
        eventually(lambda: "recovered" in kinds(events), within=90)
        eventually(lambda: not [key for key in own_server.keys() if "menu:1" in str(key)])
