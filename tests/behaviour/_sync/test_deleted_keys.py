# Generated from tests/behaviour/_async/test_deleted_keys.py by unasync.py – do not edit.
"""Keys of held leases that another program deletes: the holder notices, others can take them."""

import time
from collections.abc import Callable

from dibs import Dibs
from dibs.testing import Server

from .._threads import sleep


def test_release_of_a_key_deleted_behind_our_back_is_false(server: Server) -> None:
    """The server was flushed: release() is False."""
    with Dibs(server.url, budget=5) as dibs:
        lease = dibs.try_hold("user:1", ttl=5)
        server.flush()
        assert lease is not None and lease.release() is False


def test_a_key_that_was_deleted_elsewhere_can_be_taken_again(server: Server) -> None:
    """DEL or FLUSHDB by another program: this process learns of it, and stops refusing."""
    with Dibs(server.url, budget=5) as dibs:
        stuck = dibs.try_hold("user:1", ttl=600)
        assert stuck is not None
        server.client().delete("user:1")
        deadline = time.monotonic() + 10
        while (lease := dibs.try_hold("user:1", ttl=600)) is None:
            assert time.monotonic() < deadline, "refused until its own lease would have ended"
            sleep(0.05)
        assert stuck.lost and stuck.release() is False
        assert lease.release() is True


def test_a_waiter_learns_that_the_key_was_deleted(server: Server) -> None:
    """It waits for a lease of the same process, whose key an operator deletes."""
    with Dibs(server.url, budget=5) as dibs:
        assert dibs.try_hold("user:1", ttl=600) is not None
        server.client().delete("user:1")
        with dibs.hold("user:1", ttl=5, wait=15) as lease:
            assert lease.guarded


def test_peek_tells_the_process_that_its_key_is_gone(server: Server) -> None:
    """peek() finds no holder, or another one: the lease here is lost from then on."""
    with Dibs(server.url, budget=5) as dibs:
        first = dibs.try_hold("user:1", ttl=600)
        assert dibs.peek("user:1") is not None
        assert first is not None and not first.lost
        server.flush()
        assert dibs.peek("user:1") is None
        assert first.lost
        second = dibs.try_hold("user:1", ttl=600)
        assert second is not None
        server.client().set("user:1", "another", px=60_000)
        assert dibs.peek("user:1") is not None
        assert second.lost


def test_refusals_of_an_old_lease_ask_at_most_once_a_second(server: Server) -> None:
    """Held by this process for long: still Busy without a round trip; the look is beside it."""
    with Dibs(server.url, budget=5) as dibs, dibs.hold("user:1", ttl=60):
        sleep(1.1)
        before = server.commands()
        for _ in range(500):
            assert dibs.try_hold("user:1", ttl=5) is None
        sleep(0.2)
        assert server.commands() - before <= 2
        assert dibs.try_hold("user:1", ttl=5) is None


def test_a_look_that_the_server_forbids_loses_nothing(
    start_server: Callable[..., Server],
) -> None:
    """A user without GET: the look beside a refusal fails, and the lease stays what it was.

    On a server that compares by a command; elsewhere scripts do, and need the right to GET.
    """
    own_server = start_server("valkey")
    own_server.client().execute_command(
        "ACL", "SETUSER", "someone", "on", ">secret", "~*", "&*", "+@all", "-get"
    )
    url = own_server.url.replace("redis://", "redis://someone:secret@")
    with Dibs(url, budget=5) as dibs, dibs.hold("user:1", ttl=60) as lease:
        sleep(1.1)
        assert dibs.try_hold("user:1", ttl=5) is None
        sleep(0.3)
        assert not lease.lost
        assert dibs.try_hold("user:1", ttl=5) is None
