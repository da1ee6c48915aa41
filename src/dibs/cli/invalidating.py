"""`dibs invalidate`: delete a cached value, or all values with a tag."""

import argparse

from .. import Dibs
from .._interface import printable
from ..errors import UsageError
from .connecting import add_server, connected, find_key
from .terminal import default_terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.add_argument("keys", nargs="*", metavar="KEY", help="whole, or shortened as by `ls`")
    parser.add_argument("--tag", action="append", default=[], help="may be given several times")
    parser.add_argument("--lock-key", help="that of the function, if it has one (lock_key=)")
    add_server(parser)


def run(args: argparse.Namespace) -> int:
    """Delete. Returns 0, or 1: one of the keys had no value."""
    if not args.keys and not args.tag:
        raise UsageError("say which: a KEY, or --tag TAG")
    if args.lock_key is not None and len(args.keys) != 1:
        raise UsageError("--lock-key goes with one KEY")
    terminal = default_terminal()
    with connected(args) as dibs:
        values = {typed: _find_value(dibs, typed) for typed in args.keys}
        for typed, (key, was_there) in values.items():
            dibs.invalidate(key, lock_key=args.lock_key)
            if not args.json:
                terminal.line(f"{printable(typed)}: {_SAID[was_there]}")
        for tag in args.tag:
            dibs.invalidate_tag(tag)
            if not args.json:
                terminal.line(f"tag {printable(tag)}: all values with it are outdated from now on")
    deleted = {typed: was_there for typed, (_, was_there) in values.items()}
    if args.json:
        terminal.json({"deleted": deleted, "tags": args.tag})
    return 0 if all(deleted.values()) else 1


_SAID = {True: "deleted; the next reader loads it", False: "there was no value"}


def _find_value(dibs: Dibs, typed: str) -> tuple[str, bool]:
    """The whole key, and whether it has a value. UsageError: it is held, or another program's."""
    key, entry = find_key(dibs, typed)
    if entry is not None and entry.kind != "cached":
        message = f"{printable(typed)} is not a cached value"
        raise UsageError(f"{message}, but of the kind {entry.kind!r}; see dibs peek")
    return key, entry is not None
