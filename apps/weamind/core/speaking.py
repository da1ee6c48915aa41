"""Who speaks to a person: "please wait" only while work runs, and never after its answer.

Two keys, shared by all processes: one is held while work runs, the other while a process sends a
message.
"""

from dibs import AsyncDibs, AsyncLease

WORKING_NAME = "line:working:{userId}"
SPEAKING_NAME = "line:speaking:{userId}"
_TTL = 10.0
"""More seconds than sending a message takes."""
_WAIT = 2.0
"""How long an answer waits for a "please wait" that is on its way, and the other way round."""


class Speaking:
    """Who may speak to a person: one at a time, and "please wait" only while the work runs."""

    def __init__(self, dibs: AsyncDibs, key: str) -> None:
        self._dibs = dibs
        self._working_key = key.replace("processing:user:", "line:working:", 1)
        self._speaking_key = key.replace("processing:user:", "line:speaking:", 1)
        self._working: AsyncLease | None = None
        self._speaking: AsyncLease | None = None

    async def begin_work(self, ttl: float) -> None:
        """Record that work runs."""
        self._working = await self._dibs.try_hold(self._working_key, ttl=ttl, name=WORKING_NAME)

    async def is_work(self) -> bool:
        """Whether work for this person runs. Unavailable: the store is out."""
        return await self._dibs.peek(self._working_key) is not None

    async def end_work(self) -> None:
        """End the work, and wait until no other process sends, so that the answer comes last."""
        working, self._working = self._working, None
        if working is not None:
            await working.release()
            await self.begin()

    async def begin(self) -> bool:
        """True: no other process sends until `close`. False: another one still does."""
        self._speaking = await self._dibs.try_hold(
            self._speaking_key, ttl=_TTL, wait=_WAIT, name=SPEAKING_NAME
        )
        return self._speaking is not None

    async def close(self) -> None:
        """End both, the work and the sending."""
        leases = (self._working, self._speaking)
        self._working = self._speaking = None
        for lease in leases:
            if lease is not None:
                await lease.release()
