"""Ann and Ben as the page sees them: two processes, and their reports about each visitor."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Facts = dict[str, Any]
OnMessage = Callable[[str, Facts], None]
"""Called with a person's name and each line of theirs; `{"gone": True}`: the process has ended."""

_START = 60.0
"""How long a process may take to start, in seconds; machines can be busy."""
_END = 2.0


class Person:
    """The process of one person. It can be killed, and started again."""

    def __init__(
        self, name: str, on_message: OnMessage, program: str = "apps.playground.person"
    ) -> None:
        self.name = name
        self._program = program
        self._on_message = on_message
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """None: there is no process."""
        is_there = self._process is not None and self._process.returncode is None
        return self._process.pid if is_there and self._process else None

    async def start(self, target: str) -> None:
        """Start it; `ready` waits until it can be asked. OSError: it cannot be started."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._program, target),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ,
            start_new_session=True,  # Ctrl-C is for the page
        )
        self._is_ready.clear()
        self._reading = asyncio.create_task(self._read(self._process))

    async def ready(self) -> None:
        """Wait until it can be asked.

        OSError: it was killed, or does not start; why is on stderr.
        """
        if self.pid is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_ready.wait(), _START)
        if self.pid is None or not self._is_ready.is_set():
            raise ProcessLookupError(f"the process of {self.name} is not there")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            message = json.loads(line)
            if "ready" in message:
                self._is_ready.set()
            else:
                self._on_message(self.name, message)
        await process.wait()
        self._is_ready.set()  # ends all waits for it
        self._on_message(self.name, {"gone": True})

    def ask(self, command: Facts) -> None:
        """Send *command*; if the process has ended, `gone` says so."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def kill(self) -> None:
        """Kill it with SIGKILL, so that it releases nothing, and wait for its end."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._end()

    async def aclose(self) -> None:
        """Let it end by itself, or kill it after a while, and wait for its end."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END)
        except TimeoutError:
            with suppress(ProcessLookupError):  # it has ended in this moment
                self._process.kill()
        await self._end()

    async def _end(self) -> None:
        assert self._process is not None
        await self._process.wait()
        if self._reading is not None:
            await asyncio.wait([self._reading])
