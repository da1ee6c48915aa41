# Generated from tests/behaviour/_async/test_fences.py by unasync.py – do not edit.
"""What `fence` promises: a number that grows with every holder, on every engine."""

import time

from dibs import Dibs
from dibs.testing import Server


def test_fences_grow_strictly(server: Server) -> None:
    """fence=True: every lease of a key has a greater number than all before it."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        fences: list[int] = []
        for turn in range(30):
            with (one, two)[turn % 2].hold("user:1", ttl=5, fence=True) as lease:
                assert lease.fence is not None
                fences.append(lease.fence)
        assert fences == sorted(set(fences))


def test_a_fence_grows_although_its_counter_expires(server: Server) -> None:
    """Counters have a ttl, so they cannot pile up; a fence without its counter still grows."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold("user:1", ttl=5, fence=True) as first:
            pass
        (counter,) = server.keys()
        assert 0 < server.client().ttl(counter) <= 3605
        server.flush()
        with dibs.hold("user:1", ttl=5, fence=True) as second:
            pass
        assert first.fence is not None and second.fence is not None
        assert second.fence > first.fence


def test_a_fence_grows_although_the_clock_stands_still(server: Server) -> None:
    """A server clock behind the last fence: the last fence plus one."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold("user:1", ttl=5, fence=True):
            pass
        (counter,) = server.keys()
        ahead = int(time.time() * 1e6) + 10**12
        server.client().set(counter, ahead, px=60_000)
        with dibs.hold("user:1", ttl=5, fence=True) as lease:
            assert lease.fence == ahead + 1


def test_no_fence_unless_asked(server: Server) -> None:
    """Without fence=True there is no counter key, and `fence` is None."""
    with Dibs(server.url, budget=5) as dibs, dibs.hold("user:1", ttl=5) as lease:
        assert lease.fence is None and server.keys() == ["user:1"]


def test_the_namespace_holds_for_fences_too(server: Server) -> None:
    """Every key of ours begins with the namespace, so that an ACL can be written for it."""
    with Dibs(server.url, budget=5, namespace="blue:") as dibs:
        with dibs.hold("user:1", ttl=5, fence=True):
            assert all(key.startswith("blue:") for key in server.keys())
