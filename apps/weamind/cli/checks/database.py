"""The database: whether it answers, and whether its tables are the newest. It is only looked at."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from ... import migrations
from ...core.database import open_engine
from ..findings import Finding, failed, ok

DATABASE = "database"
REACH = "Start the database, or correct DATABASE_URL."
_BEGIN = "Start the bot once: it makes the tables, and brings them up to date."
_GO_BACK = "Run the version of the bot that made these tables, or a newer one."
_VERSIONS = "weamind_schema"
T = TypeVar("T")


class Schema(NamedTuple):
    """The revision of the tables, the one that this bot needs, and those that it knows."""

    kind: str
    found: str | None
    wanted: str | None
    known: frozenset[str]


async def check(url: str) -> Finding:
    """It answers, and its tables are the newest."""
    if _is_missing(url):
        return failed(DATABASE, "there is no file yet", _BEGIN)
    try:
        return judge(await _in_a_thread(lambda: _schema(url)))
    except SQLAlchemyError as error:
        reason = type(error).__name__  # its words may quote the URL, with a password in it
        return failed(DATABASE, f"it cannot be used ({reason})", REACH)


def judge(schema: Schema) -> Finding:
    """Whether the bot can work with these tables."""
    if schema.found == schema.wanted:
        return ok(DATABASE, f"{schema.kind}, its tables are the newest ({schema.found})")
    if schema.found is None:
        return failed(DATABASE, f"{schema.kind}, without tables", _BEGIN)
    detail = f"{schema.kind}, its tables are {schema.found}, not {schema.wanted}"
    return failed(DATABASE, detail, _BEGIN if schema.found in schema.known else _GO_BACK)


def _is_missing(url: str) -> bool:
    """True: to connect would make a file, and looking must not."""
    parsed = make_url(url)
    file = parsed.database if parsed.get_backend_name() == "sqlite" else None
    return bool(file) and file != ":memory:" and not Path(str(file)).exists()


def _schema(url: str) -> Schema:
    engine = open_engine(url)
    try:
        found = _found(engine)
    finally:
        engine.dispose()
    scripts = ScriptDirectory(str(Path(migrations.__file__ or "").parent))
    known = frozenset(script.revision for script in scripts.walk_revisions())
    return Schema(engine.dialect.name, found, scripts.get_current_head(), known)


def _found(engine: Engine) -> str | None:
    with engine.connect() as connection:
        options = {"version_table": _VERSIONS}
        return MigrationContext.configure(connection, opts=options).get_current_revision()


async def _in_a_thread(call: Callable[[], T]) -> T:
    """Run *call* in a daemon thread, which does not keep the process alive if it hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():  # no longer awaited
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        try:
            outcome = call(), None
        except BaseException as error:
            outcome = None, error
        with suppress(RuntimeError):  # the loop is closed: no longer awaited
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=work, name="doctor", daemon=True).start()
    return await done
