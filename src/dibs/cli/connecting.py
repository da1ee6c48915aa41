"""From the options of a command to a client of the server."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from .. import Dibs
from .._internal_api import KeyInfo, exactly, inspector, is_shortened, shorten
from ..errors import Unavailable, UsageError

if TYPE_CHECKING:
    from .._internal_api import Inspector

C = TypeVar("C")

NO_SERVER = "no server: pass --url redis://HOST:PORT, or set DIBS_URL"


def add_server(parser: argparse.ArgumentParser, *, json: bool = True) -> None:
    """Add the options that every command has. *json*: it prints something."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--url",
        default=os.environ.get("DIBS_URL"),
        help="target, as for Dibs(…): redis:// rediss:// unix:// redis+sentinel:// "
        "redis+cluster:// …; default: DIBS_URL",
    )
    group.add_argument(
        "--namespace",
        default=os.environ.get("DIBS_NAMESPACE", ""),
        help="namespace of the application; default: DIBS_NAMESPACE, or none",
    )
    group.add_argument(
        "--budget", type=float, default=2.0, help="seconds that the server may be silent; default 2"
    )
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON, see the documentation")


def add_key(parser: argparse.ArgumentParser, where: str = "") -> None:
    """Add the options of a command that shows one key."""
    parser.add_argument("key", help=f"whole, or as `dibs ls` shortens it{where}")
    add_show_keys(parser)
    add_server(parser)


def add_show_keys(parser: argparse.ArgumentParser) -> None:
    """Add the option that shows what may be personal: by default, a person at a terminal sees it.

    What is written into a file or another program may be kept, and read by others.
    """
    parser.add_argument(
        "--show-keys",
        action=argparse.BooleanOptionalAction,
        default=sys.stdout.isatty(),
        help="whole keys and notes, which may be personal; default: on a terminal",
    )


@contextmanager
def connected(args: argparse.Namespace) -> Generator[Dibs]:
    """Yield a client, closed at the end. Raises UsageError if there is no server in the options."""
    with client(Dibs, args) as dibs:
        yield dibs


def client(make: Callable[..., C], args: argparse.Namespace) -> C:
    """Return a `Dibs` or `AsyncDibs`. Raises UsageError if there is no server in the options."""
    if not args.url:
        raise UsageError(NO_SERVER)
    # The command itself reports errors; and it must work where DIBS_DISABLED is set.
    logging.getLogger("dibs").addHandler(logging.NullHandler())
    logging.getLogger("dibs").propagate = False
    os.environ.pop("DIBS_DISABLED", None)
    return make(
        args.url,
        namespace=args.namespace,
        budget=args.budget,
        on_outage="closed",
        connect=max(5.0, args.budget),
    )


def find_key(dibs: Dibs, typed: str) -> tuple[str, KeyInfo | None]:
    """The key that a person typed, whole or shortened, and what it is; None: it is not there.

    UsageError: several keys are shortened alike, or it has bytes that are no text. Unavailable: it
    may be on a node that is silent.
    """
    look = inspector(dibs)
    entry = look.entry(typed)
    if entry is not None or not is_shortened(typed):
        return typed, entry
    keys = {each.key for each in _matching_entries(look, typed)}
    if len(keys) > 1:
        raise UsageError(f"{len(keys)} keys are shortened to {typed}; pass the whole key")
    for key in keys:
        entry = look.entry(key)
        if entry is None and "\\x" in key:
            raise UsageError(f"the key of {typed} is not text, so it is none of dibs")
        return key, entry
    return typed, None


def _matching_entries(look: "Inspector", typed: str) -> Iterator[KeyInfo]:
    head, colon, _ = typed.rpartition(":")
    for page in look.pages(exactly(f"{head}{colon}") + "*"):
        if page.unreachable is not None:
            raise Unavailable(page.why, page.unreachable)
        yield from [entry for entry in page.entries if shorten(entry.key) == typed]
