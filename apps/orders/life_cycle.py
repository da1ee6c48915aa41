"""The seed's life-cycle log of a lock: claimed, refused, released, and what goes wrong at the end.

A listener of dibs. Events carry the name of the endpoint and never a key, so there is no customer,
no order and no lock value in the log.
"""

import logging

from dibs import Event

_log = logging.getLogger("apps.orders.lock")

_SAID: dict[str, tuple[int, str]] = {
    "claimed": (logging.INFO, "claimed"),
    "duplicate": (logging.INFO, "refused: a duplicate"),
    "mismatch": (logging.INFO, "refused: the key belongs to another order"),
    "replayed": (logging.INFO, "answered again"),
    "released": (logging.INFO, "released"),
    "completed": (logging.INFO, "done; a duplicate is known until its window ends"),
    "late": (logging.WARNING, "not released: lock value does not match (value_mismatch)"),
    "lost": (logging.WARNING, "lost while at work"),
    "leaked": (logging.ERROR, "release failed"),
}


def log_life_cycle(event: Event) -> None:
    """Write the line for *event*, at the level that the seed names."""
    if event.kind not in _SAID:
        return
    level, words = _SAID[event.kind]
    held = "" if event.held is None else f", after {event.held:.3f} s"
    unguarded = ", without Redis" if event.guarded is False else ""
    _log.log(level, "lock of %s: %s%s%s", event.name, words, held, unguarded)
