"""One of five machines, in its own process: `python -m apps.playground.machine TARGET`.

It takes part in one schedule and in one election. Lines of JSON on stdout:

{"ready": true}   {"ran": <when, by the monotonic clock>}   {"leads": <its fence, or null>}

The process ends with its stdin.
"""

import asyncio
import json
import logging
import os
import sys
from time import monotonic
from typing import Any

from dibs import AsyncDibs, LeaseLost

from .engine import reach

EVERY = 2
"""Seconds between two runs."""
TTL = 3
"""For so long a machine that was killed keeps the schedule, or the lead."""


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


async def _lead(dibs: AsyncDibs) -> None:
    while True:  # who is deposed may be elected again
        try:
            async with dibs.leader("playground:leader", ttl=TTL) as leader:
                _say(leads=leader.fence)
                await asyncio.Event().wait()
        except LeaseLost:
            pass
        finally:
            _say(leads=None)


async def _serve(target: str) -> None:
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async with AsyncDibs(target) as dibs:

        @dibs.scheduled(every=EVERY, key="playground:heartbeat", ttl=TTL, missed="skip")
        async def heartbeat() -> None:
            _say(ran=monotonic())

        await reach(dibs)
        _say(ready=True)
        async with dibs.scheduler():
            leading = asyncio.create_task(_lead(dibs))
            await lines.read()
            leading.cancel()
            await asyncio.wait([leading])
    os._exit(0)


if __name__ == "__main__":
    # Outages are made on purpose here, and shown on the page.
    logging.getLogger("dibs").setLevel(logging.ERROR)
    asyncio.run(_serve(sys.argv[1]))
