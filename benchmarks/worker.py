"""A measured client in a separate process, so that the CPU time it reports is its own.

:class:`Worker` is the handle the run holds; ``python -m benchmarks.worker`` is the process behind
it. They speak in lines of JSON: a job names a function of a benchmark module and its arguments,
the answer is what the function returned. A worker ends when its handle does: its input is closed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

from . import servers
from .servers import Server
from .systems import System, find


class Broken(Exception):
    """A worker could not do its job; the text is the worker's own account of it."""


class Worker:
    """One system, imported in one process, pinned to ``core`` if there is one."""

    def __init__(self, system: System, port: int, core: int | None) -> None:
        self.system = system
        spec = {"name": system.name, "mode": system.mode, "port": port, "core": core}
        command = [sys.executable, "-m", "benchmarks.worker", json.dumps(spec)]
        source = {"PYTHONPATH": system.source} if system.source else {}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | source,
        )

    def ready(self) -> None:
        """Wait until the system is imported. Broken, if it cannot be."""
        self.answer()

    def do(self, function: str, **arguments: Any) -> Any:
        """The result of ``module:function`` in the worker. Broken, with the reason, if it fails."""
        self.begin(function, **arguments)
        return self.answer()

    def begin(self, function: str, **arguments: Any) -> None:
        """Have it done; :meth:`answer` has the result. So that several can do it at once."""
        assert self._process.stdin is not None
        print(
            json.dumps({"function": function, "arguments": arguments}),
            file=self._process.stdin,
            flush=True,
        )

    def answer(self) -> Any:
        """The result of what was begun. Broken, with the reason, if it failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"broken": "the worker died"}
        if "broken" in answer:
            raise Broken(answer["broken"])
        return answer["result"]

    def close(self) -> None:
        """Let it go by closing its input; a worker that hangs on the way out is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Bench:
    """A fresh server and, for each system asked for, a worker; all on ``core`` if there is one."""

    def __init__(self, server: Server, core: int | None) -> None:
        self.server = server
        self.core = core
        self.absent: list[str] = []
        self._tried: dict[System, Worker | None] = {}

    def of(self, systems: Iterable[System]) -> list[Worker]:
        """Their workers, without those that cannot work here: ``absent`` says why."""
        systems = list(systems)
        new = [system for system in systems if system not in self._tried]
        self._tried |= {system: self._start(system) for system in new}
        for system in new:
            self._wait_for(system)
        return [worker for system in systems if (worker := self._tried[system])]

    def _start(self, system: System) -> Worker | None:
        if (reason := system.absence()) is None:
            return Worker(system, self.server.port, self.core)
        self.absent.append(reason)
        return None

    def _wait_for(self, system: System) -> None:
        if (worker := self._tried[system]) is None:
            return
        try:
            worker.ready()
        except Broken as reason:
            self.absent.append(f"{system.name} ({system.mode}): {reason}")
            worker.close()
            self._tried[system] = None

    def close(self) -> None:
        for worker in filter(None, self._tried.values()):
            worker.close()


@contextmanager
def bench(core: int | None = None) -> Iterator[Bench]:
    """A bench, gone with its server and its workers when the block ends."""
    with servers.serving(core) as server, closing(Bench(server, core)) as ours:
        yield ours


def _serve(spec: dict[str, Any], answers: Any) -> None:
    """Import the system, say so, then do one job after the other until the input ends."""
    servers.pin(spec["core"])
    settle_the_allocator()
    opener = find(spec["name"], spec["mode"]).opener()
    print(json.dumps({"result": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(_attempt(job, opener, spec["port"])), file=answers, flush=True)


def settle_the_allocator() -> None:
    """Make this young process allocate as one does that has run for a while.

    asyncio reads into a fresh buffer of 256 KiB. glibc gets blocks of that size from the kernel,
    and gives them back, until the first big block has been freed; from then on it keeps them. That
    doubles the cost of a lone task's round trip, and which import happens to free a big block is
    no property of the system measured.
    """
    bytearray(1 << 20)


def _attempt(job: dict[str, Any], opener: Any, port: int) -> dict[str, Any]:
    module, name = job["function"].split(":")
    try:
        return {"result": getattr(import_module(module), name)(opener, port, **job["arguments"])}
    except Exception as error:
        return {"broken": f"{type(error).__name__}: {error}"}


def _main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    try:
        _serve(json.loads(sys.argv[1]), answers)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        print(json.dumps({"broken": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
    answers.flush()
    os._exit(0)  # threads that still wait on a hung server must not keep the process alive


if __name__ == "__main__":
    _main()
