"""`dibs release`: free a key that is stuck."""

import argparse
from collections.abc import Sequence

from .._interface import KeyInfo, ReleaseOutcome, inspector, printable
from .._wording import Facts, facts, risk
from ..errors import UsageError
from .connecting import add_server, connected, find_key
from .terminal import Terminal, can_ask, default_terminal
from .why import elsewhere, not_here

_SAID: dict[ReleaseOutcome, str] = {
    "released": "released",
    "free": "it was free already; nothing was changed",
    "other": "it has another holder by now, or was completed; nothing was changed",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.add_argument("key", help="whole, or as `dibs ls` shortens it")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--token", help="free it if this token holds it: lease.token, detach()")
    how.add_argument("--force", action="store_true", help="free it, whichever process holds it")
    parser.add_argument(
        "--seen", metavar="HINT", help="with --force: only the holding with this token hint"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
    add_server(parser)


def run(args: argparse.Namespace) -> int:
    """Free a key. Returns 0, or 1: it was not released."""
    terminal = default_terminal()
    check(args)
    with connected(args) as dibs:
        key, entry = find_key(dibs, args.key)
        if entry is None:
            return _report(terminal, args, "free", elsewhere(dibs, args.namespace, args.key))
        look = inspector(dibs)
        if entry.token_hint is None and not entry.permits:
            look.release_whatever(key, "")  # UsageError: it is never held
        seen = None if args.token is not None else chosen(entry, args.seen)
        if not args.yes and not _agrees(terminal, args.key, entry):
            terminal.say("nothing was changed")
            return 1
        if seen is None:
            return _report(terminal, args, look.release(key, str(args.token)))
        return _report(terminal, args, look.release_whatever(key, seen))


def check(args: argparse.Namespace) -> None:
    """UsageError: there is no terminal to ask at, or the options do not go together."""
    if args.seen is not None and not args.force:
        raise UsageError("--seen goes with --force")
    if not args.yes and not can_ask():
        raise UsageError("there is no terminal to ask on: pass --yes")


def chosen(entry: KeyInfo, seen: str | None) -> str:
    """The hint of the holding that is to be freed. UsageError: it is not clear which one."""
    if seen is not None:
        return seen
    if entry.kind != "permits":
        return entry.token_hint or ""
    if entry.taken != 1:
        message = "several hold this key; choose one by --seen"
        hints = "".join(f"\n  --seen {each.token_hint}  {each.holder}" for each in entry.permits)
        raise UsageError(f"{message}:{hints}")
    return entry.permits[0].token_hint or ""


def _agrees(terminal: Terminal, typed: str, entry: KeyInfo) -> bool:
    terminal.say(printable(typed))
    for name, value in facts(entry, whole=False):
        terminal.say(f"  {name:<10}  {value}")
    terminal.say(risk(entry))
    return terminal.confirm("Release it?")


def _report(
    terminal: Terminal,
    args: argparse.Namespace,
    outcome: ReleaseOutcome,
    others: Sequence[Facts] = (),
) -> int:
    if args.json:
        terminal.json({"released": outcome == "released", "outcome": outcome})
    elif others:
        terminal.line(not_here(args, others))
    else:
        terminal.line(f"{printable(args.key)}: {_SAID[outcome]}")
    return 0 if outcome == "released" else 1
