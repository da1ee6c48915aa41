"""Tables as plain text: aligned columns, no boxes, no colours."""

from collections.abc import Sequence
from unicodedata import category, east_asian_width

RIGHT = {"LEFT", "AGE", "SIZE", "OPS/S", "P50", "P95", "P99", "MAX", "RATIO"}
"""Columns that are aligned on the right."""


def width(text: str) -> int:
    """How many columns of a terminal *text* takes."""
    return sum([2 if east_asian_width(each) in "WF" else _plain_width(each) for each in text])


def _plain_width(character: str) -> int:
    return 0 if category(character) in ("Mn", "Me") else 1  # drawn over the one before


def used(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The columns in which something stands."""
    return [
        place for place, _ in enumerate(headings) if not rows or any(row[place] for row in rows)
    ]


def plain(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; columns without any content are left out."""
    columns = used(headings, rows)
    lines = [[each[place] for place in columns] for each in (headings, *rows)]
    widths = [max([width(line[place]) for line in lines]) for place in range(len(columns))]
    sides = [headings[place] in RIGHT for place in columns]
    return [
        "  ".join(map(_padded, line, widths, sides)).rstrip()
        for line in lines
    ]  # fmt: skip


def _padded(text: str, columns: int, is_right: bool) -> str:  # noqa: FBT001 - called by map
    space = " " * (columns - width(text))
    return space + text if is_right else text + space
