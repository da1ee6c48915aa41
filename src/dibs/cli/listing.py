"""`dibs ls`: what the server holds."""

import argparse
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from .._internal_api import KEY_KINDS, KeyInfo, Page, inspector, printable
from .._key_texts import HEADINGS, as_object, counted, is_stuck, row
from .connecting import add_server, add_show_keys, connected
from .terminal import LongTable, Terminal, as_json, default_terminal

if TYPE_CHECKING:
    from .._internal_api import Inspector

MOST_LISTED = 1000
_ORDER: dict[str, Callable[[KeyInfo], Any]] = {
    "left": lambda entry: float("inf") if entry.remaining is None else entry.remaining,
    "key": lambda entry: entry.key,
    "kind": lambda entry: KEY_KINDS.index(entry.kind),
    "holder": lambda entry: entry.holder or entry.loading or "",
    "age": lambda entry: -(entry.age or 0.0),
    "size": lambda entry: -(entry.size or 0),
}


_NAMED = ("lease", "permits", "claim", "done", "cached", "stream")
"""Kinds whose keys the application has named."""


class Wanted(NamedTuple):
    """Which keys to list."""

    pattern: str
    kinds: frozenset[str]
    holder: str
    most: int
    """0: all."""

    def fits(self, entry: KeyInfo) -> bool:
        """Return whether *entry* is one of them."""
        names = [entry.holder, entry.loading, *[permit.holder for permit in entry.permits]]
        is_theirs = any(fnmatchcase(name or "", self.holder) for name in names)
        return entry.kind in self.kinds and (self.holder == "*" or is_theirs)


class Listing:
    """The keys that were read so far."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.entries: dict[str, KeyInfo] = {}
        self.kinds: Counter[str] = Counter()
        """How many of which kind are listed."""
        self.is_sorted = True
        """False: some were taken before all were read."""
        self.left_out: Counter[str] = Counter()
        """How many of which kind were not asked for."""
        self.unreachable: list[tuple[str, str]] = []
        self.is_complete = True
        self.elsewhere: list[str] = []
        """Namespaces that have what was not found in this one."""
        self.heads: list[str] = []
        """How listed keys begin, where that may be a namespace which was not named."""

    @property
    def is_whole(self) -> bool:
        """Return whether no key is missing."""
        return self.is_complete and not self.unreachable

    @property
    def options(self) -> str:
        """Return which options decide what is left out."""
        return "--all, --kind" if self._wanted.holder == "*" else "--all, --kind, --holder"

    def add(self, page: Page) -> bool:
        """Keep what is wanted. True: there are as many now as were asked for."""
        if page.unreachable is not None:
            self.unreachable.append((page.unreachable, page.why))
        for entry in page.entries:
            if not self._wanted.fits(entry):
                self.left_out[entry.kind] += 1
            elif len(self.entries) < self._wanted.most or not self._wanted.most:
                self._keep_entry(entry)
            elif entry.key not in self.entries:
                self.is_complete = False
        is_full = bool(self._wanted.most) and len(self.entries) >= self._wanted.most
        if is_full and page.cursor is not None:
            self.is_complete = False
        return is_full

    def _keep_entry(self, entry: KeyInfo) -> None:
        if entry.key not in self.entries:  # SCAN may name a key twice
            self.kinds[entry.kind] += 1
        self.entries[entry.key] = entry

    def take(self) -> list[KeyInfo]:
        """Return the entries, which are no longer kept.

        Those that come after them are not sorted in.
        """
        entries, self.entries, self.is_sorted = list(self.entries.values()), {}, False
        return entries


def read(
    look: "Inspector",
    wanted: Wanted,
    write: Callable[[list[KeyInfo]], object] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Listing:
    """Read pages until there is enough; where there are many, *write* gets them as they come.

    *progress* is told what is being done, once it has taken a second.
    """
    listing, began, is_told = Listing(wanted), monotonic(), False
    for page in look.pages(wanted.pattern):
        if listing.add(page):
            break
        if progress is not None and write is None and monotonic() - began > 1:
            found = listing.kinds.total() + listing.left_out.total()
            progress(f"reading: {found} keys so far")
            is_told = True
        if write is not None and len(listing.entries) > MOST_LISTED:
            write(listing.take())
    if is_told and progress is not None:
        progress("")
    return listing


# ---- the command


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    add_filters(parser)
    parser.add_argument("--sort", choices=_ORDER, help="default: left")
    parser.add_argument("--reverse", action="store_true", help="in the other direction")
    add_server(parser)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which keys are meant."""
    add = parser.add_argument
    add("pattern", nargs="?", default="*", help="such as 'order:*', after the namespace")
    add("--kind", action="append", choices=KEY_KINDS, help="may be given several times")
    add("--holder", default="*", help="a pattern, such as 'web-1:*'")
    add("--all", action="store_true", help="also fences, tags, and keys of other programs")
    add(
        "--limit",
        type=_parsed_limit,
        default=MOST_LISTED,
        help=f"stop there; 0: never; default {MOST_LISTED}",
    )
    add_show_keys(parser)


def _parsed_limit(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be a number, 0 or more, not {text!r}")
    return int(text)


def wanted_by(args: argparse.Namespace) -> Wanted:
    """Return which keys the options mean."""
    kinds = args.kind or (KEY_KINDS if args.all else usual_kinds(args.namespace))
    return Wanted(args.pattern, frozenset(kinds), args.holder, args.limit)


def usual_kinds(namespace: str) -> list[str]:
    """Return what is listed by default. Without a namespace, every other key is foreign."""
    left_out = ("history", "waiters", "fence", "tag", "items", *(() if namespace else ("foreign",)))
    return [kind for kind in KEY_KINDS if kind not in left_out]


def ls(args: argparse.Namespace) -> int:
    """List. Returns 0, or 3: a node of the cluster did not answer."""
    terminal = default_terminal()
    output = (JsonOutput if args.json else TableOutput)(terminal, whole=args.show_keys)
    wanted, write = wanted_by(args), output.write if _is_streamed(args) else None
    with connected(args) as dibs:
        look = inspector(dibs)
        listing = read(look, wanted, write, terminal.progress)
        is_empty = not listing.kinds and not listing.left_out and not listing.unreachable
        if is_empty and args.pattern != "*":
            listing.elsewhere = _other_namespaces(look, args.pattern)
    rest = list(listing.entries.values())
    listing.heads = [] if args.namespace else _common_beginnings(rest)
    output.end(_sorted_by(args, rest) if listing.is_sorted else rest, listing)
    return 3 if listing.unreachable else 0


def _other_namespaces(look: "Inspector", pattern: str) -> list[str]:
    """Return namespaces in which *pattern* has keys: what stands before its fixed beginning."""
    head = re.split(r"[*?\[\\]", pattern)[0]
    keys = look.anywhere(f"*{pattern}") if head else []
    prefixes = [each.partition(head)[0] for each in keys]
    return [each for each, _ in Counter(filter(None, prefixes)).most_common(3)]


def _common_beginnings(entries: list[KeyInfo]) -> list[str]:
    """Return how keys with two colons begin, the most frequent first."""
    parts = [entry.key.split(":", 2) for entry in entries if entry.kind in _NAMED]
    heads = Counter([f"{each[0]}:" for each in parts if len(each) == 3])
    return [head for head, _ in heads.most_common(2)]


def _is_streamed(args: argparse.Namespace) -> bool:
    """Return whether entries are printed as they are read.

    All are wanted, and in no particular order.
    """
    return not args.limit and args.sort is None and not args.reverse


def _sorted_by(args: argparse.Namespace, entries: list[KeyInfo]) -> list[KeyInfo]:
    return ordered(entries, args.sort or "left", reverse=args.reverse)


def ordered(entries: list[KeyInfo], by: str, *, reverse: bool = False) -> list[KeyInfo]:
    """Sorted; equal ones by their keys."""
    return sorted(
        sorted(entries, key=_ORDER["key"], reverse=reverse), key=_ORDER[by], reverse=reverse
    )


class JsonOutput:
    """The listing as one JSON object on one line, written piece by piece."""

    def __init__(self, terminal: Terminal, *, whole: bool) -> None:
        self._terminal = terminal
        self._whole = whole
        self._before = '{"entries": ['

    def write(self, entries: list[KeyInfo]) -> None:
        """Some of the entries."""
        for entry in entries:
            text = as_json(as_object(entry, whole=self._whole))
            self._terminal.out.write(self._before + text)
            self._before = ", "

    def end(self, entries: list[KeyInfo], listing: Listing) -> None:
        """The last entries, and what is to be said about all."""
        self.write(entries)
        unreachable = [{"node": node, "why": why} for node, why in listing.unreachable]
        rest = {
            "complete": listing.is_whole, "left_out": dict(listing.left_out),
            "unreachable": unreachable,
        }  # fmt: skip
        begin = "" if self._before == ", " else self._before
        self._terminal.line(f"{begin}], {as_json(rest)[1:]}")


class TableOutput:
    """The listing as a table, and remarks below it."""

    def __init__(self, terminal: Terminal, *, whole: bool) -> None:
        self._terminal = terminal
        self._whole = whole
        self._plain = LongTable(HEADINGS)

    def write(self, entries: list[KeyInfo]) -> None:
        """Some of the rows; on a terminal with separate headings."""
        if self._terminal.console is not None:
            self._print_entries(entries)
            return
        for line in self._plain.lines([row(entry, whole=self._whole) for entry in entries]):
            self._terminal.line(line)

    def end(self, entries: list[KeyInfo], listing: Listing) -> None:
        """The last rows, and what is to be said about all."""
        if entries:
            (self._print_entries if listing.is_sorted else self.write)(entries)
        if self._terminal.is_terminal:
            self._terminal.say("")
        for line in remarks(listing, whole=self._whole):
            self._terminal.say(line)

    def _print_entries(self, entries: list[KeyInfo]) -> None:
        rows = [row(entry, whole=self._whole) for entry in entries]
        styles = [_style_of(entry) for entry in entries]
        self._terminal.table(HEADINGS, rows, styles)


_ENDS_SOON = 10.0


def _style_of(entry: KeyInfo) -> str:
    if is_stuck(entry):
        return "warning"
    return "ending" if (entry.remaining or math.inf) < _ENDS_SOON else ""


def remarks(listing: Listing, *, whole: bool) -> list[str]:
    """Return what is to be said below the table."""
    kinds = listing.kinds
    listed = ", ".join(_number_of(kind, number) for kind, number in kinds.most_common())
    total = counted(kinds.total(), "key")
    lines = [f"{total}: {listed}" if kinds else "nothing is held here"]
    lines += dict.fromkeys([_such_keys(each, whole=whole) for each in listing.elsewhere])
    if not listing.is_complete:
        lines.append(f"Stopped after {total}; there may be more: --limit 0 lists all.")
    if not listing.is_sorted:
        lines.append(f"More than {MOST_LISTED} keys are not sorted, unless --sort says how.")
    if listing.left_out:
        left = ", ".join(_number_of(*each) for each in listing.left_out.most_common())
        lines.append(f"Not shown: {left} ({listing.options}).")
    for head in listing.heads:
        option = f"--namespace {shlex.quote(printable(head))}"
        lines.append(f"If {printable(head)} is a namespace: {option} shows what is in it.")
    if kinds and not whole:
        lines.append("Keys are shortened, because they may be personal; --show-keys shows them.")
    return [*lines, *missing(listing)]


def _such_keys(namespace: str, *, whole: bool) -> str:
    head, colon, rest = namespace.partition(":")
    if rest and not whole:
        return f"There are such keys behind {printable(head)}{colon}…; --show-keys shows it."
    return f"There are such keys with --namespace {shlex.quote(printable(namespace))}."


def _number_of(kind: str, number: int) -> str:
    return f"{number} with permits" if kind == "permits" else f"{number} {kind}"


def missing(listing: Listing) -> list[str]:
    """Return which nodes did not answer, and why."""
    return [f"MISSING: the keys of {node}: {printable(why)}" for node, why in listing.unreachable]
