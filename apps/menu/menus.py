"""Menus as the chain thinks of them: versions of a branch, and what is served when.

No I/O and no clock: callers pass the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal
from zoneinfo import ZoneInfo

DEAREST = 100_000
"""The most that a dish may cost, in TWD."""
_DAY = 24 * 60
_WEEK = 7 * _DAY

Status = Literal["draft", "published"]


class Invalid(ValueError):
    """Something in a request cannot be accepted: *field* says where, *reason* why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}" if field else reason)
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Branch:
    """One restaurant of the chain."""

    branch_id: str
    name: str
    city: str
    timezone: str = "Asia/Taipei"

    def local(self, at: datetime) -> datetime:
        """*at* in the branch's local time; without an offset it is taken as local."""
        zone = ZoneInfo(self.timezone)
        return at.astimezone(zone) if at.tzinfo else at.replace(tzinfo=zone)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """When something is served: from *start*, included, to *end*, excluded.

    An end that is not after its start is on the next day. Windows may share a code: breakfast is
    later on Sundays.
    """

    code: str
    name: str
    weekdays: tuple[int, ...]
    """The days on which it starts; Monday is 1."""
    start: time
    end: time

    def on(self, day: date, like: datetime) -> "Serving":
        """The window as it is on *day*, in the time zone of *like*."""
        last = day + timedelta(days=1) if self.end <= self.start else day
        starts_at = datetime.combine(day, self.start, like.tzinfo)
        return Serving(self, day, starts_at, datetime.combine(last, self.end, like.tzinfo))

    def spans(self) -> list[tuple[int, int]]:
        """Start and end as minutes of the week, for each weekday; an end may be in the next."""
        start, end = (at.hour * 60 + at.minute for at in (self.start, self.end))
        length = (end - start) % _DAY or _DAY
        begins = [(weekday - 1) * _DAY + start for weekday in self.weekdays]
        return [(begin, begin + length) for begin in begins]


@dataclass(frozen=True, slots=True)
class Serving:
    """A time window on one day."""

    window: TimeWindow
    biz_date: date
    """The day on which it began: at one in the morning, that is yesterday."""
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Category:
    """A heading of the menu."""

    category_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Item:
    """A dish, with its price in whole TWD."""

    item_id: str
    category_id: str
    name: str
    price: int
    description: str = ""
    tags: tuple[str, ...] = ()
    allergens: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    """The codes of the windows in which it is served; none: in all of them."""
    available: bool = True
    image_name: str | None = None


@dataclass(frozen=True, slots=True)
class Menu:
    """The content of a version. Categories and items are in the order in which they are shown."""

    windows: tuple[TimeWindow, ...]
    categories: tuple[Category, ...]
    items: tuple[Item, ...]

    def serving(self, at: datetime) -> Serving | None:
        """What is served at *at*, the branch's local time. None: the kitchen is closed."""
        for day in (at.date(), at.date() - timedelta(days=1)):
            for window in self.windows:
                serving = window.on(day, at)
                begins = day.isoweekday() in window.weekdays
                if begins and serving.starts_at <= at < serving.ends_at:
                    return serving
        return None

    def during(self, code: str) -> "Menu":
        """The dishes of that window, and the categories that still have one."""
        items = tuple(item for item in self.items if not item.windows or code in item.windows)
        shown = {item.category_id for item in items}
        categories = tuple(each for each in self.categories if each.category_id in shown)
        return replace(self, categories=categories, items=items)

    def repriced(self, percent: Decimal) -> "Menu":
        """Every price changed by *percent*, to the nearest dollar. Invalid: one gets too high."""
        items = tuple(replace(item, price=_changed(item.price, percent)) for item in self.items)
        if any(item.price > DEAREST for item in items):
            raise Invalid("priceChangePercent", f"would make a price higher than {DEAREST}.")
        return replace(self, items=items)

    def check(self) -> None:
        """Check that the parts fit together. Invalid: they do not."""
        _distinct("categories", "categoryId", [each.category_id for each in self.categories])
        _distinct("items", "itemId", [item.item_id for item in self.items])
        _apart(self.windows)
        categories = {category.category_id for category in self.categories}
        codes = {window.code for window in self.windows}
        for number, item in enumerate(self.items):
            if item.category_id not in categories:
                raise Invalid(f"items[{number}].categoryId", "names no category of this menu.")
            if not codes.issuperset(item.windows):
                raise Invalid(f"items[{number}].timeWindows", "names no window of this menu.")


@dataclass(frozen=True, slots=True)
class Version:
    """The record of one version of a branch's menu. Once written, it does not change."""

    branch_id: str
    number: int
    status: Status
    created_at: datetime
    published_at: datetime | None
    version_hash: str
    """The same for the same content, regardless of its number."""

    @property
    def version_id(self) -> str:
        """Its name among the versions of all branches."""
        return f"{self.branch_id}-v{self.number}"


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version without a number yet."""

    menu: Menu
    created_at: datetime
    draft: bool = False


Chain = Sequence[tuple[Branch, Sequence[NewVersion]]]
"""Branches, each with its versions, the oldest first."""


@dataclass(frozen=True, slots=True)
class Edition:
    """What is to become a version: a whole menu, or a change of an existing one."""

    menu: Menu | None = None
    copy_of: int | None = None
    """Without a menu: the number of the version to start from; None: the active one."""
    price_change: Decimal = Decimal(0)
    draft: bool = False

    def made_from(self, base: Menu | None) -> Menu:
        """The new menu. Invalid: there is no *base* to start from, or a price gets too high."""
        if self.menu is not None:
            return self.menu
        if base is None:
            raise Invalid("copyOf", "names no version of this branch.")
        return base.repriced(self.price_change)


def _changed(price: int, percent: Decimal) -> int:
    return int((price * (100 + percent) / 100).quantize(Decimal(1), ROUND_HALF_UP))


def _distinct(field: str, name: str, ids: Sequence[str]) -> None:
    for number, each in enumerate(ids):
        if each in ids[:number]:
            raise Invalid(f"{field}[{number}].{name}", f"is there twice: {each}.")


def _apart(windows: Iterable[TimeWindow]) -> None:
    """Check that at most one window is open at any minute of the week. Invalid: two are."""
    spans = sorted(span for window in windows for span in window.spans())
    again = [(start + _WEEK, end + _WEEK) for start, end in spans[:1]]
    for (_, end), (start, _) in zip(spans, spans[1:] + again, strict=True):
        if start < end:
            raise Invalid("timeWindows", "overlap: only one can be open at a time.")
