"""`dibs why`: where a key is, who has it, whether that process lives, and what can be done."""

import argparse
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import Dibs
from .._interface import exactly, inspector, is_shortened, printable
from .._process import alive
from .._wording import (
    Facts,
    Place,
    advice,
    elsewhere_line,
    found_at,
    listed,
    next_steps,
    place_of,
    reason_object,
)
from .connecting import add_key, connected, find_key
from .terminal import default_terminal

if TYPE_CHECKING:
    from .._interface import Inspector

MOST = 5
"""Keys that are shown, where several end alike."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    add_key(parser, "; in any namespace")


def run(args: argparse.Namespace) -> int:
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
            terminal.say(f"{_asked(args)}: nothing there. {elsewhere_line(each)}")
        terminal.title(printable(each.place.key if args.show_keys else args.key))
        terminal.facts(listed(each, whole=args.show_keys))
        for line in (next_steps(each), *advice(each)):
            terminal.line(line)
    if not found:
        terminal.line(nowhere(args))
    return 0 if found else 1


def nowhere(args: argparse.Namespace) -> str:
    """There is no such key, as far as was looked."""
    if is_shortened(args.key):
        return f"{_asked(args)}: nothing there; a shortened key is looked for in one namespace"
    if (pattern := re.sub(r"{[^{}]*}", "*", args.key)).endswith("*"):
        text = "this is a name from a log or a template; the keys that it stands for"
        return f"{printable(args.key)}: {text}: dibs ls {shlex.quote(printable(pattern))}"
    text = "not held; the key does not exist, in any namespace of this server"
    return f"{printable(args.key)}: {text} (`dibs ls` lists those that do)"


def not_here(args: argparse.Namespace, others: Sequence[Facts]) -> str:
    """It is not in the namespace that was named, but in that of each of *others*."""
    text = f"{printable(args.key)}: nothing in namespace {args.namespace!r}."
    return " ".join([text, *[elsewhere_line(each) for each in others]])


def _asked(args: argparse.Namespace) -> str:
    return f"{printable(args.key)} in namespace {args.namespace!r}"


def here(dibs: Dibs, namespace: str, typed: str) -> list[Facts]:
    """What *typed* is in the namespace that was named."""
    key, entry = find_key(dibs, typed)
    if entry is None:
        return []
    return [found_at(Place(namespace, key), entry, alive)]


def elsewhere(dibs: Dibs, namespace: str, typed: str) -> list[Facts]:
    """Keys of the whole server that end with *typed*, as another namespace has them."""
    if is_shortened(typed):
        return []
    look = inspector(dibs)
    places = [place_of(each, typed) for each in look.anywhere("*" + exactly(typed))]
    places.sort(key=lambda place: (place.namespace != namespace, place))
    return [each for place in places[:MOST] if (each := _facts(look, place))]


def _facts(look: "Inspector", place: Place) -> Facts | None:
    entry = look.within(place.namespace).entry(place.key)
    return entry and found_at(place, entry, alive, is_elsewhere=True)
