"""Schedules: cron expressions, runs, and the record of the last one."""

import inspect
import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, tzinfo
from typing import Final, Literal, NamedTuple, Protocol, Required
from zoneinfo import ZoneInfo

from ..errors import UsageError
from .capabilities import run_script, run_whole_script
from .keys import Seconds, companion_key, expand, milliseconds, seconds
from .keywords import TypedDict
from .options import HoldOptions, OutagePolicy, Settings
from .request import OddReply, Reply, Request, pack, parts_in

MOST_COUNTED = 1000
"""Runs are counted up to this number."""
_DAY = 86_400
_LONGEST = 50 * 366 * _DAY
"""Seconds after which the search ends. The longest pause between two runs of an expression is
forty years: a 29th of February that is a Monday, across the year 2100."""
_SOON = 1_767_225_600_000
"""The beginning of 2026, from which an expression is tried."""
_EPOCH = date(1970, 1, 1).toordinal()

NAMED = {
    "@YEARLY": "0 0 1 1 *", "@ANNUALLY": "0 0 1 1 *", "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0", "@DAILY": "0 0 * * *", "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}  # fmt: skip
"""Expressions that have a name, as in crontab(5)."""


# ---- reading


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    """What may be written for a number: the first of them for *least*."""

    def values(self, text: str) -> set[int]:
        """Return the numbers of a list such as `1-5,10/2`. Raises ValueError if it is none."""
        numbers: set[int] = set()
        for term in text.split(","):
            numbers |= self._term_values(term)
        return numbers

    def _term_values(self, term: str) -> set[int]:
        range_text, slash, step_text = term.partition("/")
        step = _parsed_number(step_text) if slash else 1
        first, dash, last = range_text.partition("-")
        if step < 1:
            raise ValueError(term)
        if range_text == "*":
            return set(range(self.least, self.most + 1, step))
        begin = self.value(first)
        end = self.value(last) if dash else self.most if slash else begin
        if end < begin:
            raise ValueError(term)
        return set(range(begin, end + 1, step))

    def value(self, text: str) -> int:
        """Return the number of *text*. Raises ValueError if there is none in the range."""
        value = self.names.index(text) + self.least if text in self.names else _parsed_number(text)
        if not self.least <= value <= self.most:
            raise ValueError(text)
        return value


def _parsed_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise ValueError(text)
    return int(text)


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SECOND = _Field("second", 0, 59)
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY_OF_MONTH = _Field("day of the month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_WEEKDAY = _Field("day of the week", 0, 7, _WEEKDAYS)


class _Days:
    """Which days an expression names, by day of the month, month and day of the week."""

    def __init__(self, days: str, months: str, weekdays: str) -> None:
        self._months = _read_field(_MONTH, months)
        # As in Debian's cron: both must match if either begins with a star, else one of them.
        self._are_both_needed = days.startswith("*") or weekdays.startswith("*")
        special = {"L", "LW"} & set(days.split(","))
        self._is_last_day, self._is_last_workday = "L" in special, "LW" in special
        plain = [each for each in days.split(",") if each not in special]
        self._days = _read_field(_DAY_OF_MONTH, ",".join(plain)) if plain else set[int]()
        terms = weekdays.split(",")
        nth = [each for each in terms if each.endswith("L") or "#" in each]
        self._nth = {_nth_weekday(each) for each in nth}
        """Day of the week, and the how manyth of its month; 0: the last."""
        rest = [each for each in terms if each not in nth]
        plain_weekdays = _read_field(_WEEKDAY, ",".join(rest)) if rest else set[int]()
        self._weekdays = {each % 7 for each in plain_weekdays}

    def __contains__(self, number: int) -> bool:
        """Return whether the day with this *number*, counted from the epoch, is one of them."""
        day = date.fromordinal(_EPOCH + number)
        if day.month not in self._months:
            return False
        if self._are_both_needed:
            return self._is_day(day) and self._is_weekday(day)
        return self._is_day(day) or self._is_weekday(day)

    def _is_day(self, day: date) -> bool:
        if day.day in self._days:
            return True
        if not self._is_last_day and not self._is_last_workday:
            return False
        last = monthrange(day.year, day.month)[1]
        if self._is_last_day and day.day == last:
            return True
        after = max(day.replace(day=last).weekday() - 4, 0)  # of a Saturday 1, of a Sunday 2
        return self._is_last_workday and day.day == last - after

    def _is_weekday(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if weekday in self._weekdays or (weekday, (day.day + 6) // 7) in self._nth:
            return True
        is_last = (weekday, 0) in self._nth
        return is_last and day.day + 7 > monthrange(day.year, day.month)[1]


def _nth_weekday(term: str) -> tuple[int, int]:
    text, mark, number = term.partition("#")
    try:
        weekday = _WEEKDAY.value(text if mark else text[:-1]) % 7
        nth = _parsed_number(number) if mark else 0
    except ValueError:
        raise _unreadable_field(_WEEKDAY, term) from None
    if mark and not 1 <= nth <= 5:
        raise _unreadable_field(_WEEKDAY, term)
    return weekday, nth


def _read_field(field: _Field, text: str) -> set[int]:
    try:
        return field.values(text)
    except ValueError:
        raise _unreadable_field(field, text) from None


def _unreadable_field(field: _Field, text: str) -> UsageError:
    return UsageError(f"{text!r} is no {field.name} ({field.least} to {field.most})")


def fields_of(expression: str) -> list[str]:
    """Return six fields, in capitals.

    Raises UsageError if there are fewer or more than five or six.
    """
    fields = NAMED.get(expression.strip().upper(), expression).upper().split()
    if len(fields) == 5:
        fields.insert(0, "0")
    if len(fields) != 6:
        words = f"it has {len(fields)} fields in place of five, or six with seconds first"
        raise UsageError(f"{words}; there are also {', '.join(NAMED).lower()}")
    return fields


# ---- searching


class Cron:
    """A cron expression, in a time zone. UsageError: it cannot be read, or is never due.

    Where the clocks of the zone are changed, it does what Debian's cron does. If minute and hour
    are given (neither begins with a star), a run in a time that is left out comes right after it,
    and one in a time that comes twice comes the first time only. Other expressions go by the clock.
    """

    def __init__(self, expression: str, zone: tzinfo) -> None:
        if not isinstance(expression, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = 'a cron expression is a text such as "0 3 * * *"'
            raise UsageError(f"{message}, not {expression!r}; an interval is every=…")
        self._expression = expression
        self.zone = zone
        try:
            second, minute, hour, day, month, weekday = fields_of(expression)
            self._seconds = sorted(_read_field(_SECOND, second))
            hours, minutes = _read_field(_HOUR, hour), _read_field(_MINUTE, minute)
            self._minutes = sorted([3600 * one + 60 * two for one in hours for two in minutes])
            """Of a day, each as its first second."""
            self._days = _Days(day, month, weekday)
        except UsageError as error:
            message = f"the cron expression {expression!r} cannot be read: {error}"
            raise UsageError(message) from None
        self._is_fixed = not minute.startswith("*") and not hour.startswith("*")
        self._check_zone()
        if self._search_from(_SOON // 1000) is None:
            raise UsageError(f"the cron expression {expression!r} is never due")

    def _check_zone(self) -> None:
        try:
            self._offset_at(_SOON // 1000)
        except Exception as error:  # a class of the caller's
            raise UsageError(f"the time zone {self.zone!r} cannot be used: {error}") from None

    def latest(self, now: int) -> int:
        """Return the last run that is not after *now*; 0: there was none for fifty years."""
        end = now // 1000 + 1
        least = max(end - _LONGEST, 0)
        while end > least:
            begin = (end - 1) // _DAY * _DAY
            run = self._first_run(begin, end)
            if run is not None:
                return self._last_run(run, end) * 1000
            end = begin
        return 0

    def _last_run(self, run: int, end: int) -> int:
        """Return the last run before *end*, if there is *run*."""
        while end - run > 1:
            middle = (run + end) // 2
            later = self._first_run(middle, end)
            run, end = (run, middle) if later is None else (later, end)
        return run

    def following(self, after: int) -> int:
        """Return the first run after *after*. Raises UsageError if none is in fifty years."""
        run = self._search_from(after // 1000 + 1)
        if run is None:
            raise UsageError(f"the cron expression {self._expression!r} is never due again")
        return run * 1000

    def count(self, after: int, until: int) -> int:
        """Return how many runs come after *after*, up to *until*; `MOST_COUNTED` at most."""
        number = 0
        while number < MOST_COUNTED and (after := self.following(after)) <= until:
            number += 1
        return number

    def _search_from(self, begin: int) -> int | None:
        """The first run from *begin* on; here and below in seconds since the epoch."""
        most = begin + _LONGEST
        while begin < most:
            end = (begin // _DAY + 1) * _DAY
            run = self._first_run(begin, end)
            if run is not None:
                return run
            begin = end
        return None

    def _first_run(self, begin: int, end: int) -> int | None:
        """The first run from *begin* on, before *end*: at most a day, so with one change at most.

        In the tz database, two changes of a zone are at least three days apart.
        """
        nearby = range(begin // _DAY - 1, (end - 1) // _DAY + 2)  # in any zone
        if not any(day in self._days for day in nearby):
            return None
        before, after = self._offset_at(begin - 1), self._offset_at(end - 1)
        if before == after:
            return self._first_with(after, begin, end)
        change = self._change_of_offset(begin, end - 1, after)
        run = self._first_with(before, begin, change)
        if run is not None:
            return run
        is_made_up = (
            self._is_fixed and self._first_match(change + before, change + after) is not None
        )
        return change if is_made_up else self._first_with(after, change, end)

    def _change_of_offset(self, begin: int, end: int, after: int) -> int:
        """From when on the zone has the offset *after*."""
        while begin < end:
            middle = (begin + end) // 2
            begin, end = (begin, middle) if self._offset_at(middle) == after else (middle + 1, end)
        return end

    def _first_with(self, offset: int, begin: int, end: int) -> int | None:
        """Return the first run of a time in which the zone has one offset."""
        local = self._first_match(begin + offset, end + offset)
        while local is not None and self._is_fixed and self._is_repeated(local - offset):
            local = self._first_match(local + 1, end + offset)
        return None if local is None else local - offset

    def _is_repeated(self, run: int) -> bool:
        """Return whether the local time of *run* comes for the second time."""
        before, now = self._offset_at(run - _DAY), self._offset_at(run)
        return before > now and self._offset_at(run - (before - now)) == before

    def _first_match(self, begin: int, end: int) -> int | None:
        """The first local time from *begin* on, before *end*, that the fields name."""
        for day in range(begin // _DAY, (end - 1) // _DAY + 1):
            time = self._time_of_day(max(begin - day * _DAY, 0)) if day in self._days else None
            if time is not None:
                local = day * _DAY + time
                return local if local < end else None
        return None

    def _time_of_day(self, least: int) -> int | None:
        """Return the first time of a day that is not before *least*, in seconds."""
        minute = least - least % 60
        place = bisect_left(self._minutes, minute)
        if place < len(self._minutes) and self._minutes[place] == minute:
            second = bisect_left(self._seconds, least - minute)
            if second < len(self._seconds):
                return minute + self._seconds[second]
            place += 1
        return self._minutes[place] + self._seconds[0] if place < len(self._minutes) else None

    def _offset_at(self, time: int) -> int:
        offset = datetime.fromtimestamp(time, self.zone).utcoffset()
        if offset is None:
            raise ValueError("it has no offset from UTC")
        return int(offset.total_seconds())

    def __repr__(self) -> str:
        return f"{self._expression!r} in {self.zone}"


Missed = Literal["once", "skip"]

GRACE_MS = 60_000
"""A run that is late by less is not missed."""
MOST_APART_MS = 60_000
"""A machine whose clock differs from the server's by more starts no runs."""
MOST_AHEAD_MS = 3_600_000
"""A record that is further ahead of the server's clock was made by a wrong one."""
KEPT_MS = 30 * 86_400_000
"""How long the last run is remembered after the next one is due."""
LONGEST_LOOK = 30.0
"""Seconds after which the clock is looked at again: it may be set, or the machine may sleep."""
NEW: Final = b" new"
"""How the record of a schedule ends of which no run is over yet."""


# ---- rules


class DueRule(Protocol):
    """Says when a function is due."""

    zone: tzinfo
    """In which a run is shown to people."""

    def latest(self, now: int) -> int:
        """Return the last run that is not after *now*."""
        ...

    def following(self, after: int) -> int:
        """Return the first run after *after*."""
        ...

    def count(self, after: int, until: int) -> int:
        """Return how many runs there are after *after*, up to *until*."""
        ...


class Interval:
    """Every so many seconds, counted from the epoch: all machines agree without talking."""

    def __init__(self, every: Seconds) -> None:
        self._step = milliseconds(seconds(every, "every"))
        if self._step < 1000:
            raise UsageError(f"every must be at least 1 s, not {every!r}")
        self.zone: tzinfo = UTC

    def latest(self, now: int) -> int:
        """Return the last run that is not after *now*."""
        return now - now % self._step

    def following(self, after: int) -> int:
        """Return the first run after *after*."""
        return self.latest(after) + self._step

    def count(self, after: int, until: int) -> int:
        """Return how many runs there are after *after*, up to *until*."""
        return max(until // self._step - after // self._step, 0)

    def __repr__(self) -> str:
        return f"every {self._step / 1000:g} s"


def zone_named(timezone: str | tzinfo) -> tzinfo:
    """Return the time zone of that name. Raises UsageError if this machine has none."""
    if isinstance(timezone, tzinfo):
        return timezone
    if timezone == "UTC":
        return UTC
    try:
        return ZoneInfo(timezone)
    except Exception:  # not a string, not a name, not there, or no zone database at all
        message = f"there is no time zone {timezone!r} here"
        raise UsageError(f"{message}; without a zone database: pip install tzdata") from None


# ---- options


class ScheduleKeywords(TypedDict, total=False, closed=True):
    """Options of `scheduled`."""

    key: Required[str]
    """Names the schedule, the same on all machines. Log lines and events show it."""
    every: Seconds | None
    """In place of a cron expression: an interval, counted from the epoch."""
    timezone: str | tzinfo
    """In which the cron expression is read: a name such as "Asia/Taipei", or a tzinfo."""
    missed: Missed
    """What becomes of Runs that were missed: "once" runs the last of them late, "skip" none."""
    ttl: Seconds
    """How long a crash of the machine that executes a run keeps others from taking over."""
    at_least: Seconds
    """The least time from the beginning of a run to the beginning of the next one."""
    on_outage: OutagePolicy
    """"closed" runs nothing while Redis is unavailable, "open" executes runs on every machine."""


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
        self.zone: Final = zone_named(timezone)
        self.missed: Final[Missed] = missed
        self.at_least: Final = seconds(at_least, "at_least", zero=True)
        self.lease: Final = HoldOptions(
            settings.never_disabled(), ttl=ttl, wait=LONGEST_LOOK, renew=True, fence=True,
            on_outage=on_outage,
        )  # fmt: skip
        """How the key of the schedule is held during a run."""

    def rule(self, cron: str | None) -> DueRule:
        """Return when it is due. Raises UsageError if not exactly one of *cron* and `every`."""
        if (cron is None) == (self.every is None):
            raise UsageError("pass either a cron expression or every=")
        if self.every is None:
            assert cron is not None
            return Cron(cron, self.zone)
        if self.zone is not UTC:
            raise UsageError("every= is counted from the epoch and has no timezone; use a cron")
        return Interval(self.every)


def next_runs(cron: str, timezone: str, now: int, count: int) -> list[datetime]:
    """Return the next runs of a cron expression.

    Raises UsageError if it is none, or there is no such zone.
    """
    rule, runs = Cron(cron, zone_named(timezone)), [now]
    for _ in range(count):
        runs.append(rule.following(runs[-1]))
    return [datetime.fromtimestamp(run / 1000, rule.zone) for run in runs[1:]]


# ---- what to do now


class ScheduleStep(NamedTuple):
    """What a machine does next."""

    run: int | None = None
    """Start this run."""
    skip: int | None = None
    """Record this run as over, without starting it."""
    missed: int = 0
    """How many runs were missed."""
    look_at: int = 0
    """If there is nothing to do: when there will be."""


def next_step(
    rule: DueRule, last: int, now: int, missed: Missed, awaited: int | None
) -> ScheduleStep:
    """Return what to do at *now*, if *last* is the last run that is over.

    Only the latest run is ever started: it stands for all that are due. *awaited*:
    the run that this machine waits to take over from another one; it is not late for us.
    """
    latest = rule.latest(now)
    if latest <= last:
        return ScheduleStep(look_at=rule.following(max(now, last)))
    number = rule.count(last, latest)
    if missed == "skip" and now - latest > GRACE_MS and latest != awaited:
        return ScheduleStep(skip=latest, missed=number)
    return ScheduleStep(run=latest, missed=number - 1)


def pause(look_at: int, now: int) -> float:
    """Return the seconds until the clock is looked at again."""
    return min(max((look_at - now) / 1000, 0.0), LONGEST_LOOK)


# ---- the clock of this machine, and the server's


def elapsed_ms(wall: int, monotonic: int) -> int:
    """Return how long ago it was, by two clocks of this machine.

    If the wall clock was set meanwhile, forward or back, it is wrong by that.
    """
    return max(min(wall, monotonic), 0)


def clock_offset(now: int, elapsed: int, server: int) -> int:
    """Return what to add to the clock of this machine, which shows *now*, to get the server's.

    *server*: what that showed at some moment of the last *elapsed* milliseconds. 0: the two may
    agree; else the least correction.
    """
    return min(max(server - now, 0), server - now + elapsed)


def is_apart(offset: int) -> bool:
    """Return whether a machine with this *offset* starts no runs: one of the clocks is wrong."""
    return abs(offset) > MOST_APART_MS


def offset_text(offset: int) -> str:
    """Return the difference as a part of a sentence: "75 s behind"."""
    return f"{abs(offset) / 1000:.0f} s {'behind' if offset > 0 else 'ahead of'}"


# ---- the last run, in the store


class Look(NamedTuple):
    """What the store knows of a schedule."""

    last: int | None
    """The last run that is over; None: it knows none, or one of a wrong clock."""
    now: int
    """The time by the server's clock."""


def look_request(key: bytes) -> Request:
    """Ask for the last run that is over, and for the time."""
    return Request(run_script("schedule_look", [key]), 1, key)


def read_look(reply: Reply, server_time: Callable[[int], int]) -> Look:
    """Return what the store knows."""
    record, time = parts_in(reply)
    if not isinstance(time, int):
        raise OddReply
    now = server_time(time)
    return Look(plausible(read_last(record), now), now)


def register_request(key: bytes, run: int, holder: bytes, kept_ms: int) -> Request:
    """Record *run* as the last one, if the store knows none: the schedule is new."""
    record = b"%d %b%b" % (run, holder, NEW)
    return Request(pack("SET", key, record, "NX", "PX", kept_ms), 1, key)


def has_begun(reply: Reply) -> bool:
    """Return whether `register_request` has made the record.

    False: another machine has, or an outage.
    """
    return reply in (b"OK", "OK")


class RunEnd(NamedTuple):
    """How a run ended, and who has recorded that."""

    holder: str
    outcome: str
    """finished, skipped; failed, with the name of the exception's type: failed:ValueError."""
    began: int
    """When it was run, in milliseconds since the epoch."""
    took_ms: int


class RunRecord(NamedTuple):
    """A run that is over."""

    run: int
    """Milliseconds since the epoch."""
    end: RunEnd | None
    """None: an older version has recorded it."""


def record_request(
    keys: list[bytes],
    run: int,
    end: RunEnd,
    kept_ms: int,
    until: float,
    stays_ms: int,
    token: bytes,
) -> Request:
    """Record that *run* is over, then end its lease; worth delivering until the time *until*.

    *keys*: of the last run, of the last records, and of the lease, which stays for *stays_ms*. The
    reply is 1, or 0: *token* does not hold it; b"": there is none to end.
    """
    words = f"{end.holder} {end.outcome} {end.began} {end.took_ms}".encode()
    facts = (run, words, kept_ms, MOST_AHEAD_MS, token, stays_ms)
    return Request(run_whole_script("schedule_record", keys, *facts), 1, keys[-1], until)


def records_key(prefix: bytes, last_key: bytes) -> bytes:
    """Return where the last records of a schedule are; *prefix*: the namespace and `runs:`."""
    return companion_key(prefix, last_key)


def lease_name(last_key: bytes) -> str:
    """Return the key of the lease of a schedule, without the namespace.

    In the slot of *last_key*.
    """
    return companion_key(b"scheduled:", last_key).decode()


_NUMBER = re.compile("[0-9]{1,15}")
"""Milliseconds; longer ones would be no time."""


def read_record(value: bytes) -> RunRecord | None:
    """Return a run that is over; None: *value* is no record."""
    run, *words = value.decode(errors="replace").split(" ")
    if not _NUMBER.fullmatch(run):
        return None
    match words:
        case [holder, outcome, began, took] if _NUMBER.fullmatch(began) and _NUMBER.fullmatch(took):
            return RunRecord(int(run), RunEnd(holder, outcome, int(began), int(took)))
        case _:
            return RunRecord(int(run), None)


def outcome_of(error: BaseException | None) -> str:
    """Return how a run ended that is over, in a word without spaces."""
    if error is None:
        return "finished"
    name = "".join([each for each in type(error).__name__ if each.isalnum() or each == "_"])
    return f"failed:{name[:60]}"


def kept_ms(rule: DueRule, run: int) -> int:
    """Return how long *run* is remembered: past the next one, and a time without machines."""
    return rule.following(run) - run + KEPT_MS


def read_last(reply: Reply) -> int | None:
    """Return the last run that is over; None: the store knows none."""
    word = reply.partition(b" ")[0].decode(errors="replace") if isinstance(reply, bytes) else ""
    return int(word) if _NUMBER.fullmatch(word) else None


def plausible(last: int | None, now: int) -> int | None:
    """Return *last*, unless it is too far ahead of *now*, by the server's clock."""
    return None if last is None or last > now + MOST_AHEAD_MS else last


def takes_run(parameters: list[inspect.Parameter]) -> bool:
    """Return whether a function with *parameters* asks for its run.

    Raises UsageError if for anything else.
    """
    needed = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if set(needed) - {"run"}:
        message = "a scheduled function takes no argument, or one that is called run"
        raise UsageError(f"{message}; not {', '.join(needed)}")
    return any(each.name == "run" for each in parameters)
