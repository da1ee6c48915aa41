"""The orders in SQLite or PostgreSQL. It blocks: call it from threads, not from tasks."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, inspect, select, text

from apps.databases import Timeouts, open_engine, wait_for_start, writing

from .orders import Line, Order
from .schema import lines, metadata, orders

_START_LOCK = 0x6F726465
"""The lock in PostgreSQL under which the tables are created."""


class OrderDatabase:
    """All orders. They are added, never changed.

    sqlalchemy.exc.OperationalError, from any method: the database does not answer.
    """

    def __init__(self, url: str, timeouts: Timeouts) -> None:
        """Nothing connects yet. ValueError: the URL is none of SQLite or PostgreSQL."""
        self._engine = open_engine(url, example="sqlite:///orders.db", timeouts=timeouts)
        self._writer = writing(self._engine)

    def __repr__(self) -> str:
        return f"<OrderDatabase {self._engine.url.render_as_string(hide_password=True)}>"

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def prepare(self) -> None:
        """Create the tables. Any number of processes may do so at once."""
        with self._writer.begin() as connection:
            wait_for_start(connection, _START_LOCK)
            _forget_submissions(connection)
            metadata.create_all(connection)

    def ping(self) -> None:
        """Returns if the database answers."""
        with self._engine.begin() as connection:
            connection.execute(select(orders.c.id).limit(1))

    def begin(self) -> AbstractContextManager[Connection]:
        """Begin a transaction for `add`; it commits at its end."""
        return self._writer.begin()

    def find(self, customer: str, order_id: str) -> Order | None:
        """The customer's order; None: there is no such order."""
        return self._one(_of(customer).where(orders.c.order_id == order_id))

    def recent(self, customer: str, *, most: int, before: str | None) -> list[Order] | None:
        """The customer's orders, the newest first. None: there is no order *before*."""
        query = _of(customer).order_by(orders.c.id.desc()).limit(most)
        with self._engine.begin() as connection:
            if before is not None:
                place = _of(customer).where(orders.c.order_id == before)
                row = connection.execute(place).one_or_none()
                if row is None:
                    return None
                query = query.where(orders.c.id < row.id)
            return _with_lines(connection, connection.execute(query).all())

    def _one(self, query: Select[Any]) -> Order | None:
        with self._engine.begin() as connection:
            found = _with_lines(connection, connection.execute(query).all())
            return found[0] if found else None


# ---- writing


def add(connection: Connection, customer: str, order: Order) -> None:
    """Add an order, in a transaction of `begin`."""
    row = {"order_id": order.order_id, "customer": customer, "placed_at": order.placed_at}
    inserted = connection.execute(insert(orders).values(row))
    assert inserted.inserted_primary_key is not None
    number = inserted.inserted_primary_key[0]
    rows = [
        {"order": number, "position": position, "sku": line.sku, "quantity": line.quantity}
        for position, line in enumerate(order.items)
    ]
    connection.execute(insert(lines), rows)


# ---- tables of earlier versions


def _forget_submissions(connection: Connection) -> None:
    """Earlier versions knew a submission by a column of its order; its record is in `dibs_done`.

    In PostgreSQL the column stays, for processes of the earlier version that still run.
    """
    seen = inspect(connection)
    if not seen.has_table(orders.name):
        return
    if "submission" not in [column["name"] for column in seen.get_columns(orders.name)]:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"ALTER TABLE {orders.name} ALTER submission DROP NOT NULL"))
        return
    # SQLite has no such statement. Lines refer to orders until they are there again.
    columns = ", ".join(column.name for column in orders.columns)
    connection.execute(text("PRAGMA defer_foreign_keys = ON"))
    connection.execute(text(f"CREATE TABLE old_orders AS SELECT {columns} FROM {orders.name}"))
    orders.drop(connection)
    orders.create(connection)
    connection.execute(text(f"INSERT INTO {orders.name} SELECT {columns} FROM old_orders"))
    connection.execute(text("DROP TABLE old_orders"))


# ---- reading


def _of(customer: str) -> Select[Any]:
    return select(orders).where(orders.c.customer == customer)


def _with_lines(connection: Connection, rows: Sequence[Row[Any]]) -> list[Order]:
    """The orders of these rows, with their lines, in one query."""
    found: dict[int, list[Line]] = {row.id: [] for row in rows}
    query = select(lines).where(lines.c.order.in_(found)).order_by(lines.c.order, lines.c.position)
    for row in connection.execute(query) if found else ():
        found[row.order].append(Line(sku=row.sku, quantity=row.quantity))
    return [Order(row.order_id, row.placed_at, tuple(found[row.id])) for row in rows]
