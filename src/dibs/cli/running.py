"""`dibs run`: a program that runs while this process holds a key."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, Protocol, cast

from .. import Busy, Dibs, Duplicate, Unavailable
from .._interface import ended_with_parent, printable
from .connecting import add_server, connected
from .terminal import default_terminal

UNAVAILABLE, LOST, BUSY, NOT_FOUND = 69, 70, 75, 127
_UNITS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LOOK_EVERY = 0.2
"""Seconds between two looks at the lease; it does not cost a request."""
_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_OF_TERMINAL = ("SIGINT", "SIGQUIT")
"""What a terminal sends to the program as well."""


class Held(Protocol):
    """A lease or a claim."""

    @property
    def lost(self) -> bool:
        """True: another process may have the key."""
        ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.usage = "dibs run KEY [--ttl S] [--wait S | --skip] [--once S] -- COMMAND ..."
    parser.epilog = (
        "Times are seconds, or like 90s, 5m, 20h, 7d. Exit codes: that of COMMAND, 128 + n if "
        "signal n ended it; 75 another process has the key; 0 the same with --skip, or it was done "
        "within --once; 69 the server is unavailable, nothing was run; 70 the lease was lost, "
        "COMMAND was ended; 126, 127 COMMAND cannot be run."
    )
    add = parser.add_argument
    add("key", help="what is held while COMMAND runs")
    add("program", nargs="+", metavar="COMMAND", help="behind --, with its arguments")
    add("--ttl", type=parse_duration, default=60.0, help="how long a crash keeps the key (60)")
    patience = parser.add_mutually_exclusive_group()
    patience.add_argument(
        "--wait", type=parse_duration, default=0.0, help="how long to wait for the key"
    )
    patience.add_argument("--skip", action="store_true", help="exit with 0 if the key is taken")
    add("--once", type=parse_duration, metavar="TIME", help="not again within TIME after a success")
    add(
        "--grace",
        type=parse_duration,
        default=10.0,
        help="from SIGTERM to SIGKILL, if it is lost (10)",
    )
    add_server(parser, json=False)


def parse_duration(text: str) -> float:
    """Seconds from `90`, `90s`, `5m`, `20h` or `7d`. ArgumentTypeError: it is none of them."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|[smhd]?)", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"not a time: {text!r}; write 90, 90s, 5m, 20h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def run(args: argparse.Namespace) -> int:
    """Run the program. Returns its exit code, or one of those in the help."""
    name, *arguments = cast("list[str]", args.program)
    program = shutil.which(name)
    if program is None:
        return _say(args, f"{name}: command not found", NOT_FOUND)
    command = [program, *arguments]
    try:
        with connected(args) as dibs:
            work = _once if args.once is not None else _alone
            return work(dibs, args, command)
    except Busy as busy:
        return _say(args, f"{busy.holder or 'another program'} has it", 0 if args.skip else BUSY)
    except Duplicate as duplicate:
        if duplicate.state == "done":
            return _say(args, f"it was done; not again for {duplicate.retry_after:.0f} s", 0)
        return _say(args, "it is running elsewhere", 0 if args.skip else BUSY)
    except Unavailable as error:
        return _say(args, f"not run: {error}", UNAVAILABLE)


def _alone(dibs: Dibs, args: argparse.Namespace, command: list[str]) -> int:
    with dibs.hold(args.key, ttl=args.ttl, wait=args.wait, renew=True) as lease:
        return _run(args, command, lease)


def _once(dibs: Dibs, args: argparse.Namespace, command: list[str]) -> int:
    with dibs.claim(
        args.key, window=args.once, after="hold", lease=args.ttl, wait=args.wait
    ) as claim:
        code = _run(args, command, claim)
        if code != 0:
            claim.release()
        elif not claim.finish():
            _say(args, "it succeeded, but is not recorded: it may run again", code)
        return code


def _run(args: argparse.Namespace, command: list[str], held: Held) -> int:
    with _forwarding() as send_to:
        child = subprocess.Popen(ended_with_parent(command))
        send_to(child)
        with _ending_if_lost(child, held, args.grace) as has_lost:
            code = child.wait()
    if has_lost():
        return _say(args, "the lease was lost, so the command was ended", LOST)
    return 128 - code if code < 0 else code


def _say(args: argparse.Namespace, text: str, code: int) -> int:
    default_terminal().say(f"dibs run {printable(args.key)}: {text}")
    return code


# ---- while it runs


@contextmanager
def _forwarding() -> Generator[Callable[["subprocess.Popen[bytes]"], None]]:
    """Signals go to the program; before there is one, they end this process."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: object) -> None:
        if not children:
            _leave(number)
        if not (signal.Signals(number).name in _OF_TERMINAL and _is_in_foreground()):
            children[0].send_signal(number)

    known = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    # What is ignored, as SIGHUP with nohup, stays so: the program inherits it.
    heard = [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, forward) for number in heard}
    try:
        yield children.append
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int) -> NoReturn:
    raise SystemExit(128 + number)


def _is_in_foreground() -> bool:
    """True: a terminal sends its signals to this process and to the program alike."""
    with suppress(OSError):
        return os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else 0) == os.getpgrp()
    return False


@contextmanager
def _ending_if_lost(
    child: "subprocess.Popen[bytes]", held: Held, grace: float
) -> Generator[Callable[[], bool]]:
    """End the program when its lease is lost: by SIGTERM, and by SIGKILL if it does not end."""
    over, lost = threading.Event(), threading.Event()

    def watch() -> None:
        while not held.lost:
            if over.wait(_LOOK_EVERY):
                return
        lost.set()
        child.terminate()
        if not over.wait(grace):
            child.kill()

    thread = threading.Thread(target=watch, name="dibs run", daemon=True)
    thread.start()
    try:
        yield lost.is_set
    finally:
        over.set()
        thread.join()
