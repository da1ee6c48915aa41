"""The tables, the same in SQLite and PostgreSQL. Prefixed: others may live in the database, too."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
)

from apps.databases import Moment

metadata = MetaData()

orders = Table(
    "shop_orders",
    metadata,
    Column("id", Integer, primary_key=True),  # grows: the order in which orders were placed
    Column("order_id", String(32), nullable=False, unique=True),
    Column("customer", String(64), nullable=False),
    Column("placed_at", Moment, nullable=False),
    Index("shop_orders_of_customer", "customer", "id"),
)

lines = Table(
    "shop_order_lines",
    metadata,
    Column("order", Integer, ForeignKey(orders.c.id), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("sku", String(64), nullable=False),
    Column("quantity", Integer, CheckConstraint("quantity > 0"), nullable=False),
)
