"""Very many viewers of one console at once: `python -m tests.console.many_viewers`.

Starts a Valkey, an application with a console in one process, and viewers that read its live
updates from another one. Says what a viewer costs, how many commands reach the server, what happens
to viewers that read nothing, that leave, that are too many for the descriptors of the process, and
how long the application takes to end while they look.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from dibs import AsyncDibs
from dibs.console import console
from dibs.testing import Server, eventually
from dibs.testing.servers import free_port
from tests.console.many_leases import filled, is_up

ROOT = Path(__file__).parents[2]
LEASES = 1_000
GET = b"GET /dibs/api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


# ---- the application


def application(url: str, most: int) -> Starlette:
    """A console at /dibs for *most* viewers; how many there are at /viewers."""
    page = console(AsyncDibs(url), allow="host", most_viewers=most)

    async def viewers(request: Request) -> PlainTextResponse:
        return PlainTextResponse(repr(page))

    return Starlette(routes=[Route("/viewers", viewers), Mount("/dibs", page)])


def serve(url: str, port: int, most: int, program: str) -> None:
    """Be the application."""
    app = application(url, most)
    if program == "uvicorn":
        uvicorn.run(app, port=port, log_level="warning")
        return
    from hypercorn.asyncio import serve as hypercorn
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    asyncio.run(hypercorn(app, config))  # type: ignore[arg-type]


class Application:
    """The application as a child process, and what it uses."""

    def __init__(self, server: Server, most: int, program: str, files: int | None = None) -> None:
        self.port = free_port()
        self.server = server
        self.stopped_at = 0.0
        command = [sys.executable, "-m", __spec__.name, "--serve", server.url, str(self.port)]
        command += ["--viewers", str(most), "--program", program]

        def limit() -> None:
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            preexec_fn=limit,
        )
        eventually(lambda: is_up(f"http://127.0.0.1:{self.port}/viewers"), within=60)

    @property
    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> int:
        """Bytes that are resident."""
        [line] = [line for line in self._proc("status").splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) * 1024

    @property
    def files(self) -> int:
        """Open descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self.process.pid}/{name}").read_text()

    def end(self) -> tuple[float, str]:
        """Send SIGTERM and wait. Returns seconds, and what it wrote to stderr."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            _, said = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, said = self.process.communicate()
        return time.perf_counter() - began, said.decode()


@contextmanager
def running(server: Server, most: int, program: str, **more: Any) -> Iterator[Application]:
    """The application, killed at the end."""
    app = Application(server, most, program, **more)
    try:
        yield app
    finally:
        if app.process.poll() is None:
            app.process.kill()
            app.process.communicate()


# ---- viewers


class Viewer(asyncio.Protocol):
    """One page: opens a stream, and another one when it ends."""

    def __init__(self, port: int, *, reads: bool = True) -> None:
        self._port = port
        self._reads = reads
        self._transport: asyncio.Transport | None = None
        self._tail = b""
        self.began = time.perf_counter()
        self.first: float | None = None
        """Seconds until the first state."""
        self.states = 0
        self.bytes = 0
        self.last = 0.0
        self.gap = 0.0
        """The longest time between two states of one stream."""
        self.refused = 0
        self.is_leaving = False
        self.is_open = False

    async def open(self) -> None:
        """Ask for a stream."""
        if self.is_leaving:
            return
        loop, self.last = asyncio.get_running_loop(), 0.0
        line = socket.socket()
        line.setblocking(False)
        if not self._reads:  # else the system would keep megabytes for it
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            await loop.sock_connect(line, ("127.0.0.1", self._port))
            await loop.create_connection(lambda: self, sock=line)
        except OSError:
            self.refused += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True
        transport.write(GET)
        if not self._reads:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        self.refused += b"503 Service" in data[:40]
        found = (self._tail + data).count(b"\ndata: ")
        self._tail = data[-6:]
        if found:
            self._arrived(found, time.perf_counter())
        if data.endswith(b"\r\n0\r\n\r\n") and self._transport is not None:
            self._transport.close()

    def _arrived(self, found: int, now: float) -> None:
        self.first = now - self.began if self.first is None else self.first
        self.gap = max(self.gap, now - self.last if self.last else 0.0)
        self.states, self.last = self.states + found, now

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if not self.is_leaving:
            loop = asyncio.get_running_loop()
            loop.call_later(1.0, lambda: loop.create_task(self.open()))

    def leave(self) -> None:
        """Close the page."""
        self.is_leaving = True
        if self._transport is not None:
            self._transport.abort()


async def opened(port: int, count: int, *, reads: bool = True) -> list[Viewer]:
    """*count* viewers, who come one after the other."""
    viewers = [Viewer(port, reads=reads) for _ in range(count)]
    for viewer in viewers:
        viewer.began = time.perf_counter()
        await viewer.open()
    return viewers


async def watched(app: Application, viewers: list[Viewer], seconds: float, what: str) -> None:
    """Print what *viewers* get and cost for some time."""
    cpu, states, began = app.cpu, sum(each.states for each in viewers), time.perf_counter()
    commands = app.server.command_counts()
    for viewer in viewers:
        viewer.gap = 0.0
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    sent = sum(each.states for each in viewers) - states
    after = app.server.command_counts()
    asked = sum(after.values()) - sum(commands.values())
    used = app.cpu - cpu
    print(
        f"{what}: {sent / took:.0f} states per second, {used / took * 100:.0f} % of a core"
        f" ({used / max(sent, 1) * 1e6:.0f} µs a state), {asked / took:.0f} commands per second;"
        f" longest gap {max([each.gap for each in viewers], default=0):.2f} s;"
        f" {app.memory / 1e6:.1f} MB, {app.files} descriptors"
    )


# ---- what is measured


async def crowd(app: Application, count: int) -> None:
    """One viewer, all of them, some that read nothing, none."""
    before = app.memory
    print(f"nobody: {before / 1e6:.1f} MB, {app.files} descriptors")
    one = await opened(app.port, 1)
    await asyncio.sleep(3)
    await watched(app, one, 10, "one viewer")
    single = app.memory
    viewers = one + await opened(app.port, count - 1)
    await asyncio.sleep(5)
    firsts = sorted([each.first for each in viewers if each.first is not None])
    print(f"bytes of a state: {one[0].bytes / one[0].states:.0f}")
    print(
        f"first data: {len(firsts)} of {count}, the median after {firsts[len(firsts) // 2]:.2f} s,"
        f" the last after {firsts[-1]:.2f} s; refused {sum(each.refused for each in viewers)}"
    )
    await watched(app, viewers, 25, f"{count} viewers")
    print(f"memory for each: {(app.memory - single) / count / 1000:.1f} kB")
    for viewer in viewers[: count // 5]:
        viewer.leave()
    quick = viewers[count // 5 :]
    with_all, slow = app.memory, await opened(app.port, count // 5, reads=False)
    for seconds in (15, 10, 15, 20):
        await watched(app, quick, seconds, f"beside {len(slow)} that read nothing, {len(quick)}")
    print(f"memory for each that reads nothing: {(app.memory - with_all) / len(slow) / 1e3:.1f} kB")
    for viewer in viewers + slow:
        viewer.leave()
    await asyncio.sleep(3)
    print(f"all have left: {app.memory / 1e6:.1f} MB, {app.files} descriptors")
    again = await opened(app.port, count - count // 5)
    again += await opened(app.port, count // 5, reads=False)
    await asyncio.sleep(5)
    print(f"the same number again: {app.memory / 1e6:.1f} MB, {app.files} descriptors")
    for viewer in again:
        viewer.is_leaving = True
    took, said = await asyncio.to_thread(app.end)
    print(f"SIGTERM with {count} open: {took:.1f} s, exit code {app.process.returncode}")
    print(f"stderr: {len(said.splitlines())} lines\n{said[-1500:]}")


async def too_many(app: Application, count: int, files: int) -> None:
    """More viewers than descriptors."""
    viewers = await opened(app.port, count)
    await watched(app, viewers, 15, f"{count} viewers, {files} descriptors")
    served = sum(1 for each in viewers if each.states)
    print(f"served: {served}, refused {sum(each.refused for each in viewers)}")
    for viewer in viewers[: count // 2]:
        viewer.leave()
    await asyncio.sleep(5)
    served = sum(1 for each in viewers if each.states)
    print(f"after half have left: {served} were served; {app.files} descriptors")
    for viewer in viewers:
        viewer.is_leaving = True
    took, said = await asyncio.to_thread(app.end)
    print(f"SIGTERM: {took:.1f} s, stderr {len(said.splitlines())} lines\n{said[:1500]}")


def main() -> None:
    """Measure; with `--serve`: be the application."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=1_000)
    parser.add_argument("--program", choices=("uvicorn", "hypercorn"), default="uvicorn")
    parser.add_argument("--files", type=int, default=256, help="descriptors in the last part")
    parser.add_argument("--only", choices=("crowd", "files"))
    parser.add_argument("--serve", nargs=2, metavar=("URL", "PORT"))
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve[0], int(asked.serve[1]), asked.viewers, asked.program)
        return
    with Server.start("valkey") as server:
        filled(server, LEASES)
        if asked.only != "files":
            with running(server, asked.viewers, asked.program) as app:
                asyncio.run(crowd(app, asked.viewers))
        if asked.only != "crowd":
            count = asked.files + 50
            with running(server, count, asked.program, files=asked.files) as app:
                asyncio.run(too_many(app, count, asked.files))


if __name__ == "__main__":
    main()
