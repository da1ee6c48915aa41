# Generated from tests/behaviour/_async/outages.py by unasync.py – do not edit.
"""What the tests of outages measure."""

import time

from dibs import Dibs

BUDGET = 0.25


def timed(dibs: Dibs, key: str) -> tuple[float, bool]:
    """How long one hold takes, and whether it is guarded."""
    since = time.monotonic()
    with dibs.hold(key, ttl=5) as lease:
        return time.monotonic() - since, lease.guarded
