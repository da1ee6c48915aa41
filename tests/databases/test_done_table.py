"""The table `dibs_done`: its keys, its times, how it is created and emptied."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from dibs import Dibs
from dibs._core.done_table import DIALECTS, PORTION, ddl
from dibs.testing import Server
from tests.databases.worlds import Database

NewDatabase = Callable[[str], Database]
DONE: dict[str, Any] = {"window": 60, "after": "replay"}
NO_REDIS = "redis://127.0.0.1:1"
KEYS = [
    "a", "A", "a ", "á", "a\u0301", "a\0", "\0", "%s", ":key", "'", "訂單", "x" * 250, "x" * 251,
    "x" * 1024, "x" * 1023 + "y",
]  # fmt: skip


@pytest.fixture(params=["postgresql", "sqlite", "mariadb"])
def database(request: pytest.FixtureRequest, new_database: NewDatabase) -> Database:
    return new_database(request.param)


@pytest.fixture
def engine(database: Database) -> Iterator[Any]:
    engine = create_engine(database.url(), poolclass=NullPool)
    yield engine
    engine.dispose()


def placing(dibs: Dibs, engine: Any, **options: Any) -> Any:
    @dibs.once("o:{number:hash}", within=engine.begin, **DONE | options)
    def place(connection: Any, number: Any) -> str:
        connection.execute(text("INSERT INTO orders VALUES ('x', 1)"))
        return repr(number)

    return place


def count(database: Database, table: str) -> int:
    return database.ask(f"SELECT count(*) FROM {table}")[0][0]


def test_different_keys_are_different_rows(database: Database, engine: Any) -> None:
    """By case, accent, trailing space, length, NUL: what a collation would take for the same."""
    with Dibs(NO_REDIS) as dibs:
        for _ in range(2):
            for number, key in enumerate(KEYS):
                with dibs.claim(f"{key}", **DONE) as claim, engine.begin() as connection:
                    if not number and not _:
                        _create(engine, database)
                    with claim.within(connection) as done:
                        assert done.replayed is bool(_)
                        if done.replayed:
                            assert done.result == key
                        else:
                            claim.complete(key)
    assert count(database, "dibs_done") == len(KEYS)


def _create(engine: Any, database: Database) -> None:
    with engine.begin() as connection:
        for statement in ddl(DIALECTS[database.kind]).split(";"):
            if statement.strip():
                connection.execute(text(statement))


def test_many_create_the_table_at_once(database: Database, engine: Any) -> None:
    """The second one finds it there."""
    clients = [Dibs(NO_REDIS) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        calls = [
            pool.submit(placing(each, engine, wait=60), number)
            for number, each in enumerate(clients)
        ]
        assert [call.result() for call in calls] == [repr(number) for number in range(6)]
    for each in clients:
        each.close()
    assert count(database, "orders") == count(database, "dibs_done") == 6


def test_when_the_window_is_over_one_of_many_runs_again(database: Database, engine: Any) -> None:
    """The old row is replaced, in one step."""
    clients = [Dibs(NO_REDIS) for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        for times in (1, 2):
            calls = [pool.submit(placing(each, engine, wait=60), 7) for each in clients]
            assert {call.result() for call in calls} == {"7"}
            assert count(database, "orders") == times
            database.ask("UPDATE dibs_done SET until = 1, at = 1")
    for each in clients:
        each.close()
    assert count(database, "dibs_done") == 1


def test_a_row_lasts_from_the_end_of_the_work(
    database: Database, engine: Any, valkey: Server
) -> None:
    """By the clock of the database, and Redis keeps what is left of it."""
    with Dibs(valkey.url) as dibs:
        place = placing(dibs, engine)
        place(7)
        [(until, at)] = database.ask("SELECT until, at FROM dibs_done")
        assert 60_000 <= until - at < 120_000
        database.ask("UPDATE dibs_done SET until = until - 30000")
        valkey.flush()
        place(7)
        [key] = valkey.keys()
        assert 0 < valkey.client().pttl(key) <= 30_050


def test_old_rows_are_removed_in_portions_by_calls_that_pass(new_database: NewDatabase) -> None:
    """At each two-hundredth first call; rows that count are left alone."""
    database = new_database("sqlite")
    engine = create_engine(database.url())
    with Dibs(NO_REDIS) as dibs:
        place = placing(dibs, engine)
        place(0)
        _add_old(engine, PORTION + 10)
        for number in range(1, 199):
            place(number)
        assert count(database, "dibs_done") == 199 + PORTION + 10
        place(199)
        assert count(database, "dibs_done") == 200 + 10
    engine.dispose()


def _add_old(engine: Any, number: int) -> None:
    key = "`key`" if engine.dialect.name in ("mysql", "mariadb") else "key"
    insert = f"INSERT INTO dibs_done ({key}, token, fingerprint, at, until) VALUES "
    rows = ", ".join(f"('old {each}', 't', '-', 1, 1)" for each in range(number))
    with engine.begin() as connection:
        connection.execute(text(insert + rows))


def test_three_that_remove_old_rows_are_not_in_each_others_way(
    database: Database, engine: Any
) -> None:
    """No error, and nothing is removed twice: `dibs sql prune` beside calls that pass."""
    with Dibs(NO_REDIS) as dibs:
        placing(dibs, engine)(0)
    _add_old(engine, 3 * PORTION)
    sql = printed("prune", "--dialect", database.kind).rstrip(";\n")

    def prune() -> None:
        with engine.begin() as connection:
            connection.execute(text(sql))

    with ThreadPoolExecutor(3) as pool:
        for call in [pool.submit(prune) for _ in range(3)]:
            call.result()
    left = count(database, "dibs_done")
    prune()
    prune()
    assert left <= 2 * PORTION + 1
    assert count(database, "dibs_done") == 1


def printed(*arguments: str) -> str:
    command = [sys.executable, "-m", "dibs", "sql", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_prints_what_creates_the_table(database: Database, engine: Any) -> None:
    """For a migration; executing it twice does no harm."""
    for _ in range(2):
        with engine.begin() as connection:
            for statement in printed("create", "--dialect", database.kind).split(";"):
                if statement.strip():
                    connection.execute(text(statement))
    assert count(database, "dibs_done") == 0


def test_results_are_what_they_were(database: Database, engine: Any, valkey: Server) -> None:
    """None, bytes of every value, two megabytes; one of an older codec is refused as done."""
    results: dict[str, Any] = {"none": None, "bytes": bytes(range(256)), "large": b"x" * 2_000_000}
    with Dibs(valkey.url) as dibs:

        @dibs.once("o:{name}", within=engine.begin, codec="pickle", **DONE)
        def kept(connection: Any, name: str) -> Any:
            return results[name]

        for name, value in results.items():
            assert kept(name) == value
        valkey.flush()
        for name, value in results.items():
            assert kept(name) == value
            assert kept(name) == value
