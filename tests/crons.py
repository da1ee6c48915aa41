"""Cron expressions against a second implementation, in every time zone.

    python -m tests.crons                       all zones, every change of their clocks
    python -m tests.crons --changes 2           two changes of each zone, at random
    python -m tests.crons --only Pacific/Chatham

Around each change, the runs of random expressions are compared with those that are found by
looking at every minute: what the clock on the wall shows, and whether it has shown it before. In
UTC, the runs are compared with those of croniter.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from dibs._core.schedule import Cron

MINUTE = timedelta(minutes=1)
AROUND = timedelta(hours=26)
Fields = list[set[int]]
"""Minutes, hours, days of the month, months and days of the week."""
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


# ---- expressions at random


def expression(numbers: random.Random) -> tuple[str, Fields]:
    """An expression, and what its fields mean."""
    terms = [_field(numbers, *bounds) for bounds in RANGES[:2]]
    terms += [_field(numbers, *bounds, often="*") for bounds in RANGES[2:]]
    return " ".join([text for text, _ in terms]), [values for _, values in terms]


def _field(
    numbers: random.Random, least: int, most: int, often: str | None = None
) -> tuple[str, set[int]]:
    if numbers.random() < (0.7 if often else 0.15):
        return "*", set(range(least, most + 1))
    first, step = numbers.randint(least, most), numbers.randint(1, 20)
    last = numbers.randint(first, most)
    listed = sorted({first, last, numbers.randint(least, most)})
    return numbers.choice([
        (f"*/{step}", set(range(least, most + 1, step))),
        (f"{first}", {first}),
        (f"{first}-{last}", set(range(first, last + 1))),
        (f"{first}-{last}/{step}", set(range(first, last + 1, step))),
        (f"{first}-{first}/{step}", {first}),
        (",".join(map(str, listed)), set(listed)),
    ])  # fmt: skip


# ---- every minute


def is_named(text: str, fields: Fields, local: datetime) -> bool:
    """Whether the wall clock shows a time that the expression names."""
    minutes, hours, days, months, weekdays = fields
    parts = text.split()
    day, weekday = local.day in days, local.isoweekday() % 7 in weekdays
    has_star = parts[2][0] == "*" or parts[4][0] == "*"
    is_day = (day and weekday) if has_star else (day or weekday)
    return is_day and local.month in months and local.hour in hours and local.minute in minutes


def every_minute(zone: tzinfo, begin: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Each minute in UTC, with what the wall clock shows."""
    count = int((end - begin) / MINUTE)
    moments = [begin + number * MINUTE for number in range(count + 1)]
    return [(each, each.astimezone(zone).replace(tzinfo=None)) for each in moments]


def runs_by_minute(
    text: str, fields: Fields, minutes: list[tuple[datetime, datetime]], since: datetime
) -> list[int]:
    """The runs after *since*, in milliseconds."""
    is_fixed = all(part[0] != "*" for part in text.split()[:2])
    shown: set[datetime] = set()
    found: list[int] = []
    before: datetime | None = None
    for moment, local in minutes:
        runs = is_named(text, fields, local)
        if is_fixed:
            runs = runs and local.replace(fold=0) not in shown
            left_out = _between(before, local)
            runs = runs or any(is_named(text, fields, each) for each in left_out)
            shown.add(local.replace(fold=0))
        if runs and moment > since:
            found.append(int(moment.timestamp()) * 1000)
        before = local
    return found


def _between(before: datetime | None, local: datetime) -> list[datetime]:
    """What the wall clock has left out."""
    if before is None or local - before <= MINUTE:
        return []
    count = -((before - local) // MINUTE)
    return [before + number * MINUTE for number in range(1, count)]


def runs_by_search(rule: Cron, since: datetime, until: datetime) -> tuple[list[int], list[int]]:
    """The same by the search, forwards, and backwards."""
    first, last = (int(each.timestamp()) * 1000 for each in (since, until))
    forwards: list[int] = []
    run = rule.following(first)
    while run <= last:
        forwards.append(run)
        run = rule.following(run)
    backwards: list[int] = []
    run = rule.latest(last)
    while run > first:
        backwards.append(run)
        run = rule.latest(run - 1)
    return forwards, backwards[::-1]


# ---- zones


def changes(zone: tzinfo, begin: int, end: int) -> Iterator[datetime]:
    """When the clocks of *zone* are changed, from the year *begin* to *end*."""
    day, last = datetime(begin, 1, 1, tzinfo=UTC), datetime(end, 1, 1, tzinfo=UTC)
    while day < last:
        following = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            yield _change(zone, day, following)
        day = following


def _change(zone: tzinfo, begin: datetime, end: datetime) -> datetime:
    before = begin.astimezone(zone).utcoffset()
    while end - begin > timedelta(seconds=1):
        middle = (begin + (end - begin) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == before:
            begin = middle
        else:
            end = middle
    return end


def has_whole_minutes(zone: tzinfo, moment: datetime) -> bool:
    """False: an offset such as that of Liberia, until 1972, which no minute of UTC shows."""
    offsets = [(moment + side).astimezone(zone).utcoffset() for side in (-AROUND, AROUND)]
    return not any(offset is None or offset % MINUTE for offset in offsets)


def differences(
    zone: tzinfo, change: datetime, numbers: random.Random, count: int
) -> list[tuple[str, str, datetime]]:
    """Expressions of which the two disagree around a *change*."""
    middle = change.replace(second=0)
    since, until = middle - AROUND / 2, middle + AROUND
    minutes = every_minute(zone, middle - AROUND, until)
    found: list[tuple[str, str, datetime]] = []
    for _ in range(count):
        text, fields = expression(numbers)
        try:
            rule = Cron(text, zone)
        except ValueError:  # the 31st of a month that has none
            continue
        right = runs_by_minute(text, fields, minutes, since)
        if runs_by_search(rule, since, until) != (right, right):
            found.append((text, str(zone), change))
    return found


def against_croniter(numbers: random.Random, count: int) -> tuple[int, list[str]]:
    """How many expressions were compared in UTC, and those that differ."""
    from croniter import croniter

    compared, found = 0, []
    for _ in range(count):
        text, _ = expression(numbers)
        if any(first == last for first, _, last in _ranges(text)):
            continue  # croniter reads 14-14 as a star
        begin = datetime(numbers.randint(1990, 2035), numbers.randint(1, 12), 1, tzinfo=UTC)
        try:
            rule, other = Cron(text, UTC), croniter(text, begin, day_or=not _has_star(text))
        except ValueError:
            continue
        run = int(begin.timestamp()) * 1000
        compared += 1
        for _ in range(5):
            run = rule.following(run)
            if run != int(other.get_next(float)) * 1000:
                found.append(text)
                break
    return compared, found


def _ranges(text: str) -> list[tuple[str, str, str]]:
    terms = [term.partition("/")[0] for field in text.split() for term in field.split(",")]
    return [term.partition("-") for term in terms if "-" in term]


def _has_star(text: str) -> bool:
    parts = text.split()
    return parts[2][0] == "*" or parts[4][0] == "*"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the name of a zone")
    parser.add_argument("--changes", type=int, default=0, help="of each zone at most; 0: all")
    parser.add_argument("--expressions", type=int, default=3, help="around each change")
    parser.add_argument("--since", type=int, default=1971)
    parser.add_argument("--until", type=int, default=2040)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    numbers, begun = random.Random(asked.seed), time.monotonic()
    zones = [asked.only] if asked.only else sorted(available_timezones())
    looked, found = 0, list[tuple[str, str, datetime]]()
    for name in zones:
        zone = ZoneInfo(name)
        when = list(changes(zone, asked.since, asked.until))
        when = [each for each in when if has_whole_minutes(zone, each)]
        if asked.changes:
            when = numbers.sample(when, min(asked.changes, len(when)))
        for change in when:
            found += differences(zone, change, numbers, asked.expressions)
        looked += len(when)
    compared, others = against_croniter(numbers, 500)
    print(f"{len(zones)} zones, {looked} changes, {asked.expressions} expressions at each:")
    print(f"{len(found)} differ; in UTC {len(others)} of {compared} differ from croniter;")
    print(f"{time.monotonic() - begun:.0f} s")
    for each in [*found[:20], *others[:20]]:
        print(each)
    return 1 if found or others else 0


if __name__ == "__main__":
    sys.exit(main())
