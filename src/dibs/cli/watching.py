"""`dibs watch`: a live list of what is held, or a log of what changes."""

import argparse
import time
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .._internal_api import KeyInfo, inspector
from .._key_texts import (
    HEADINGS,
    as_object,
    counted,
    duration,
    is_stuck,
    printable_lines,
    row,
    shown_key,
    what,
    who,
)
from ..errors import Unavailable, UsageError
from .connecting import add_server, connected
from .listing import Listing, add_filters, missing, ordered, read, remarks, wanted_by
from .terminal import Terminal, default_terminal, rich_table, width

if TYPE_CHECKING:
    from .._internal_api import Inspector

SHORTEST, LONGEST = 0.2, 86_400.0


def watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    add_filters(parser)
    add = parser.add_argument
    add("--interval", type=float, default=2.0, help="seconds between two looks; default 2")
    add("--count", type=int, default=0, help="end after so many looks; default: never")
    add("--renewals", action="store_true", help="also log leases that were renewed")
    add("--log", action="store_true", help="a log of changes, also on a terminal")
    add_server(parser)


# ---- what changed between two looks at the server

Change = Literal["present", "new", "taken", "changed", "renewed", "gone"]
"""present: at the first look · new: the key exists now · taken: another holding of it ·
changed: another kind or state · renewed: it is kept for longer · gone: the key no longer exists."""

SIGNS: dict[Change, str] = {
    "present": " ", "new": "+", "taken": ">", "changed": "*", "renewed": "~", "gone": "-",
}  # fmt: skip
SLACK = 0.2
"""Seconds by which a remaining time may grow without having been renewed."""


class Changed(NamedTuple):
    """A key, and how it changed."""

    change: Change
    entry: KeyInfo
    """As it is now; gone: as it was."""


def changes(
    before: Mapping[str, KeyInfo] | None,
    now: Mapping[str, KeyInfo],
    elapsed: float,
    *,
    was_whole: bool = True,
    is_whole: bool = True,
) -> list[Changed]:
    """Return the change of each key; unchanged keys are left out. None: the first look.

    *elapsed*: seconds between the two looks. *was_whole*, *is_whole*: a key that the list before,
    or this one, lacks was not there.
    """
    if before is None:
        return [Changed("present", entry) for entry in now.values()]
    lacking = [entry for key, entry in before.items() if key not in now]
    gone = [Changed("gone", entry) for entry in lacking if is_whole]
    seen = [(before.get(key), entry) for key, entry in now.items() if was_whole or key in before]
    others = [_change_between(old, entry, elapsed) for old, entry in seen]
    return [*gone, *[each for each in others if each is not None]]


def _change_between(before: KeyInfo | None, now: KeyInfo, elapsed: float) -> Changed | None:
    if before is None:
        return Changed("new", now)
    if _holding_identity(before) != _holding_identity(now):
        return Changed("taken", now)
    if (before.kind, before.state, before.note) != (now.kind, now.state, now.note):
        return Changed("changed", now)
    if before.taken != now.taken or _was_made_anew(before, now):
        return Changed("changed", now)
    return Changed("renewed", now) if _is_longer(before, now, elapsed) else None


def _holding_identity(entry: KeyInfo) -> object:
    """Return what tells one holding from the next; the permits of a key come and go."""
    if entry.kind in ("permits", "cached") or entry.token_hint is None:
        return None
    return entry.token_hint.removesuffix("-done")  # the same claim, completed


def _was_made_anew(before: KeyInfo, now: KeyInfo) -> bool:
    if before.kind not in ("cached", "schedule") or before.age is None or now.age is None:
        return False
    return now.age + SLACK < before.age


def _is_longer(before: KeyInfo, now: KeyInfo, elapsed: float) -> bool:
    if before.remaining is None or now.remaining is None:
        return before.remaining != now.remaining
    return now.remaining > before.remaining - elapsed + SLACK


def styles(found: Iterable[Changed]) -> dict[str, str]:
    """Return how the rows of a table are coloured, by key."""
    colours = {"new": "new", "gone": "gone", "taken": "changed", "changed": "changed"}
    return {each.entry.key: colours.get(each.change, "") for each in found}


# ---- looking


class Watch:
    """Looks at the server again and again, and knows what changed."""

    def __init__(self, look: "Inspector", args: argparse.Namespace) -> None:
        self._look = look
        self._wanted = wanted_by(args)
        self.before: dict[str, KeyInfo] | None = None
        self.listing = Listing(self._wanted)
        self.trouble = ""
        """Why the last look failed; empty: it did not."""
        self._at = 0.0
        self._was_whole = True

    def again(self) -> list[Changed]:
        """Look, and say what changed. While the server is unavailable, nothing does."""
        at = time.monotonic()
        try:
            listing = read(self._look, self._wanted)
        except Unavailable as error:
            if self.before is None:
                raise
            self.trouble = str(error)
            return []
        found = changes(
            self.before, listing.entries, at - self._at,
            was_whole=self._was_whole, is_whole=listing.is_whole,
        )  # fmt: skip
        # What is on a node that is silent stays as it was: it is not new when the node is back.
        hidden: dict[str, KeyInfo] = (self.before or {}) if listing.unreachable else {}
        self.before = {**hidden, **listing.entries}
        self.listing, self._at, self.trouble = listing, at, ""
        self._was_whole = listing.is_complete
        return found

    def limits(self) -> str:
        """Return why the last look does not tell everything; empty: it does."""
        if self.trouble:
            return self.trouble
        lines = missing(self.listing)
        if not self.listing.is_complete:
            total = counted(len(self.listing.entries), "key")
            lines.append(f"Stopped after {total}: which are new or gone is known with --limit 0.")
        return "\n".join(lines)


def watch(args: argparse.Namespace) -> int:
    """Watch until Ctrl-C. Returns 0."""
    if not SHORTEST <= args.interval <= LONGEST:  # nan is neither
        raise UsageError(
            f"--interval must be {SHORTEST} to {LONGEST:.0f} s: each look reads all keys"
        )
    terminal = default_terminal()
    with connected(args) as dibs:
        watch = Watch(inspector(dibs), args)
        try:
            if terminal.console is None or args.json or args.log:
                _log_changes(terminal, watch, args)
            else:
                _show_live(terminal, watch, args)
        except KeyboardInterrupt:
            pass  # the usual way to end it
    return 0


# ---- as a log


def _log_changes(terminal: Terminal, watch: Watch, args: argparse.Namespace) -> None:
    number = 0
    limits = ""
    while True:
        for each in watch.again():
            if each.change != "renewed" or args.renewals:
                _write_change(terminal, each, args)
        terminal.out.flush()
        if watch.limits() != limits:
            limits = watch.limits()
            terminal.say(limits or "the server answers again")
        number += 1
        if number == args.count:
            return
        time.sleep(args.interval)
        terminal.check_reader()  # who reads no more would not be noticed until something changes


def _write_change(terminal: Terminal, each: Changed, args: argparse.Namespace) -> None:
    if args.json:
        record = {"at": round(time.time(), 3), "change": each.change}
        terminal.json({**record, "entry": as_object(each.entry, whole=args.show_keys)})
    else:
        terminal.line(f"{time.strftime('%H:%M:%S')} {log_line(each, whole=args.show_keys)}")


def log_line(each: Changed, *, whole: bool) -> str:
    """Return a line such as `+ lease order:~1f0c2a9b web-1:77, 30 s left`."""
    entry = each.entry
    left = "" if each.change == "gone" else f", {duration(entry.remaining, 'no expiry')} left"
    words = [SIGNS[each.change], what(entry), shown_key(entry, whole=whole), who(entry) or "-"]
    return " ".join(words) + left


# ---- as a table


def _show_live(terminal: Terminal, watch: Watch, args: argparse.Namespace) -> None:
    number = 0
    with terminal.screen() as live:
        while True:
            found = watch.again()
            live.update(_rendered_screen(terminal, watch, found, args), refresh=True)
            number += 1
            if number == args.count:
                return
            time.sleep(args.interval)


def _rendered_screen(
    terminal: Terminal, watch: Watch, found: list[Changed], args: argparse.Namespace
) -> Any:
    from rich.console import Group
    from rich.text import Text

    console, listing = terminal.console, watch.listing
    gone = {each.entry.key: each.entry for each in found if each.change == "gone"}
    # By kind and key, so that a row stays where it is.
    entries = ordered([*listing.entries.values(), *gone.values()], "kind")
    head = heading(listing.entries, args.interval, console.width, watch.trouble)
    lines = ["", *remarks(listing, whole=args.show_keys)]
    shown = entries[: rows_that_fit(console.height, console.width, [*head.split("\n"), *lines])]
    colours, signs = styles(found), {each.entry.key: SIGNS[each.change] for each in found}
    table = rich_table(
        ("", *HEADINGS),
        [[signs.get(each.key, ""), *row(each, whole=args.show_keys)] for each in shown],
        [colours.get(each.key) or ("warning" if is_stuck(each) else "") for each in shown],
    )
    if len(shown) < len(entries):
        lines.insert(0, f"{len(entries) - len(shown)} more do not fit on this screen")
    return Group(
        Text(printable_lines(head), style="red" if watch.trouble else "bold"),
        table,
        Text(printable_lines("\n".join(lines))),
    )


def rows_that_fit(height: int, columns: int, lines: list[str]) -> int:
    """Return how many rows fit beside these lines, the headings, and a word about the others."""
    word = "1000 more do not fit on this screen"
    wrapped = [wrap(line, columns, break_on_hyphens=False) or [""] for line in [*lines, word]]
    taken = sum(map(len, wrapped))
    return max(height - taken - 1, 1)


def heading(entries: Mapping[str, KeyInfo], interval: float, columns: int, trouble: str) -> str:
    """Return the first line of the screen: what is shown on the left, when on the right.

    On a narrow screen these are two lines.
    """
    now = time.strftime("%H:%M:%S")
    left = trouble or f"dibs watch: {counted(len(entries), 'key')}, every {interval:g} s"
    right = f"{now}  Ctrl-C ends"
    space = columns - width(left) - width(right)
    return left + (" " * space if space >= 2 else "\n") + right + "\n"
