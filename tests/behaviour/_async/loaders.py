"""What the tests of `cached` load from."""

from typing import Any

from .._tasks import sleep


class Loader:
    """A loader that counts its calls, and takes *seconds*."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.loads = 0
        self.seconds = seconds
        self.busy = False  # no load ends while it is
        self.error: Exception | None = None

    async def load(self, name: str) -> dict[str, Any]:
        """The name, and which load this was; raises `error` if there is one."""
        self.loads += 1
        mine = self.loads
        await sleep(self.seconds)
        while self.busy:
            await sleep(0.01)
        if self.error is not None:
            raise self.error
        return {"name": name, "load": mine}

    async def load_in(self, city: str, name: str) -> dict[str, Any]:
        """The same, of a city."""
        return {"city": city, **await self.load(name)}


class BatchLoader:
    """A loader of many values that remembers what it was called with."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls: list[list[str]] = []
        self.seconds = seconds
        self.is_busy = False  # no call ends while it is
        self.sold_out: set[str] = set()
        self.error: Exception | None = None

    async def load(self, names: list[str]) -> dict[str, Any]:
        """Each name with the number of this call, without what is sold out."""
        self.calls.append(names)
        mine = len(self.calls)
        await sleep(self.seconds)
        while self.is_busy:
            await sleep(0.01)
        if self.error is not None:
            raise self.error
        return {name: f"{name}{mine}" for name in names if name not in self.sold_out}
