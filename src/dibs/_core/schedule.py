"""When a scheduled function is due, and what becomes of fires that nobody ran.

A *fire* is a moment at which a function is due, as milliseconds since the epoch: the same number on
every machine. For each schedule the store keeps the last fire that is over. A machine that runs a
fire holds the lease of the schedule, and a fire is run only if it is later than the last one. What
is due is judged by the server's clock.
"""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal, NamedTuple, Protocol, Required, TypedDict
from zoneinfo import ZoneInfo

from ..errors import UsageError
from .cron import Cron
from .engine import run_script, run_whole_script
from .keys import Seconds, companion_key, expand, milliseconds, seconds
from .options import HoldOptions, OutagePolicy, Settings
from .request import Reply, Request, pack

Missed = Literal["once", "skip"]

GRACE_MS = 60_000
"""A fire that is late by less is not missed."""
MOST_APART_MS = 60_000
"""A machine whose clock differs from the server's by more runs no fires."""
MOST_AHEAD_MS = 3_600_000
"""A record that is further ahead of the server's clock was made by a wrong one."""
KEPT_MS = 30 * 86_400_000
"""How long the last fire is remembered after the next one is due."""
LONGEST_LOOK = 30.0
"""Seconds after which the clock is looked at again: it may be set, or the machine may sleep."""
NEW: Final = b" new"
"""How the record of a schedule ends of which no fire is over yet."""


# ---- rules


class Rule(Protocol):
    """Says when a function is due."""

    zone: tzinfo
    """In which a fire is shown to people."""

    def latest(self, now: int) -> int:
        """The last fire that is not after *now*."""
        ...

    def following(self, after: int) -> int:
        """The first fire after *after*."""
        ...

    def count(self, after: int, until: int) -> int:
        """How many fires there are after *after*, up to *until*."""
        ...


class Interval:
    """Every so many seconds, counted from the epoch: all machines agree without talking."""

    def __init__(self, every: Seconds) -> None:
        self._step = milliseconds(seconds(every, "every"))
        if self._step < 1000:
            raise UsageError(f"every must be at least 1 s, not {every!r}")
        self.zone: tzinfo = UTC

    def latest(self, now: int) -> int:
        """The last fire that is not after *now*."""
        return now - now % self._step

    def following(self, after: int) -> int:
        """The first fire after *after*."""
        return self.latest(after) + self._step

    def count(self, after: int, until: int) -> int:
        """How many fires there are after *after*, up to *until*."""
        return max(until // self._step - after // self._step, 0)

    def __repr__(self) -> str:
        return f"every {self._step / 1000:g} s"


def _zone(timezone: str | tzinfo) -> tzinfo:
    if isinstance(timezone, tzinfo):
        return timezone
    if timezone == "UTC":
        return UTC
    try:
        return ZoneInfo(timezone)
    except Exception:  # not a string, not a name, not there, or no zone database at all
        said = f"there is no time zone {timezone!r} here"
        raise UsageError(f"{said}; without a zone database: pip install tzdata") from None


# ---- options


class ScheduleKeywords(TypedDict, total=False):
    """Options of `scheduled`."""

    key: Required[str]
    """Names the schedule, the same on all machines. Log lines and events show it."""
    every: Seconds | None
    """In place of a cron expression: an interval, counted from the epoch."""
    timezone: str | tzinfo
    """In which the cron expression is read: a name such as "Asia/Taipei", or a tzinfo."""
    missed: Missed
    """What becomes of fires that nobody ran: "once" runs the last of them late, "skip" none."""
    ttl: Seconds
    """How long a crash of the machine that runs a fire keeps others from taking over."""
    at_least: Seconds
    """The least time from the beginning of a run to the beginning of the next one."""
    on_outage: OutagePolicy
    """"closed" runs nothing while Redis is unavailable, "open" runs fires on every machine."""


class ScheduleOptions:
    """How a function is scheduled. UsageError: an option is invalid."""

    def __init__(
        self,
        settings: Settings,
        *,
        key: str,
        every: Seconds | None = None,
        timezone: str | tzinfo = "UTC",
        missed: Missed = "once",
        ttl: Seconds = 10,
        at_least: Seconds = 0,
        on_outage: OutagePolicy = "closed",
    ) -> None:
        if missed not in ("once", "skip"):  # callers without a type checker
            raise UsageError(f'missed must be "once" or "skip", not {missed!r}')
        expand(settings.namespace, key)  # UsageError: no string, empty, or too long
        self.key: Final = key
        self.every: Final = every
        self.zone: Final = _zone(timezone)
        self.missed: Final[Missed] = missed
        self.at_least: Final = seconds(at_least, "at_least", zero=True)
        self.lease: Final = HoldOptions(
            settings.never_disabled(), ttl=ttl, wait=LONGEST_LOOK, renew=True, fence=True,
            on_outage=on_outage,
        )  # fmt: skip
        """How the key of the schedule is held while a fire runs."""

    def rule(self, cron: str | None) -> Rule:
        """When the function is due. UsageError: not exactly one of *cron* and `every`."""
        if (cron is None) == (self.every is None):
            raise UsageError("pass either a cron expression or every=")
        if self.every is None:
            assert cron is not None
            return Cron(cron, self.zone)
        if self.zone is not UTC:
            raise UsageError("every= is counted from the epoch and has no timezone; use a cron")
        return Interval(self.every)


def next_fires(cron: str, timezone: str, now: int, count: int) -> list[datetime]:
    """The next fires of a cron expression. UsageError: it is none, or there is no such zone."""
    rule, fires = Cron(cron, _zone(timezone)), [now]
    for _ in range(count):
        fires.append(rule.following(fires[-1]))
    return [datetime.fromtimestamp(fire / 1000, rule.zone) for fire in fires[1:]]


# ---- what to do now


class Step(NamedTuple):
    """What a machine does next."""

    run: int | None = None
    """Run this fire."""
    skip: int | None = None
    """Record this fire as over, without running it."""
    missed: int = 0
    """How many fires nobody ran, nor will."""
    look_at: int = 0
    """If there is nothing to do: when there will be."""


def next_step(rule: Rule, last: int, now: int, missed: Missed, awaited: int | None) -> Step:
    """What to do at *now*, if *last* is the last fire that is over.

    Only the latest fire is ever run: where there are several, it stands for all of them. *awaited*:
    the fire that this machine waits to take over from another one; it is not late for us.
    """
    latest = rule.latest(now)
    if latest <= last:
        return Step(look_at=rule.following(max(now, last)))
    number = rule.count(last, latest)
    if missed == "skip" and now - latest > GRACE_MS and latest != awaited:
        return Step(skip=latest, missed=number)
    return Step(run=latest, missed=number - 1)


def pause(look_at: int, now: int) -> float:
    """Seconds until the clock is looked at again."""
    return min(max((look_at - now) / 1000, 0.0), LONGEST_LOOK)


# ---- the clock of this machine, and the server's


def clock_offset(now: int, elapsed: int, server: int) -> int:
    """What to add to the clock of this machine, which shows *now*, to get the server's.

    *server*: what that showed at some moment of the last *elapsed* milliseconds. 0: the two may
    agree; else the least correction.
    """
    return min(max(server - now, 0), server - now + elapsed)


def is_apart(offset: int) -> bool:
    """Whether a machine with this *offset* runs no fires: its clock, or the server's, is wrong."""
    return abs(offset) > MOST_APART_MS


def offset_text(offset: int) -> str:
    """The difference as a part of a sentence: "75 s behind"."""
    return f"{abs(offset) / 1000:.0f} s {'behind' if offset > 0 else 'ahead of'}"


# ---- the last fire, in the store


class Look(NamedTuple):
    """What the store knows of a schedule."""

    last: int | None
    """The last fire that is over; None: it knows none, or one of a wrong clock."""
    now: int
    """The time by the server's clock."""


def look_request(key: bytes) -> Request:
    """Ask for the last fire that is over, and for the time."""
    return Request(run_script("schedule_look", [key]), 1, key)


def read_look(reply: Reply, server_time: Callable[[int], int]) -> Look | None:
    """What the store knows; None: it was not asked, because of an outage."""
    if not isinstance(reply, list):
        return None
    record, time = reply
    assert isinstance(time, int)
    now = server_time(time)
    return Look(plausible(read_last(record), now), now)


def begin_request(key: bytes, fire: int, holder: bytes, kept_ms: int) -> Request:
    """Record *fire* as the last one, if the store knows none: the schedule is new."""
    record = b"%d %b%b" % (fire, holder, NEW)
    return Request(pack("SET", key, record, "NX", "PX", kept_ms), 1, key)


def has_begun(reply: Reply) -> bool:
    """Whether `begin_request` has made the record; False: another machine has, or an outage."""
    return reply in (b"OK", "OK")


class Run(NamedTuple):
    """How a fire ended, and who has recorded that."""

    holder: str
    outcome: str
    """finished, skipped; failed, with the name of the exception's type: failed:ValueError."""
    began: int
    """When it was run, in milliseconds since the epoch."""
    took_ms: int


class FireRecord(NamedTuple):
    """A fire that is over."""

    fire: int
    """Milliseconds since the epoch."""
    run: Run | None
    """None: an older version has recorded it."""


def record_request(keys: list[bytes], fire: int, run: Run, kept_ms: int, until: float) -> Request:
    """Record that *fire* is over; worth delivering until the (local) time *until*.

    *keys*: of the last fire, and of the last records.
    """
    words = f"{run.holder} {run.outcome} {run.began} {run.took_ms}".encode()
    script = run_whole_script("schedule_record", keys, fire, words, kept_ms, MOST_AHEAD_MS)
    return Request(script, 1, keys[0], until)


def records_key(prefix: bytes, last_key: bytes) -> bytes:
    """Where the last records of a schedule are; *prefix*: the namespace and `fires:`."""
    return companion_key(prefix, last_key)


def read_record(value: bytes) -> FireRecord | None:
    """A fire that is over; None: *value* is no record."""
    fire, *words = value.decode(errors="replace").split(" ")
    if not fire.isdecimal():
        return None
    match words:
        case [holder, outcome, began, took] if began.isdecimal() and took.isdecimal():
            return FireRecord(int(fire), Run(holder, outcome, int(began), int(took)))
        case _:
            return FireRecord(int(fire), None)


def outcome_of(error: BaseException | None) -> str:
    """How a fire ended that is over, in a word without spaces."""
    if error is None:
        return "finished"
    name = "".join([each for each in type(error).__name__ if each.isalnum() or each == "_"])
    return f"failed:{name[:60]}"


def kept_ms(rule: Rule, fire: int) -> int:
    """How long *fire* is remembered: past the next fire, and past a long time without machines."""
    return rule.following(fire) - fire + KEPT_MS


def read_last(reply: Reply) -> int | None:
    """The last fire that is over; None: the store knows none."""
    digits = reply.partition(b" ")[0] if isinstance(reply, bytes) else b""
    return int(digits) if digits.isdigit() else None


def plausible(last: int | None, now: int) -> int | None:
    """*last*, unless it is too far ahead of *now*, by the server's clock."""
    return None if last is None or last > now + MOST_AHEAD_MS else last


def takes_fire(parameters: list[inspect.Parameter]) -> bool:
    """Whether a function with *parameters* asks for its fire. UsageError: for anything else."""
    needed = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if set(needed) - {"fire"}:
        said = "a scheduled function takes no argument, or one that is called fire"
        raise UsageError(f"{said}; not {', '.join(needed)}")
    return any(each.name == "fire" for each in parameters)
