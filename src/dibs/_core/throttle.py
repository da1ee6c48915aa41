"""How often a key may be called: its options, the request that counts a call, and its reading.

The generic cell rate algorithm (GCRA): a key has one number, the time at which all calls that were
counted are used up. Each call moves it by *per* / *limit*; it may be ahead of the server's clock by
*burst* calls.
"""

import math
from typing import Final, NamedTuple, Required, TypedDict

from ..errors import UsageError
from .capabilities import run_script
from .keys import LONGEST_TTL, Seconds, seconds
from .lease import secret_of
from .options import OutagePolicy, Settings
from .request import OddReply, Reply, Request

MOST_CALLS = 1_000_000
"""The most that `limit` and `burst` may say."""
_MICRO = 1_000_000


class ThrottleKeywords(TypedDict, total=False):
    """Options of `throttle` and `throttled`."""

    limit: Required[int]
    """How many calls, on average, each *per*."""
    per: Required[Seconds]
    """The time in which so many calls are allowed."""
    burst: int | None
    """How many may come at once after a quiet time. None: *limit*. 1: evenly spaced."""
    on_outage: OutagePolicy | None
    """"open" proceeds unguarded, "closed" raises Unavailable. None: the policy of the client."""


class ThrottleOptions:
    """How often a key may be called. UsageError: an option is invalid."""

    def __init__(
        self,
        settings: Settings,
        *,
        limit: int,
        per: Seconds,
        burst: int | None = None,
        on_outage: OutagePolicy | None = None,
    ) -> None:
        self.limit: Final = _calls(limit, "limit")
        self.per: Final = seconds(per, "per")
        self.burst: Final = self.limit if burst is None else _calls(burst, "burst")
        # Whole numbers, rounded up: sums stay exact, and the limit is never exceeded.
        self.interval_us: Final = math.ceil(round(self.per * _MICRO) / self.limit)
        if self.interval_us * self.burst > LONGEST_TTL * _MICRO:
            raise UsageError("burst must not take longer than ten years to come back")
        self.on_outage: Final = settings.policy(on_outage)


def _calls(number: object, what: str) -> int:
    if type(number) is not int or not 1 <= number <= MOST_CALLS:
        raise UsageError(f"{what} must be a number from 1 to {MOST_CALLS}, not {number!r}")
    return number


def check_throttle(options: ThrottleKeywords) -> ThrottleOptions:
    """UsageError: an option of `throttle` is invalid. TypeError: there is no such option."""
    return ThrottleOptions(Settings("", "open"), **options)


class Throttling(NamedTuple):
    """The outcome of one call."""

    passed: bool
    left: int
    """How many more may follow at once."""
    reset: float
    """Seconds until there is one more; for a call that was refused: until it may come again."""
    guarded: bool = True
    """False: the store was out, and the policy let it through."""


UNGUARDED_THROTTLING = Throttling(passed=True, left=0, reset=0.0, guarded=False)


def throttle_request(key: bytes, token: bytes, options: ThrottleOptions) -> Request:
    """Count a call, if there is one left."""
    words = (secret_of(token), options.interval_us, options.burst)
    return Request(run_script("throttle", [key], *words), 1, key)


def read_throttle(reply: Reply) -> Throttling:
    """Whether it was counted, and what is left."""
    match reply:
        case [int(counted), int(left), int(us)]:
            return Throttling(counted == 1, left, us / _MICRO)
        case _:
            raise OddReply
