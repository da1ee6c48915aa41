"""Entries as words: tables for people, JSON for programs."""

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
    sides = [headings[place] in RIGHT for place in columns]
    return _aligned(lines, _widths(lines), sides)


class LongTable:
    """A table whose rows come piece by piece.

    Its columns are as wide as the first rows need; a wider text in a later row shifts the rest of
    that row.
    """

    def __init__(self, headings: Sequence[str]) -> None:
        self._headings = headings
        self._widths: list[int] = []

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """The lines of the next rows; above the first ones, the headings."""
        lines = list(rows)
        if not self._widths:
            lines = [self._headings, *rows]
            self._widths = _widths(lines)
        return _aligned(lines, self._widths, [each in RIGHT for each in self._headings])


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max([width(text) for text in column]) for column in zip(*lines, strict=True)]


def _aligned(
    lines: Sequence[Sequence[str]], widths: Sequence[int], sides: Sequence[bool]
) -> list[str]:
    return ["  ".join(map(_padded, line, widths, sides)).rstrip() for line in lines]


def _padded(text: str, columns: int, is_right: bool) -> str:  # noqa: FBT001 - called by map
    space = " " * (columns - width(text))
    return space + text if is_right else text + space
