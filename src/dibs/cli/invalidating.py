"""`dibs invalidate`: delete a cached value, or all values with a tag."""

import argparse

from .. import Dibs
from ..errors import UsageError
from .connecting import add_server, connected, find
from .terminal import default_terminal
from .text import printable


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
        deleted = {key: _delete(dibs, key, args.lock_key) for key in args.keys}
        for tag in args.tag:
            dibs.invalidate_tag(tag)
    if args.json:
        terminal.json({"deleted": deleted, "tags": args.tag})
        return 0 if all(deleted.values()) else 1
    for key, was_there in deleted.items():
        said = "deleted; the next reader loads it" if was_there else "there was no value"
        terminal.line(f"{printable(key)}: {said}")
    for tag in args.tag:
        terminal.line(f"tag {printable(tag)}: all values with it are outdated from now on")
    return 0 if all(deleted.values()) else 1


def _delete(dibs: Dibs, typed: str, lock_key: str | None) -> bool:
    """True: there was a value. UsageError: the key is held, or another program's."""
    key, entry = find(dibs, typed)
    if entry is not None and entry.kind != "cached":
        raise UsageError(f"{printable(typed)} is no cached value but: {entry.kind}; see dibs peek")
    dibs.invalidate(key, lock_key=lock_key)
    return entry is not None
