"""The record in the user's database: keys, statements, what answers and errors mean."""

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import UsageError
from dibs._core.done_table import (
    DIALECTS,
    ELSEWHERE,
    LONGEST_RECORD_KEY,
    DoneRecord,
    Ours,
    Recorded,
    TableRows,
    create,
    database_failure,
    ddl,
    dialect_called,
    finish,
    look,
    row_key,
    take,
    with_numbers,
    with_percent,
)

RECORD = DoneRecord("order:c7", "5a1f-2c", "-", 60_000)
POSTGRESQL, SQLITE, MARIADB = (DIALECTS[name] for name in ("postgresql", "sqlite", "mariadb"))


def played(steps: Any, *answers: TableRows) -> tuple[list[str], Any]:
    """The statements of *steps*, each sent one of *answers*; and what it returns."""
    statements, sent = [], iter(answers)
    try:
        sql, _ = next(steps)
        while True:
            statements.append(sql)
            sql, _ = steps.send(next(sent))
    except StopIteration as end:
        return statements, end.value


# ---- keys


@pytest.mark.parametrize(
    "key", ["a", "order:c7", "order: ", "訂單:七", "É", "x" * LONGEST_RECORD_KEY], ids=ascii
)
def test_a_key_that_every_database_can_hold_is_the_key_of_the_row(key: str) -> None:
    """So that a person finds it."""
    assert row_key(key.encode()) == key


@pytest.mark.parametrize(
    "key", [b"", b"a\0b", b"\xff", b"x" * 256, "七".encode() * 100, b"x" * 5000], ids=len
)
def test_any_other_key_is_shortened_and_hashed(key: bytes) -> None:
    """PostgreSQL takes no NUL and no broken UTF-8, MySQL no more than 255 bytes."""
    made = row_key(key)
    assert len(made.encode()) <= LONGEST_RECORD_KEY
    assert "\0" not in made
    assert made != row_key(key + b"y")


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_different_keys_have_different_rows(one: bytes, other: bytes) -> None:
    """Also a key that looks like the shortened form of another one."""
    assert (row_key(one) == row_key(other)) is (one == other)
    assert row_key(row_key(one).encode()) == row_key(one) or "#" in row_key(one)
    long = one + b"x" * 256
    assert row_key(row_key(long).encode()) != row_key(long)


# ---- answers


def test_a_row_that_is_returned_was_taken() -> None:
    """PostgreSQL: with the id of the transaction, in one statement."""
    assert played(take(POSTGRESQL, RECORD), [("771",)])[1] == Ours("771")


def test_no_lock_and_no_row_means_that_it_runs_elsewhere() -> None:
    """Never that it was done: the other transaction may be rolled back."""
    statements, answer = played(take(POSTGRESQL, RECORD), [], [])
    assert answer is ELSEWHERE
    assert len(statements) == 2


def test_a_committed_row_is_found_with_its_result_and_its_time() -> None:
    """As the driver returns it: a memoryview is bytes, milliseconds are seconds."""
    row = ("other", "-", memoryview(b"dibs1 json"), 1500)
    answer = played(take(POSTGRESQL, RECORD), [], [row])[1]
    assert answer == Recorded("other", "-", b"dibs1 json", 1.5)
    assert played(look(MARIADB, "k"), [(b"other", b"-", None, 0)])[1] == Recorded(
        "other", "-", None, 0.001
    )


def test_without_returning_the_token_in_the_row_says_whose_it_is() -> None:
    """MySQL and MariaDB: the number of changed rows depends on the driver's flags."""
    ours = [("5a1f-2c", "-", None, 60_000)]
    assert played(take(MARIADB, RECORD), [], ours, [])[1] == Ours(None)
    assert isinstance(played(take(MARIADB, RECORD), [], [("x", "-", None, 1)])[1], Recorded)


def test_a_result_is_written_only_in_the_transaction_that_took_the_row() -> None:
    """Another id, or no row: the work has committed or rolled back in between."""
    assert played(finish(POSTGRESQL, RECORD, Ours("771"), b""), [("771",)])[1] is None
    for rows in ([], [("772",)]):
        with pytest.raises(UsageError, match="committed or rolled back before its end"):
            played(finish(POSTGRESQL, RECORD, Ours("771"), b""), rows)


def test_where_transactions_have_no_id_a_savepoint_takes_its_place() -> None:
    """It is gone with the transaction, and releasing it is an error then."""
    statements, _ = played(take(SQLITE, RECORD), [("5a1f-2c",)], [])
    assert statements[-1].startswith("SAVEPOINT")
    statements, _ = played(finish(SQLITE, RECORD, Ours(None), None), [], [])
    assert statements[0].startswith("RELEASE SAVEPOINT")


# ---- statements


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_statements_can_be_written_for_every_driver(dialect: Any) -> None:
    """No colon is left, and no percent sign that a driver would take for a parameter."""
    for sql in (dialect.take, dialect.look, dialect.done, dialect.undo, dialect.prune):
        assert "%" not in sql
        assert ":" not in with_percent(sql)
        text, names = with_numbers(sql)
        assert ":" not in text
        assert all(f"${number}" in text for number in range(1, len(names) + 1))
    assert [f"{sql};\n" for sql, _ in create(dialect)] == [
        f"{each}\n" for each in ddl(dialect).replace(";\n", ";\0").split("\0")[:-1]
    ]


def test_an_unknown_database_is_a_usage_error_that_names_the_known_ones() -> None:
    """Oracle has no such statements."""
    with pytest.raises(UsageError, match="mariadb, mysql, postgresql, sqlite, not with oracle"):
        dialect_called("oracle")


# ---- errors


class DriverError(Exception):
    """As drivers raise it, and as SQLAlchemy and Django wrap it."""

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args)
        self.__dict__.update(facts)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (DriverError(sqlstate="42P01"), "missing"),
        (DriverError("wrapped", orig=DriverError(pgcode="40001")), "conflict"),
        (DriverError(1205, "Lock wait timeout exceeded"), "locked"),
        (DriverError(1213, "Deadlock found"), "conflict"),
        (DriverError("anything"), None),
        (sqlite3.OperationalError("no such table: dibs_done"), "missing"),
        (sqlite3.OperationalError("no such savepoint: dibs_done"), "savepoint"),
        (ValueError("no such table"), None),
    ],
    ids=str,
)
def test_an_error_is_read_by_its_code_not_by_its_class(error: Exception, failure: str) -> None:
    """Every driver has its own classes; codes are those of the database."""
    assert database_failure(error) == failure
    outer = RuntimeError()
    outer.__cause__ = error
    assert database_failure(outer) == failure
