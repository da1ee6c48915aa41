"""How much of a key may be used: options, requests and replies of `throttle` and `quota`.

A rate is the generic cell rate algorithm (GCRA): a key has one number, the time at which all that
was counted is used up. Each unit moves it by *per* / *limit*; it may be ahead of the server's clock
by *burst* units. A quota counts the units of a period of the calendar.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo
from typing import Final, Literal, NamedTuple, Required

from ..errors import UsageError
from .capabilities import run_script
from .keys import LONGEST_TTL, Seconds, seconds
from .keywords import TypedDict, refuse_unknown
from .lease_value import secret_of
from .options import OutagePolicy, Settings
from .request import OddReply, Reply, Request
from .schedule import zone_named

MOST_UNITS = 1_000_000_000
"""The most that `limit`, `burst` and `cost` may say."""
MOST_RATES = 8
_MICRO = 1_000_000
_ROUNDING = 1.01
"""By how much a whole number of µs may make a rate slower than asked for."""

Period = Literal["day", "week", "month"]
_Further = tuple[int, Seconds] | tuple[int, Seconds, int]
Rates = tuple[_Further, ...] | list[_Further]


class ThrottleKeywords(TypedDict, total=False, closed=True):
    """Options of `throttle` and `throttled`."""

    limit: Required[int]
    """How many units, on average, each *per*. A call costs one, unless it says otherwise."""
    per: Required[Seconds]
    """The time in which so many units are allowed."""
    burst: int | None
    """How many may come at once after a quiet time. None: *limit*. 1: evenly spaced."""
    also: Rates
    """Further rates of the key, as (limit, per): all of them count a call, or none does. With a
    third number a call always costs that much of it: (60, 60, 1) beside a limit of tokens."""
    exact: bool
    """Never more than *limit* in any time of *per*, at the price of an entry for each call; without
    it, such a time may have *limit* and *burst*."""
    on_outage: OutagePolicy | None
    """"open" proceeds unguarded, "closed" raises Unavailable. None: the policy of the client."""


class QuotaKeywords(TypedDict, total=False, closed=True):
    """Options of `quota`."""

    limit: Required[int]
    """How many units in each period. A call costs one, unless it says otherwise."""
    per: Required[Period]
    """A period of the calendar: "day", "week" (from Monday) or "month"."""
    timezone: str | tzinfo
    """Whose calendar."""
    on_outage: OutagePolicy | None
    """"open" proceeds unguarded, "closed" raises Unavailable. None: the policy of the client."""


class Rate(NamedTuple):
    """One rate, as the script has it."""

    interval_us: int
    burst: int
    own_cost: int = 0
    """What each call costs of it. 0: what the call says."""


class ThrottleOptions:
    """How often a key may be called. Raises UsageError if an option is invalid."""

    def __init__(
        self,
        settings: Settings,
        *,
        limit: int,
        per: Seconds,
        burst: int | None = None,
        also: Rates = (),
        exact: bool = False,
        on_outage: OutagePolicy | None = None,
    ) -> None:
        self.limit: Final = units(limit, "limit")
        self.per: Final = seconds(per, "per")
        self.rates: Final = (_checked_rate(self.limit, self.per, burst), *_further_rates(also))
        if exact and (burst is not None or also):
            raise UsageError("exact=True takes neither burst= nor also=")
        self.exact: Final = bool(exact)
        self.most: Final = min(rate.burst for rate in self.rates if not rate.own_cost)
        """The most that one call may cost."""
        self.on_outage: Final = settings.policy(on_outage)

    def check_cost(self, cost: object) -> int:
        """Return *cost*. Raises UsageError if no call may ever cost so much."""
        return _checked_cost(cost, self.most, "burst")


class QuotaOptions:
    """How much of a key may be used in a period. Raises UsageError if an option is invalid."""

    def __init__(
        self,
        settings: Settings,
        *,
        limit: int,
        per: Period,
        timezone: str | tzinfo = "UTC",
        on_outage: OutagePolicy | None = None,
    ) -> None:
        if per not in _STARTS:
            raise UsageError(f"per must be one of {', '.join(map(repr, _STARTS))}, not {per!r}")
        self.limit: Final = units(limit, "limit")
        self.per: Final = per
        self.zone: Final = zone_named(timezone)
        self.on_outage: Final = settings.policy(on_outage)

    def check_cost(self, cost: object) -> int:
        """Return *cost*. Raises UsageError if no call may ever cost so much."""
        return _checked_cost(cost, self.limit, "limit")


def units(number: object, what: str) -> int:
    """Return *number*. Raises UsageError if it is no number of units."""
    if type(number) is not int or not 1 <= number <= MOST_UNITS:
        raise UsageError(f"{what} must be a number from 1 to {MOST_UNITS}, not {number!r}")
    return number


def _checked_cost(cost: object, most: int, what: str) -> int:
    if type(cost) is not int or cost < 0:
        raise UsageError(f"cost must be a whole number, 0 or more, not {cost!r}")
    if cost > most:
        raise UsageError(f"a cost of {cost} is more than the {what} of {most}: it would never pass")
    return cost


def _checked_rate(limit: int, per: float, burst: int | None) -> Rate:
    # Whole numbers, rounded up: sums stay exact, and the limit is never exceeded.
    micros = round(per * _MICRO)
    rate = Rate(math.ceil(micros / limit), limit if burst is None else units(burst, "burst"))
    if rate.interval_us * limit > micros * _ROUNDING:
        raise UsageError(f"{limit} in {per:g} s is too fast to count one by one: use larger units")
    if rate.interval_us * rate.burst > LONGEST_TTL * _MICRO:
        raise UsageError("burst must not take longer than ten years to come back")
    return rate


def _further_rates(also: Iterable[_Further]) -> list[Rate]:
    rates = list(also)
    if len(rates) >= MOST_RATES or not all(2 <= len(each) <= 3 for each in rates):
        most = MOST_RATES - 1
        raise UsageError(f"also= takes at most {most} of (limit, per), or (limit, per, cost)")
    return [_further_rate(each[0], each[1], *each[2:]) for each in rates]


def _further_rate(limit: int, per: Seconds, cost: int | None = None) -> Rate:
    rate = _checked_rate(units(limit, "limit"), seconds(per, "per"), None)
    if cost is None:
        return rate
    return rate._replace(own_cost=_checked_cost(units(cost, "cost"), rate.burst, "limit"))


def check_throttle(options: ThrottleKeywords) -> ThrottleOptions:
    """Raise UsageError if an option of `throttled` is invalid, TypeError if it has no such one."""
    refuse_unknown("throttled", options, ThrottleKeywords)
    return ThrottleOptions(Settings("", "open"), **options)


class UsageOutcome(NamedTuple):
    """The outcome of one call."""

    passed: bool
    left: int
    """How many units may follow at once."""
    reset: float
    """Seconds until there is one more; of a quota: until its period ends; for a call that was
    refused: until it may come again."""
    delay: float = 0.0
    """Seconds after which it is the turn of a call that waits."""
    guarded: bool = True
    """False: the store was out, and the policy let it through."""
    period: int = 0
    """Of a quota: when its period began, in µs."""
    request: bytes = b""
    """What names the request that was counted."""


UNGUARDED_USAGE = UsageOutcome(passed=True, left=0, reset=0.0, guarded=False)


# ---- rates


def throttle_request(
    key: bytes, token: bytes, options: ThrottleOptions, cost: int = 1, wait: float = 0.0
) -> Request:
    """Count a call that takes its turn within *wait* seconds. A cost of 0: look."""
    return _throttle_request(key, token, options, cost, math.floor(wait * _MICRO), min(cost, 1))


def settle_request(
    key: bytes, token: bytes, options: ThrottleOptions, more: int, *, is_unused: bool
) -> Request:
    """Count *more* for a call, or less. *is_unused*: there was no such call after all."""
    return _throttle_request(key, token, options, more, -1, -1 if is_unused else 0)


def _throttle_request(
    key: bytes, token: bytes, options: ThrottleOptions, cost: int, patience: int, calls: int
) -> Request:
    words = [
        number
        for interval, burst, own in options.rates
        for number in (interval, burst, calls * own if own else cost, own)
    ]
    script = run_script("throttle", [key], secret_of(token), patience, *words)
    return Request(script, 1, key)


def window_request(
    key: bytes, token: bytes, options: ThrottleOptions, cost: int, wait: float
) -> Request:
    """Count a call in the window before its turn, which comes within *wait* seconds."""
    words = (secret_of(token), cost, math.floor(wait * _MICRO), *_window_of(options))
    return Request(run_script("window", [key], *words), 1, key)


def settle_window_request(
    key: bytes, options: ThrottleOptions, request: bytes, before: int, cost: int
) -> Request:
    """Let *request*, which was counted with the cost *before*, have cost *cost*."""
    words = (request, cost, 0, *_window_of(options), request, before)
    return Request(run_script("window", [key], *words), 1, key)


def _window_of(options: ThrottleOptions) -> tuple[int, int]:
    return math.ceil(options.per * _MICRO), options.limit


def read_throttle(reply: Reply) -> UsageOutcome:
    """Return whether a call was counted, and what is left."""
    match reply:
        case [2, int(left), int(us)]:
            return UsageOutcome(True, left, us / _MICRO, us / _MICRO)
        case [int(counted), int(left), int(us)]:
            return UsageOutcome(counted == 1, left, us / _MICRO)
        case _:
            raise OddReply


# ---- quotas


class ClockElsewhere(NamedTuple):
    """The server's clock is in none of the periods of a request."""

    now: float


def quota_request(
    key: bytes, token: bytes, options: QuotaOptions, now: float, cost: int, period: int | None
) -> Request:
    """Count *cost* units; *now* tells about which time it is. *period*: the one to settle in."""
    limits = [round(each * _MICRO) for each in period_limits(options.per, options.zone, now)]
    words = (secret_of(token), cost, options.limit, b"" if period is None else period, *limits)
    return Request(run_script("quota", [key], *words), 1, key)


def read_quota(reply: Reply) -> UsageOutcome | ClockElsewhere:
    """Return whether a call was counted, and what is left."""
    match reply:
        case [-1, int(now), *_]:
            return ClockElsewhere(now / _MICRO)
        case [int(counted), int(left), int(us), int(start)]:
            return UsageOutcome(counted == 1, left, us / _MICRO, period=start)
        case _:
            raise OddReply


def period_limits(per: Period, zone: tzinfo, now: float) -> list[float]:
    """Return the limits of the period of *now*, the one before it and the one after it."""
    here = datetime.fromtimestamp(now, zone).replace(tzinfo=None)
    start = _STARTS[per](here)
    starts = [_STARTS[per](start - timedelta(minutes=1)), start]
    for _ in range(2):
        starts.append(_STARTS[per](starts[-1] + _LONGER[per]))
    return [each.replace(tzinfo=zone).timestamp() for each in starts]


def _start_of_day(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _start_of_week(moment: datetime) -> datetime:
    return _start_of_day(moment) - timedelta(days=moment.weekday())


def _start_of_month(moment: datetime) -> datetime:
    return _start_of_day(moment).replace(day=1)


_STARTS = {"day": _start_of_day, "week": _start_of_week, "month": _start_of_month}
_LONGER = {"day": timedelta(hours=36), "week": timedelta(days=10), "month": timedelta(days=45)}
"""Longer than a period, and shorter than two."""
