"""Processes of a test run: they can be frozen, and end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import IO, Any

from .._server.die_with_parent import ended_with_parent as ended_with_parent


class Process:
    """A process in a session of its own: Ctrl-C does not reach it, and `kill` ends its children.

    A command that ends at once is no error here; see `code`.
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
        """Stop the process (SIGSTOP), and wait until it has stopped."""
        if self._frozen or self.code is not None:
            return
        self._frozen = True
        self.popen.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):  # it ended first, and we have just reaped it
            self.popen.returncode = os.waitstatus_to_exitcode(status)

    def thaw(self) -> None:
        """Continue the process (SIGCONT)."""
        self._frozen = False
        self.popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process and its children, frozen or not. Does nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()
        self._frozen = False
