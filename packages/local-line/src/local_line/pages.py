"""Long lists, one page at a time: `limit` and `start` of LINE's API, and its `next`."""

from collections.abc import Sequence
from typing import TypeVar

from .calls import Asked
from .refusals import wrong_parameter

T = TypeVar("T")


def page_of(
    items: Sequence[T], asked: Asked, *, most: int, usual: int | None = None
) -> tuple[list[T], dict[str, str]]:
    """The requested page, and `{"next": …}` if there is more. Refusal: 400."""
    first = _number(asked, "start", 0, len(items))
    limit = _number(asked, "limit", usual or most, most, least=1)
    last = first + limit
    return list(items[first:last]), {"next": str(last)} if last < len(items) else {}


def _number(asked: Asked, name: str, usual: int, most: int, *, least: int = 0) -> int:
    text = asked.query(name)
    if text is None or text == "":
        return usual
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
        raise wrong_parameter(name)
    return int(text)
