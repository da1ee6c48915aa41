"""The tables, the same in SQLite and PostgreSQL. Prefixed: others may live in the database, too."""

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

from apps.databases import Moment

metadata = MetaData()

branches = Table(
    "menu_branches",
    metadata,
    Column("branch_id", String(64), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("name", String(80), nullable=False),
    Column("city", String(40), nullable=False),
    Column("timezone", String(64), nullable=False),
)

versions = Table(
    "menu_versions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("branch_id", ForeignKey(branches.c.branch_id), nullable=False),
    Column("number", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("published_at", Moment),
    Column("version_hash", String(64), nullable=False),
    UniqueConstraint("branch_id", "number"),
    CheckConstraint("status IN ('draft', 'published')", name="menu_versions_status"),
    CheckConstraint(
        "(status = 'published') = (published_at IS NOT NULL)", name="menu_versions_published"
    ),
)

windows = Table(
    "menu_windows",
    metadata,
    Column("version_id", ForeignKey(versions.c.id), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("code", String(64), nullable=False),
    Column("name", String(40), nullable=False),
    Column("weekdays", JSON, nullable=False),
    Column("start", String(5), nullable=False),
    Column("end", String(5), nullable=False),
)

categories = Table(
    "menu_categories",
    metadata,
    Column("version_id", ForeignKey(versions.c.id), primary_key=True),
    Column("category_id", String(64), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("name", String(40), nullable=False),
)

items = Table(
    "menu_items",
    metadata,
    Column("version_id", Integer, primary_key=True),
    Column("item_id", String(64), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("category_id", String(64), nullable=False),
    Column("name", String(80), nullable=False),
    Column("price", Integer, nullable=False),
    Column("description", String(400), nullable=False),
    Column("tags", JSON, nullable=False),
    Column("allergens", JSON, nullable=False),
    Column("windows", JSON, nullable=False),
    Column("available", Boolean, nullable=False),
    Column("image_name", String(80)),
    ForeignKeyConstraint(
        ["version_id", "category_id"], [categories.c.version_id, categories.c.category_id]
    ),
    CheckConstraint("price >= 0", name="menu_items_price"),
)
