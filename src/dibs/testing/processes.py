"""Processes that belong to the test run: they can be frozen, and none outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping
from typing import IO, Any


class Process:
    """A process in a session of its own, so that Ctrl-C is ours to handle and a kill reaches all.

    Starting a process that ends at once is no error here; `alive` and `code` tell.
    """

    def __init__(
        self,
        command: list[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.DEVNULL,
        stderr: int | IO[Any] = subprocess.STDOUT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._frozen = False
        self.popen = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
            text=True,
        )
        self.pid = self.popen.pid

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.popen.poll()

    def freeze(self) -> None:
        """Stop it where it stands; when this returns, it does nothing any more."""
        if self._frozen or self.code is not None:
            return
        self._frozen = True
        self.popen.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):  # it ended first, and we have just reaped it
            self.popen.returncode = os.waitstatus_to_exitcode(status)

    def thaw(self) -> None:
        """Let it go on."""
        self._frozen = False
        self.popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it and its children at once, frozen or not; harmless if it has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()
        self._frozen = False


def die_with_parent() -> str:
    """Return Python source that a new child runs first, so that it is killed when we die.

    On Linux the kernel does it. It looks at the *thread* that started the child, so a child of any
    thread but the main one is not armed: it would die with that thread. (`preexec_fn` could do this
    too, but forks: not safe beside the threads of a proxy, and a warning since Python 3.12.)
    """
    armed = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
    arm = f"ctypes.CDLL(None).prctl(1, {signal.SIGKILL:d}, 0, 0, 0)" if armed else ""
    return textwrap.dedent(f"""
        import ctypes, os, sys
        {arm}
        if os.getppid() != {os.getpid()}:
            os._exit(1)
        """)


def dying_with_us(command: list[str]) -> list[str]:
    """Return a command that turns into the given one, armed to be killed when we die."""
    become = "os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-I", "-S", "-c", die_with_parent() + become, *command]
