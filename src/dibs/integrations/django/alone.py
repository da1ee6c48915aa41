"""Management commands of which one runs at a time, in all processes on all machines.

    class Command(Alone, BaseCommand):      # before BaseCommand
        alone_wait = 300                    # seconds to wait for the one that runs elsewhere

`python manage.py alone migrate` is the same for any other command. The settings are those of
`dibs.integrations.django`. Exit codes, beside those of the command itself:

    0   done; or, with `alone_skip`, another process is doing it
    69  nothing was run: Redis is unavailable
    70  stopped: the lease was lost, so another process may be running it
    75  nothing was run: another process is doing it, and did not end in time
    143 ended by SIGTERM; the key is free
"""

# pyright: basic
# Django has no types.

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from ... import Busy, Dibs, Lease, LeaseLost, Unavailable, UsageError
from ..._interface import Signal, start_thread
from . import make_dibs

__all__ = ["Alone"]

UNAVAILABLE, LOST, BUSY = 69, 70, 75
_log = logging.getLogger("dibs")


class Alone:
    """A mixin for commands that must not run twice at once. List it before `BaseCommand`.

    The lease is renewed for as long as the command runs. If it is lost all the same, the command is
    interrupted in its main thread; one that does not end within `alone_grace` seconds is ended with
    its process, if it was called from the command line.
    """

    alone_key: str | None = None
    """The key. None: `alone:<DIBS_SERVICE or ROOT_URLCONF>:<name of the command>`."""
    alone_ttl: float = 60
    """How long a crash keeps others from running it, in seconds; an outage that is longer than that
    stops the command."""
    alone_wait: float = 0
    """How long to wait for the one that runs, in seconds."""
    alone_skip: bool = False
    """True: if it runs elsewhere after that time, end well without running it."""
    alone_on_outage: Any = "closed"
    """What an outage of Redis means: "closed" runs nothing, "open" runs it unguarded."""
    alone_grace: float = 10
    """How long a command may take to end after it was interrupted, in seconds."""

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command once it is alone.

        Raises:
            CommandError: See the exit codes of this module.
        """
        name = type(self).__module__.rpartition(".")[2]
        with taking_turns(self, self.alone_key or key_of(name), name) as is_granted:
            return super().execute(*args, **options) if is_granted else None  # type: ignore[misc]


def key_of(command: str) -> str:
    """The key of a command. Services that share a Redis have different ones."""
    service = getattr(settings, "DIBS_SERVICE", None) or settings.ROOT_URLCONF
    return f"alone:{service}:{command}"


@contextlib.contextmanager
def taking_turns(command: Any, key: str, name: str) -> Iterator[bool]:
    """Whether *command* may run: alone, until the block ends. False: it is skipped."""
    with _reporting(key, name), contextlib.ExitStack() as stack:
        lease = _lease_for(stack, command, key, name)
        if lease is not None:
            _say_if_unguarded(command, name, lease)
            stack.enter_context(_Interrupting(lease, command))
            stack.enter_context(_ending_at_sigterm())
        yield lease is not None


@contextlib.contextmanager
def _reporting(key: str, name: str) -> Iterator[None]:
    """CommandError: the lease on *key* was lost."""
    try:
        yield
    except (LeaseLost, _Interrupt) as error:
        if isinstance(error, LeaseLost) and error.key != key:
            raise  # a lease of the command's own
        message = f"{name} was stopped: its lease was lost, and another process may be running it"
        _log.error(message)
        raise CommandError(message, returncode=LOST) from error


def _lease_for(stack: contextlib.ExitStack, command: Any, key: str, name: str) -> Lease | None:
    """The lease; None: it is skipped. CommandError: nothing may be run."""
    try:
        return _taken(stack.enter_context(make_dibs(Dibs)), stack, command, key, name)
    except UsageError as error:
        raise CommandError(str(error)) from error
    except Unavailable as error:
        message = f"{name} was not run: Redis is unavailable, so it may be running elsewhere"
        raise CommandError(f"{message} ({error})", returncode=UNAVAILABLE) from error


def _taken(
    dibs: Dibs, stack: contextlib.ExitStack, command: Any, key: str, name: str
) -> Lease | None:
    """The lease; None: it is skipped. CommandError: it runs elsewhere."""

    def hold(wait: float) -> Lease:
        hold = dibs.hold(
            key, ttl=command.alone_ttl, wait=wait, renew=True, on_late="raise",
            on_outage=command.alone_on_outage, name="alone:{command}",
        )  # fmt: skip
        return stack.enter_context(hold)

    try:
        return hold(0)
    except Busy as busy:
        elsewhere = f"{name} is running elsewhere ({busy.holder or 'unknown'})"
    if command.alone_wait:
        command.stderr.write(f"{elsewhere}; waiting for up to {command.alone_wait:g} s")
        with contextlib.suppress(Busy):
            return hold(command.alone_wait)
    if not command.alone_skip:
        raise CommandError(f"{elsewhere}, and was not run here", returncode=BUSY)
    command.stdout.write(f"{elsewhere}: skipped")
    return None


def _say_if_unguarded(command: Any, name: str, lease: Lease) -> None:
    if not lease.guarded:
        message = "Redis is unavailable or dibs is disabled"
        command.stderr.write(f"{message}: {name} runs, and others may run it too")


# ---- stopping what runs


@contextlib.contextmanager
def _ending_at_sigterm() -> Iterator[None]:
    """SIGTERM ends the block, so that its key is free; a second one ends the process at once.

    Only where it would have ended the process anyway.
    """
    is_main = threading.current_thread() is threading.main_thread()
    is_ours = is_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


class _Interrupt(BaseException):
    """The lease was lost. Not an Exception, so that commands do not take it for one of theirs."""


class _Interrupting:
    """Interrupts the main thread when *lease* is lost; SIGINT goes on to mean what it meant.

    In another thread nothing can be interrupted: there the loss is reported at the end.
    """

    def __init__(self, lease: Lease, command: Any) -> None:
        self._lease = lease
        self._grace = command.alone_grace
        self._ends_process = getattr(command, "_called_from_command_line", False)
        self._over = Signal()
        self._is_sent = self._is_raised = False
        self._before: Any = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
            self._thread = start_thread(self._watch, "dibs alone")

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            return
        self._end(self._thread)
        signal.signal(signal.SIGINT, self._before)

    def _end(self, thread: threading.Thread) -> None:
        while True:
            try:
                self._over.set()
                thread.join()  # it sends nothing from now on
                time.sleep(0)  # what it has sent arrives here at the latest
            except _Interrupt:
                continue
            return

    def _watch(self) -> None:
        while not self._lease.lost:
            if self._over.wait(min(max(self._lease.remaining, 0.02), 1.0)):
                return
        self._is_sent = True
        self._send()
        if not self._over.wait(self._grace) and self._ends_process:
            _log.critical("a command did not end %g s after its lease was lost", self._grace)
            os._exit(LOST)

    def _send(self) -> None:
        if hasattr(signal, "pthread_kill"):  # it also ends a system call that waits
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    def _handle(self, number: int, frame: Any) -> None:
        if self._is_sent and not self._is_raised:
            self._is_raised = True
            raise _Interrupt
        before: Callable[[int, Any], Any] | Any = self._before
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.default_int_handler(number, frame)
