"""`dibs peek`: who holds a key, and what it is."""

import argparse

from .._interface import printable
from .._wording import as_object, facts, is_new_schedule, meaning
from .connecting import add_key, connected, find_key
from .terminal import default_terminal
from .why import elsewhere, not_here, nowhere


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    add_key(parser)


def run(args: argparse.Namespace) -> int:
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
        terminal.line(not_here(args, others))
    elif entry is None:
        terminal.line(nowhere(args))
    else:
        terminal.title(printable(entry.key if args.show_keys else args.key))
        terminal.facts(facts(entry, whole=args.show_keys))
        terminal.line(meaning(entry))
    return 1 if entry is None or is_new_schedule(entry) else 0
