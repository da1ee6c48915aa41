"""Menus as JSON: what comes in is checked field by field, what goes out can come in again."""

import hashlib
import json
import re
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from typing import Any, TypeVar

from .menus import (
    DEAREST,
    Category,
    Edition,
    Invalid,
    Item,
    Menu,
    Serving,
    TimeWindow,
    Version,
)

Document = dict[str, Any]
T = TypeVar("T")

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MENU = {"timeWindows", "categories", "items"}
_YEARS = range(2000, 2100)


# ---- in


def parse_json(body: bytes) -> Document:
    """The JSON object in *body*. Invalid: there is none."""
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Invalid("", "The body must be JSON.") from None
    return _object(document, "")


def parse_edition(document: Document) -> Edition:
    """What is to be published. Invalid: which field is wrong, and why."""
    draft = _flag(document.get("draft", False), "draft")
    if _MENU & document.keys():
        _only(document, "", _MENU | {"draft"})
        return Edition(parse_menu(document), draft=draft)
    _only(document, "", {"copyOf", "priceChangePercent", "draft"})
    copy_of = document.get("copyOf")
    percent = document.get("priceChangePercent")
    if copy_of is None and percent is None:
        raise Invalid("", "The body must hold a menu, a copyOf or a priceChangePercent.")
    return Edition(
        copy_of=None if copy_of is None else _whole(copy_of, "copyOf", 1, 10**9),
        price_change=Decimal(0) if percent is None else _percent(percent),
        draft=draft,
    )


def parse_menu(document: Document) -> Menu:
    """A menu whose parts fit together. Invalid: which field is wrong, and why."""
    menu = Menu(
        windows=_each(document, "timeWindows", _window),
        categories=_each(document, "categories", _category),
        items=_each(document, "items", _item),
    )
    menu.check()
    return menu


def text(value: Any, field: str, most: int, *, least: int = 1) -> str:
    """*value*, if it is printable text of that length. Invalid: it is not."""
    if not isinstance(value, str) or not least <= len(value.strip()) <= len(value) <= most:
        raise Invalid(field, f"must be a text of {least} to {most} characters.")
    if _UNPRINTABLE.search(value):
        raise Invalid(field, "must hold no control characters.")
    return value


def moment(value: Any, field: str) -> datetime:
    """A point in time from ISO 8601, with or without an offset. Invalid: it is none."""
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Invalid(field, "must be a time such as 2026-11-15T12:00:00+08:00.") from None
    if at.year not in _YEARS:
        raise Invalid(field, f"must be in the years {_YEARS[0]} to {_YEARS[-1]}.")
    return at


def _window(document: Document, at: str) -> TimeWindow:
    _only(document, at, {"code", "name", "weekdays", "start", "end"})
    return TimeWindow(
        code=_id(document.get("code"), f"{at}.code"),
        name=text(document.get("name"), f"{at}.name", 40),
        weekdays=_weekdays(document.get("weekdays"), f"{at}.weekdays"),
        start=_clock(document.get("start"), f"{at}.start"),
        end=_clock(document.get("end"), f"{at}.end"),
    )


def _category(document: Document, at: str) -> Category:
    _only(document, at, {"categoryId", "name"})
    return Category(
        category_id=_id(document.get("categoryId"), f"{at}.categoryId"),
        name=text(document.get("name"), f"{at}.name", 40),
    )


def _item(document: Document, at: str) -> Item:
    _only(document, at, _ITEM)
    image = document.get("imageName")
    return Item(
        item_id=_id(document.get("itemId"), f"{at}.itemId"),
        category_id=_id(document.get("categoryId"), f"{at}.categoryId"),
        name=text(document.get("name"), f"{at}.name", 80),
        price=_whole(document.get("price"), f"{at}.price", 0, DEAREST),
        description=text(document.get("description", ""), f"{at}.description", 400, least=0),
        tags=_words(document.get("tags", []), f"{at}.tags"),
        allergens=_words(document.get("allergens", []), f"{at}.allergens"),
        windows=_words(document.get("timeWindows", []), f"{at}.timeWindows"),
        available=_flag(document.get("available", True), f"{at}.available"),
        image_name=None if image is None else text(image, f"{at}.imageName", 80),
    )


_ITEM = {
    "itemId", "categoryId", "name", "price", "description",
    "tags", "allergens", "timeWindows", "available", "imageName",
}  # fmt: skip


def _each(document: Document, field: str, parse: Callable[[Document, str], T]) -> tuple[T, ...]:
    listed = document.get(field)
    if not isinstance(listed, list) or not 1 <= len(listed) <= 500:
        raise Invalid(field, "must be a list with 1 to 500 entries.")
    return tuple(
        parse(_object(each, f"{field}[{number}]"), f"{field}[{number}]")
        for number, each in enumerate(listed)
    )


def _object(value: Any, field: str) -> Document:
    if not isinstance(value, dict):
        raise Invalid(field, "must be a JSON object." if field else "The body must be an object.")
    return value


def _only(document: Document, at: str, known: set[str]) -> None:
    """Nothing, if every field is known: a misspelt one must not be lost in silence."""
    for name in document.keys() - known:
        shown = name if ID.fullmatch(name) else "a field"
        raise Invalid(f"{at}.{shown}" if at else shown, "is not known here.")


def _id(value: Any, field: str) -> str:
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise Invalid(field, "must be 1 to 64 letters, digits, - or _.")
    return value


def _whole(value: Any, field: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Invalid(field, f"must be a whole number from {least} to {most}.")
    return value


def _percent(value: Any) -> Decimal:
    if type(value) not in (int, float) or not -90 <= value <= 300:
        raise Invalid("priceChangePercent", "must be a number from -90 to 300.")
    return Decimal(str(value))


def _flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(field, "must be true or false.")
    return value


def _words(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 20:
        raise Invalid(field, "must be a list of at most 20 texts.")
    return tuple(text(word, f"{field}[{number}]", 40) for number, word in enumerate(value))


def _weekdays(value: Any, field: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise Invalid(field, "must be a list of numbers from 1, Monday, to 7, Sunday.")
    days = [_whole(day, f"{field}[{number}]", 1, 7) for number, day in enumerate(value)]
    return tuple(sorted(set(days)))


def _clock(value: Any, field: str) -> time:
    if not isinstance(value, str) or not _CLOCK.fullmatch(value):
        raise Invalid(field, "must be a time of day such as 06:30.")
    return time.fromisoformat(value)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# ---- out


def print_menu(menu: Menu) -> Document:
    """The JSON from which `parse_menu` builds this menu."""
    return {
        "timeWindows": [_print_window(window) for window in menu.windows],
        "categories": [
            {"categoryId": each.category_id, "name": each.name} for each in menu.categories
        ],
        "items": [_print_item(item) | {"timeWindows": list(item.windows)} for item in menu.items],
    }


def print_active(version: Version, menu: Menu, serving: Serving) -> Document:
    """The menu that is served now: the seven fields of the seed's StoreResolveMenuRs."""
    served = menu.during(serving.window.code)
    return {
        "menuVersionId": version.version_id,
        "versionNo": version.number,
        "bizDate": serving.biz_date.isoformat(),
        "timeWindow": _print_serving(serving),
        "versionHash": version.version_hash,
        "categories": [
            {"categoryId": each.category_id, "name": each.name, "sortOrder": number}
            for number, each in enumerate(served.categories, 1)
        ],
        "items": [_print_item(item) for item in served.items],
    }


def print_version(version: Version) -> Document:
    """The record of a version."""
    published_at = version.published_at
    return {
        "branchId": version.branch_id,
        "menuVersionId": version.version_id,
        "versionNo": version.number,
        "status": version.status,
        "createdAt": version.created_at.isoformat(),
        "publishedAt": published_at and published_at.isoformat(),
        "versionHash": version.version_hash,
    }


def hash_of(menu: Menu) -> str:
    """The same for the same content, in every process."""
    canonical = json.dumps(print_menu(menu), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _print_window(window: TimeWindow) -> Document:
    return {
        "code": window.code,
        "name": window.name,
        "weekdays": list(window.weekdays),
        "start": f"{window.start:%H:%M}",
        "end": f"{window.end:%H:%M}",
    }


def _print_serving(serving: Serving) -> Document:
    return {
        "code": serving.window.code,
        "name": serving.window.name,
        "startsAt": serving.starts_at.isoformat(),
        "endsAt": serving.ends_at.isoformat(),
    }


def _print_item(item: Item) -> Document:
    return {
        "itemId": item.item_id,
        "categoryId": item.category_id,
        "name": item.name,
        "description": item.description,
        "price": item.price,
        "tags": list(item.tags),
        "allergens": list(item.allergens),
        "available": item.available,
        "imageName": item.image_name,
    }
