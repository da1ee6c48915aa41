"""Leaders in their own processes: resigned, killed and stopped; the fences grow."""

from contextlib import ExitStack

import pytest

from dibs.testing import Server
from tests.handovers import Election, Measured, kill, resign, stop

LONG = 60.0
"""A ttl within which there is no election unless the leader releases its lease."""


@pytest.mark.parametrize(("fault", "ttl"), [(resign, LONG), (kill, 1.5), (stop, 1.5)])
def test_a_leader_is_replaced_and_the_fence_grows(fault, ttl: float, valkey: Server) -> None:
    """SIGTERM: at once, long before the lease ends. SIGKILL, SIGSTOP: after the lease has ended.

    Who was stopped learns of it as soon as it runs again, although its body never asks.
    """
    with ExitStack() as stack:
        election = Election(valkey.url, ttl, stack)
        election.join()
        election.join()
        measured: Measured = fault(election, 1)
    assert len(measured.fences) == 2 and measured.fences_grow
