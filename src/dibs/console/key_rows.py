"""What was read of a server: counts of everything, rows of a bounded part; and pages of them.

Pure: pages of entries and times come as arguments. A sweep is one reading of all keys; while the
next one is under way, the last complete one is shown.
"""

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from .._internal_api import KeyInfo, Page, ServerInfo, cut, shorten
from .._key_texts import Alive, ended, is_stuck
from .._process_state import BreakerState, HeldHere, ProcessState, WaitedFor
from ..errors import DibsError
from .http import Rights, json_bytes

NOW = "now"
GROUPS: dict[str, tuple[str, ...]] = {
    NOW: ("lease", "permits", "claim", "lock"),
    "leases": ("lease",),
    "permits": ("permits",),
    "claims": ("claim",),
    "loads": ("lock",),
    "schedules": ("schedule",),
    "rates": ("rate",),
    "cached": ("cached",),
    "streams": ("stream",),
    "done": ("done",),
    "others": ("history", "waiters", "fence", "tag", "items", "foreign"),
}
"""The kinds that are shown together; those of NOW, which others hold, in a second group as well."""
_GROUPS_OF: dict[str, tuple[str, ...]] = {
    kind: tuple([group for group, kinds in GROUPS.items() if kind in kinds])
    for kinds in GROUPS.values()
    for kind in kinds
}

COUNT = 200
"""Keys that the server looks at for one page of a sweep: about 2 ms of this process."""
FACTS_EVERY = 5.0
MOST_LOOKED = 20_000
"""Keys that are looked through for one that is to be released."""
RELEASED = ("lease", "permits", "claim", "done")
"""Kinds that can be released here: those that have a holder."""
MOST_ROWS = 2_000
"""Rows of each group and order that are kept: the first of all keys. The others are counted."""
MOST_TEXTS = 16
"""Texts that viewers look for at the same time; each is looked for in every key."""
ROWS_WANTED_FOR = 60.0
"""Seconds for which a text is looked for after its last viewer."""
MOST_KEYS = 10_000_000
"""Keys that one sweep looks at."""
MOST_NAMES = 300_000
"""Keys of a sweep that are remembered, about 30 MB; of those behind them, one that SCAN names twice
is counted twice."""
TOO_OLD = 120.0
"""Seconds after which a complete sweep is worth less than the beginning of the next one, unless
that takes longer than a third of them."""
PAGE = 50
"""Rows on one page."""
MOST_CHANGES = 100
"""Changes between two sweeps that are remembered."""


def why_failed(error: Exception) -> str:
    """Return what viewers read of a failure."""
    return str(error) if isinstance(error, DibsError) else f"it failed ({type(error).__name__})"


class SurveyRow:
    """An entry, when it was read, and what it is called where keys are not shown."""

    __slots__ = ("_searched_text", "entry", "id", "read_at", "short")

    def __init__(self, entry: KeyInfo, read_at: float) -> None:
        self.read_at = read_at
        self.short = cut(shorten(entry.key))
        self.id = id_of(entry.key)
        of = None if entry.of is None else cut(entry.of)
        self.entry = entry._replace(key=cut(entry.key), of=of)
        self._searched_text: dict[bool, str] = {}

    def has(self, search: "Search") -> bool:
        """Return whether key or holder contain the text, or it is the whole of a shortened key."""
        keys = search.keys
        searched = self._searched_text.get(keys)
        if searched is None:  # kept: else every viewer that searches would cost milliseconds
            searched = self._searched_text[keys] = _searched_text(self.entry, self.short, keys=keys)
        return search.text in searched or self.short == search.short

    def ends_at(self) -> float:
        """By the clock of `read_at`; inf: never. Of a schedule, when its next run is due."""
        entry = self.entry
        remaining = entry.remaining if entry.due is None else entry.due
        return float("inf") if remaining is None else self.read_at + remaining

    def began_at(self) -> float:
        """Return when it was acquired, as far as that is known; inf: it is not."""
        age = self.entry.age
        return float("inf") if age is None else self.read_at - age


def _searched_text(entry: KeyInfo, short: str, *, keys: bool) -> str:
    """Return what a search looks through."""
    holders = [entry.holder, entry.loading, *[each.holder for each in entry.permits]]
    return "\n".join([entry.key if keys else short, *filter(None, holders)]).casefold()


def id_of(key: str) -> str:
    """Return the names a key to those who may not see it."""
    return sha256(key.encode(errors="replace")).hexdigest()[:24]


ORDERS: dict[str, tuple[Callable[[SurveyRow], Any], bool]] = {
    "ends first": (SurveyRow.ends_at, False),
    "ends last": (SurveyRow.ends_at, True),
    "oldest": (SurveyRow.began_at, False),
    "key": (lambda row: row.short, False),
}


class Search(NamedTuple):
    """A text that a viewer looks for. *keys*: in whole keys."""

    text: str
    """In small letters."""
    keys: bool
    short: str = ""
    """The text as a key would be shown, where keys are shortened."""


class Rows:
    """The first rows of each group, in each order, of all that were added."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._kept: dict[tuple[str, str], list[SurveyRow]] = {}
        self._worst: dict[tuple[str, str], Any] = {}
        """Where there are enough: the place of the last one, behind which none is kept."""

    def add(self, group: str, row: SurveyRow) -> None:
        """Count *row*, and keep it if it is among the first."""
        self.counts[group] += 1
        for order, (key, reverse) in ORDERS.items():
            worst = self._worst.get((group, order))
            if worst is not None and (key(row) <= worst if reverse else key(row) >= worst):
                continue
            rows = self._kept.setdefault((group, order), [])
            rows.append(row)
            if len(rows) >= 2 * MOST_ROWS:
                self._worst[group, order] = key(self.sorted(group, order)[-1])

    def sorted(self, group: str, order: str) -> list[SurveyRow]:
        """Return the first ones in this order."""
        key, reverse = ORDERS[order]
        rows = self._kept.setdefault((group, order), [])
        rows.sort(key=key, reverse=reverse)  # quick where it is sorted already
        del rows[MOST_ROWS:]
        return rows

    def __iter__(self) -> Iterator[SurveyRow]:
        return (row for rows in self._kept.values() for row in rows)


class Change(NamedTuple):
    """What two sweeps one after the other show of a key that is held."""

    at: float
    """When the later sweep ended, by the monotonic clock."""
    what: str
    """taken, freed, handed on (it has another holder), or done (a claim left its record)."""
    row: SurveyRow
    """The row as it was last seen."""
    holder: str | None


def changes_between(before: "Sweep", after: "Sweep", now: float) -> list[Change]:
    """Compare what is held in two sweeps; nothing if one of them does not have every such key."""
    if not (before.has_all(NOW) and after.has_all(NOW) and after.has_all("done")):
        return []
    old, new = before.holdings(), after.holdings()
    done = {row.id for row in after.kept("done")}
    ended = [old[each] for each in old if each not in new]
    changes = [
        Change(now, "done" if row.id in done else "freed", row, holder) for row, holder, _ in ended
    ]
    for each, (row, holder, hint) in new.items():
        if each not in old:
            changes.append(Change(now, "taken", row, holder))
        elif old[each].hint != hint:
            changes.append(Change(now, "handed on", row, holder))
    return changes


class _Holding(NamedTuple):
    row: SurveyRow
    holder: str | None
    hint: str | None


class Sweep:
    """One reading of all keys."""

    def __init__(self, began: float, texts: Iterable[Search] = ()) -> None:
        self.began = began
        self.ended: float | None = None
        self.looked = 0
        self.is_cut = False
        """True: there are more keys than one sweep looks at."""
        self.unreachable: dict[str, str] = {}
        """Nodes of a cluster whose keys are missing, and why."""
        self.counts = dict.fromkeys(GROUPS, 0)
        self.found: dict[Search, Rows] = {text: Rows() for text in texts}
        """What was looked for in every key."""
        self.waiting: dict[str, int] = {}
        """How many processes wait for a key, for the first of those for which some do."""
        self._rows = Rows()
        self._names: set[int] = set()
        """Keys that were counted, as hashes: SCAN may name a key twice."""

    def add(self, page: Page, now: float) -> None:
        """Another page was read."""
        self.looked += len(page.entries)
        if page.unreachable is not None:
            self.unreachable[page.unreachable] = page.why
        for entry in page.entries:
            self._add_entry(entry, now)

    def _add_entry(self, entry: KeyInfo, now: float) -> None:
        name = hash(entry.key)
        if name in self._names:
            return
        if len(self._names) < MOST_NAMES:
            self._names.add(name)
        if entry.kind == "waiters" and entry.of is not None and len(self.waiting) < MOST_ROWS:
            self.waiting[entry.of] = entry.taken
        row = SurveyRow(entry, now)
        found = [rows for search, rows in self.found.items() if row.has(search)]
        for group in _GROUPS_OF[entry.kind]:
            self.counts[group] += 1
            for rows in (self._rows, *found):
                rows.add(group, row)

    @property
    def is_whole(self) -> bool:
        """Return True if what was not found in it is not there."""
        return self.ended is not None and not self.is_cut and not self.unreachable

    def has_all(self, group: str) -> bool:
        """Return whether it has a row for every key of a group."""
        return self.is_whole and self.counts[group] <= MOST_ROWS

    def kept(self, group: str) -> list[SurveyRow]:
        """Return the rows of a group: the first ones to end."""
        return self._rows.sorted(group, "ends first")

    def holdings(self) -> dict[tuple[str, str | None], _Holding]:
        """Return what is held: by the id of its key, and for permits of each by its token hint."""
        found: dict[tuple[str, str | None], _Holding] = {}
        for row in self.kept(NOW):
            entry = row.entry
            for permit in entry.permits:
                holding = _Holding(row, permit.holder, permit.token_hint)
                found[row.id, permit.token_hint] = holding
            if entry.kind != "permits":
                found[row.id, None] = _Holding(row, entry.holder, entry.token_hint)
        return found

    def rows(self, search: Search | None) -> Rows | None:
        """Return all rows, or those with a text. None: it was not looked for."""
        return self._rows if search is None else self.found.get(search)

    def find(self, row_id: str) -> str | None:
        """Return the key with this id, if it is among the rows."""
        rows = (row for each in (self._rows, *self.found.values()) for row in each)
        return next((row.entry.key for row in rows if row.id == row_id), None)


class SurveyView(NamedTuple):
    """Which rows a viewer wants."""

    group: str = NOW
    order: str = "ends first"
    text: str = ""
    """Only rows whose key, as shown, or holder contains it."""
    number: int = 1
    """The number of the page."""


def view_of(query: dict[str, str]) -> SurveyView:
    """Return the view that a query string asks for.

    What makes no sense is as if it were not there.
    """
    group, order = query.get("group", ""), query.get("order", "")
    number = query.get("page", "")
    return SurveyView(
        group if group in GROUPS else NOW,
        order if order in ORDERS else "ends first",
        query.get("text", "")[:200],
        max(int(number), 1) if re.fullmatch(r"[0-9]{1,6}", number) else 1,
    )


class Survey:
    """The last sweep, the one under way, and whether the server answers."""

    def __init__(self) -> None:
        self.last: Sweep | None = None
        self.current: Sweep | None = None
        self.cursor: str | None = None
        """Where the current sweep continues; None: there is none."""
        self.facts: list[ServerInfo] = []
        self.facts_at: float | None = None
        self.facts_took = 0.0
        self.failure: str | None = None
        """Why the server could not be read; None: it could."""
        self.failed_at = 0.0
        self.changes: deque[Change] = deque(maxlen=MOST_CHANGES)
        """What sweeps have shown to change, the latest first."""
        self._is_old = False
        """True: something was changed since the last sweep began."""
        self._wanted: dict[Search, float] = {}
        """What viewers look for, and until when."""

    @property
    def shown(self) -> Sweep | None:
        """The last complete sweep; before there is one, what was read so far."""
        return self.last or self.current

    def shown_for(self, search: Search | None) -> Sweep | None:
        """The same; for a text that the last one has not looked for, what was found so far."""
        shown, current = self.shown, self.current
        if search is None or shown is None or search in shown.found:
            return shown
        return current if current is not None and search in current.found else shown

    def is_due(self, now: float, pause: float) -> bool:
        """Return whether a sweep is under way, or the next one should begin."""
        if self._is_old or self.current is not None or self.last is None or self.last.ended is None:
            return True
        took = self.last.ended - self.last.began
        return now - self.last.ended >= max(pause, took)

    def are_facts_due(self, now: float, pause: float) -> bool:
        """Return whether the server should be asked about itself."""
        return self.facts_at is None or now - self.facts_at >= pause

    def next_cursor(self, now: float) -> str:
        """Return where to read; a new sweep begins if none is under way."""
        if self.current is None or self.cursor is None:
            self._wanted = {each: end for each, end in self._wanted.items() if end > now}
            self.current, self.cursor, self._is_old = Sweep(now, self._wanted), "", False
        return self.cursor

    def read(self, page: Page, now: float) -> bool:
        """A page was read. True: the sweep is complete."""
        sweep, self.failure = self.current, None
        if sweep is None:  # it was given up meanwhile: something has changed
            return False
        sweep.add(page, now)
        if self.last is not None and self.last.ended is not None:
            took = self.last.ended - self.last.began
            if now - self.last.ended > max(TOO_OLD, 3 * took):
                self.last = None
        self.cursor = page.cursor
        sweep.is_cut = page.cursor is not None and sweep.looked >= MOST_KEYS
        if page.cursor is not None and not sweep.is_cut:
            return False
        sweep.ended = now
        if self.last is not None:
            self.changes.extendleft(changes_between(self.last, sweep, now))
        self.last, self.current, self.cursor = sweep, None, None
        return True

    def read_facts(self, facts: list[ServerInfo], took: float, now: float) -> None:
        """Keep what the server said about itself."""
        self.facts, self.facts_took, self.facts_at = facts, took, now

    def failed(self, why: str, now: float) -> None:
        """The server could not be read. What was read before is still shown."""
        if self.failure is None:
            self.failed_at = now
        self.failure = why
        self.current = self.cursor = None

    def look_again(self) -> None:
        """Something was changed: the next sweep is due."""
        self.current = self.cursor = None
        self._is_old = True

    def want(self, search: Search, now: float) -> None:
        """Search for a text in the next sweep, which begins at once."""
        if search not in self._wanted and len(self._wanted) < MOST_TEXTS:
            self.look_again()
        if search in self._wanted or len(self._wanted) < MOST_TEXTS:
            self._wanted[search] = now + ROWS_WANTED_FOR

    def find(self, row_id: str) -> str | None:
        """Return the key with this id, if it is among the rows of a sweep."""
        sweeps: Iterable[Sweep | None] = (self.current, self.last)
        keys = (sweep.find(row_id) for sweep in sweeps if sweep is not None)
        return next((key for key in keys if key is not None), None)


def key_in(page: Page, row_id: str) -> str | None:
    """Return the key of *page* with this id. None: it is not there."""
    return next((entry.key for entry in page.entries if id_of(entry.key) == row_id), None)


# ---- one page of rows, as JSON has it


def search_of(view: SurveyView, *, keys: bool) -> Search | None:
    """Return what a view looks for. None: it shows all."""
    short = "" if keys else shorten(view.text)
    return Search(view.text.casefold(), keys, short) if view.text else None


Look = Callable[[str | None], Alive]
"""Says whether the process of a holder is alive."""


def page_of(
    sweep: Sweep, view: SurveyView, now: float, look: Look, *, keys: bool, release: bool
) -> dict[str, Any]:
    """Return the rows of a view. *keys*: whole keys and notes.

    *release*: what a release compares.
    """
    look = _once_each(look)
    search = search_of(view, keys=keys)
    matches = sweep.rows(search)
    rows = (matches or Rows()).sorted(view.group, view.order)
    if search is not None and matches is None:  # until it was looked for in every key
        every = sweep.rows(None) or Rows()
        rows = [row for row in every.sorted(view.group, view.order) if row.has(search)]
    if view.group == NOW and view.order == "ends first":
        rows = sorted(rows, key=lambda row: not stuck(row.entry, look))
    pages = max((len(rows) + PAGE - 1) // PAGE, 1)
    number = min(view.number, pages)
    shown = rows[(number - 1) * PAGE : number * PAGE]
    return {
        "group": view.group, "order": view.order, "text": view.text, "page": number,
        "pages": pages, "matching": matches.counts[view.group] if matches else len(rows),
        "listed": len(rows),
        "searched": search is None or (matches is not None and sweep.is_whole),
        "rows": [
            {
                **_row_facts(row, now, keys=keys, release=release),
                "waiting": sweep.waiting.get(row.entry.key, 0), "stuck": stuck(row.entry, look),
            }
            for row in shown
        ],
    }  # fmt: skip


def _once_each(look: Look) -> Look:
    """Return *look*, which asks about each holder once: most rows have the same few."""
    known: dict[str | None, Alive] = {}

    def asked(holder: str | None) -> Alive:
        if holder not in known:
            known[holder] = look(holder)
        return known[holder]

    return asked


def stuck(entry: KeyInfo, look: Look) -> str:
    """Say why a key may be held for nothing: "" if it is not, as far as can be seen from here."""
    if is_stuck(entry):
        return "it never expires"
    holders = [entry.holder] if entry.kind in ("lease", "claim", "lock") else []
    for holder in (*holders, *[permit.holder for permit in entry.permits]):
        alive = look(holder)
        if alive in ("ended", "stopped"):
            return f"its process {'has ended' if alive == 'ended' else 'is stopped'}"
    return ""


def _row_facts(row: SurveyRow, now: float, *, keys: bool, release: bool) -> dict[str, Any]:
    entry, since = row.entry, now - row.read_at
    facts: dict[str, Any] = {
        "id": row.id, "key": entry.key if keys else row.short, "kind": entry.kind,
        "state": entry.state, "holder": entry.holder, "remaining": _left_in(entry.remaining, since),
        "age": None if entry.age is None else entry.age + since, "size": entry.size,
        "note": entry.note if keys else None, "fence": entry.fence, "count": entry.taken,
        "loading": entry.loading, "took": entry.took,
        "ended": ended(entry.runs[0]) if entry.runs else None, "used": entry.used,
        "due": None if entry.due is None else entry.due - since,
        "of": entry.of if keys or entry.of is None else cut(shorten(entry.of)),
        "seen": entry.token_hint if release and entry.kind in RELEASED else None,
    }  # fmt: skip
    facts["permits"] = [
        {
            "holder": each.holder, "remaining": _left_in(each.remaining, since),
            "seen": each.token_hint if release else None,
        }
        for each in entry.permits
    ]  # fmt: skip
    return facts


def _left_in(remaining: float | None, since: float) -> float | None:
    return None if remaining is None else max(remaining - since, 0.0)


_FACTS = (
    "redis_version", "valkey_version", "server_name", "redis_mode", "os", "role",
    "uptime_in_seconds", "connected_clients", "blocked_clients", "maxclients", "tracking_clients",
    "used_memory", "used_memory_peak", "maxmemory", "maxmemory_policy", "evicted_keys",
    "expired_keys", "instantaneous_ops_per_sec", "total_commands_processed", "keyspace_hits",
    "keyspace_misses", "rejected_connections", "connected_slaves", "master_link_status",
    "min_slaves_good_slaves", "aof_enabled", "rdb_last_bgsave_status", "rdb_last_save_time",
    "loading", "cluster_enabled",
)  # fmt: skip
"""The fields of INFO that are shown: none of them has a key or a secret."""

SAME_FOR = 0.2
"""Seconds for which viewers who look at the same get the same state."""
MOST_STATES = 64
"""Different ones that are kept for that."""


class Moment(NamedTuple):
    """When a state is made."""

    now: float
    """By the monotonic clock."""
    wall: float
    """Seconds since the epoch."""


def state_of(
    survey: Survey,
    process: ProcessState,
    figures: dict[str, Any] | None,
    view: SurveyView,
    rights: Rights,
    at: Moment,
    look: Look,
) -> dict[str, Any]:
    """Return everything that the page shows.

    *figures*: of this process; None: it does no work itself.
    """
    return {
        "at": at.wall,
        "target": process.target, "namespace": process.namespace,
        "may": {"release": rights.release, "keys": rights.keys},
        "server": _server_part(survey, view, rights, at, look),
        "process": None if figures is None else {**_process_part(process, rights), **figures},
    }  # fmt: skip


class SharedStates:
    """States as JSON, made once for all viewers who look at the same at the same moment."""

    def __init__(self, make: Callable[[SurveyView, Rights], dict[str, Any]]) -> None:
        self._make = make
        self._made: dict[tuple[SurveyView, Rights], tuple[float, bytes]] = {}

    def of(self, view: SurveyView, rights: Rights, cookie: str | None, now: float) -> bytes:
        """Return the state of a view, with the token of this viewer if it may release."""
        token = json_bytes({"token": cookie if rights.release else None})
        return token[:-1] + b"," + self._shared_state(view, rights, now)[1:]

    def _shared_state(self, view: SurveyView, rights: Rights, now: float) -> bytes:
        at, body = self._made.get((view, rights), (-math.inf, b""))
        if now - at >= SAME_FOR:
            body = json_bytes(self._make(view, rights))
            if len(self._made) >= MOST_STATES:
                self.forget()
            self._made[view, rights] = now, body
        return body

    def forget(self) -> None:
        """Something was changed: compute the next state again."""
        self._made.clear()


# ---- the server


def _server_part(
    survey: Survey, view: SurveyView, rights: Rights, at: Moment, look: Look
) -> dict[str, Any]:
    now = at.now
    sweep, search = survey.shown, search_of(view, keys=rights.keys)
    if search is not None:
        survey.want(search, now)
    searched = survey.shown_for(search)
    return {
        "failure": survey.failure,
        "failing": None if survey.failure is None else now - survey.failed_at,
        "sweep": None if sweep is None else _sweep_part(survey, sweep, now),
        "view": None if searched is None else page_of(
            searched, view, now, look, keys=rights.keys, release=rights.release
        ),
        "changes": [_change(each, at, keys=rights.keys) for each in survey.changes],
        "nodes": [_node_part(each) for each in survey.facts],
        "facts_took": survey.facts_took,
    }  # fmt: skip


def _change(change: Change, at: Moment, *, keys: bool) -> dict[str, Any]:
    row = change.row
    return {
        "at": at.wall - (at.now - change.at), "what": change.what, "kind": row.entry.kind,
        "key": row.entry.key if keys else row.short, "holder": change.holder,
    }  # fmt: skip


def _sweep_part(survey: Survey, sweep: Sweep, now: float) -> dict[str, Any]:
    return {
        "age": now - (sweep.ended or now), "counts": sweep.counts, "looked": sweep.looked,
        "complete": sweep.ended is not None, "cut": sweep.is_cut, "most": MOST_ROWS,
        "took": None if sweep.ended is None else sweep.ended - sweep.began,
        "unreachable": sorted(sweep.unreachable),
        "reading": None if survey.current is None else survey.current.looked,
    }  # fmt: skip


def _node_part(facts: ServerInfo) -> dict[str, Any]:
    shown = {name: facts.facts[name] for name in _FACTS if name in facts.facts}
    return {"address": facts.address, "facts": shown}


# ---- this process


def _process_part(process: ProcessState, rights: Rights) -> dict[str, Any]:
    return {
        "holder": process.holder,
        "held": [_held_part(each, rights) for each in process.held],
        "held_count": process.held_count,
        "waited_for": [_waited_for(each, rights) for each in process.waited_for],
        "waiter_count": process.waiter_count,
        "loading": [_visible_key(key, rights) for key in process.loads],
        "load_count": process.load_count,
        "breakers": [_breaker_part(each) for each in process.breakers],
    }


def _held_part(held: HeldHere, rights: Rights) -> dict[str, Any]:
    return {
        "key": _visible_key(held.key, rights), "name": held.name, "held": held.held,
        "remaining": finite(held.remaining), "ttl": finite(held.ttl), "claim": held.is_claim,
        "renewed": held.is_renewed,
    }  # fmt: skip


def _waited_for(waited: WaitedFor, rights: Rights) -> dict[str, Any]:
    return {
        "key": _visible_key(waited.key, rights), "count": waited.waiters, "holder": waited.holder,
        "remaining": finite(waited.remaining),
    }  # fmt: skip


def _breaker_part(breaker: BreakerState) -> dict[str, Any]:
    return {"state": breaker.state, "cause": breaker.cause, "out_for": breaker.out_for}


def _visible_key(key: str, rights: Rights) -> str:
    return key if rights.keys else shorten(key)


def finite(seconds: float | None) -> float | None:
    """Return *seconds*; None: for ever, or not known."""
    return None if seconds is None or math.isinf(seconds) else seconds
