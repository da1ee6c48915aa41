"""Runs the program `dibs`: in this process, as a child with pipes, or in its own terminal."""

import contextlib
import io
import json
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

from dibs.cli import main

COMMAND = [sys.executable, "-m", "dibs"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Done(NamedTuple):
    """What a run printed, and its exit code."""

    code: int
    out: str
    err: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(url: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
    return {**kept, "DIBS_URL": url, "TERM": "xterm-256color", "COLUMNS": "120", **(more or {})}


def run(url: str, *words: str, env: Mapping[str, str] | None = None) -> Done:
    """The program in this process, as if with pipes: starting another one is what takes long."""
    out, err, log = io.StringIO(), io.StringIO(), logging.getLogger("dibs")
    handlers, propagate = list(log.handlers), log.propagate
    at_the_end = signal.getsignal(signal.SIGTERM)
    try:
        with (
            mock.patch.dict(os.environ, environment(url, env), clear=True),
            mock.patch.object(sys, "stdin", io.StringIO()),
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        ):  # fmt: skip
            code = _code_of(list(words))
    finally:
        signal.signal(signal.SIGTERM, at_the_end)
        log.handlers[:], log.propagate = handlers, propagate
    return Done(code, out.getvalue(), err.getvalue())


def _code_of(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def run_child(url: str, *words: str, env: Mapping[str, str] | None = None) -> Done:
    """The program as a child process, with pipes."""
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, env=environment(url, env),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


class Terminal:
    """The program in its own terminal."""

    def __init__(self, url: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        self._child = subprocess.Popen(
            [*COMMAND, *words], stdin=slave, stdout=slave, stderr=slave, close_fds=True,
            env=environment(url, env), start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.raw = ""

    @property
    def text(self) -> str:
        """What was printed so far, without colours and movements."""
        return ESCAPES.sub("", self.raw).replace("\r", "")

    def wait_for(self, text: str) -> None:
        """Read until *text* was printed."""
        self._read_until(lambda: text in self.text)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._child.send_signal(signal.SIGINT)

    def end(self) -> Done:
        """Read until the program has ended."""
        self._read_until(lambda: False)
        code = self._child.wait()
        os.close(self._master)
        return Done(code, self.text)

    def _read_until(self, is_enough: Any) -> None:
        deadline = time.monotonic() + 60
        while not is_enough():
            assert time.monotonic() < deadline, f"only this was printed: {self.text}"
            if select.select([self._master], [], [], 1)[0]:
                try:
                    data = os.read(self._master, 65536)
                except OSError:  # the child has ended, and with it the terminal
                    return
                if not data:
                    return
                self.raw += data.decode(errors="replace")
