"""A pooler between dibs and PostgreSQL that gives each transaction another connection."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from dibs import Dibs
from dibs.testing import eventually
from dibs.testing.ports import bound_socket
from tests.apps.postgres import Postgres
from tests.databases.worlds import Database

NO_REDIS = "redis://127.0.0.1:1"
SETTINGS = """
[databases]
* = host={host} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
logfile = {folder}/log
pidfile = {folder}/pid
"""


@pytest.fixture
def pooled(postgres: Postgres) -> Iterator[Callable[[str], str]]:
    """The URL of a database behind a pgbouncer with three connections, in transaction mode."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("NOT TESTED: pgbouncer, it is not installed (apt install pgbouncer)")
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to be root
    folder = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))
    with bound_socket() as reserved:
        port = reserved.getsockname()[1]
    host = Path(postgres.socket).parent
    (folder / "ini").write_text(SETTINGS.format(host=host, port=port, folder=folder))
    folder.chmod(0o777)
    server = subprocess.Popen(
        [program, "-q", str(folder / "ini")], user=user, stderr=subprocess.DEVNULL
    )

    def url(name: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{port}/{name}?sslmode=disable"

    def answers() -> bool:
        engine = create_engine(url("postgres"), poolclass=NullPool)
        try:
            with engine.connect() as connection:
                return connection.execute(text("SELECT 1")).scalar() == 1
        except Exception:
            return False

    try:
        eventually(answers, within=60)
        yield url
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


def test_behind_a_pooler_in_transaction_mode_each_order_is_placed_once(
    pooled: Callable[[str], str], new_database: Callable[[str], Database]
) -> None:
    """Without Redis, six clients at once.

    The lock of a key belongs to its transaction, so that it is released with it, on any connection,
    and none stays behind.
    """
    database = new_database("postgresql")
    name = database.facts.partition("@/")[2].partition("?")[0]
    # Before pgbouncer 1.21, statements that psycopg prepares are not there in the next transaction.
    engine = create_engine(pooled(name), pool_size=8, connect_args={"prepare_threshold": None})
    clients = [Dibs(NO_REDIS) for _ in range(6)]
    ran: list[str] = []

    def place_in(dibs: Dibs) -> Any:
        @dibs.once("order:{customer}", within=engine.begin, wait=60, window=60, after="replay")
        def place(connection: Any, customer: str) -> int:
            ran.append(customer)
            values = {"customer": customer}
            connection.execute(text("INSERT INTO orders VALUES (:customer, 1)"), values)
            return len(ran)

        return place

    keys = [f"c{number}" for number in range(8)]
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(place_in(each), key) for key in keys for each in clients]
        answers = {call.result() for call in calls}
    for each in clients:
        each.close()
    engine.dispose()
    assert sorted(ran) == keys
    assert len(answers) == len(keys)
    assert sorted(database.ask("SELECT customer FROM orders")) == [(key,) for key in keys]
    assert database.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
