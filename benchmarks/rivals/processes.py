"""Processes that use one library each, ordered about from here."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = Path(__file__).with_name("caller.py")


class Subject(NamedTuple):
    """What is tried: a library, with a setting, and the interpreter that has it."""

    library: str
    setting: str
    python: str


class Broken(Exception):
    """A process that did not do what it was told; the text is its own account."""


class Caller:
    """A running process of `caller.py`."""

    def __init__(self, subject: Subject, url: str) -> None:
        self._process = subprocess.Popen(
            [subject.python, str(PROGRAM), subject.library, subject.setting, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # The library's environment, and nothing of this one.
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._began = threading.Semaphore(0)
        self._ready = threading.Event()
        self._count = 0
        self.begun = 0
        """How often work has begun."""
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                facts = json.loads(line)
            except ValueError:
                continue  # something that the library prints
            if "began" in facts:
                self.begun += 1
                self._began.release()
            elif "ready" in facts:
                self._ready.set()
            else:
                self._answers[facts["number"]].put(facts)
        for waiting in self._answers.values():
            waiting.put({"broken": "the process has ended"})

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def wait_until_ready(self) -> None:
        """Wait until the library is imported and open. Raises Broken."""
        if not self._ready.wait(60):
            self.kill()
            raise Broken("".join(self._errors[-3:]).strip() or "it did not start")

    def wait_until_work_begins(self) -> None:
        """Wait for the next work to begin. Raises Broken."""
        if not self._began.acquire(timeout=60):
            raise Broken("no work has begun")

    def begin(self, do: str, **arguments: Any) -> int:
        """Have it do something; `answer` has the result, under the number returned."""
        assert self._process.stdin is not None
        self._count += 1
        self._answers[self._count] = queue.Queue()
        order = {"number": self._count, "do": do, **arguments}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._count

    def answer(self, number: int, within: float = 200) -> Any:
        """Return the answer to an order. Raises Broken."""
        try:
            facts = self._answers[number].get(timeout=within)
        except queue.Empty:
            raise Broken(f"no answer in {within} s") from None
        if "broken" in facts:
            raise Broken(facts["broken"])
        return facts["answer"]

    def do(self, do: str, **arguments: Any) -> Any:
        """Have it do something, and return the result. Raises Broken."""
        return self.answer(self.begin(do, **arguments))

    def call(self, verb: str, key: str, **arguments: Any) -> dict[str, Any]:
        """Make one call of the library, and return how it ended."""
        [answer] = self.do("call", verb=verb, key=key, **arguments)
        return answer

    def kill(self) -> None:
        """End it with SIGKILL."""
        with self._process:
            self._process.send_signal(signal.SIGKILL)
            for reader in self._readers:
                reader.join()


@contextmanager
def calling(subject: Subject, url: str, count: int = 1) -> Iterator[list[Caller]]:
    """Provide that many processes that use a library, and end them."""
    callers = [Caller(subject, url) for _ in range(count)]
    try:
        for caller in callers:
            caller.wait_until_ready()
        yield callers
    finally:
        for caller in callers:
            caller.kill()
