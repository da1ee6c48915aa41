"""A scheduled function, and its argument: the fire."""

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from .._core.keys import expand
from .._core.lease import HoldCall
from .._core.options import Settings
from .._core.schedule import Rule, ScheduleOptions, records_key, takes_fire
from .._tasks import result_of
from ..errors import UsageError
from .lease import AsyncLease


class AsyncFire(NamedTuple):
    """What a scheduled function gets as `fire`, if it has such a parameter."""

    at: datetime
    """When it was due, in the time zone of the schedule; also if it runs late."""
    lease: AsyncLease
    """The lease of the schedule: `lost`, `check()` and `fence` tell whether it is still yours."""


class AsyncScheduledFunction:
    """A function, and when it is due. UsageError: it takes arguments that nobody can give."""

    def __init__(
        self, function: Callable[..., Any], rule: Rule, options: ScheduleOptions, settings: Settings
    ) -> None:
        self.function = function
        self.rule = rule
        self.options = options
        self.key = options.key
        data = expand(settings.namespace, f"scheduled:{options.key}")
        self.call = HoldCall(data, f"scheduled:{options.key}", options.key, options.lease)
        self.last_key = expand(settings.namespace, f"scheduled-last:{options.key}")
        """Where the last fire that is over is recorded."""
        prefix = f"{settings.namespace}fires:".encode()
        self.record_keys = [self.last_key, records_key(prefix, self.last_key)]
        self._takes_fire = takes_fire(list(inspect.signature(function).parameters.values()))

    async def __call__(self, fire: AsyncFire) -> None:
        """Call the function."""
        await result_of(self.function(fire=fire) if self._takes_fire else self.function())

    def moment(self, fire: int) -> datetime:
        """*fire* as people read it."""
        return datetime.fromtimestamp(fire / 1000, self.rule.zone)

    def is_same_as(self, other: "AsyncScheduledFunction") -> bool:
        """True: it is the same function of the same module, defined again."""
        one, two = self._named, other._named
        return None not in one and one == two

    @property
    def _named(self) -> tuple[str | None, str | None]:
        function = self.function  # or a partial one, which has no name
        return getattr(function, "__module__", None), getattr(function, "__qualname__", None)


def register(schedules: dict[str, AsyncScheduledFunction], new: AsyncScheduledFunction) -> None:
    """Add a scheduled function. UsageError: another one has its key."""
    known = schedules.get(new.key)
    if known is not None and not known.is_same_as(new):
        raise UsageError(f"two functions are scheduled with the key {new.key!r}")
    schedules[new.key] = new
