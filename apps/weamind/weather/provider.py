"""Where weather comes from: one small interface, and one error."""

from enum import StrEnum
from typing import Protocol

from ..places.place import Place
from .forecast import Forecast


class Reason(StrEnum):
    """Why there is no forecast."""

    TIMEOUT = "it did not answer in time"
    UNREACHABLE = "no connection"
    STATUS = "an answer with an error"
    RATE_LIMITED = "asked too often"
    UNREADABLE = "an answer that cannot be read"
    NO_DATA = "no data for this place"
    BAD_KEY = "the key is not accepted"
    RESTING = "it failed a moment ago, and is left alone"


class WeatherUnavailable(Exception):
    """There is no forecast to show, and why; it names neither the place nor the key."""

    def __init__(
        self,
        provider: str,
        reason: Reason,
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(provider, reason)
        self.provider = provider
        self.reason = reason
        self.status = status
        self.retry_after = retry_after
        """In how many seconds to ask again, if the provider said so."""
        self.forecast: Forecast | None = None
        """An incomplete forecast, if there is one."""

    def __str__(self) -> str:
        status = f" (HTTP {self.status})" if self.status else ""
        return f"no forecast from {self.provider}: {self.reason.value}{status}"


class Provider(Protocol):
    """A source of forecasts."""

    @property
    def name(self) -> str:
        """One word, which is part of cache keys."""
        ...

    @property
    def fresh_for(self) -> float:
        """For how many seconds its forecasts are fresh. 0: they are not cached."""
        ...

    async def fetch(self, place: Place) -> Forecast:
        """Request the forecast. WeatherUnavailable, and nothing else: there is none."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
