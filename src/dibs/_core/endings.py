"""How a lease ends: the key or permit is free, free in a moment, or has what the work left."""

from .engine import Engine
from .keys import milliseconds
from .lease import HoldCall, LeaseState, release_request, shorten_request
from .once import complete_request
from .permits import release_permit, shorten_permit
from .request import Request


def free_request(engine: Engine, call: HoldCall, token: bytes, until: float) -> Request:
    """Give back what *token* holds, if it still does; worth delivering until *until*."""
    if call.options.limit is None:
        return release_request(engine, call.key, token, until)
    return release_permit(call.key, token, until)


def end_request(
    engine: Engine, lease: LeaseState, left: bytes, left_ms: int, now: float
) -> Request:
    """Leave *left* in the place of the key; or nothing, once its `at_least` is over."""
    key, token, until = lease.call.key, lease.token, lease.deadline
    if left:
        return complete_request(engine, key, token, left, left_ms, until)
    if lease.stays_until <= now:
        return free_request(engine, lease.call, token, until)
    ms = milliseconds(lease.stays_until - now)
    if lease.call.options.limit is None:
        return shorten_request(engine, key, token, ms, until)
    return shorten_permit(key, token, ms, until)
