"""A real server against a model of ten lines: any actions of users, in any order."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dibs import Dibs, Lease
from dibs.testing import Server

KEYS = st.sampled_from(["a:1", "a:2", "a:{3}"])
WHICH = st.integers(0, 3)


class Model(RuleBasedStateMachine):
    """Two processes and one server. The model: who has which key, and the fences so far."""

    server: Server
    met: Counter[tuple[str, bool]]
    """What was done in all examples, and whether it was granted."""

    def __init__(self) -> None:
        super().__init__()
        self.server.flush()
        self.users = [Dibs(self.server.url, budget=5), Dibs(self.server.url, budget=5)]
        self.leases: list[Lease] = []
        """All that were granted, the last ones first; some have ended."""
        self.owner: dict[str, Lease] = {}
        self.fences: dict[str, int] = {}

    def _one(self, which: int) -> Lease:
        return self.leases[min(which, len(self.leases) - 1)]

    @rule(key=KEYS, user=st.sampled_from([0, 1]), fence=st.booleans())
    def take(self, key: str, user: int, fence: bool) -> None:
        lease = self.users[user].try_hold(key, ttl=600, fence=fence)
        self.met["take", lease is not None] += 1
        assert (lease is None) == (key in self.owner)
        if lease is None:
            return
        self.owner[key] = lease
        self.leases.insert(0, lease)
        if fence:
            assert lease.fence is not None
            assert lease.fence > self.fences.get(key, 0)
            self.fences[key] = lease.fence

    @precondition(lambda self: self.leases)
    @rule(which=WHICH)
    def release(self, which: int) -> None:
        lease = self._one(which)
        is_released = lease.release()
        self.met["release", is_released] += 1
        assert is_released is (self.owner.get(lease.key) is lease)
        if is_released:
            del self.owner[lease.key]

    @precondition(lambda self: self.leases)
    @rule(which=WHICH, ttl=st.sampled_from([300, 900]))
    def extend(self, which: int, ttl: int) -> None:
        lease = self._one(which)
        is_extended = lease.extend(ttl)
        self.met["extend", is_extended] += 1
        assert is_extended is (self.owner.get(lease.key) is lease)

    @rule(key=KEYS)
    def delete_behind_our_back(self, key: str) -> None:
        self.server.client().delete(key)
        lease = self.owner.pop(key, None)
        if lease is not None:
            # Its process learns it at the next word with the server.
            assert lease.extend(600) is False
            assert lease.lost
            self.met["delete", True] += 1

    @rule(key=KEYS, user=st.sampled_from([0, 1]))
    def peek(self, key: str, user: int) -> None:
        holding = self.users[user].peek(key)
        self.met["peek", holding is not None] += 1
        assert (holding is None) == (key not in self.owner)

    @rule()
    def forget_scripts(self) -> None:
        self.server.client().script_flush()

    @invariant()
    def the_server_knows_the_owners_and_nobody_else(self) -> None:
        held = {key for key in self.server.keys() if not key.startswith("fence:")}
        assert held == set(self.owner)
        for key, lease in self.owner.items():
            assert self.server.client().get(key) == lease.token.encode()
            assert not lease.lost

    def teardown(self) -> None:
        for user in self.users:
            user.close()


@pytest.mark.timeout(240)
def test_whatever_users_do(server: Server) -> None:
    """Take, release, extend, peek, delete, flush scripts, in any order: the model agrees."""
    met = Counter[tuple[str, bool]]()
    machine = type("Machine", (Model,), {"server": server, "met": met})
    machine.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
    test = machine.TestCase()
    test.runTest()
    wanted = {
        (what, granted) for what in ("take", "release", "extend", "peek") for granted in (0, 1)
    }
    assert met.keys() == {*wanted, ("delete", 1)}, met
