"""What the tests of outages measure."""

import time

from dibs import AsyncDibs

BUDGET = 0.25


async def timed(dibs: AsyncDibs, key: str) -> tuple[float, bool]:
    """How long one hold takes, and whether it is guarded."""
    since = time.monotonic()
    async with dibs.hold(key, ttl=5) as lease:
        return time.monotonic() - since, lease.guarded
