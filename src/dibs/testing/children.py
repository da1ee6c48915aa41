"""Child processes for races between processes."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import queue
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from .processes import Process, dying_with_us

CALL = """
import asyncio, inspect, json, sys
_result = {name}(*json.loads(sys.argv[1]))
if inspect.iscoroutine(_result):
    _result = asyncio.run(_result)
if _result is not None:
    print(json.dumps(_result), flush=True)
"""


class Child:
    """Runs Python code, or one self-contained function, in a process of its own.

    A function is taken by its source: it imports what it needs in its body, takes JSON arguments,
    may be a coroutine function, and what it returns is printed as a line of JSON.
    """

    def __init__(self, work: str | Callable[..., object], *arguments: object) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self._killed = False
        self._process = Process(
            dying_with_us([sys.executable, "-c", _source(work), json.dumps(arguments)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            environment={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"child-{self.pid}", daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        code = self._process.code
        return f"<Child {self.pid} {'running' if code is None else f'ended with {code}'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def line(self, *, within: float = 10.0) -> str:
        """Return the next line that the child prints.

        Raises AssertionError, with what the child said on stderr, if it ends or is silent.
        """
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise AssertionError(f"{self!r} printed nothing within {within:g} s") from None
        if line is None:
            self._lines.put(None)
            raise AssertionError(f"{self!r} has no more to say\n{self._complaint()}")
        return line

    def tell(self, text: str = "go") -> None:
        """Send one line to the child's stdin; `input()` in the child waits for it."""
        assert self._process.popen.stdin is not None
        self._process.popen.stdin.write(f"{text}\n")
        self._process.popen.stdin.flush()

    def lines(self, *, within: float = 30.0) -> list[str]:
        """Return all lines not read yet, once the child has ended.

        Raises AssertionError if it does not end in time, or badly without having been killed here.
        """
        try:
            code = self._process.popen.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self!r} did not end within {within:g} s") from None
        assert code == 0 or self._killed, f"{self!r}\n{self._complaint()}"
        lines = list(iter(self._lines.get, None))
        self._lines.put(None)
        return lines

    def result(self, *, within: float = 30.0) -> Any:
        """Return what the function returned, or the JSON that the code printed last.

        Raises AssertionError if the child ends badly, late, or without a word.
        """
        lines = self.lines(within=within)
        assert lines, f"{self!r} printed nothing\n{self._complaint()}"
        return json.loads(lines[-1])

    def freeze(self) -> None:
        """Stop the child where it stands, as a long pause of its machine would."""
        self._process.freeze()

    def thaw(self) -> None:
        """Let a frozen child go on."""
        self._process.thaw()

    def kill(self) -> None:
        """End the child at once, and its own children with it, without a chance to clean up."""
        self._killed = True
        self._process.kill()

    def close(self) -> None:
        """Leave nothing behind: no process, no thread, no open file."""
        self.kill()
        self._reader.join()
        for stream in (self._process.popen.stdin, self._process.popen.stdout, self._errors):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # something was told to a dead child
                stream.close()

    def _read(self) -> None:
        assert self._process.popen.stdout is not None
        for line in self._process.popen.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


def _source(work: str | Callable[..., object]) -> str:
    if isinstance(work, str):
        return textwrap.dedent(work)
    return textwrap.dedent(inspect.getsource(work)) + CALL.format(name=work.__name__)
