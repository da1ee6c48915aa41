"""What the tests of `cached` load from."""

from typing import Any

from .._tasks import sleep


class Kitchen:
    """A slow loader that counts."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.loads = 0
        self.seconds = seconds
        self.busy = False  # no load ends while it is
        self.error: Exception | None = None

    async def cook(self, name: str) -> dict[str, Any]:
        """The name, and which load this was; raises `error` if there is one."""
        self.loads += 1
        mine = self.loads
        await sleep(self.seconds)
        while self.busy:
            await sleep(0.01)
        if self.error is not None:
            raise self.error
        return {"name": name, "load": mine}
