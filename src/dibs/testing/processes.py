"""Processes of a test run: they can be frozen, and end with it."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

from .._server.die_with_parent import ended_with_parent as ended_with_parent
from .polling import Closeable


class Process:
    """A process in a separate session: Ctrl-C does not reach it, and `kill` ends its children.

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


CALL = """
import asyncio, inspect, json, sys
_result = {name}(*json.loads(sys.argv[1]))
if inspect.iscoroutine(_result):
    _result = asyncio.run(_result)
if _result is not None:
    print(json.dumps(_result), flush=True)
"""


class Child(Closeable):
    """Runs Python code, or one self-contained function, in another process.

    A function is read from its source: it imports what it needs in its body, takes JSON arguments,
    may be a coroutine function, and what it returns is printed as a line of JSON.
    """

    def __init__(self, work: str | Callable[..., object], *arguments: object) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self._killed = False
        self._process = Process(
            ended_with_parent([sys.executable, "-c", _program_source(work), json.dumps(arguments)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            environment={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(
            target=self._read_output, name=f"child-{self.pid}", daemon=True
        )
        self._reader.start()

    def __repr__(self) -> str:
        code = self._process.code
        return f"<Child {self.pid} {'running' if code is None else f'ended with {code}'}>"

    def line(self, *, within: float = 120.0) -> str:
        """Return the next line that the child prints.

        Raises:
            AssertionError: It ended or printed nothing in time; with its stderr.
        """
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise AssertionError(f"{self!r} printed nothing within {within:g} s") from None
        if line is None:
            self._lines.put(None)
            raise AssertionError(f"{self!r} printed no more lines\n{self._error_output()}")
        return line

    def tell(self, text: str = "go") -> None:
        """Write one line to the child's stdin, for an `input()` in the child."""
        assert self._process.popen.stdin is not None
        self._process.popen.stdin.write(f"{text}\n")
        self._process.popen.stdin.flush()

    def lines(self, *, within: float = 120.0) -> list[str]:
        """Return all lines not read yet, once the child has ended.

        Raises:
            AssertionError: It did not end in time, or failed without having been killed here.
        """
        try:
            code = self._process.popen.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self!r} did not end within {within:g} s") from None
        assert code == 0 or self._killed, f"{self!r}\n{self._error_output()}"
        lines = list(iter(self._lines.get, None))
        self._lines.put(None)
        return lines

    def result(self, *, within: float = 120.0) -> Any:
        """Return what the function returned, or the JSON that the code printed last.

        Raises:
            AssertionError: The child failed, did not end in time, or printed nothing.
        """
        lines = self.lines(within=within)
        assert lines, f"{self!r} printed nothing\n{self._error_output()}"
        return json.loads(lines[-1])

    def freeze(self) -> None:
        """Stop the child (SIGSTOP), as a long pause of its machine would."""
        self._process.freeze()

    def thaw(self) -> None:
        """Continue a frozen child."""
        self._process.thaw()

    def kill(self) -> None:
        """Kill the child and its own children (SIGKILL): they cannot clean up."""
        self._killed = True
        self._process.kill()

    def close(self) -> None:
        """Kill the child, end the thread that reads its output, and close its streams."""
        self.kill()
        self._reader.join()
        for stream in (self._process.popen.stdin, self._process.popen.stdout, self._errors):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a line for a child that has ended
                stream.close()

    def _read_output(self) -> None:
        assert self._process.popen.stdout is not None
        for line in self._process.popen.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _error_output(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


def _program_source(work: str | Callable[..., object]) -> str:
    if isinstance(work, str):
        return textwrap.dedent(work)
    return textwrap.dedent(inspect.getsource(work)) + CALL.format(name=work.__name__)
