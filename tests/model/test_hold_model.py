"""A real server against a model of ten lines: whatever users do, in whatever order."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dibs import Dibs, Lease
from dibs.testing import Server

KEYS = st.sampled_from(["a:1", "a:2", "a:{3}"])


class Model(RuleBasedStateMachine):
    """Two processes and one server. The model: who has which key, and the fences so far."""

    server: Server
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.server.flush()
        self.users = [Dibs(self.server.url, budget=5), Dibs(self.server.url, budget=5)]
        self.owner: dict[str, Lease] = {}
        self.fences: dict[str, int] = {}

    @rule(target=leases, key=KEYS, user=st.sampled_from([0, 1]), fence=st.booleans())
    def take(self, key: str, user: int, fence: bool) -> Any:
        lease = self.users[user].try_hold(key, ttl=600, fence=fence)
        assert (lease is None) == (key in self.owner)
        if lease is None:
            return None
        self.owner[key] = lease
        if fence:
            assert lease.fence is not None
            assert lease.fence > self.fences.get(key, 0)
            self.fences[key] = lease.fence
        return lease

    @rule(lease=consumes(leases))
    def release(self, lease: Lease | None) -> None:
        if lease is not None:
            assert lease.release() is (self.owner.get(lease.key) is lease)
            if self.owner.get(lease.key) is lease:
                del self.owner[lease.key]

    @rule(lease=leases)
    def release_and_keep(self, lease: Lease | None) -> None:
        self.release(lease)

    @rule(lease=leases, ttl=st.sampled_from([300, 900]))
    def extend(self, lease: Lease | None, ttl: int) -> None:
        if lease is not None:
            assert lease.extend(ttl) is (self.owner.get(lease.key) is lease)

    @rule(key=KEYS)
    def delete_behind_our_back(self, key: str) -> None:
        self.server.client().delete(key)
        lease = self.owner.pop(key, None)
        if lease is not None:
            # Its process learns it at the next word with the server.
            assert lease.extend(600) is False
            assert lease.lost

    @rule(key=KEYS, user=st.sampled_from([0, 1]))
    def peek(self, key: str, user: int) -> None:
        holding = self.users[user].peek(key)
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
    machine = type("Machine", (Model,), {"server": server})
    machine.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
    test = machine.TestCase()
    test.runTest()
