"""Transactions of the user's own database: one class for each driver, found by type.

No driver is imported here before a transaction of it is seen. A class translates: how a statement
is executed, which dialect the database speaks, whether the transaction will commit, and how one
learns that it has. What is executed is decided in `_core/done_table.py`. Methods of the classes for
asyncio return awaitables.
"""

import contextlib
import functools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any, Literal, NamedTuple, cast

from ._core.done_table import (
    NOT_THE_SAME,
    RecordAnswer,
    SqlDialect,
    TableRows,
    dialect_called,
    with_numbers,
    with_percent,
)
from .errors import UsageError

CommitListener = Callable[[bool], None]
"""Called once with True: the outermost transaction has committed; False: it was rolled back."""
End = Literal["committed", "rolled_back", "open", "unknown"]
"""The end of a transaction whose context manager has ended. open: one around it is open."""


class Transaction(ABC):
    """A transaction that is open, and in which the record of a submission is written."""

    kind: Literal["threads", "asyncio"] = "threads"
    is_opened_here = False
    """True: `within=` opened it, and must commit it. False: it is the caller's."""

    def __init__(self, value: Any) -> None:
        self.value = value

    database: str

    @property
    def dialect(self) -> SqlDialect:
        """Return what the database understands. Raises UsageError if dibs does not know it."""
        return dialect_called(self.database)

    @abstractmethod
    def start(self) -> Any:
        """Raise UsageError if it would never commit. Called before the first statement."""

    @abstractmethod
    def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        """Return all rows of a statement; none for one that returns no rows."""

    def flush(self) -> Any:
        """Write what the work has left to be written at the commit.

        Raises UsageError if it has ended.
        """
        return None

    def begin(self) -> Any:
        """Return a context manager in which it is a transaction. None: it is one already."""
        return None

    @property
    def end(self) -> End:
        """Its outcome, after its context manager has ended without an error."""
        return "unknown"

    def on_end(self, outcome: CommitListener) -> bool:
        """Have *outcome* called at the end of the outermost transaction. False: it cannot."""
        return False

    def before_commit(self, check: Callable[[], None]) -> None:
        """Have *check* called before the outermost commit, if the driver says when that is.

        What it raises keeps the transaction from its commit.
        """
        return

    def close(self) -> None:
        """Stop watching it."""
        return

    def note(self) -> bool:
        """Note which transaction is open, without a statement. False: none is."""
        return self.end == "open"

    @property
    def identity(self) -> Any:
        """The same object for all that is done on this connection, or in this session."""
        return self.value

    @property
    def is_in_savepoint(self) -> bool:
        """Return whether `on_end` would tell of the rollback of a savepoint that is open."""
        return False

    @property
    @abstractmethod
    def driver(self) -> Any:
        """The connection as its driver has it: transactions on one never block each other."""

    @property
    def is_open(self) -> bool:
        """Return whether it is still open; only a driver of SQLite is asked."""
        try:
            return bool(self.driver.in_transaction)
        except Exception:  # closed, or returned to its pool
            return False


class NotOurs(Exception):
    """Rolls back a transaction in which nothing was written: another has the row, or had it."""

    def __init__(self, answer: RecordAnswer, transaction: Transaction) -> None:
        super().__init__()
        self.answer = answer
        self.transaction = transaction


# ---- SQLAlchemy


class _SQLAlchemy(Transaction):
    """What connections and sessions have in common."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._root: Any = None
        """The transaction in which the record was taken."""

    @property
    def _sync(self) -> Any:
        """The connection or session that has the events; of one for asyncio the plain one."""
        return self.value

    @property
    @abstractmethod
    def _connection(self) -> Any:
        """The connection of the driver."""

    @property
    def dialect(self) -> SqlDialect:
        """By the name that SQLAlchemy has for it; a MariaDB may be called mysql."""
        dialect = self._connection.dialect
        is_mariadb = getattr(dialect, "is_mariadb", False)
        return dialect_called("mariadb" if is_mariadb else dialect.name)

    @property
    def driver(self) -> Any:
        return self._connection.connection.driver_connection

    def _must_be_begun(self, instead: str) -> None:
        if self.is_opened_here and not self._sync.in_transaction():
            opened = f"within= opened a {type(self.value).__name__} without a transaction, which"
            raise UsageError(
                f"{opened} would never commit: nothing of the work would be kept; "
                f"write within={instead}.begin"
            )

    def _must_not_autocommit(self) -> None:
        if _is_autocommit(self._connection.connection.dbapi_connection):
            raise UsageError(_AUTOCOMMIT.format("isolation_level"))

    def flush(self) -> Any:
        """Raise UsageError if the work has ended the transaction."""
        if self._sync.get_transaction() is not self._root:
            raise UsageError(NOT_THE_SAME)

    def note(self) -> bool:
        self._root = self._sync.get_transaction()
        return self._root is not None

    @property
    def identity(self) -> Any:
        return self._sync


@functools.lru_cache(maxsize=64)
def _text_clause(sql: str) -> Any:
    return import_module("sqlalchemy").text(sql)


def _fetched_rows(result: Any) -> TableRows:
    return result.fetchall() if result.returns_rows else ()


class _Connection(_SQLAlchemy):
    """A transaction of `engine.begin`."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._committed = self._is_listening = False

    @property
    def _connection(self) -> Any:
        return self.value

    def start(self) -> Any:
        self._must_be_begun("engine")
        self._must_not_autocommit()
        if not self.value.in_transaction():
            self.value.begin()  # as its first statement would
        self._watch_root()

    def _watch_root(self) -> None:
        self._root = self._sync.get_transaction()
        if self.is_opened_here:
            # Before the COMMIT; but if that fails, the context manager raises.
            import_module("sqlalchemy.event").listen(self._sync, "commit", self._on_commit)
            self._is_listening = True

    def _on_commit(self, connection: Any) -> None:
        self._committed = True

    def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        return _fetched_rows(self.value.execute(_text_clause(sql), parameters))

    @property
    def end(self) -> End:
        if self._root.is_active:
            return "open"
        return "committed" if self._committed else "rolled_back"

    def close(self) -> None:
        if self._is_listening:
            import_module("sqlalchemy.event").remove(self._sync, "commit", self._on_commit)


class _Watcher:
    """Listens to one session, for as long as that lives: listeners cannot be removed by others."""

    def __init__(self, session: Any) -> None:
        self._records: list[tuple[list[Any], CommitListener]] = []
        self._checks: list[tuple[Any, Callable[[], None]]] = []
        """With the transaction that they keep from its commit."""
        listen = import_module("sqlalchemy.event").listen
        listen(session, "before_commit", self._before_commit)
        listen(session, "after_commit", self._after_commit)
        listen(session, "after_soft_rollback", self._after_rollback)
        listen(session, "after_transaction_end", self._after_end)

    def add(self, chain: list[Any], outcome: CommitListener) -> None:
        """Call *outcome* when the last of *chain* has committed, or one of it was rolled back."""
        self._records.append((chain, outcome))

    def check(self, root: Any, check: Callable[[], None]) -> None:
        """Call *check* before *root* commits."""
        self._checks.append((root, check))

    def _before_commit(self, session: Any) -> None:
        for root, check in [*self._checks]:
            if root is session.get_transaction() and not session.in_nested_transaction():
                check()

    def _after_commit(self, session: Any) -> None:
        if not session.in_nested_transaction():  # or a savepoint was released: that may fail yet
            self._report_end(lambda chain: True, committed=True)

    def _after_rollback(self, session: Any, previous: Any) -> None:
        self._report_end(lambda chain: previous in chain, committed=False)

    def _after_end(self, session: Any, transaction: Any) -> None:
        # Closed without a commit, if nothing was heard before.
        self._report_end(lambda chain: transaction is chain[-1], committed=False)
        self._checks = [each for each in self._checks if each[0] is not transaction]

    def _report_end(self, concerns: Callable[[list[Any]], bool], *, committed: bool) -> None:
        ended = [each for each in self._records if concerns(each[0])]
        self._records = [each for each in self._records if each not in ended]
        for _, outcome in ended:
            outcome(committed)


_watchers: "weakref.WeakKeyDictionary[Any, _Watcher]" = weakref.WeakKeyDictionary()


class _Session(_SQLAlchemy):
    """A transaction of `sessionmaker.begin`."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._opened: Any = None

    @property
    def _connection(self) -> Any:
        return self._opened

    def start(self) -> Any:
        self._must_be_begun("sessionmaker(engine)")
        with _one_database():
            self._opened = self.value.connection()
        self._must_not_autocommit()
        self._root = self._sync.get_transaction()

    def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        return _fetched_rows(self._opened.execute(_text_clause(sql), parameters))

    def flush(self) -> Any:
        super().flush()
        self.value.flush()

    @property
    def _is_joined(self) -> bool:
        """True: it is on a connection of the caller, whose transaction may go on after it."""
        return hasattr(self._sync.get_bind(), "in_transaction")

    @property
    def end(self) -> End:
        goes_on = self._is_joined and self._sync.get_bind().in_transaction()
        return "open" if self._root.is_active or goes_on else "unknown"

    @property
    def is_in_savepoint(self) -> bool:
        return bool(self._sync.in_nested_transaction())

    def on_end(self, outcome: CommitListener) -> bool:
        if self._is_joined:
            return False
        session, chain = self._sync, list[Any]()
        each = session.get_nested_transaction() or self._root
        while each is not None:
            chain.append(each)
            each = each.parent
        self._watcher.add(chain, outcome)
        return True

    def before_commit(self, check: Callable[[], None]) -> None:
        if not self._is_joined:
            self._watcher.check(self._root, check)

    @property
    def _watcher(self) -> _Watcher:
        session = self._sync
        if session not in _watchers:
            _watchers[session] = _Watcher(session)
        return _watchers[session]


@contextlib.contextmanager
def _one_database() -> Generator[None]:
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "UnboundExecutionError":
            raise
        raise UsageError(
            "the session has several databases, or none: open the transaction of the one that has "
            "the work, and hand over its connection"
        ) from error


class _AsyncConnection(_Connection):
    """A transaction of `AsyncEngine.begin`."""

    kind = "asyncio"

    @property
    def _sync(self) -> Any:
        return self.value.sync_connection

    @property
    def _connection(self) -> Any:
        return self.value.sync_connection

    async def start(self) -> Any:
        self._must_be_begun("engine")
        self._must_not_autocommit()
        if not self.value.in_transaction():
            await self.value.begin()
        self._watch_root()

    async def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        return _fetched_rows(await self.value.execute(_text_clause(sql), parameters))


class _AsyncSession(_Session):
    """A transaction of `async_sessionmaker.begin`."""

    kind = "asyncio"

    @property
    def _sync(self) -> Any:
        return self.value.sync_session

    @property
    def _connection(self) -> Any:
        return self._opened.sync_connection

    async def start(self) -> Any:
        self._must_be_begun("async_sessionmaker(engine)")
        with _one_database():
            self._opened = await self.value.connection()
        self._must_not_autocommit()
        self._root = self._sync.get_transaction()

    async def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        return _fetched_rows(await self._opened.execute(_text_clause(sql), parameters))

    async def flush(self) -> Any:
        _SQLAlchemy.flush(self)
        await self.value.flush()


_AUTOCOMMIT = (
    "the connection is in autocommit mode ({}), so that each statement commits alone: the record "
    "and the work must commit together, in a transaction"
)


def _is_autocommit(connection: Any) -> bool:
    """Return whether a connection of a driver, as SQLAlchemy has it, commits each statement."""
    driver = getattr(connection, "driver_connection", connection)  # of one for asyncio
    if getattr(driver, "in_transaction", None) is True:  # SQLite, BEGIN was sent by a listener
        return False
    if getattr(connection, "autocommit", None) is True:
        return True
    if "sqlite" in type(driver).__module__:
        return getattr(connection, "isolation_level", "") is None
    get = getattr(connection, "get_autocommit", None)  # MySQL
    return bool(get()) if callable(get) else False


# ---- psycopg


class _Psycopg(Transaction):
    """`pool.connection`, or a connection in a block of `transaction()`."""

    database = "postgresql"

    @property
    def driver(self) -> Any:
        return self.value

    def start(self) -> Any:
        if self.value.autocommit and not self._is_in_transaction:
            raise UsageError(_AUTOCOMMIT.format("autocommit=True outside of transaction()"))

    @property
    def _is_in_transaction(self) -> bool:
        return self.value.info.transaction_status.name in ("INTRANS", "INERROR", "ACTIVE")

    def _cursor(self) -> Any:
        return self.value.cursor(row_factory=import_module("psycopg.rows").tuple_row)

    def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        with self._cursor() as cursor:
            cursor.execute(with_percent(sql), parameters)
            return cursor.fetchall() if cursor.description else ()

    @property
    def end(self) -> End:
        return "open" if not self.value.closed and self._is_in_transaction else "unknown"


class _AsyncPsycopg(_Psycopg):
    """A transaction of psycopg, for asyncio."""

    kind = "asyncio"

    async def start(self) -> Any:
        super().start()

    async def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        async with self._cursor() as cursor:
            await cursor.execute(with_percent(sql), parameters)
            return await cursor.fetchall() if cursor.description else ()


# ---- asyncpg


class _Asyncpg(Transaction):
    """`pool.acquire`; the transaction is begun here, unless there is one."""

    database = "postgresql"
    kind = "asyncio"

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._begun = False

    @property
    def driver(self) -> Any:
        return self.value

    def begin(self) -> Any:
        if self.value.is_in_transaction():
            return None
        if not self.is_opened_here:
            raise UsageError(_AUTOCOMMIT.format("asyncpg, outside of transaction()"))
        self._begun = True
        return self.value.transaction()

    async def start(self) -> Any:
        pass

    async def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        text, names = with_numbers(sql)
        return [tuple(row) for row in await self.value.fetch(text, *map(parameters.get, names))]

    @property
    def end(self) -> End:
        if self._begun:  # so it was the outermost one
            return "committed"
        try:
            return "open" if self.value.is_in_transaction() else "unknown"
        except Exception:  # it was returned to its pool
            return "unknown"


# ---- sqlite3


class _SQLite(Transaction):
    """A connection, in a block that commits it."""

    database = "sqlite"

    @property
    def driver(self) -> Any:
        return self.value

    def start(self) -> Any:
        connection = self.value
        if connection.in_transaction:
            return
        if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
            raise UsageError(_AUTOCOMMIT.format("isolation_level=None, outside of BEGIN"))

    def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        cursor = self.value.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters).fetchall()

    @property
    def end(self) -> End:
        try:
            return "open" if self.value.in_transaction else "unknown"
        except Exception:  # closed
            return "unknown"


# ---- Django


class _Django(Transaction):
    """`transaction.atomic`; the value is the alias of a database."""

    def __init__(self, value: Any) -> None:
        database = import_module("django.db")
        super().__init__(value or database.DEFAULT_DB_ALIAS)
        self._connection = database.connections[self.value]

    @property
    def driver(self) -> Any:
        return self._connection.connection

    @property
    def dialect(self) -> SqlDialect:
        vendor = self._connection.vendor
        is_mariadb = vendor == "mysql" and self._connection.mysql_is_mariadb
        return dialect_called("mariadb" if is_mariadb else vendor)

    def start(self) -> Any:
        if not self._connection.in_atomic_block:
            raise UsageError(_AUTOCOMMIT.format("Django, outside of transaction.atomic()"))

    def execute(self, sql: str, parameters: dict[str, Any]) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(with_percent(sql), parameters or None)
            return cursor.fetchall() if cursor.description else ()

    def note(self) -> bool:
        return bool(self._connection.in_atomic_block)

    @property
    def identity(self) -> Any:
        return self._connection

    @property
    def is_in_savepoint(self) -> bool:
        return bool(self._connection.savepoint_ids)

    def on_end(self, outcome: CommitListener) -> bool:
        connection = self._connection
        if not connection.commit_on_exit:  # autocommit is off: its COMMIT calls no hook
            return False
        if _is_of_test_case(connection):
            outcome(True)
        elif connection.closed_in_transaction:
            outcome(False)
        else:
            connection.on_commit(_Ending(outcome), robust=True)
            # Before those of the application: one that raises would drop the others.
            connection.run_on_commit.insert(0, connection.run_on_commit.pop())
        return True


def _is_of_test_case(connection: Any) -> bool:
    """Return whether it is in the transaction of a test, which stays open and never commits."""
    return connection.atomic_blocks[0]._from_testcase


class _Ending:
    """A callback for the commit. Django drops it at a rollback, and says nothing."""

    def __init__(self, outcome: CommitListener) -> None:
        self._outcome: CommitListener | None = outcome

    def __call__(self) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            outcome(True)

    def __del__(self) -> None:
        outcome, self._outcome = getattr(self, "_outcome", None), None
        if outcome is not None:
            outcome(False)


# ---- finding the class

_CLASSES: dict[tuple[str, str], type[Transaction]] = {
    ("sqlalchemy", "Connection"): _Connection,
    ("sqlalchemy", "Session"): _Session,
    ("sqlalchemy", "AsyncConnection"): _AsyncConnection,
    ("sqlalchemy", "AsyncSession"): _AsyncSession,
    ("psycopg", "Connection"): _Psycopg,
    ("psycopg", "AsyncConnection"): _AsyncPsycopg,
    ("asyncpg", "Connection"): _Asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _Asyncpg,
    ("sqlite3", "Connection"): _SQLite,
}
_INSIDE: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("sqlalchemy", "scoped_session"): lambda value: value.registry(),
    ("sqlalchemy", "async_scoped_session"): lambda value: value.registry(),
    ("sqlalchemy", "SessionTransaction"): lambda value: value.session,
    ("sqlalchemy", "AsyncSessionTransaction"): lambda value: value.session,
    ("sqlalchemy", "Transaction"): lambda value: value.connection,
    ("sqlalchemy", "AsyncTransaction"): lambda value: value.connection,
    ("psycopg", "Transaction"): lambda value: value.connection,
    ("psycopg", "AsyncTransaction"): lambda value: value.connection,
}
"""What has a connection or session, and is none."""


class _Type(NamedTuple):
    package: str
    name: str


def _types_of(value: Any) -> list[_Type]:
    return [_Type(each.__module__.partition(".")[0], each.__name__) for each in type(value).__mro__]


def transaction_of(value: Any, manager: Any = None) -> Transaction:
    """Return the transaction of *value*, which *manager* has yielded.

    Raises UsageError if of an unknown type.
    """
    types = _types_of(value)
    inside = next((_INSIDE[each] for each in types if each in _INSIDE), None)
    if inside is not None:
        return transaction_of(inside(value), manager)
    known = next((_CLASSES[each] for each in types if each in _CLASSES), None)
    if known is not None:
        return known(value)
    if value is None and ("django", "Atomic") in _types_of(manager):
        return _Django(manager.using)
    kind = cast("type[Any]", type(manager if value is None else value))
    raise UsageError(
        f"a transaction of {kind.__module__}.{kind.__qualname__} is not known; within= takes those "
        "of SQLAlchemy, psycopg, asyncpg, sqlite3 and Django"
    )


def django(using: str | None) -> Transaction:
    """Return the transaction that Django has open for the database *using*."""
    return _Django(using)


def open_in_django() -> list[Transaction]:
    """Return the transactions that Django has open in this thread, and that will end."""
    connections = import_module("django.db").connections.all(initialized_only=True)
    opened = [each for each in connections if each.in_atomic_block and not _is_of_test_case(each)]
    return [_Django(each.alias) for each in opened]
