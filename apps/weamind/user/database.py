"""People in SQLite or PostgreSQL. It blocks: call it from threads, not from tasks."""

from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ..core.database import CONNECTIONS, migrate, open_engine, writing
from .schema import queries, unanswered, users

Kind = Literal["home", "office"]
REMEMBERED = 20
"""How many places are remembered for each person; five are shown, some may be home or office."""


@dataclass(frozen=True, slots=True)
class Person:
    """What is known about a person: codes of places, the latest query first."""

    home: str | None = None
    office: str | None = None
    asked: tuple[str, ...] = ()

    def recent(self, count: int = 5, *, without: str | None = None) -> tuple[str, ...]:
        """The last *count* places that are neither home nor office, nor *without*."""
        others = (self.home, self.office, without)
        return tuple(code for code in self.asked if code not in others)[:count]


class UserDatabase:
    """The people who talk to the bot. SQLAlchemyError, from any method: no answer."""

    def __init__(self, url: str) -> None:
        """Nothing connects yet. ValueError: the URL is none of SQLite or PostgreSQL."""
        self._engine = open_engine(url)
        self._writer = writing(self._engine)
        # SQLite has one writer at a time, and those who wait for it poll: better in line here.
        self._turn = Lock() if self._engine.dialect.name == "sqlite" else nullcontext()

    @property
    def threads(self) -> int:
        """How many may ask at once. Few: they take turns with the event loop, and each turn costs.

        SQLite is in this very process, so more of them would not be quicker either; the second
        one reads while the first waits for another process to write.
        """
        return 2 if self._engine.dialect.name == "sqlite" else CONNECTIONS

    def __repr__(self) -> str:
        return f"<UserDatabase {self._engine.url.render_as_string(hide_password=True)}>"

    def prepare(self) -> None:
        """Create the tables, or bring them up to date."""
        migrate(self._engine)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def ping(self) -> None:
        """Return if the database answers, and has our tables."""
        with self._engine.begin() as connection:
            connection.execute(select(users.c.id).limit(1))

    def meet(self, user_id: str, at: int) -> Person:
        """What is known about *user_id*, who is created if unknown."""
        with self._engine.begin() as connection:
            person = _find(connection, user_id)
        if person is None:
            with self._turn, self._writer.begin() as connection:
                _add(connection, user_id, at)
        return person or Person()

    def follow(self, user_id: str, at: int) -> None:
        """Record that they are a friend, unless they left after *at*, in LINE's milliseconds."""
        self._become(user_id, at, is_active=True)

    def unfollow(self, user_id: str, at: int) -> None:
        """Record that they have left, unless they came back after *at*. Their places are kept.

        Does nothing for an unknown person: one who had their data deleted stays deleted.
        """
        self._become(user_id, at, is_active=False)

    def _become(self, user_id: str, at: int, *, is_active: bool) -> None:
        change = update(users).where(users.c.line_user_id == user_id, users.c.active_at <= at)
        with self._turn, self._writer.begin() as connection:
            if is_active:
                _add(connection, user_id, at)
            connection.execute(change.values(is_active=is_active, active_at=at))

    def is_active(self, user_id: str) -> bool | None:
        """Whether they are a friend. None: they are unknown."""
        with self._engine.begin() as connection:
            query = select(users.c.is_active).where(users.c.line_user_id == user_id)
            return connection.scalar(query)

    def set_place(self, user_id: str, kind: Kind, code: str | None, at: int) -> None:
        """Set their home or office to *code*; None: remove it."""
        column = users.c.home_code if kind == "home" else users.c.office_code
        change = update(users).where(users.c.line_user_id == user_id).values({column: code})
        with self._turn, self._writer.begin() as connection:
            _add(connection, user_id, at)
            connection.execute(change)

    def record(self, user_id: str, code: str, at: int) -> None:
        """Record a query for *code*, unless the person is unknown: their data was deleted."""
        with self._turn, self._writer.begin() as connection:
            query = select(users.c.id).where(users.c.line_user_id == user_id).with_for_update()
            number = connection.scalar(query)
            if number is not None:
                _put_query(connection, number, code, at)
                _trim(connection, number)

    def delete(self, user_id: str) -> bool:
        """Delete all data about them. False: there was none."""
        with self._turn, self._writer.begin() as connection:
            gone = connection.execute(delete(users).where(users.c.line_user_id == user_id))
            return gone.rowcount > 0

    # ---- what could not be answered before the end of a process

    def keep(self, events: list[str], at: int) -> None:
        """Keep *events*, as JSON, for another process to answer."""
        rows = [{"event": event, "kept_at": at} for event in events]
        with self._turn, self._writer.begin() as connection:
            connection.execute(insert(unanswered), rows)

    def take(self, since: int) -> tuple[list[str], int]:
        """Remove and return the kept events; how many were kept before *since*."""
        with self._engine.begin() as connection:
            if connection.scalar(select(unanswered.c.id).limit(1)) is None:
                return [], 0
        with self._turn, self._writer.begin() as connection:
            query = select(unanswered).order_by(unanswered.c.id).with_for_update(skip_locked=True)
            rows = connection.execute(query).all()
            ids = [row.id for row in rows]
            connection.execute(delete(unanswered).where(unanswered.c.id.in_(ids)))
        young = [row.event for row in rows if row.kept_at >= since]
        return young, len(rows) - len(young)


# ---- one statement each


def _find(connection: Connection, user_id: str) -> Person | None:
    row = connection.execute(select(users).where(users.c.line_user_id == user_id)).one_or_none()
    if row is None:
        return None
    latest = (
        select(queries.c.place_code)
        .where(queries.c.user_id == row.id)
        .order_by(queries.c.asked_at.desc(), queries.c.place_code)
        .limit(REMEMBERED)
    )
    return Person(row.home_code, row.office_code, tuple(connection.scalars(latest)))


def _add(connection: Connection, user_id: str, at: int) -> None:
    """Insert them, unless another process was faster."""
    values = {"line_user_id": user_id, "is_active": True, "active_at": at}
    connection.execute(_inserting(connection, users).values(values).on_conflict_do_nothing())


def _put_query(connection: Connection, number: int, code: str, at: int) -> None:
    statement = _inserting(connection, queries).values(user_id=number, place_code=code, asked_at=at)
    newer = func.max if connection.dialect.name == "sqlite" else func.greatest
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[queries.c.user_id, queries.c.place_code],
            set_={"asked_at": newer(queries.c.asked_at, statement.excluded.asked_at)},
        )
    )


def _trim(connection: Connection, number: int) -> None:
    kept = (
        select(queries.c.place_code)
        .where(queries.c.user_id == number)
        .order_by(queries.c.asked_at.desc(), queries.c.place_code)
        .limit(REMEMBERED)
    )
    old = delete(queries).where(queries.c.user_id == number, queries.c.place_code.not_in(kept))
    connection.execute(old)


def _inserting(connection: Connection, table: Any) -> Any:
    """An insert with `on_conflict_…`, which differs for each database."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)
