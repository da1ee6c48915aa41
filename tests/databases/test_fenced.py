"""`fenced`: a late holder is refused by the statement that writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import BigInteger, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from dibs import Dibs, LeaseLost, UsageError
from dibs.testing import Server
from tests.databases.conftest import new_world
from tests.databases.worlds import Database, DjangoWorld

Write = Callable[[int, Any, int], None]
"""Sets the balance of an account, with the fence of a lease."""


class Base(DeclarativeBase):
    """The tables of this file."""


class Account(Base):
    """A row with a fence."""

    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int]
    fence: Mapped[int] = mapped_column(BigInteger, default=0)


@pytest.fixture
def database(new_database: Callable[[str], Database]) -> Database:
    found = new_database("sqlite")
    found.ask("CREATE TABLE account (id integer PRIMARY KEY, balance integer, fence bigint)")
    found.ask("INSERT INTO account VALUES (7, 0, 0)")
    return found


@pytest.fixture(params=["sqlalchemy", "django"])
def write(request: pytest.FixtureRequest, database: Database) -> Iterator[Write]:
    if request.param == "sqlalchemy":
        from dibs.integrations.sqlalchemy import fenced

        engine = create_engine(database.url())

        def write(number: int, lease: Any, balance: int) -> None:
            with Session(engine) as session, session.begin():
                fenced(session, Account, number, lease, balance=balance)

        yield write
        engine.dispose()
        return
    world = new_world("django/sqlite", lambda kind: _known(database))
    assert isinstance(world, DjangoWorld)
    from django.db import models

    from dibs.integrations.django import fenced as fenced_rows

    model = _django_model(models)

    def write_rows(number: int, lease: Any, balance: int) -> None:
        fenced_rows(model.objects.using(world.alias).filter(pk=number), lease, balance=balance)

    yield write_rows
    world.connection.close()


def _known(database: Database) -> Database:
    return database


_models: list[Any] = []


def _django_model(models: Any) -> Any:
    if not _models:
        meta = type("Meta", (), {"app_label": "fences", "db_table": "account"})
        fields = {"balance": models.IntegerField(), "fence": models.BigIntegerField(default=0)}
        _models.append(
            type("DjangoAccount", (models.Model,), {**fields, "Meta": meta, "__module__": __name__})
        )
    return _models[0]


def test_a_late_holder_is_refused_and_changes_nothing(
    valkey: Server, database: Database, write: Write
) -> None:
    """The row has the fence of the later one."""
    with Dibs(valkey.url) as dibs:
        first = dibs.try_hold("account:7", ttl=30, fence=True)
        assert first is not None
        write(7, first, 100)
        first.release()
        with dibs.hold("account:7", ttl=30, fence=True) as second:
            write(7, second, 200)
            write(7, second, 300)
            with pytest.raises(LeaseLost) as caught:
                write(7, first, 400)
            assert caught.value.fence == first.fence
            assert database.ask("SELECT balance, fence FROM account") == [(300, second.fence)]


def test_a_row_that_is_not_there_is_no_lost_lease(valkey: Server, write: Write) -> None:
    """A LookupError: another holder has nothing to do with it."""
    with Dibs(valkey.url) as dibs, dibs.hold("account:8", ttl=30, fence=True) as lease:
        with pytest.raises(LookupError):
            write(8, lease, 100)


def test_a_lease_without_a_fence_is_refused(valkey: Server, write: Write) -> None:
    """Not asked for, or unguarded."""
    with Dibs(valkey.url) as dibs, dibs.hold("account:7", ttl=30) as lease:
        with pytest.raises(UsageError, match="fence=True"):
            write(7, lease, 100)
