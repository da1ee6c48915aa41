"""Which request ends a lease, without a server."""

import pytest

from dibs._core.endings import end_request, free_request
from dibs._core.engine import Engine
from dibs._core.lease import HoldCall, LeaseState, release_request, shorten_request
from dibs._core.once import complete_request
from dibs._core.options import HoldOptions, Settings
from dibs._core.permits import release_permit, shorten_permit

from .engines import ENGINES

SETTINGS = Settings(namespace="", on_outage="open")
TOKEN = b"5a1f-2c@web-1:4711"


def lease(**options: int) -> LeaseState:
    made = HoldOptions(SETTINGS, ttl=5, **options)
    return LeaseState(HoldCall(b"k", "k", None, made), TOKEN, 100.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lease_is_freed_a_permit_is_given_back(engine: Engine) -> None:
    """Worth delivering until it ends by itself."""
    plain, permit = lease(), lease(limit=3)
    freed = free_request(engine, plain.call, TOKEN, 105.0)
    assert freed.payload == release_request(engine, b"k", TOKEN, 105.0).payload
    given = end_request(engine, permit, b"", 0, 101.0)
    assert given.payload == release_permit(b"k", TOKEN, 105.0).payload
    assert freed.until == given.until == 105.0


@pytest.mark.parametrize("engine", ENGINES)
def test_what_stays_a_moment_is_shortened(engine: Engine) -> None:
    """With `at_least`: for the rest of it, and not at all once it is over."""
    plain, permit = lease(), lease(limit=3)
    plain.stays_until = permit.stays_until = 102.0
    ended = [end_request(engine, each, b"", 0, 101.5).payload for each in (plain, permit)]
    assert ended[0] == shorten_request(engine, b"k", TOKEN, 500, 105.0).payload
    assert ended[1] == shorten_permit(b"k", TOKEN, 500, 105.0).payload
    over = end_request(engine, permit, b"", 0, 102.0).payload
    assert over == release_permit(b"k", TOKEN, 105.0).payload


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_work_left_goes_before_everything(engine: Engine) -> None:
    """A claim that is done leaves its record, for its own time."""
    claim = lease()
    claim.stays_until = 102.0
    ended = end_request(engine, claim, b"done", 7000, 101.0)
    assert ended.payload == complete_request(engine, b"k", TOKEN, b"done", 7000, 105.0).payload
