"""Entries as words: for people in a table, for programs as JSON; why a key is as it is. Pure."""

import math
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from ._internal_api import (
    KeyInfo,
    Permit,
    ScheduledRun,
    cut,
    is_shortened,
    lease_name,
    printable,
    shorten,
)

JsonObject = dict[str, Any]


def printable_lines(text: str) -> str:
    """Return *text* without characters that a terminal would obey, line by line."""
    return "\n".join([printable(line) for line in text.split("\n")])


def duration(seconds: float | None, none: str = "") -> str:
    """`3 ms`, `0.4 s`, `42 s`, `3m12s`, `2h05m`, `4d03h`; *none* where there is no such time."""
    if seconds is None or math.isinf(seconds):
        return none
    if seconds < 0.095:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for unit, smaller, large, small in (("m", "s", 60, 1), ("h", "m", 3600, 60)):
        if whole < large * (60 if unit == "m" else 24):
            return f"{whole // large}{unit}{whole % large // small:02}{smaller}"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def size(count: int | None) -> str:
    """`58 B`, `2.1 kB`, `3.4 MB`."""
    if count is None:
        return ""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


def counted(number: int, word: str) -> str:
    """`1 key`, `2 keys`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# ---- keys


def shown_key(entry: KeyInfo, *, whole: bool) -> str:
    """Return the key, shortened unless *whole*. Schedules are named in logs anyway."""
    return _shown(entry.key, whole=whole or entry.kind == "schedule")


def _shown_owner(entry: KeyInfo, *, whole: bool) -> str:
    return _shown(entry.of or "", whole=whole)


def _shown(key: str, *, whole: bool) -> str:
    name = key if whole else shorten(key)
    return printable(cut(name))  # else all rows of a table would be as wide


# ---- what a row says


def what(entry: KeyInfo) -> str:
    """Return the kind, and its state where that is news."""
    usual = (
        "held",
        "running",
        "done",
        "value",
        "recorded",
        "counting",
        "waiting",
        "counter",
        "version",
    )
    if entry.kind == "foreign":
        return f"foreign {entry.state}"
    if entry.worker is not None:
        return "claim, fetched"
    return entry.kind if entry.state in usual else f"{entry.kind}, {entry.state}"


def who(entry: KeyInfo) -> str:
    """Return who has the key, or works on it."""
    if entry.kind == "permits":
        names = [permit.holder or "?" for permit in entry.permits]
        first = printable(names[0]) if names else ""
        return first if entry.taken <= 1 else f"{first} +{entry.taken - 1}"
    return printable(entry.holder or entry.loading or "")


def details(entry: KeyInfo, *, whole: bool) -> str:
    """Return what else is to be said about it in a table."""
    match entry.kind:
        case "waiters" if entry.state == "jobs" and entry.of is not None:
            return f"{counted(entry.taken, 'job')} of {_shown_owner(entry, whole=whole)}"
        case "lock" | "fence" | "waiters" | "history" | "items" if entry.of is not None:
            return f"of {_shown_owner(entry, whole=whole)}"
        case "permits":
            return counted(entry.taken, "permit")
        case "stream" if entry.took is not None:
            return f"{counted(entry.taken, 'item')} in {duration(entry.took)}"
        case "schedule" if entry.runs:
            return ended(entry.runs[0])
        case "cached" if entry.took is not None:
            return f"load took {duration(entry.took)}"
        case "claim" | "done" if entry.note is not None:
            return printable(entry.note) if whole else "has a note"
        case _:
            return ""


def ended(run: ScheduledRun) -> str:
    """`finished in 3.2 s`, `failed (ValueError) after 3 ms`, `skipped`."""
    how, _, error = printable(run.outcome).partition(":")
    if how == "failed":
        return f"failed ({error}) after {duration(run.took)}"
    return how if how == "skipped" else f"{how} in {duration(run.took)}"


HEADINGS = ("KEY", "WHAT", "HOLDER", "LEFT", "AGE", "SIZE", "DETAILS")


def row(entry: KeyInfo, *, whole: bool) -> list[str]:
    """Return the cells of a table, in the order of `HEADINGS`."""
    key, text = shown_key(entry, whole=whole), details(entry, whole=whole)
    age = duration(entry.age)
    return [key, what(entry), who(entry), _left(entry), age, _length(entry), text]


def _left(entry: KeyInfo) -> str:
    """Nothing for a value that is loaded for the first time: the server keeps only a mark."""
    return "" if _is_mark(entry) else duration(entry.remaining, "no expiry")


def _is_mark(entry: KeyInfo) -> bool:
    return entry.kind == "cached" and entry.state == "loading" and entry.age is None


def is_stuck(entry: KeyInfo) -> bool:
    """Return whether the key is held and never expires: dibs itself always sets an expiry."""
    return entry.remaining is None and entry.token_hint is not None


def _length(entry: KeyInfo) -> str:
    """Nothing for what has a token as its value."""
    is_data = entry.kind in ("cached", "done", "foreign") and not _is_mark(entry)
    return size(entry.size) if is_data else ""


# ---- JSON


def as_object(entry: KeyInfo, *, whole: bool) -> JsonObject:
    """Return the documented fields. Keys are shortened and notes left out, unless *whole*."""
    fields = entry._asdict()
    fields["key"] = entry.key if whole else shown_key(entry, whole=False)
    fields["of"] = entry.of if whole or entry.of is None else _shown_owner(entry, whole=False)
    fields["note"] = entry.note if whole else None
    fields["runs"] = [each._asdict() for each in entry.runs]
    fields["waiters"] = [
        {**each._asdict(), "waited": _rounded(each.waited)} for each in entry.waiters
    ]
    fields["permits"] = [_permit(permit) for permit in entry.permits]
    for name in ("remaining", "age", "took", "due"):
        fields[name] = _rounded(fields[name])
    return fields


def _permit(permit: Permit) -> JsonObject:
    return {**permit._asdict(), "remaining": _rounded(permit.remaining)}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


# ---- one key, in sentences


def facts(entry: KeyInfo, *, whole: bool) -> list[tuple[str, str]]:
    """Return what `peek` says about a key: names and values."""
    listed = [
        ("kind", what(entry)),
        ("holder", printable(entry.holder or "")),
        ("loaded by", printable(entry.loading or "")),
        ("left", _left(entry)),
        ("age", duration(entry.age)),
        ("fence", "" if entry.fence is None else str(entry.fence)),
        ("size", _length(entry)),
        ("load took", duration(entry.took)),
        ("belongs to", _shown_owner(entry, whole=whole) if entry.of else ""),
        ("note", _note(entry, whole=whole)),
        ("token hint", entry.token_hint or ""),
    ]
    listed += [("permit", _said(permit)) for permit in entry.permits]
    if entry.kind == "permits" and entry.taken > len(entry.permits):
        listed.append(("permit", f"… {entry.taken - len(entry.permits)} more"))
    for run in entry.runs:
        late = f", {duration(run.delay)} late" if run.delay >= 1 else ""
        listed.append(("run", f"{_moment(run)}: {ended(run)} on {printable(run.holder)}{late}"))
    for waiter in entry.waiters:
        listed.append(("waits", f"{printable(waiter.holder)}, for {duration(waiter.waited)}"))
    return [(name, value) for name, value in listed if value]


def _note(entry: KeyInfo, *, whole: bool) -> str:
    if entry.note is None:
        return ""
    return printable(entry.note) if whole else "(hidden; --show-keys shows it)"


def _said(permit: Permit) -> str:
    who = printable(permit.holder or "?")
    return f"{who}, {duration(permit.remaining)} left, token hint {permit.token_hint}"


def meaning(entry: KeyInfo) -> str:
    """Return what the state of a key means for those who call."""
    remaining = duration(entry.remaining, "ever")
    when = f"in {remaining}" if entry.remaining is not None else "never, because it has no expiry"
    match entry.kind:
        case "lease" if entry.state == "cooling":
            return f"It was released; `at_least` keeps it, and it is free {when}."
        case "lease":
            return f"Others get Busy or wait. It is free {when}, unless it is renewed."
        case "permits":
            return "Others get a permit if fewer than their limit are held; else they get Busy."
        case "claim" if entry.worker is not None:
            return (
                "The worker has fetched the message of this job, and has not started it. Others "
                "with its key are refused or wait; if the worker dies, the next one takes the key."
            )
        case "claim":
            text = "Duplicates are refused or wait. While it runs, it is renewed; if its process"
            return f"{text} has died, it is free {when}."
        case "done":
            return f"Duplicates are refused or get its result, for {remaining}."
        case "cached" if entry.loading is not None:
            return "It is being loaded: readers wait, or get the old value if there is one."
        case "cached" if entry.state == "failed":
            return "The last load failed, and that is remembered: readers get an error."
        case "cached":
            return (
                f"Readers get this value; the server keeps it for {remaining}, stale time included."
            )
        case "lock" if entry.state == "resting":
            return f"A load has just failed; the next one waits for {remaining}."
        case "lock":
            return f"A load is under way. If its process has died, another one may load {when}."
        case "foreign" if entry.token_hint is not None:
            return f"dibs did not write it, but it counts as held: for {remaining}."
        case _:
            return _meaning_of_record(entry)


def is_new_schedule(entry: KeyInfo) -> bool:
    """Return whether it is the record of a schedule of which no run is over."""
    return entry.kind == "schedule" and entry.state == "new"


def _meaning_of_record(entry: KeyInfo) -> str:
    match entry.kind:
        case "schedule" if is_new_schedule(entry):
            return "No run is over yet: the schedule is new, or the server has lost its data."
        case "schedule" if entry.runs:
            last = f"The last run that is over {ended(entry.runs[0])}, on {entry.holder}."
            return " ".join([last, *_failed_before(entry.runs), *_next_run(entry)])
        case "schedule":
            return "The last run that is over; its age is counted from that run."
        case "rate":
            return f"It counts calls; a whole burst is free again in {duration(entry.remaining)}."
        case "history":
            return "The last runs of a schedule; `dibs why` shows them by the schedule's key."
        case "waiters" if entry.state == "jobs":
            jobs = "1 job waits" if entry.taken == 1 else f"{entry.taken} jobs wait"
            return f"{jobs} for that key; the first begins when it is free."
        case "waiters":
            return "It notes who waits for a key, for people who look."
        case "fence":
            return "The last fence of a key. It holds nothing."
        case "stream" if entry.state == "running":
            return f"{entry.holder} runs it; all who ask follow that run, unless it has died."
        case "stream":
            return f"Who asks gets these items, for {duration(entry.remaining)}."
        case "items":
            return "The items of one run of a stream, for those who read them."
        case "tag":
            return "The version of a tag; deleting it makes all values with the tag outdated."
        case _ if entry.state == "denied":
            return "The ACL of this user hides the key."
        case _:
            return "Data of another program."


def _failed_before(runs: Sequence[ScheduledRun]) -> list[str]:
    failed = [each for each in runs[1:] if each.outcome.startswith("failed")]
    if not failed:
        return []
    number = f"{len(failed)} of the {len(runs) - 1} before it failed"
    return [f"{number}, the last one of {_moment(failed[0])}."]


def _next_run(entry: KeyInfo) -> list[str]:
    if entry.due is None:
        return []
    if entry.due >= 0:
        return [f"The next one is due in {duration(entry.due)}."]
    return [f"The next one was due {duration(-entry.due)} ago, and is not over."]


def _moment(run: ScheduledRun) -> str:
    return datetime.fromtimestamp(run.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def risk(entry: KeyInfo) -> str:
    """Return what may go wrong if the key is freed now."""
    who = printable(entry.holder or "its holder")
    fence = "it has none" if entry.fence is None else f"its last one is {entry.fence}"
    match entry.kind:
        case "lease" | "permits":
            several = "two work" if entry.kind == "lease" else "one more than the limit works"
            return (
                f"That does not stop the work of {who}: if it goes on, {several} at once. Only a "
                f"fence lets your data refuse the late one: {fence}."
            )
        case "claim":
            return (
                f"If {who} is still working, the same submission can be executed twice: it cannot "
                "be stopped from here, and its result is not kept."
            )
        case "done":
            return "If the same submission comes again, it is executed again."
        case "lock":
            return f"Another process may load the value as well; what {who} loads is not stored."
        case _:
            return "dibs did not write this value; the program that did may rely on it."


# ---- why

Alive = Literal["running", "stopped", "ended", "unknown"]
"""Whether the process of a holder is alive, as far as can be known from here."""
_LAST = "scheduled-last:"
_OF_JOBS = re.compile(r"job:(?:alone|queue|ended|slot:\d+):$")
"""What stands before a key of jobs, after the namespace."""
GRACE = 60.0
"""Seconds by which a run is late before it is worth a look."""


class Place(NamedTuple):
    """Where a key was found."""

    namespace: str
    key: str
    """Without the namespace."""


def places_of(key: str, typed: str) -> list[Place]:
    """Return where *key*, a key of the server that ends with *typed*, belongs.

    What a schedule keeps is found by the key of the schedule: its lease, and its last run.
    """
    prefix = key.removesuffix(typed)
    if (of_jobs := _OF_JOBS.search(prefix)) is not None:
        return [Place(prefix[: of_jobs.start()], of_jobs[0] + typed)]
    if not prefix.endswith(_LAST):
        return [Place(prefix, typed)]
    namespace = prefix.removesuffix(_LAST)
    return [Place(namespace, lease_name(key.encode())), Place(namespace, _LAST + typed)]


class Facts(NamedTuple):
    """What was found out about one key."""

    place: Place
    entry: KeyInfo
    is_elsewhere: bool
    """It is not what was asked for, but ends like it."""
    alive: Alive
    permits: tuple[Alive, ...] = ()
    """The same for each holder of a permit."""


def found_at(
    place: Place, entry: KeyInfo, look: Callable[[str | None], Alive], *, is_elsewhere: bool = False
) -> Facts:
    """Return what is known of *entry*; *look* says whether the process of a holder is alive."""
    permits: tuple[Alive, ...] = tuple([look(permit.holder) for permit in entry.permits])
    is_one = len(set(permits)) == 1 and len(permits) == entry.taken
    return Facts(place, entry, is_elsewhere, permits[0] if is_one else look(entry.holder), permits)


def listed(reason: Facts, *, whole: bool) -> list[tuple[str, str]]:
    """Return names and values, for people."""
    entry = reason.entry
    known = [("namespace", printable(reason.place.namespace) or "(none)")]
    is_record = entry.kind == "schedule"  # it has no holder, and does not become free
    hidden = ("age", "token hint", *(("holder", "left") if is_record else ()))
    processes = iter(reason.permits)
    known += [
        (name, _marked(value, next(processes, None)) if name == "permit" else value)
        for name, value in facts(entry, whole=whole)
        if name not in hidden
    ]
    if entry.age is not None and not is_record:
        known.insert(3, ("since", f"{duration(entry.age)} ago"))
    elif entry.kind == "lease":
        known.insert(3, ("since", "unknown (recorded only with fence=True)"))
    if entry.holder is not None and entry.token_hint is not None:
        known.append(("its process", _PROCESS[reason.alive]))
    return known


_PROCESS: dict[Alive, str] = {
    "running": "is running, on this machine",
    "stopped": "is stopped, on this machine (SIGSTOP, a debugger): it does not renew",
    "ended": "is not running on this machine any longer",
    "unknown": "is on another machine: it cannot be seen from here",
}


def _marked(permit: str, alive: Alive | None) -> str:
    return f"{permit}; {_PROCESS[alive]}" if alive == "ended" or alive == "stopped" else permit


def next_steps(reason: Facts) -> str:
    """Return what happens if nothing is done."""
    entry = reason.entry
    if remaining := [permit.remaining for permit in _ended(reason)]:
        has, whose = ("has", "its") if len(remaining) == 1 else ("have", "the first")
        ended = f"{len(remaining)} of {counted(entry.taken, 'holder')} {has} ended"
        return f"{ended}: {whose} permit is free in {duration(min(remaining))}. {meaning(entry)}"
    if entry.worker is not None and reason.alive == "ended":
        return "The worker that had fetched this job is dead: the next one sent takes the key."
    if reason.alive in ("ended", "stopped") and entry.kind in ("lease", "claim"):
        how = f"has ended, so it is not renewed: it is free in {_time_left(entry)}."
        if reason.alive == "stopped":
            how = f"is stopped: the key is free in {_time_left(entry)}, unless it goes on before."
        return f"Its process {how}"
    return meaning(entry)


def _time_left(entry: KeyInfo) -> str:
    return duration(entry.remaining, "no time: it never expires")


_DROPPED = {"cached": "value", "stream": "items"}


def advice(reason: Facts) -> list[str]:
    """Return what can be done."""
    entry, command = reason.entry, _command(reason)
    match entry.kind:
        case "claim" if entry.worker is not None:  # freed, its message and another one would run
            return [_FETCHED[reason.alive == "ended"]]
        case "lease" | "claim" if reason.alive == "ended":
            return [f"Wait, or free it now: {command('release --force')}"]
        case "permits":
            return _about_permits(reason)
        case "lease" | "claim" | "done":
            verb = "Delete" if entry.kind == "done" else "Free"
            return [_first(reason), f"{verb} it: {command('release --force')}. {risk(entry)}"]
        case "cached" | "stream":
            return [f"Drop the {_DROPPED[entry.kind]}: {command('invalidate')}"]
        case "schedule":
            return _about_schedule(reason)
        case "foreign" if entry.state != "denied":
            return _about_foreign(reason, command("release --force"))
        case "rate":
            return ["Wait; DEL lets a whole burst through again."]
        case _:
            return []


_FETCHED = {
    True: "Send the job again, if it is wanted; the old message is dropped if it comes later.",
    False: "Wait, or see what that worker is busy with: it starts the job itself.",
}
"""What to do about a job that was fetched, by whether its worker is dead."""


def _first(reason: Facts) -> str:
    """Return what is better than freeing the key, or must come before."""
    entry = reason.entry
    host, _, pid = printable(entry.holder or "").rpartition(":")
    match entry.kind, reason.alive:
        case "done", _:
            return f"Wait {_time_left(entry)}: then the same submission is new."
        case "permits", _:
            return "Wait for an end; or end the process of a holder first, then free its permit."
        case _ if is_stuck(entry) or not pid:
            return "End its process first."
        case _, "stopped":
            return f"Let its process go on (`kill -CONT {pid}`), or end it first (`kill -9 {pid}`)."
        case _, "running":
            return f"Wait for its end; or end its process first (`kill {pid}`). {_LEFT}"
        case _:
            return f"Wait for its end; or end process {pid} on {host} first. {_LEFT}"


def _ended(reason: Facts) -> list[Permit]:
    """Return permits whose processes have ended."""
    permits = zip(reason.entry.permits, reason.permits, strict=False)
    return [permit for permit, alive in permits if alive == "ended"]


def _about_permits(reason: Facts) -> list[str]:
    ended, command = _ended(reason), _command(reason)
    holders = ended or reason.entry.permits
    free = [command(f"release --force --seen {each.token_hint}") for each in holders]
    if ended:
        return [f"Wait, or free that permit now: {free[0]}"]
    return [_first(reason), *[f"Free one: {each}. {risk(reason.entry)}" for each in free[:1]]]


_LEFT = "Its key then stays until it expires."


def _about_schedule(reason: Facts) -> list[str]:
    entry, lines = reason.entry, list[str]()
    if entry.runs and entry.runs[0].outcome.startswith("failed"):
        log = f"The traceback is in the log of {printable(entry.runs[0].holder)}"
        lines.append(f"A run that failed is not repeated. {log}, of the logger dibs.")
    if entry.due is not None and entry.due < -GRACE:
        running = shlex.quote(lease_name("".join(reason.place).encode()))
        lines.append(f"Unless a holder of {running} runs it now, no scheduler seems to run.")
    if entry.state == "new" or (entry.due or 0.0) < -GRACE:
        lines.append("See that a scheduler runs, and that its log names this schedule.")
    return lines


def _about_foreign(reason: Facts, release: str) -> list[str]:
    """It may be data that another program needs."""
    entry, key = reason.entry, shlex.quote(printable(reason.place.namespace + reason.place.key))
    is_read = entry.state == "string" and not is_shortened(reason.place.key)
    read = f" (`redis-cli GET {key}`)" if is_read else ""
    wrote = (
        f"Another program wrote it, as a {entry.state}, and may need it: look at it first{read}."
    )
    if entry.token_hint is None:
        return [f"{wrote} dibs does not delete it. Use another key, or a namespace."]
    return [f"{wrote} Use another key, or a namespace; if nothing needs it: {release}"]


def _command(reason: Facts) -> Callable[[str], str]:
    """Return what writes ``dibs release KEY --namespace … --force``, to be pasted."""
    place = reason.place
    namespace = f" --namespace {shlex.quote(place.namespace)}" if place.namespace else ""

    def command(words: str) -> str:
        verb, _, options = words.partition(" ")
        key = shlex.quote(printable(place.key))
        return f"`{' '.join(['dibs', verb, key + namespace, options]).rstrip()}`"

    return command


def elsewhere_line(reason: Facts) -> str:
    """For `peek`: a key that ends like the one that was asked for."""
    entry, place = reason.entry, reason.place
    who = f" of {printable(entry.holder)}" if entry.holder else ""
    key = f" as {printable(place.key)}" if place.key.startswith((_LAST, "scheduled:{")) else ""
    option = f"--namespace {shlex.quote(place.namespace)}" if place.namespace else "no --namespace"
    there = "There are permits" if entry.kind == "permits" else f"There is a {entry.kind}"
    return f"{there}{who}{key} with {option}."


def reason_object(reason: Facts, *, whole: bool) -> JsonObject:
    """Return the reason as an object, for programs."""
    entry = as_object(reason.entry, whole=whole)
    for permit, alive in zip(entry["permits"], reason.permits, strict=False):
        permit["alive"] = alive
    return {
        "namespace": reason.place.namespace,
        "elsewhere": reason.is_elsewhere,
        "entry": entry,
        "alive": reason.alive,
        "next": next_steps(reason),
        "advice": advice(reason),
    }
