"""People: what is stored about them, in SQLite and PostgreSQL, and what is deleted."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from apps.weamind.core.database import open_engine
from apps.weamind.user.database import REMEMBERED, Person, UserDatabase
from apps.weamind.user.schema import metadata
from apps.weamind.user.users import Users, UsersUnavailable
from dibs.testing import Child
from tests.apps.postgres import Postgres

pytestmark = pytest.mark.only_on("linux", "darwin")
ME, YOU = "U-me", "U-you"


@pytest.fixture
def database(url: str) -> Iterator[UserDatabase]:
    with closing(UserDatabase(url)) as database:
        database.prepare()
        yield database


# ------------------------------------------------------------------------------- the schema


def test_the_migrations_make_what_the_queries_need(url: str, database: UserDatabase) -> None:
    """Tables, columns and indexes are those of schema.py; another start changes nothing."""
    engine = open_engine(url)
    ours = {f"{table}" for table in metadata.tables}
    try:
        assert ours < set(inspect(engine).get_table_names())
        with engine.connect() as connection:
            options: dict[str, Any] = {
                "compare_type": True,
                "include_name": lambda name, kind, parents: kind != "table" or name in ours,
            }
            context = MigrationContext.configure(connection, opts=options)
            assert compare_metadata(context, metadata) == []
        database.set_place(ME, "home", "63000020", 1)
        database.prepare()
        assert database.meet(ME, 2).home == "63000020"
    finally:
        engine.dispose()


def start_together(url: str) -> int:
    """Bring the schema up, at the same moment as others."""
    from apps.weamind.user.database import UserDatabase

    database = UserDatabase(url)
    print("ready", flush=True)
    input()
    database.prepare()
    database.meet("U-first", 1)
    database.close()
    return 0


def test_several_processes_start_at_once(postgres: Postgres, spawn: Callable[..., Child]) -> None:
    """One process creates the tables, the others find them; none fails. (For SQLite: two whole
    bots.)"""
    url = postgres.new_database()
    children = [spawn(start_together, url) for _ in range(2)]
    for child in children:
        assert child.line(within=60) == "ready"
    for child in children:
        child.tell()
    assert [child.result(within=60) for child in children] == [0] * 2


# ------------------------------------------------------------------------------- people


def test_home_and_office_are_kept_for_each_person(database: UserDatabase) -> None:
    """Home and office are kept for each person, and can be changed."""
    database.set_place(ME, "home", "63000020", 1)
    database.set_place(ME, "office", "65000010", 2)
    database.set_place(YOU, "home", "10002010", 3)
    database.set_place(ME, "home", "64000010", 4)
    assert database.meet(ME, 5) == Person("64000010", "65000010")
    assert database.meet(YOU, 5) == Person("10002010")


def test_recent_queries_are_stored(database: UserDatabase) -> None:
    """The last five distinct places, the latest first, without home and office."""
    database.meet(ME, 0)
    for at, code in enumerate(["a", "b", "c", "d", "e", "f", "g", "b"], 1):
        database.record(ME, code, at)
    person = database.meet(ME, 9)
    assert person.asked == ("b", "g", "f", "e", "d", "c", "a")
    assert person.recent() == ("b", "g", "f", "e", "d")
    database.set_place(ME, "home", "g", 9)
    database.set_place(ME, "office", "e", 9)
    assert database.meet(ME, 9).recent() == ("b", "f", "d", "c", "a")
    assert database.meet(YOU, 9).recent() == ()


def test_old_queries_are_forgotten(database: UserDatabase) -> None:
    """No more is remembered than can ever be shown; and a late one does not go backwards."""
    database.meet(ME, 0)
    for at in range(REMEMBERED + 5):
        database.record(ME, f"p{at}", at)
    assert len(database.meet(ME, 99).asked) == REMEMBERED
    database.record(ME, f"p{REMEMBERED + 4}", 0)
    assert database.meet(ME, 99).asked[0] == f"p{REMEMBERED + 4}"


def test_coming_and_going(database: UserDatabase) -> None:
    """By LINE's own time: an event that was delivered late does not undo a later one."""
    assert database.is_active(ME) is None
    database.follow(ME, 10)
    assert database.is_active(ME) is True
    database.set_place(ME, "home", "63000020", 11)
    database.unfollow(ME, 30)
    assert database.is_active(ME) is False
    database.follow(ME, 20)  # delivered again, late
    assert database.is_active(ME) is False
    database.follow(ME, 40)
    assert database.is_active(ME) is True
    assert database.meet(ME, 41).home == "63000020"
    database.unfollow(YOU, 5)
    assert database.is_active(YOU) is None


def test_nothing_is_left_of_a_deleted_person(url: str, database: UserDatabase) -> None:
    """Neither settings nor queries; and what was under way does not bring them back."""
    database.set_place(ME, "home", "63000020", 1)
    database.record(ME, "65000010", 2)
    database.record(YOU, "65000010", 2)
    assert database.delete(ME) is True
    database.record(ME, "10002010", 3)
    database.unfollow(ME, 3)  # they block the bot afterwards
    assert database.is_active(ME) is None and database.delete(ME) is False
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            for table in metadata.tables:
                assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0
    finally:
        engine.dispose()
    assert database.meet(ME, 4) == Person()


def test_many_threads_record_people_without_loss(database: UserDatabase) -> None:
    """Threads that meet and record the same person and others: all of it is stored afterwards."""

    def work(number: int) -> None:
        for step in range(5):
            database.meet(f"U{number % 3}", step)
            database.record(f"U{number % 3}", f"{number}-{step}", step)

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        expected = {f"{each}-{step}" for each in (number, number + 3) for step in range(5)}
        assert set(database.meet(f"U{number}", 9).asked) == expected


# ------------------------------------------------------------------------------- outages


async def test_a_database_that_is_gone(postgres: Postgres) -> None:
    """UsersUnavailable, and all data at once when it is back; no id is logged."""
    async with Users(postgres.new_database()) as users:
        await users.set_place(ME, "home", "63000020")
        postgres.stop()
        try:
            with pytest.raises(UsersUnavailable) as raised:
                await users.meet(ME)
            assert ME not in repr(raised.value)
        finally:
            await asyncio.to_thread(postgres.start)
        assert (await users.meet(ME)).home == "63000020"


async def test_a_database_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers do not wait longer than the deadline; a writer that waits is given up."""
    monkeypatch.setattr("apps.weamind.user.users.LONGEST", 0.2)
    path = tmp_path / "app.db"
    async with Users(f"sqlite:///{path}") as users:
        await users.meet(ME)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(UsersUnavailable):
                await users.set_place(ME, "home", "63000020")
            assert await users.meet(ME) == Person()  # who reads does not wait for who writes
            other.execute("ROLLBACK")
        await asyncio.sleep(0)


async def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    """The start fails with a message, and nothing is left open."""
    from sqlalchemy.exc import SQLAlchemyError

    with pytest.raises(SQLAlchemyError):
        async with Users(f"sqlite:///{tmp_path}/no/such/folder/app.db"):
            pass


@pytest.mark.parametrize("url", ["", "menu.db", "mysql://h/d", "postgresql:/", "redis://h"])
def test_a_url_that_is_no_database_is_refused(url: str) -> None:
    """ValueError, before anything connects, without the URL in it."""
    with pytest.raises(ValueError, match="must"):
        UserDatabase(url)
