"""The record of a submission in the user's own database, in the transaction of the work.

One table, `dibs_done`, one row for each key. A row is *taken* by the first statement of the
transaction, with the key and the fingerprint of the payload, and *done* by the last one, with the
result; both commit with the rows of the work, or none of them does. Times are milliseconds since
1970 by the clock of the database.

Nothing here talks to a database: each step is a generator that yields statements with their
parameters, is sent the rows, and returns what they mean.
"""

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Literal, NamedTuple

from ..errors import Duplicate, Mismatch, UsageError
from .signatures import signature_of

TableRow = Sequence[Any]
TableRows = Sequence[TableRow]
Statement = tuple[str, dict[str, Any]]
"""SQL with `:name` for each parameter, and the parameters."""

TABLE = "dibs_done"
PORTION = 500
"""How many old rows are removed at once."""

# ---- dialects


class SqlDialect(NamedTuple):
    """The statements for one database."""

    name: str
    create: tuple[str, ...]
    take: str
    look: str
    done: str
    undo: str
    prune: str
    has_transaction_ids: bool = False
    """True: TAKE and DONE return the id of their transaction. False: a savepoint shows whether it
    is still the same one."""
    has_returning: bool = True
    """False: who took the row is seen by a second statement."""
    has_binary_keys: bool = False
    file: str | None = None
    """Asks for the file of a database that has one writer at a time."""


def _sql_statements(
    now: str, key: str, look_ends: str, prune_ends: str
) -> tuple[str, str, str, str]:
    """LOOK, DONE, UNDO and PRUNE where only the time and the name of a column differ."""
    old = f"SELECT {key} FROM {TABLE} WHERE until <= {now} ORDER BY until LIMIT {PORTION}"
    return (
        f"SELECT token, fingerprint, result, until - {now} FROM {TABLE} "
        f"WHERE {key} = :key AND until > {now}{look_ends}",
        f"UPDATE {TABLE} SET result = :result, until = {now} + :window "
        f"WHERE {key} = :key AND token = :token",
        f"DELETE FROM {TABLE} WHERE {key} = :key AND token = :token",
        f"DELETE FROM {TABLE} WHERE {key} IN (SELECT {key} FROM ({old}{prune_ends}) AS old)",
    )


_PG_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
_POSTGRESQL = SqlDialect(
    "postgresql",
    (
        f"CREATE TABLE IF NOT EXISTS {TABLE} (\n"
        '  key text COLLATE "C" PRIMARY KEY,\n'
        "  token text NOT NULL,\n"
        "  fingerprint text NOT NULL,\n"
        "  result bytea,\n"
        "  at bigint NOT NULL,\n"
        "  until bigint NOT NULL\n"
        ") WITH (fillfactor = 80)",
        f"CREATE INDEX IF NOT EXISTS {TABLE}_until ON {TABLE} (until)",
    ),
    # One statement that never waits: who does not get the lock inserts nothing. An expired row is
    # replaced.
    f"INSERT INTO {TABLE} AS d (key, token, fingerprint, at, until) "
    "SELECT CAST(:key AS text), CAST(:token AS text), CAST(:fingerprint AS text), "
    f"n.now, n.now + CAST(:window AS bigint) FROM (SELECT {_PG_NOW} AS now) AS n "
    "WHERE pg_try_advisory_xact_lock(CAST(:lock AS bigint)) "
    "ON CONFLICT (key) DO UPDATE SET token = excluded.token, fingerprint = excluded.fingerprint, "
    "result = NULL, at = excluded.at, until = excluded.until WHERE d.until <= excluded.at "
    "RETURNING CAST(txid_current() AS text)",
    f"SELECT token, fingerprint, result, until - {_PG_NOW} FROM {TABLE} "
    f"WHERE key = CAST(:key AS text) AND until > {_PG_NOW}",
    f"UPDATE {TABLE} SET result = CAST(:result AS bytea), "
    f"until = {_PG_NOW} + CAST(:window AS bigint) "
    "WHERE key = CAST(:key AS text) AND token = CAST(:token AS text) "
    "RETURNING CAST(txid_current() AS text)",
    f"DELETE FROM {TABLE} WHERE key = CAST(:key AS text) AND token = CAST(:token AS text)",
    f"DELETE FROM {TABLE} WHERE key IN (SELECT key FROM {TABLE} WHERE until <= {_PG_NOW} "
    f"ORDER BY until LIMIT {PORTION} FOR UPDATE SKIP LOCKED)",
    has_transaction_ids=True,
)

_LITE_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_SQLITE = SqlDialect(
    "sqlite",
    (
        f"CREATE TABLE IF NOT EXISTS {TABLE} (\n"
        "  key text PRIMARY KEY,\n"
        "  token text NOT NULL,\n"
        "  fingerprint text NOT NULL,\n"
        "  result blob,\n"
        "  at integer NOT NULL,\n"
        "  until integer NOT NULL\n"
        ") WITHOUT ROWID",
        f"CREATE INDEX IF NOT EXISTS {TABLE}_until ON {TABLE} (until)",
    ),
    # No lock: SQLite has one writer. WHERE true: or ON would be read as that of a join.
    f"INSERT INTO {TABLE} (key, token, fingerprint, at, until) "
    f"SELECT :key, :token, :fingerprint, n.now, n.now + :window FROM (SELECT {_LITE_NOW} AS now) "
    "AS n WHERE true "
    "ON CONFLICT (key) DO UPDATE SET token = excluded.token, fingerprint = excluded.fingerprint, "
    f"result = NULL, at = excluded.at, until = excluded.until WHERE {TABLE}.until <= excluded.at "
    "RETURNING token",
    *_sql_statements(_LITE_NOW, "key", "", ""),
    file="SELECT file FROM pragma_database_list WHERE name = 'main'",
)

_MY_NOW = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
_MY_CREATE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (\n"
    "  `key` varbinary(255) PRIMARY KEY,\n"  # no collation: A is not a, and a space counts
    "  token varchar(80) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,\n"
    "  fingerprint varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,\n"
    "  result longblob,\n"
    "  at bigint NOT NULL,\n"
    "  until bigint NOT NULL,\n"
    f"  KEY {TABLE}_until (until)\n"
    ") ENGINE = InnoDB"
)


def _if_old(column: str) -> str:
    return f"{column} = IF(until <= VALUES(at), VALUES({column}), {column})"


# INSERT IGNORE would cut long keys. `until` comes last: assignments are made from left to right.
_MY_TAKE = (
    f"INSERT INTO {TABLE} (`key`, token, fingerprint, at, until) "
    f"VALUES (:key, :token, :fingerprint, {_MY_NOW}, {_MY_NOW} + :window) ON DUPLICATE KEY UPDATE "
    f"{_if_old('token')}, {_if_old('fingerprint')}, "
    "result = IF(until <= VALUES(at), NULL, result), "
    f"{_if_old('at')}, {_if_old('until')}"
)
# A locking read: the snapshot of a transaction that has read before does not show newer rows.
_LOCKING = " LOCK IN SHARE MODE"
_MY_REST = _sql_statements(_MY_NOW, "`key`", _LOCKING, " FOR UPDATE SKIP LOCKED")
_MYSQL = SqlDialect(
    "mysql", (_MY_CREATE,), _MY_TAKE, *_MY_REST, has_returning=False, has_binary_keys=True
)
_MARIADB = _MYSQL._replace(
    name="mariadb",
    take=f"SET STATEMENT innodb_lock_wait_timeout=0 FOR {_MY_TAKE}",  # 1205 at once: elsewhere
)

DIALECTS: Final = {each.name: each for each in (_POSTGRESQL, _SQLITE, _MYSQL, _MARIADB)}


def dialect_called(name: str) -> SqlDialect:
    """Return the dialect. Raises UsageError if dibs has no statements for such a database."""
    try:
        return DIALECTS[name]
    except KeyError:
        known = ", ".join(sorted(DIALECTS))
        raise UsageError(f"within= works with {known}, not with {name}") from None


def ddl(dialect: SqlDialect) -> str:
    """Return what creates the table, as a script."""
    return "".join(f"{statement};\n" for statement in dialect.create)


# ---- placeholders

_PARAMETER = re.compile(r"(?<!:):([a-z]+)")


def with_percent(sql: str) -> str:
    """Return *sql* with `%(name)s` for each parameter."""
    return _PARAMETER.sub(r"%(\1)s", sql)


def with_numbers(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return *sql* with `$1`, `$2` …, and which parameters these are."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql), names


# ---- keys

LONGEST_RECORD_KEY = 255
_KEPT = 150
_SHORTENED = re.compile(r"#[0-9a-f]{64}\Z")


def row_key(key: bytes) -> str:
    """Return the key of the row: the key in the store, if every database can hold it.

    Else its first characters and its hash. A key that looks like such a one is hashed, too.
    """
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    if (
        0 < len(key) <= LONGEST_RECORD_KEY
        and text
        and "\0" not in text
        and not _SHORTENED.search(text)
    ):
        return text
    head = key[:_KEPT].decode(errors="ignore").replace("\0", "")
    return f"{head}#{hashlib.sha256(key).hexdigest()}"


def advisory_lock(key: str) -> int:
    """Return the number of the advisory lock for *key*: 64 bits, signed."""
    data = hashlib.blake2b(key.encode(), digest_size=8, person=b"dibs").digest()
    return int.from_bytes(data, "big", signed=True)


# ---- steps


class DoneRecord(NamedTuple):
    """What a submission writes."""

    key: str
    token: str
    """Unique for each submission."""
    fingerprint: str
    window_ms: int


class Ours(NamedTuple):
    """The row is taken by this transaction."""

    transaction: str | None
    """Its id, where the database has one."""


class Recorded(NamedTuple):
    """A transaction with this key has committed."""

    token: str
    fingerprint: str
    result: bytes | None
    left: float
    """Seconds until it is forgotten."""


class OpenElsewhere(NamedTuple):
    """Another transaction with this key is open: it may commit, or not."""


class RefusedByTable(NamedTuple):
    """The answer to a duplicate, from the table."""

    error: Duplicate | Mismatch


ELSEWHERE = OpenElsewhere()
RecordAnswer = Ours | Recorded | OpenElsewhere

WRONG_HALF = (
    "an async function needs a transaction for asyncio, as of an AsyncEngine; a plain function "
    "needs one for threads"
)
NOT_COMMITTED = (
    "the context manager of within= ended without a commit: nothing of the work was kept; it has "
    "to commit at its end, as engine.begin and sessionmaker.begin do"
)
ONE_WRITER = (
    "this transaction would wait for the one around it for ever: SQLite has one writer, and both "
    "write to the same file; call it outside of the other, or record a claim in the one that is "
    "open, by claim.within(…)"
)
READ_ONLY = "the transaction is read-only: the record cannot be written; open one on the primary"
YIELDS_NOTHING = (
    "the context manager of within= does not yield what the function was given as its first "
    "argument; with Django write within=transaction.atomic, or dibs.integrations.django.atomic(…)"
)
NOT_THE_SAME = (
    "the transaction was committed or rolled back before its end: leave that to the context "
    "manager that opened it"
)


def take(dialect: SqlDialect, record: DoneRecord) -> Generator[Statement, TableRows, RecordAnswer]:
    """Take the row, or say who has it. Nothing is changed where it is not ours."""
    parameters = _record_parameters(dialect, record, fingerprint=record.fingerprint)
    parameters["window"] = record.window_ms
    if dialect.has_transaction_ids:
        parameters["lock"] = advisory_lock(record.key)
    rows = yield dialect.take, parameters
    if not rows:
        row = yield from look(dialect, record.key)
        if row is None:
            return ELSEWHERE
        if dialect.has_returning or row.token != record.token:
            return row
    if dialect.has_transaction_ids:
        return Ours(str(rows[0][0]))
    yield f"SAVEPOINT {_savepoint(record)}", {}
    return Ours(None)


def _savepoint(record: DoneRecord) -> str:
    """Return its name for this record.

    In MySQL, one of the same name inside would take its place.
    """
    return f"dibs_{advisory_lock(record.token) % 2**64:016x}"


def look(dialect: SqlDialect, key: str) -> Generator[Statement, TableRows, Recorded | None]:
    """Yield what is recorded for *key*, and not forgotten."""
    rows = yield dialect.look, {"key": key.encode() if dialect.has_binary_keys else key}
    if not rows:
        return None
    token, fingerprint, result, ttl_ms = rows[0]
    stored = None if result is None else bytes(result)
    return Recorded(
        _as_text(token), _as_text(fingerprint), stored, max(float(ttl_ms) / 1000, 0.001)
    )


def look_now(dialect: SqlDialect, key: str) -> Generator[Statement, TableRows, Recorded | None]:
    """Yield the same, first in its transaction: no open one that has the key is waited for."""
    plain = dialect._replace(look=dialect.look.removesuffix(_LOCKING))
    return (yield from look(plain, key))


def finish(
    dialect: SqlDialect, record: DoneRecord, ours: Ours, result: bytes | None
) -> Generator[Statement, TableRows, None]:
    """Write the result.

    Raises UsageError if it is not the transaction in which the row was taken.
    """
    if not dialect.has_transaction_ids:
        yield f"RELEASE SAVEPOINT {_savepoint(record)}", {}
    parameters = _record_parameters(dialect, record, result=result) | {"window": record.window_ms}
    rows = yield dialect.done, parameters
    if dialect.has_transaction_ids and (not rows or str(rows[0][0]) != ours.transaction):
        raise UsageError(NOT_THE_SAME)


def file(dialect: SqlDialect) -> Generator[Statement, TableRows, str | None]:
    """Yield the path of a database that has one writer; None: it has many, or no file."""
    if dialect.file is None:
        return None
    rows = yield dialect.file, {}
    return str(rows[0][0] or "") or None if rows else None


def undo(dialect: SqlDialect, record: DoneRecord) -> Generator[Statement, TableRows, None]:
    """Leave no row: the rows of the work may commit, and the next submission runs."""
    yield dialect.undo, _record_parameters(dialect, record)


def prune(dialect: SqlDialect) -> Generator[Statement, TableRows, None]:
    """Remove some rows whose window is over."""
    yield dialect.prune, {}


def create(dialect: SqlDialect) -> Generator[Statement, TableRows, None]:
    """Create the table, if it is not there."""
    for statement in dialect.create:
        yield statement, {}


def _record_parameters(dialect: SqlDialect, record: DoneRecord, **more: Any) -> dict[str, Any]:
    key = record.key.encode() if dialect.has_binary_keys else record.key
    return {"key": key, "token": record.token, **more}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode()


# ---- what callers see of a function that is handed a transaction


def shown(opener: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* without what *opener* yields for it.

    Raises UsageError if it has no place for that.
    """
    if not hands_over(opener):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any: ...

    signature = remaining(opener, signature_of(function))
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def hands_over(opener: Any) -> bool:
    """Return whether *opener* yields a value for the function: Django's `atomic` yields nothing."""
    while isinstance(opener, functools.partial):
        opener = opener.func
    return not getattr(opener, "yields_nothing", False) and not str(
        getattr(opener, "__module__", "")
    ).startswith("django.")


def remaining(opener: Any, signature: inspect.Signature) -> inspect.Signature:
    """Return *signature* without what *opener* yields.

    Raises UsageError if it has no first argument for that.
    """
    if not hands_over(opener):
        return signature
    parameters = list(signature.parameters.values())
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise UsageError("within= hands the transaction over as the first argument; there is none")
    if first.name in ("self", "cls"):
        raise UsageError(
            "within= hands the transaction over as the first argument, and a method has "
            f"{first.name} there: decorate a function"
        )
    return signature.replace(parameters=parameters[1:])


# ---- what an error of a driver means

DatabaseFailure = Literal[
    "missing", "denied", "readonly", "conflict", "locked", "exists", "savepoint"
]

_CODES: dict[str, DatabaseFailure] = {
    "42P01": "missing", "1146": "missing",
    "42501": "denied", "1142": "denied", "1044": "denied",
    "25006": "readonly", "1792": "readonly", "1290": "readonly", "1836": "readonly",
    "SQLITE_READONLY": "readonly",
    "40001": "conflict", "40P01": "conflict", "1213": "conflict", "1020": "conflict",
    "SQLITE_BUSY": "conflict", "SQLITE_BUSY_SNAPSHOT": "conflict",
    "1205": "locked",
    "42P07": "exists", "23505": "exists", "42710": "exists", "1050": "exists",
    "1305": "savepoint",
}  # fmt: skip
_SENTENCES: dict[str, DatabaseFailure] = {
    "no such table": "missing",
    "no such savepoint": "savepoint",
    "already exists": "exists",
}
"""What SQLite says where its code is only "an error"."""


def database_failure(error: BaseException) -> DatabaseFailure | None:
    """Return what an error of any driver means, also behind SQLAlchemy's or Django's.

    None: another.
    """
    seen: BaseException | None = error
    for _ in range(5):
        if seen is None:
            return None
        codes: list[DatabaseFailure] = [_CODES[code] for code in _codes_of(seen) if code in _CODES]
        failure = codes[0] if codes else _sqlite_failure(seen)
        if failure is not None:
            return failure
        inner = getattr(seen, "orig", None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__
    return None


def _codes_of(error: BaseException) -> list[str]:
    names = ("sqlstate", "pgcode", "sqlite_errorname")
    first = error.args[0] if error.args and isinstance(error.args[0], int) else None  # MySQL
    return [str(code) for code in (first, *(getattr(error, name, None) for name in names)) if code]


def _sqlite_failure(error: BaseException) -> DatabaseFailure | None:
    if not type(error).__module__.startswith("sqlite3"):
        return None
    text = str(error)
    return next((code for words, code in _SENTENCES.items() if words in text), None)
