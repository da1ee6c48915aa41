"""`dibs run`: a program that runs while this process holds a key."""

import argparse
import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Protocol, cast

from .. import AsyncDibs, Busy, Duplicate, LeaseLost, Unavailable
from .._internal_api import ended_with_parent, printable
from .._process_state import process_name
from ..errors import duration_text
from .command_tree import KILL_ALL, can_own_tree, command_tree
from .connecting import add_server, client
from .terminal import default_terminal

UNAVAILABLE, LOST, BUSY, NOT_EXECUTABLE, NOT_FOUND = 69, 70, 75, 126, 127
_UNITS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LOOK_EVERY = 0.2
"""Seconds between two looks at the lease; it does not cost a request."""
_TRY_EVERY = 1.0
"""Seconds between two tries while the server is unavailable."""
_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_OF_TERMINAL = ("SIGINT", "SIGQUIT")
"""What a terminal sends to the program as well."""


class Held(Protocol):
    """A lease or a claim."""

    @property
    def lost(self) -> bool:
        """Return True if another process may have the key."""
        ...


def run_arguments(parser: argparse.ArgumentParser) -> None:
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
        help="from SIGTERM to SIGKILL, if it is lost, and for what COMMAND leaves behind (10)",
    )
    add("--leave", action="store_true", help="do not end what COMMAND leaves behind")
    add_server(parser, json=False)


def parse_duration(text: str) -> float:
    """Return the seconds from `90`, `90s`, `5m`, `20h` or `7d`.

    Raises ArgumentTypeError if it is none of them.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|[smhd]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"not a time: {text!r}; write 90, 90s, 5m, 20h or 7d")
    return float(match[1]) * _UNITS[match[2]]


def run(args: argparse.Namespace) -> int:
    """Run the program. Returns its exit code, or one of those in the help."""
    if os.name != "posix":
        return _say_and_exit(args, "signals and process ids are needed: use Linux, macOS or WSL", 2)
    name, *arguments = cast("list[str]", args.program)
    program = shutil.which(name)
    if program is None and os.path.dirname(name) and os.path.exists(name):
        return _say_and_exit(args, f"{name}: cannot be executed", NOT_EXECUTABLE)
    if program is None:
        return _say_and_exit(args, f"{name}: command not found", NOT_FOUND)
    # In a task: a signal cancels it where that leaves no key behind. A handler that raises in a
    # thread can do so between the server's grant and the block that releases it.
    return asyncio.run(_Run(args, [program, *arguments]).code())


def _say_and_exit(args: argparse.Namespace, text: str, code: int) -> int:
    default_terminal().say(f"dibs run {printable(args.key)}: {text}")
    return code


class _Run:
    """One call of the command."""

    def __init__(self, args: argparse.Namespace, command: list[str]) -> None:
        self._args = args
        self._command = command
        self._program: _Program | None = None
        self._signal: int | None = None
        """The one that came before there was a child."""

    async def code(self) -> int:
        """Return the exit code."""
        args = self._args
        held_elsewhere = 0 if args.skip else BUSY
        try:
            # Signals first: from here on none of them ends this process with the key taken.
            self._hear_signals()
            async with client(AsyncDibs, args) as dibs:
                work = self._run_alone if args.once is None else self._run_once
                code = await self._work_within_wait(lambda wait: work(dibs, wait))
        except Busy as busy:
            return _say_and_exit(args, f"{busy.holder or 'another program'} has it", held_elsewhere)
        except Duplicate as duplicate:
            if duplicate.state == "running":
                return _say_and_exit(args, "it is running elsewhere", held_elsewhere)
            by = f" by {printable(duplicate.note)}" if duplicate.note else ""
            again = duration_text(duplicate.retry_after)
            return _say_and_exit(args, f"it was done{by}; again in {again}", 0)
        except Unavailable as error:
            return _say_and_exit(args, f"not run: {error}", UNAVAILABLE)
        except asyncio.CancelledError:
            if self._signal is None:
                raise
            return 128 + self._signal
        if code is None:
            return _say_and_exit(args, "the lease was lost, so the command was ended", LOST)
        return 128 - code if code < 0 else code

    # ---- the key

    async def _work_within_wait(self, work: Callable[[float], Awaitable[int | None]]) -> int | None:
        """Do *work*, with what is left of the wait. A server that is unavailable is waited for."""
        until, has_said = monotonic() + self._args.wait, False
        while True:
            try:
                return await work(max(until - monotonic(), 0.0))
            except Unavailable as error:
                if self._program is not None or monotonic() >= until:
                    raise
                if not has_said:
                    _say_and_exit(self._args, f"waiting for the server: {error}", 0)
                has_said = True
            await asyncio.sleep(min(_TRY_EVERY, max(until - monotonic(), 0.0)))

    async def _run_alone(self, dibs: AsyncDibs, wait: float) -> int | None:
        args = self._args
        try:
            async with dibs.hold(args.key, ttl=args.ttl, wait=wait, renew=True) as lease:
                return await self._execute_program(lease)
        except LeaseLost:
            return None

    async def _run_once(self, dibs: AsyncDibs, wait: float) -> int | None:
        args = self._args
        async with dibs.claim(
            args.key, window=args.once, after="hold", lease=args.ttl, wait=wait
        ) as claim:
            code = await self._execute_program(claim)
            if code != 0:
                claim.release()
                return code
            await claim.set_note(f"{process_name()} at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
            if not await claim.finish():
                _say_and_exit(args, "it succeeded, but is not recorded: it may run again", code)
            return code

    # ---- the program

    async def _execute_program(self, held: Held) -> int | None:
        """Run the program to its end. None: it was ended, because the lease was lost."""
        if self._signal is not None:
            raise asyncio.CancelledError
        self._program = program = _Program(self._command, self._args)
        with suppress(asyncio.CancelledError):  # by dibs, when the lease is lost
            while not held.lost and not program.end.done():
                await asyncio.wait([program.end], timeout=_LOOK_EVERY)
        if program.end.done():
            return program.end.result()
        program.send_signal(signal.SIGTERM)
        await asyncio.wait([program.end], timeout=self._args.grace)
        program.kill()
        await program.end
        return None

    # ---- signals

    def _hear_signals(self) -> None:
        """They go to the program; before it runs, they end this command without it."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def hear(number: int) -> None:
            if self._program is not None:
                self._program.pass_on(number)
            elif self._signal is None:
                self._signal = number
                task.cancel()

        known = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
        for number in known:
            # What is ignored, as SIGHUP with nohup, stays so: the program inherits it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, hear, number)


class _Program:
    """The command and, on Linux, every process that it has started."""

    def __init__(self, command: list[str], args: argparse.Namespace) -> None:
        """Start *command*. Nothing is awaited: no signal comes between this and its first use."""
        self._has_tree = can_own_tree() and not args.leave
        self._command_id: int | None = None
        self._unsent: list[int] = []
        """Signals that came before the id of the command was known."""
        if not self._has_tree:
            self._process = subprocess.Popen(ended_with_parent(command))
            self._command_id = self._process.pid
            self.end = asyncio.ensure_future(asyncio.to_thread(self._process.wait))
            return
        reader, writer = os.pipe()
        program = command_tree(command, writer, args.grace)
        self._process = subprocess.Popen(program, pass_fds=[writer])
        os.close(writer)
        self.end = asyncio.ensure_future(self._follow_reports(reader))
        """Done with the exit code when the command has ended, and all that it has started."""

    async def _follow_reports(self, reports: int) -> int:
        """Read the reports of the process that owns the tree, until it ends."""
        stream = asyncio.StreamReader()
        with os.fdopen(reports, "rb") as file:
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stream), file
            )
            first = await stream.readline()
            if first:
                self._command_id = int(first)
                for number in self._unsent:
                    self.send_signal(number)
            second = await stream.readline()
            self._command_id = None
        code = await asyncio.to_thread(self._process.wait)
        return int(second) if second else code

    def pass_on(self, number: int) -> None:
        """Send a signal that this process has got, unless a terminal has sent it to both."""
        if not (signal.Signals(number).name in _OF_TERMINAL and _is_in_foreground()):
            self.send_signal(number)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command; what it has started hears of it from the command."""
        if self._command_id is not None:
            with suppress(ProcessLookupError):
                os.kill(self._command_id, number)
        else:
            self._unsent.append(number)

    def kill(self) -> None:
        """Kill the command, and all that it has started."""
        self._process.send_signal(KILL_ALL if self._has_tree else signal.SIGKILL)


def _is_in_foreground() -> bool:
    """Return True if a terminal sends its signals to this process and to the program alike."""
    with suppress(OSError):
        return os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else 0) == os.getpgrp()
    return False
