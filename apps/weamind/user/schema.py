"""The tables, the same in SQLite and PostgreSQL. Prefixed: others may live in the database, too.

They are made by `migrations/`; this is what the queries are written against.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()

LONGEST_ID = 255
"""LINE's own ids have 33 characters."""

users = Table(
    "weamind_users",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("line_user_id", String(LONGEST_ID), nullable=False, unique=True),
    Column("home_code", String(8)),
    Column("office_code", String(8)),
    Column("is_active", Boolean, nullable=False),
    Column("active_at", BigInteger, nullable=False),
    # When LINE says is_active changed, in ms: redelivered events may come out of order.
)

queries = Table(
    "weamind_queries",
    metadata,
    Column("user_id", ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("place_code", String(8), primary_key=True),
    Column("asked_at", BigInteger, nullable=False, index=True),
    # In ms since 1970. One row for each place: how often a person asked is private.
)

unanswered = Table(
    "weamind_unanswered",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("event", Text, nullable=False),
    # As LINE sent it, in JSON: the process ended before it could answer.
    Column("kept_at", BigInteger, nullable=False),
)
