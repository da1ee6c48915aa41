"""What was read of a server: counts of everything, rows of a bounded part; and pages of them.

Pure: pages of entries and times come as arguments. A sweep is one reading of all keys; while the
next one is under way, the last complete one is shown.
"""

import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from .._interface import MOST_SHOWN, Entry, Page, ServerFacts, cut, shorten

GROUPS: dict[str, tuple[str, ...]] = {
    "leases": ("lease",),
    "permits": ("permits",),
    "claims": ("claim", "done"),
    "loads": ("lock",),
    "cached": ("cached",),
    "others": ("schedule", "fence", "tag", "foreign"),
}
"""What is shown together."""
_GROUP_OF = {kind: group for group, kinds in GROUPS.items() for kind in kinds}

RELEASED = ("lease", "permits", "claim", "done")
"""Kinds that can be released here: what dibs itself holds for somebody."""
MOST_ROWS = 2_000
"""Rows of each group that are kept; the others are counted."""
MOST_KEYS = 300_000
"""Keys that one sweep looks at."""
TOO_OLD = 120.0
"""Seconds after which a complete sweep is worth less than the beginning of the next one."""
PAGE = 50
"""Rows on one page."""


class Row:
    """An entry, when it was read, and what it is called where keys are not shown."""

    __slots__ = ("_searched", "entry", "id", "read_at", "short")

    def __init__(self, entry: Entry, read_at: float) -> None:
        self.read_at = read_at
        self.short = cut(shorten(entry.key))
        self.id = id_of(entry.key)
        of = None if entry.of is None else cut(entry.of)
        self.entry = entry._replace(key=cut(entry.key), of=of)
        self._searched: dict[bool, str] = {}

    def has(self, text: str, *, keys: bool) -> bool:
        """Whether key or holder contain *text*, which has no capitals. *keys*: the whole key."""
        searched = self._searched.get(keys)
        if searched is None:  # kept: else every viewer that searches would cost milliseconds
            searched = self._searched[keys] = _searched(self.entry, self.short, keys=keys)
        return text in searched

    def ends_at(self) -> float:
        """By the clock of `read_at`; inf: never."""
        left = self.entry.remaining
        return float("inf") if left is None else self.read_at + left

    def began_at(self) -> float:
        """When it was acquired, as far as that is known; inf: it is not."""
        age = self.entry.age
        return float("inf") if age is None else self.read_at - age


def _searched(entry: Entry, short: str, *, keys: bool) -> str:
    """What a search looks through."""
    holders = [entry.holder, entry.loading, *[each.holder for each in entry.permits]]
    return "\n".join([entry.key if keys else short, *filter(None, holders)]).casefold()


def id_of(key: str) -> str:
    """Names a key to those who may not see it."""
    return sha256(key.encode(errors="replace")).hexdigest()[:24]


class Sweep:
    """One reading of all keys."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.ended: float | None = None
        self.looked = 0
        self.is_cut = False
        """True: there are more keys than one sweep looks at."""
        self.unreachable: dict[str, str] = {}
        """Nodes of a cluster whose keys are missing, and why."""
        self.counts = dict.fromkeys(GROUPS, 0)
        self.rows: dict[str, dict[str, Row]] = {group: {} for group in GROUPS}
        """By key, or by id if the key is very long."""
        self._sorted: dict[tuple[str, str], list[Row]] = {}

    def add(self, page: Page, now: float) -> None:
        """Another page was read."""
        self._sorted.clear()
        self.looked += len(page.entries)
        if page.unreachable is not None:
            self.unreachable[page.unreachable] = page.why
        for entry in page.entries:
            self._add(entry, now)

    def _add(self, entry: Entry, now: float) -> None:
        group = _GROUP_OF[entry.kind]
        rows = self.rows[group]
        name = entry.key if len(entry.key) <= MOST_SHOWN else id_of(entry.key)
        if name in rows:  # SCAN may name a key twice
            return
        self.counts[group] += 1
        if len(rows) < MOST_ROWS:
            rows[name] = Row(entry, now)

    def sorted_rows(self, group: str, order: str) -> list[Row]:
        """The rows of *group*, in this order; sorted once for all viewers."""
        found = self._sorted.get((group, order))
        if found is None:
            key, reverse = ORDERS[order]
            found = sorted(self.rows[group].values(), key=key, reverse=reverse)
            self._sorted[group, order] = found
        return found

    def find(self, row_id: str) -> str | None:
        """The key with this id, if it is among the rows."""
        rows = (row for group in self.rows.values() for row in group.values())
        return next((row.entry.key for row in rows if row.id == row_id), None)


ORDERS: dict[str, tuple[Callable[[Row], Any], bool]] = {
    "ends first": (Row.ends_at, False),
    "ends last": (Row.ends_at, True),
    "oldest": (Row.began_at, False),
    "key": (lambda row: row.short, False),
}


class View(NamedTuple):
    """Which rows a viewer wants."""

    group: str = "leases"
    order: str = "ends first"
    text: str = ""
    """Only rows whose key, as shown, or holder contains it."""
    number: int = 1
    """Of the page."""


def view_of(query: dict[str, str]) -> View:
    """The view that a query string asks for; what makes no sense is as if it were not there."""
    group, order = query.get("group", ""), query.get("order", "")
    number = query.get("page", "")
    return View(
        group if group in GROUPS else "leases",
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
        """Where the current sweep goes on; None: there is none."""
        self.facts: list[ServerFacts] = []
        self.facts_at: float | None = None
        self.facts_took = 0.0
        self.failure: str | None = None
        """Why the server could not be read; None: it could."""
        self.failed_at = 0.0
        self._is_old = False
        """True: something was changed since the last sweep began."""

    @property
    def shown(self) -> Sweep | None:
        """The last complete sweep; before there is one, what was read so far."""
        return self.last or self.current

    def is_due(self, now: float, pause: float) -> bool:
        """Whether a sweep is under way, or the next one should begin."""
        if self._is_old or self.current is not None or self.last is None or self.last.ended is None:
            return True
        took = self.last.ended - self.last.began
        return now - self.last.ended >= max(pause, took)

    def are_facts_due(self, now: float, pause: float) -> bool:
        """Whether the server should be asked about itself."""
        return self.facts_at is None or now - self.facts_at >= pause

    def next_cursor(self, now: float) -> str:
        """Where to read; a new sweep begins if none is under way."""
        if self.current is None or self.cursor is None:
            self.current, self.cursor, self._is_old = Sweep(now), "", False
        return self.cursor

    def read(self, page: Page, now: float) -> bool:
        """A page was read. True: the sweep is complete."""
        sweep, self.failure = self.current, None
        if sweep is None:  # it was given up meanwhile: something has changed
            return False
        sweep.add(page, now)
        if self.last is not None and now - (self.last.ended or now) > TOO_OLD:
            self.last = None
        self.cursor = page.cursor
        sweep.is_cut = page.cursor is not None and sweep.looked >= MOST_KEYS
        if page.cursor is not None and not sweep.is_cut:
            return False
        sweep.ended = now
        self.last, self.current, self.cursor = sweep, None, None
        return True

    def read_facts(self, facts: list[ServerFacts], took: float, now: float) -> None:
        """What the server said about itself."""
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

    def find(self, row_id: str) -> str | None:
        """The key with this id, if it is among the rows of a sweep."""
        sweeps: Iterable[Sweep | None] = (self.current, self.last)
        found = (sweep.find(row_id) for sweep in sweeps if sweep is not None)
        return next((key for key in found if key is not None), None)


def key_in(page: Page, row_id: str) -> str | None:
    """The key of *page* with this id. None: it is not there."""
    return next((entry.key for entry in page.entries if id_of(entry.key) == row_id), None)


# ---- one page of rows, as JSON has it


def page_of(sweep: Sweep, view: View, now: float, *, keys: bool, release: bool) -> dict[str, Any]:
    """The rows of a view. *keys*: whole keys and notes. *release*: what a release compares."""
    rows = sweep.sorted_rows(view.group, view.order)
    if view.text:
        text = view.text.casefold()
        rows = [row for row in rows if row.has(text, keys=keys)]
    pages = max((len(rows) + PAGE - 1) // PAGE, 1)
    number = min(view.number, pages)
    shown = rows[(number - 1) * PAGE : number * PAGE]
    return {
        "group": view.group, "order": view.order, "text": view.text, "page": number,
        "pages": pages, "matching": len(rows), "listed": len(sweep.rows[view.group]),
        "rows": [_facts(row, now, keys=keys, release=release) for row in shown],
    }  # fmt: skip


def _facts(row: Row, now: float, *, keys: bool, release: bool) -> dict[str, Any]:
    entry, since = row.entry, now - row.read_at
    facts: dict[str, Any] = {
        "id": row.id, "key": entry.key if keys else row.short, "kind": entry.kind,
        "state": entry.state, "holder": entry.holder, "remaining": _left(entry.remaining, since),
        "age": None if entry.age is None else entry.age + since, "size": entry.size,
        "note": entry.note if keys else None, "fence": entry.fence, "count": entry.taken,
        "loading": entry.loading, "took": entry.took,
        "of": entry.of if keys or entry.of is None else cut(shorten(entry.of)),
        "seen": entry.token_hint if release and entry.kind in RELEASED else None,
    }  # fmt: skip
    facts["permits"] = [
        {
            "holder": each.holder, "remaining": _left(each.remaining, since),
            "seen": each.token_hint if release else None,
        }
        for each in entry.permits
    ]  # fmt: skip
    return facts


def _left(remaining: float | None, since: float) -> float | None:
    return None if remaining is None else max(remaining - since, 0.0)
