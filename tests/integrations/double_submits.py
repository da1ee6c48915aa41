"""Double submits against real servers: `python -m tests.integrations.double_submits --intents 200`.

Each intent is sent several times at once, to two processes of one application: with random
cookies, cut into random pieces, with clients that leave, uploads that break off, and processes
that are killed at work. What was executed is counted in a database.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dibs.testing import Child, Server
from dibs.testing.ports import free_port

FRAMEWORKS = ("asgi", "starlette", "fastapi", "flask", "wsgi", "django", "django-asgi", "drf")
PATIENCE = 240.0
"""Seconds: on a busy machine Django alone may need more than a minute to start."""
POLICY: dict[str, Any] = {
    "window": 7200,
    "after": "replay",
    "key": "required",
    # Longer than the run: what a killed process had claimed stays claimed, done or not.
    "lease": 3600,
    # A machine on which nothing moves for a quarter of a second looks like an outage.
    "on_outage": "closed",
}


# ---- the application, in its own process


def serve(framework: str, url: str, database: str, port: int) -> None:
    """Run one process of the application, until it is killed."""
    from tests.integrations.double_submits_apps import run

    run(framework, url, database, port)


def create(database: str) -> None:
    """A table of executions, one row each."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE executions (intent TEXT)")


def executions(database: str) -> Counter[str]:
    """How often each intent was executed."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT intent, count(*) FROM executions GROUP BY intent")
        return Counter(dict(rows.fetchall()))


# ---- the servers


class Pair:
    """Two processes of one application."""

    def __init__(self, framework: str, url: str, database: str) -> None:
        self._facts = (framework, url, database)
        self.ports = [free_port() for _ in range(2)]
        self._children = [self._start(port) for port in self.ports]
        self.kills = 0

    def _start(self, port: int) -> Child:
        return Child(serve, *self._facts, port)

    async def until_ready(self) -> None:
        async with asyncio.timeout(PATIENCE):
            for port in self.ports:
                while not await _is_there(port):
                    await asyncio.sleep(0.05)

    async def kill(self, number: int) -> None:
        """Kill one at work; another takes its place."""
        self.kills += 1
        old = self._children[number]
        await asyncio.to_thread(old.kill)
        await asyncio.to_thread(old.close)
        self._children[number] = self._start(self.ports[number])

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.close()


async def _is_there(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


# ---- the clients


class Client:
    """One intent, and the tries to have it done."""

    def __init__(self, chance: random.Random, ports: list[int], intent: str) -> None:
        self._random = chance
        self._ports = ports
        self._intent = intent
        pad = chance.choice([0, 0, 100, 70_000, 1_300_000])
        self._body = b'{"intent": "%b", "pad": "%b"}' % (intent.encode(), b"x" * pad)

    async def double_submit(self, within: float) -> None:
        """Three at once, some of which come to nothing."""
        await asyncio.sleep(self._random.random() * within)
        ways = [self._random.choice(["whole", "whole", "leaves", "breaks off"]) for _ in range(3)]
        await asyncio.gather(*[self._try(way) for way in ways], return_exceptions=True)

    async def insist(self) -> int:
        """Try again, as a good client does, until it is done; 409: the outcome is unknown."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(OSError, ValueError):
                    status = await self._try("whole")
                    if status in (201, 409):
                        return status
                await asyncio.sleep(0.2)

    async def _try(self, way: str) -> int:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._random.choice(self._ports)
        )
        try:
            async with asyncio.timeout(30):
                await self._send(writer, way)
                if way != "whole":
                    return 0
                status = await reader.readline()
            return int(status.split()[1]) if status else 0
        except TimeoutError:
            return 0
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, way: str) -> None:
        cookie = f"session={self._random.random()}; _ga={self._random.random()}"
        head = (
            f"POST /orders HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
            f"Idempotency-Key: {self._intent}\r\nCookie: {cookie}\r\nConnection: close\r\n"
            f"Content-Length: {len(self._body)}\r\n\r\n"
        )
        data = head.encode() + self._body
        end = len(data) if way != "breaks off" else self._random.randrange(len(head), len(data))
        size = self._random.choice([1_000_000, 65_536, 8_192])
        for start in range(0, end, size):
            writer.write(data[start : min(end, start + size)])
            await writer.drain()
        await asyncio.sleep(self._random.choice([0, 0.01, 0.05]))


# ---- the run


async def submit(framework: str, url: str, database: str, intents: int, seed: int) -> Counter[int]:
    """All of it. Returns how each intent ended. AssertionError: one was executed twice."""
    chance = random.Random(seed)
    pair = Pair(framework, url, database)
    try:
        await pair.until_ready()
        clients = [Client(chance, pair.ports, f"intent-{seed}-{n}") for n in range(intents)]
        within = intents / 20
        submits = asyncio.gather(*[client.double_submit(within) for client in clients])
        for number in (0, 1):
            await asyncio.sleep(chance.random() * within)
            await pair.kill(number)
        await submits
        await pair.until_ready()
        ends = await asyncio.gather(*[client.insist() for client in clients])
        calm = Client(chance, pair.ports, f"intent-{seed}-calm")  # no process dies at its work
        clients.append(calm)
        ends.append(await calm.insist())
        assert ends[-1] == 201
    finally:
        await asyncio.to_thread(pair.close)
    _check(executions(database), clients, ends)
    return Counter(ends)


def _check(done: Counter[str], clients: list[Client], ends: list[int]) -> None:
    twice = {intent: times for intent, times in done.items() if times > 1}
    assert not twice, f"executed more than once: {twice}"
    for client, end in zip(clients, ends, strict=True):
        # A 409 is one whose process was killed: it may have been executed, or not.
        assert end == 409 or done[client._intent] == 1, (client._intent, end)


@contextmanager
def place() -> Iterator[tuple[str, str]]:
    """A Valkey and a database: address and path."""
    with ExitStack() as stack:
        server = stack.enter_context(Server.start("valkey"))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        database = str(Path(folder) / "executions.sqlite")
        create(database)
        yield server.url, database


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--intents", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append")
    asked = parser.parse_args()
    for framework in asked.framework or FRAMEWORKS:
        with place() as (url, database):
            ends = asyncio.run(submit(framework, url, database, asked.intents, asked.seed))
            total = executions(database).total()
        print(f"{framework:12} {asked.intents} intents, {total} executions, ends: {dict(ends)}")


if __name__ == "__main__":
    main()
