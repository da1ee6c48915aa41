# Generated from tests/behaviour/_async/test_lost_replies.py by unasync.py – do not edit.
"""Replies that are lost, repeated or cut in pieces: each request counts once."""

from dibs import Dibs, Event
from dibs.testing import FaultProxy, Server

from .._threads import Background, sleep
from ..events import kinds
from .outages import timed


def test_a_reply_lost_by_a_reset_leaves_the_lease_ours(line: FaultProxy) -> None:
    """The server granted the key, the connection broke before the reply: it is ours, not Busy."""
    with Dibs(line.url, budget=1) as dibs:
        timed(dibs, "warm:up")
        line.cut_after_request(match=b"user:1")
        with dibs.hold("user:1", ttl=5) as lease:
            assert lease.guarded
            assert line.triggered == 1


def test_a_reply_swallowed_on_the_way_leaves_the_lease_ours(line: FaultProxy) -> None:
    """The reply vanished, the connection hangs: asked again on a second one, within the budget."""
    with Dibs(line.url, budget=1) as dibs:
        timed(dibs, "warm:up")
        line.swallow_replies(match=b"user:1")
        with dibs.hold("user:1", ttl=5) as lease:
            assert lease.guarded, "longer than the budget is an outage"
        assert line.triggered == 1
        assert (timed(dibs, "user:1"))[1]


def test_a_reply_in_pieces_is_put_together(line: FaultProxy) -> None:
    """One byte at a time: slower, not different."""
    with Dibs(line.url, budget=5) as dibs:
        timed(dibs, "warm:up")
        line.split(1)
        assert (timed(dibs, "user:1"))[1]
        assert dibs.peek("user:1") is None


def test_one_lost_reply_is_not_an_outage(line: FaultProxy) -> None:
    """The second connection answered: other callers are not disturbed, then or at the budget's
    end."""
    events: list[Event] = []
    with Dibs(line.url, budget=2, listeners=[events.append]) as dibs:
        timed(dibs, "warm:up")
        line.swallow_replies(match=b"user:1")
        assert (timed(dibs, "user:1"))[1]
        for number in range(20):
            assert (timed(dibs, f"other:{number}"))[1]
            sleep(0.12)
        assert not {"outage", "recovered"} & set(kinds(events))


def test_a_late_copy_of_a_repeated_request_takes_no_key(valkey: Server) -> None:
    """Asked again on a second line, released; then the first copy arrives: the key is free."""
    with FaultProxy(valkey.port) as line:
        with Dibs(line.url, budget=1) as dibs:
            dibs.peek("warm:up")
            line.delay(requests=0.8)

            def hold() -> bool:
                with dibs.hold("user:1", ttl=60) as lease:
                    return lease.guarded

            holder = Background(hold)
            sleep(0.2)
            line.delay()
            assert holder.result()
            sleep(1.0)
            assert valkey.keys() == []


def test_a_release_whose_reply_is_lost_is_a_release(valkey: Server) -> None:
    """The server released the key, the connection broke before the reply: True, not `late`."""
    kinds: list[str] = []
    with FaultProxy(valkey.port) as line:
        listeners = [lambda event: kinds.append(event.kind)]
        with Dibs(line.url, budget=2, listeners=listeners) as dibs:
            lease = dibs.try_hold("user:1", ttl=60)
            assert lease is not None
            line.cut_after_request(match=b"user:1")
            assert lease.release() is True
            assert line.triggered == 1
        assert kinds == ["acquired", "released"]
