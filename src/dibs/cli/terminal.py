"""Where the command prints: a terminal, with rich where installed; or a pipe, as plain text."""

import json
import os
import select
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, TextIO
from unicodedata import category, east_asian_width

from .._internal_api import printable

RIGHT = {"LEFT", "AGE", "SIZE", "OPS/S", "P50", "P95", "P99", "MAX", "RATIO"}
"""Columns that are aligned on the right."""


def width(text: str) -> int:
    """Return how many columns of a terminal *text* takes."""
    return sum([2 if east_asian_width(each) in "WF" else _plain_width(each) for each in text])


def _plain_width(character: str) -> int:
    return 0 if category(character) in ("Mn", "Me") else 1  # drawn over the one before


def used(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns in which something stands."""
    return [
        place for place, _ in enumerate(headings) if not rows or any(row[place] for row in rows)
    ]


def plain(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table; columns without any content are left out."""
    columns = used(headings, rows)
    lines = [[each[place] for place in columns] for each in (headings, *rows)]
    sides = [headings[place] in RIGHT for place in columns]
    return _aligned_columns(lines, _column_widths(lines), sides)


class LongTable:
    """A table whose rows come piece by piece.

    Its columns are as wide as the first rows need; a wider text in a later row shifts the rest of
    that row.
    """

    def __init__(self, headings: Sequence[str]) -> None:
        self._headings = headings
        self._column_widths: list[int] = []

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Return the lines of the next rows; above the first ones, the headings."""
        lines = list(rows)
        if not self._column_widths:
            lines = [self._headings, *rows]
            self._column_widths = _column_widths(lines)
        return _aligned_columns(
            lines, self._column_widths, [each in RIGHT for each in self._headings]
        )


def _column_widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max([width(text) for text in column]) for column in zip(*lines, strict=True)]


def _aligned_columns(
    lines: Sequence[Sequence[str]], widths: Sequence[int], sides: Sequence[bool]
) -> list[str]:
    return ["  ".join(map(_padded_to, line, widths, sides)).rstrip() for line in lines]


def _padded_to(text: str, columns: int, is_right: bool) -> str:  # noqa: FBT001 - called by map
    space = " " * (columns - width(text))
    return space + text if is_right else text + space


Style = str
"""What a row is: "" usual, "ending" soon, "new", "changed", "gone", "warning"."""
_COLOURS = {
    "": "",
    "ending": "",
    "new": "green",
    "changed": "yellow",
    "gone": "dim strike",
    "warning": "red",
}
_KIND_COLOURS = {
    "lease": "cyan",
    "permits": "cyan",
    "claim": "magenta",
    "cached": "green",
    "schedule": "blue",
    "throttle": "blue",
}
"""Of the column WHAT, in a row that has no colour of its own."""


class Terminal:
    """The output of one command."""

    def __init__(self, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> None:
        self.out = out
        self.err = err
        self.is_terminal = out.isatty()
        self.console: Any = _rich_console(out, environ) if self.is_terminal else None
        """None: plain text."""

    def paragraph(self, text: str, indent: str = "") -> None:
        """A sentence of the result: on a terminal in lines as wide as it is."""
        self.out.write(_in_lines(_encodable_line(text, self.out), self.out, indent) + "\n")

    def progress(self, text: str) -> None:
        """Show what is being done, on a line that the next one overwrites; nothing in a pipe."""
        if self.err.isatty():
            self.err.write(f"\r\x1b[K{_encodable_line(text, self.err)}")
            self.err.flush()

    def line(self, text: str) -> None:
        """A line of the result."""
        self.out.write(_encodable_line(text, self.out) + "\n")

    def say(self, text: str) -> None:
        """A remark beside the result: it never gets into a pipe."""
        self.out.flush()
        self.err.write(_in_lines(_encodable_line(text, self.err), self.err) + "\n")
        self.err.flush()

    def script(self, text: str) -> None:
        """Lines for a shell, as they are."""
        self.out.write(text + "\n")

    def check_reader(self) -> None:
        """Raise BrokenPipeError if the reader of the pipe has closed it. Nothing is written."""
        try:
            poll = select.poll()
            poll.register(self.out, 0)
        except (AttributeError, OSError, ValueError):  # no such call here, or it is no file
            return
        if any(state & select.POLLERR for _, state in poll.poll(0)):
            raise BrokenPipeError

    def json(self, value: Any) -> None:
        """A JSON text on one line."""
        self.out.write(as_json(value) + "\n")
        self.out.flush()

    def table(
        self, headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[Style] = ()
    ) -> None:
        """A table; *styles*: one for each row."""
        if self.console is not None:
            self.console.print(rich_table(headings, rows, styles))
            return
        for line in plain(headings, rows):
            self.line(line)

    def title(self, text: str) -> None:
        """A heading above the facts of one thing."""
        if self.console is None:
            self.line(text)
        else:
            self.console.print(
                printable(text), style="bold", markup=False, highlight=False, soft_wrap=True
            )

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names and values, one pair on a line."""
        longest = max([len(name) for name, _ in pairs], default=0)
        for name, value in pairs:
            self.paragraph(f"  {name:<{longest}}  {value}", " " * (longest + 4))

    def confirm(self, question: str) -> bool:
        """Ask a person; anything but yes is a no."""
        self.say("")
        self.err.write(f"{_encodable_line(question, self.err)} [y/N] ")
        self.err.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    @contextmanager
    def screen(self) -> Generator[Any]:
        """Yield a rich `Live` in the alternate screen, which is restored at the end."""
        from rich.live import Live

        with Live(console=self.console, screen=True, auto_refresh=False) as live:
            yield live


def as_json(value: Any) -> str:
    """Return a JSON text on one line, which every encoding has."""
    return json.dumps(value, ensure_ascii=True)


def can_ask() -> bool:
    """Return whether a person can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _encodable_line(text: str, stream: TextIO) -> str:
    """*text* as *stream* can have it, on one line: a server's words may have control characters.

    Here, where all is printed, so that no caller can forget it.
    """
    encoding = stream.encoding or "utf-8"
    return printable(text).encode(encoding, errors="replace").decode(encoding)


def _in_lines(text: str, stream: TextIO, indent: str = "") -> str:
    """Return *text* in lines as wide as the terminal; unchanged where *stream* is none."""
    if not stream.isatty():
        return text
    return fill(
        text,
        max(get_terminal_size().columns, 40),
        subsequent_indent=indent,
        drop_whitespace=True,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _rich_console(out: TextIO, environ: Mapping[str, str]) -> Any:
    if environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=out, highlight=False, no_color=bool(environ.get("NO_COLOR")))


def rich_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[Style] = ()
) -> Any:
    """Return the table as rich prints it: one line for each row, whatever the width."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    columns = used(headings, rows)
    for place in columns:
        side = "right" if headings[place] in RIGHT else "left"
        table.add_column(headings[place], justify=side, no_wrap=True, overflow="ellipsis")
    for number, each in enumerate(rows):
        kind = styles[number] if styles else ""
        cells = [
            Text(printable(each[place]), _cell_colour(headings[place], each[place], kind))
            for place in columns
        ]
        table.add_row(*cells, style=_COLOURS[kind])
    return table


def _cell_colour(heading: str, text: str, style: Style) -> str:
    """Return the colour of a cell: of its kind, and of a time that is about to end."""
    if _COLOURS[style]:
        return ""
    if heading == "WHAT":
        return _KIND_COLOURS.get(text.split(",")[0], "dim")
    return "yellow" if heading == "LEFT" and style == "ending" else ""


def default_terminal() -> Terminal:
    """Return the terminal of this process."""
    return Terminal(sys.stdout, sys.stderr, os.environ)
