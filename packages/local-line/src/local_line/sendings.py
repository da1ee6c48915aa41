"""What was sent to whom, by which call: for progress, counts and statistics."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

JAPAN = timezone(timedelta(hours=9))
"""LINE counts days by Japan's time."""
_KEPT = 10_000


@dataclass(frozen=True)
class Sending:
    """One call that has sent messages."""

    request_id: str
    kind: str
    """`reply`, `push`, `multicast`, `narrowcast` or `broadcast`."""
    at: float
    recipients: tuple[str, ...]
    units: tuple[str, ...] = ()
    failure: int | None = None
    """LINE's error code of a narrowcast without recipients."""


class Sendings:
    """The recent calls, by request id, and how many messages were sent on each day."""

    def __init__(self) -> None:
        self._sendings: dict[str, Sending] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, sending: Sending) -> None:
        """Record a call that has sent messages."""
        self._sendings[sending.request_id] = sending
        self._counts[sending.kind, day_of(sending.at)] += len(sending.recipients)
        if len(self._sendings) > _KEPT:
            del self._sendings[next(iter(self._sendings))]

    def find(self, request_id: str) -> Sending | None:
        """Return a call. None: it is unknown, or too long ago."""
        return self._sendings.get(request_id)

    def count(self, kind: str, day: str) -> int:
        """How many messages of that kind were sent on that day, one for each recipient."""
        return self._counts[kind, day]

    def units(self, month: str) -> list[str]:
        """The aggregation units of that month, by name."""
        lately = [each for each in self._sendings.values() if day_of(each.at)[:6] == month]
        return sorted({unit for each in lately for unit in each.units})


def day_of(at: float) -> str:
    """`20261115`, in Japan."""
    return datetime.fromtimestamp(at, JAPAN).strftime("%Y%m%d")


def is_day(text: str | None) -> bool:
    """True: it is an existing day in this format."""
    if text is None or len(text) != 8 or not text.isascii() or not text.isdigit():
        return False
    try:
        datetime.strptime(text, "%Y%m%d").replace(tzinfo=JAPAN)
    except ValueError:
        return False
    return True


def iso(at: float) -> str:
    """`2026-11-15T10:15:30.121Z`."""
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
