"""What a person does with one key: `dibs peek`, `why`, `release`, `invalidate`."""

import argparse
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from .. import Dibs
from .._internal_api import (
    QUEUE,
    KeyInfo,
    ReleaseOutcome,
    exactly,
    inspector,
    is_shortened,
    printable,
)
from .._key_texts import (
    Facts,
    Place,
    advice,
    as_object,
    elsewhere_line,
    facts,
    found_at,
    is_new_schedule,
    listed,
    meaning,
    next_steps,
    places_of,
    reason_object,
    risk,
)
from .._process_state import alive
from ..errors import UsageError
from .connecting import add_key, add_server, connected, find_key
from .terminal import Terminal, can_ask, default_terminal

if TYPE_CHECKING:
    from .._internal_api import Inspector

MOST = 5
"""Keys that are shown, where several end alike."""


# ---- dibs peek: who holds a key, and what it is


def peek_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    add_key(parser)


def peek(args: argparse.Namespace) -> int:
    """Show one key. Returns 0, or 1: there is no such key, or a schedule that has not run yet."""
    terminal = default_terminal()
    with connected(args) as dibs:
        _, entry = find_key(dibs, args.key)
        others = [] if entry is not None else elsewhere(dibs, args.namespace, args.key)
    if args.json:
        shown = None if entry is None else as_object(entry, whole=args.show_keys)
        names = [each.place.namespace for each in others]
        terminal.json({"found": entry is not None, "entry": shown, "elsewhere": names})
    elif others:
        terminal.paragraph(not_here(args, others))
    elif entry is None:
        terminal.paragraph(nowhere(args))
    else:
        terminal.title(printable(entry.key if args.show_keys else args.key))
        terminal.facts(facts(entry, whole=args.show_keys))
        terminal.paragraph(meaning(entry))
    return 1 if entry is None or is_new_schedule(entry) else 0


# ---- dibs why: where a key is, who has it, whether that process lives, and what can be done


def why_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    add_key(parser, "; in any namespace")


def why(args: argparse.Namespace) -> int:
    """Explain a key. Returns 0, or 1: it is in no namespace of this server."""
    terminal = default_terminal()
    with connected(args) as dibs:
        found = here(dibs, args.namespace, args.key) or elsewhere(dibs, args.namespace, args.key)
    if args.json:
        shown = [reason_object(each, whole=args.show_keys) for each in found]
        terminal.json({"found": bool(found), "keys": shown})
        return 0 if found else 1
    for each in found:
        if each.is_elsewhere:
            terminal.say(f"{_asked_key(args)}: nothing there. {elsewhere_line(each)}")
        terminal.title(printable(each.place.key if args.show_keys else args.key))
        terminal.facts(listed(each, whole=args.show_keys))
        for line in (next_steps(each), *advice(each)):
            terminal.paragraph(line)
    if not found:
        terminal.paragraph(nowhere(args))
    return 0 if found else 1


def nowhere(args: argparse.Namespace) -> str:
    """There is no such key, as far as was looked."""
    if is_shortened(args.key):
        return f"{_asked_key(args)}: nothing there; a shortened key is looked for in one namespace"
    if (pattern := re.sub(r"{[^{}]*}", "*", args.key)).endswith("*"):
        text = "this is a name from a log or a template; the keys that it stands for"
        return f"{printable(args.key)}: {text}: dibs ls {shlex.quote(printable(pattern))}"
    text = "not held; the key does not exist, in any namespace of this server"
    return f"{printable(args.key)}: {text} (`dibs ls` lists those that do)"


def not_here(args: argparse.Namespace, others: Sequence[Facts]) -> str:
    """It is not in the namespace that was named, but in that of each of *others*."""
    text = f"{printable(args.key)}: nothing in namespace {args.namespace!r}."
    return " ".join([text, *[elsewhere_line(each) for each in others]])


def _asked_key(args: argparse.Namespace) -> str:
    return f"{printable(args.key)} in namespace {args.namespace!r}"


def here(dibs: Dibs, namespace: str, typed: str) -> list[Facts]:
    """Return what *typed* is in the namespace that was named."""
    key, entry = find_key(dibs, typed)
    waiting = None
    with suppress(UsageError):  # it is too long for that
        waiting = inspector(dibs).entry(QUEUE + key)  # jobs, also where the key is free
    found = [(key, entry), (QUEUE + key, waiting)]
    return [found_at(Place(namespace, key), each, alive) for key, each in found if each is not None]


def elsewhere(dibs: Dibs, namespace: str, typed: str) -> list[Facts]:
    """Return the keys of the whole server that end with *typed*, as another namespace has them."""
    if is_shortened(typed):
        return []
    look = inspector(dibs)
    keys = look.anywhere("*" + exactly(typed))
    places = [place for each in keys for place in places_of(each, typed)]
    places.sort(key=lambda place: (place.namespace != namespace, place))
    return list(islice(filter(None, (_facts_of_key(look, place) for place in places)), MOST))


def _facts_of_key(look: "Inspector", place: Place) -> Facts | None:
    entry = look.within(place.namespace).entry(place.key)
    return entry and found_at(place, entry, alive, is_elsewhere=True)


# ---- dibs release: free a key that is stuck

_RELEASED: dict[ReleaseOutcome, str] = {
    "released": "released",
    "free": "it was free already; nothing was changed",
    "other": "it has another holder by now, or was completed; nothing was changed",
}


def release_arguments(parser: argparse.ArgumentParser) -> None:
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


def release(args: argparse.Namespace) -> int:
    """Free a key. Returns 0, or 1: it was not released."""
    terminal = default_terminal()
    _check_options(args)
    with connected(args) as dibs:
        key, entry = find_key(dibs, args.key)
        if entry is None:
            return _report_outcome(
                terminal, args, "free", elsewhere(dibs, args.namespace, args.key)
            )
        look = inspector(dibs)
        if entry.token_hint is None and not entry.permits:
            look.release_whatever(key, "")  # UsageError: it is never held
        seen = None if args.token is not None else _chosen_hint(entry, args.seen)
        if not args.yes and not _user_agrees(terminal, args.key, entry):
            terminal.say("nothing was changed")
            return 1
        if seen is None:
            return _report_outcome(terminal, args, look.release(key, str(args.token)))
        return _report_outcome(terminal, args, look.release_whatever(key, seen))


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError if there is no terminal to ask at, or the options do not go together."""
    if args.seen is not None and not args.force:
        raise UsageError("--seen goes with --force")
    if not args.yes and not can_ask():
        raise UsageError("there is no terminal to ask on: pass --yes")


def _chosen_hint(entry: KeyInfo, seen: str | None) -> str:
    """Return the hint of the holding that is to be freed.

    Raises UsageError if it is not clear which one.
    """
    if seen is not None:
        return seen
    if entry.kind != "permits":
        return entry.token_hint or ""
    if entry.taken != 1:
        message = "several hold this key; choose one by --seen"
        hints = "".join(f"\n  --seen {each.token_hint}  {each.holder}" for each in entry.permits)
        raise UsageError(f"{message}:{hints}")
    return entry.permits[0].token_hint or ""


def _user_agrees(terminal: Terminal, typed: str, entry: KeyInfo) -> bool:
    terminal.say(printable(typed))
    for name, value in facts(entry, whole=False):
        terminal.say(f"  {name:<10}  {value}")
    terminal.say(risk(entry))
    return terminal.confirm("Release it?")


def _report_outcome(
    terminal: Terminal,
    args: argparse.Namespace,
    outcome: ReleaseOutcome,
    others: Sequence[Facts] = (),
) -> int:
    if args.json:
        terminal.json({"released": outcome == "released", "outcome": outcome})
    elif others:
        terminal.paragraph(not_here(args, others))
    else:
        terminal.line(f"{printable(args.key)}: {_RELEASED[outcome]}")
    return 0 if outcome == "released" else 1


# ---- dibs invalidate: delete a cached value, or all values with a tag


def invalidate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.add_argument("keys", nargs="*", metavar="KEY", help="whole, or shortened as by `ls`")
    parser.add_argument("--tag", action="append", default=[], help="may be given several times")
    parser.add_argument("--lock-key", help="that of the function, if it has one (lock_key=)")
    add_server(parser)


def invalidate(args: argparse.Namespace) -> int:
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
                terminal.line(f"{printable(typed)}: {_DELETED[was_there]}")
        for tag in args.tag:
            dibs.invalidate_tag(tag)
            if not args.json:
                terminal.line(f"tag {printable(tag)}: all values with it are outdated from now on")
    deleted = {typed: was_there for typed, (_, was_there) in values.items()}
    if args.json:
        terminal.json({"deleted": deleted, "tags": args.tag})
    return 0 if all(deleted.values()) else 1


_DELETED = {True: "deleted; the next reader loads it", False: "there was no value"}


def _find_value(dibs: Dibs, typed: str) -> tuple[str, bool]:
    """Return the whole key, and whether it has a value.

    Raises UsageError if it is held, or another program's.
    """
    key, entry = find_key(dibs, typed)
    if entry is not None and entry.kind not in ("cached", "stream"):
        message = f"{printable(typed)} is not a cached value"
        raise UsageError(f"{message}, but of the kind {entry.kind!r}; see dibs peek")
    return key, entry is not None
