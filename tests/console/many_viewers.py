"""Many viewers of one console at once: `python -m tests.console.many_viewers`.

Starts a Valkey with leases, an application with a console in one process, and viewers that ask it
every two seconds, as the page does, from another one. Says what they cost the application and the
server, and how long an answer took.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

from dibs.testing import Server, eventually
from dibs.testing.servers import free_port
from tests.console.many_leases import filled, is_up, memory, processor_time

ROOT = Path(__file__).parents[2]
GET = b"GET /dibs/api/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POLL = 2.0


async def view(port: int, until: float, answers: list[float]) -> None:
    """Be one page: ask, wait, ask again."""
    await asyncio.sleep(random.random() * POLL)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        began = time.monotonic()
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.partition(b":")[2]))
        answers.append(time.monotonic() - began)
        await asyncio.sleep(max(began + POLL - time.monotonic(), 0))
    writer.close()


async def watched(server: Server, port: int, pid: int, count: int, seconds: float) -> None:
    """Print what *count* viewers get and cost for some time."""
    answers: list[float] = []
    cpu, commands = processor_time(pid), sum(server.command_counts().values())
    until = time.monotonic() + seconds
    await asyncio.gather(*(view(port, until, answers) for _ in range(count)))
    used = processor_time(pid) - cpu
    asked = sum(server.command_counts().values()) - commands
    answers.sort()
    print(
        f"{count} viewers: {used / seconds * 100:.1f} % of a core, {asked / seconds:.0f} commands"
        f" per second; an answer took {answers[len(answers) // 2] * 1000:.1f} ms, at most"
        f" {answers[-1] * 1000:.0f}; {memory(pid)}"
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, nargs="+", default=[1, 20, 200])
    parser.add_argument("--leases", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    asked = parser.parse_args()
    with Server.start("valkey") as server:
        filled(server, asked.leases)
        port = free_port()
        command = [sys.executable, "-m", "tests.console.many_leases", "--serve", server.url]
        process = subprocess.Popen([*command, str(port)], cwd=ROOT)
        try:
            eventually(lambda: is_up(f"http://127.0.0.1:{port}/dibs/"), within=60)
            for count in asked.viewers:
                asyncio.run(watched(server, port, process.pid, count, asked.seconds))
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
