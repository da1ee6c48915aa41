# Generated from src/dibs/_async/peek.py by unasync.py – do not edit.
"""Who has a key, without taking it."""

from .._core.breaker import Outage
from .._core.lease import Holding, is_wrong_type, peek_request, read_peek
from .._core.permits import peek_permits, read_peek_permits
from ..errors import Unavailable
from .leases import Leases


def peek(leases: Leases, key: bytes, name: str) -> Holding | None:
    """Who has *key*, and for how long; None: nobody. Unavailable: the store is out."""
    store, lease = leases.store, leases.table.get(key)
    try:
        now, _ = store.opened()
        request = peek_request(key)
        replies = store.transport.send(request, now)
        if is_wrong_type(replies[0]):
            return read_peek_permits(store.ask(peek_permits(key), now))
        replies = store.check_reply(request, replies, now)
    except Outage as outage:
        leases.events.emit("outage", name, cause=outage.cause)
        if store.is_disabled:
            return None
        raise Unavailable(outage.cause, name) from None
    if lease is not None:
        leases.found(lease, replies[0])
    return read_peek(replies)
