"""Figures as text: aligned columns, thin thousands, and a dash where nothing was measured."""

from __future__ import annotations

from collections.abc import Sequence

NOTHING = "–"


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, the first column to the left, the others to the right; a lone cell is a heading."""
    full = [row for row in (headings, *rows) if len(row) > 1]
    widths = [max(len(row[column]) for row in full) for column in range(len(headings))]
    lines = [_line(headings, widths), "  ".join("─" * width for width in widths)]
    return "\n".join(lines + [row[0] if len(row) == 1 else _line(row, widths) for row in rows])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
    cells[0] = row[0].ljust(widths[0])
    return "  ".join(cells).rstrip()


def whole(value: float | None) -> str:
    """12 345"""
    return NOTHING if value is None else f"{value:,.0f}".replace(",", " ")


def short(value: float | None) -> str:
    """Three figures or so: 0.42, 7.5, 123."""
    if value is None:
        return NOTHING
    return whole(value) if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def between(least: float, most: float) -> str:
    """7 900–9 200"""
    return f"{short(least)}–{short(most)}"
