"""Errors in a piece of JSON, and where: small checks of which the larger ones are composed."""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from .lengths import graphemes

Path = tuple[str | int, ...]
_COLOUR = re.compile("#[0-9a-fA-F]{6}")


class Finding(NamedTuple):
    """One error."""

    path: Path
    message: str

    @property
    def dotted(self) -> str:
        """`messages[0].quickReply.items[1].action.text`, as in most of LINE's answers."""
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path]
        return "".join(steps).removeprefix(".")

    @property
    def pointer(self) -> str:
        """`/body/contents/0/text`, as in LINE's answers about Flex."""
        return "/" + "/".join(str(step) for step in self.path)


Findings = Iterator[Finding]
Check = Callable[[Any, Path], Findings]
"""Checks a value at a path."""


def text(most: int, *, least: int = 1, count: Callable[[str], int] = graphemes) -> Check:
    """A text of limited length."""

    def check(value: Any, path: Path) -> Findings:
        if not isinstance(value, str) or (least and not value):
            yield Finding(path, "May not be empty")
        elif count(value) > most:
            yield Finding(path, f"must not be longer than {most} characters")

    return check


def one_of(*values: str) -> Check:
    """One of these words."""

    def check(value: Any, path: Path) -> Findings:
        if value not in values:
            known = ", ".join(values)
            yield Finding(path, f"Must be one of the following values: [{known}]")

    return check


def url(*schemes: str, most: int = 2000) -> Check:
    """An address with one of these schemes."""

    def check(value: Any, path: Path) -> Findings:
        if not isinstance(value, str) or not value:
            yield Finding(path, "May not be empty")
        elif len(value) > most:
            yield Finding(path, f"must not be longer than {most} characters")
        elif value.partition(":")[0].lower() not in schemes:
            yield Finding(path, "invalid uri scheme")

    return check


def number(least: float, most: float) -> Check:
    """A number in this range."""

    def check(value: Any, path: Path) -> Findings:
        if type(value) not in (int, float) or not least <= value <= most:
            yield Finding(path, f"Must be between {least} and {most}")

    return check


def whole(least: int, most: int = 2**31 - 1) -> Check:
    """A whole number in this range."""

    def check(value: Any, path: Path) -> Findings:
        if type(value) is not int:
            yield Finding(path, "must be an integer")
        else:
            yield from number(least, most)(value, path)

    return check


def boolean(value: Any, path: Path) -> Findings:
    """True or false."""
    if not isinstance(value, bool):
        yield Finding(path, "must be true or false")


def listed(check: Check, *, least: int, most: int) -> Check:
    """A list of limited length, each item of which passes."""

    def check_all(value: Any, path: Path) -> Findings:
        if not isinstance(value, list) or not least <= len(value) <= most:
            yield Finding(path, f"Size must be between {least} and {most}")
            return
        for index, item in enumerate(value):
            yield from check(item, (*path, index))

    return check_all


def fields(required: dict[str, Check], optional: dict[str, Check]) -> Check:
    """An object that has all *required* fields, and whose fields all pass their checks."""

    def check(value: Any, path: Path) -> Findings:
        if not isinstance(value, dict):
            yield Finding(path, "must be specified")
            return
        for name in required:
            if name not in value:
                yield Finding((*path, name), "must be specified")
        for name, look in (required | optional).items():
            if name in value:
                yield from look(value[name], (*path, name))

    return check


def values(check: Check) -> Check:
    """An object with any names, each value of which passes."""

    def check_all(value: Any, path: Path) -> Findings:
        if not isinstance(value, dict):
            yield Finding(path, "must be specified")
            return
        for name, item in value.items():
            yield from check(item, (*path, name))

    return check_all


def colour(value: Any, path: Path) -> Findings:
    """`#RRGGBB`."""
    if not isinstance(value, str) or not _COLOUR.fullmatch(value):
        yield Finding(path, "invalid color")


def anything(value: Any, path: Path) -> Findings:
    """Accept any value."""
    yield from ()


def by_type(kinds: dict[str, Check], *, allowed: Collection[str] | None = None) -> Check:
    """An object whose check depends on its `type`."""
    names = [name for name in kinds if allowed is None or name in allowed]

    def check(value: Any, path: Path) -> Findings:
        if not isinstance(value, dict):
            yield Finding(path, "must be specified")
        elif value.get("type") not in names:
            yield from one_of(*names)(value.get("type"), (*path, "type"))
        else:
            yield from kinds[value["type"]](value, path)

    return check
