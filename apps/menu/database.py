"""The chain's menus in SQLite or PostgreSQL. It blocks: call it from threads, not from tasks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, time
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Table,
    func,
    insert,
    select,
)

from apps.databases import USUAL, Timeouts, open_engine, wait_for_start, writing

from .documents import hash_of
from .menus import Branch, Category, Chain, Edition, Item, Menu, NewVersion, TimeWindow, Version
from .schema import branches, categories, items, metadata, versions, windows

_START_LOCK = 0x6D656E75
"""The lock in PostgreSQL under which the tables are created and filled."""


@dataclass(frozen=True, slots=True)
class Active:
    """A branch and its latest published version, if any."""

    branch: Branch
    version: Version | None
    menu: Menu | None


class MenuDatabase:
    """All versions of all menus. Versions are added, never changed.

    sqlalchemy.exc.OperationalError, from any method: the database does not answer.
    """

    def __init__(self, url: str, timeouts: Timeouts = USUAL) -> None:
        """Nothing connects yet. ValueError: the URL is none of SQLite or PostgreSQL."""
        self._engine = open_engine(url, example="sqlite:///menu.db", timeouts=timeouts)
        self._writer = writing(self._engine)

    def __repr__(self) -> str:
        return f"<MenuDatabase {self._engine.url.render_as_string(hide_password=True)}>"

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def prepare(self, chain: Chain) -> None:
        """Create the tables, and fill them with *chain* if they are empty.

        Any number of processes may do so at once: the first one does it, the others find it done.
        """
        with self._writer.begin() as connection:
            wait_for_start(connection, _START_LOCK)
            metadata.create_all(connection)
            if connection.scalar(select(func.count()).select_from(branches)) == 0:
                _fill(connection, chain)

    def ping(self) -> None:
        """Returns if the database answers."""
        with self._engine.begin() as connection:
            connection.execute(select(branches.c.branch_id).limit(1))

    def branches(self) -> list[tuple[Branch, int | None]]:
        """Every branch, with the number of its active version, if it has one."""
        number = (
            select(func.max(versions.c.number))
            .where(versions.c.branch_id == branches.c.branch_id, versions.c.status == "published")
            .scalar_subquery()
        )
        query = select(branches, number.label("active")).order_by(branches.c.position)
        with self._engine.begin() as connection:
            return [(_branch(row), row.active) for row in connection.execute(query)]

    def versions(self, branch_id: str) -> list[Version] | None:
        """The branch's versions, the newest first. None: there is no such branch."""
        query = select(versions).where(versions.c.branch_id == branch_id)
        with self._engine.begin() as connection:
            if _find_branch(connection, branch_id) is None:
                return None
            found = connection.execute(query.order_by(versions.c.number.desc()))
            return [_version(row) for row in found]

    def menu(self, branch_id: str, number: int) -> Menu | None:
        """The menu of that version. None: there is no such version."""
        with self._engine.begin() as connection:
            row = _find_version(connection, branch_id, number)
            return None if row is None else _menu(connection, row.id)

    def active(self, branch_id: str) -> Active | None:
        """The branch and its active version. None: there is no such branch."""
        with self._engine.begin() as connection:
            branch = _find_branch(connection, branch_id)
            if branch is None:
                return None
            row = _find_version(connection, branch_id, None)
            if row is None:
                return Active(branch, None, None)
            return Active(branch, _version(row), _menu(connection, row.id))

    def publish(self, branch_id: str, edition: Edition, now: datetime) -> Version | None:
        """The new version; unless it is a draft, it is served from now on, as a whole.

        None: there is no such branch. Invalid: the edition cannot be made.
        """
        with self._writer.begin() as connection:
            if _find_branch(connection, branch_id, lock=True) is None:
                return None
            base = _find_version(connection, branch_id, edition.copy_of)
            menu = edition.made_from(None if base is None else _menu(connection, base.id))
            newest = select(func.max(versions.c.number)).where(versions.c.branch_id == branch_id)
            number = (connection.scalar(newest) or 0) + 1
            return _add(connection, branch_id, number, NewVersion(menu, now, edition.draft))


# ---- writing


def _fill(connection: Connection, chain: Chain) -> None:
    for position, (branch, history) in enumerate(chain):
        connection.execute(insert(branches), asdict(branch) | {"position": position})
        for number, version in enumerate(history, 1):
            _add(connection, branch.branch_id, number, version)


def _add(connection: Connection, branch_id: str, number: int, new: NewVersion) -> Version:
    version = Version(
        branch_id=branch_id,
        number=number,
        status="draft" if new.draft else "published",
        created_at=new.created_at,
        published_at=None if new.draft else new.created_at,
        version_hash=hash_of(new.menu),
    )
    inserted = connection.execute(insert(versions).values(asdict(version)))
    assert inserted.inserted_primary_key is not None
    _add_menu(connection, inserted.inserted_primary_key[0], new.menu)
    return version


def _add_menu(connection: Connection, version_id: int, menu: Menu) -> None:
    _add_rows(connection, windows, version_id, [_window_row(each) for each in menu.windows])
    _add_rows(connection, categories, version_id, [asdict(each) for each in menu.categories])
    _add_rows(connection, items, version_id, [asdict(item) for item in menu.items])


def _add_rows(
    connection: Connection, table: Table, version_id: int, rows: list[dict[str, Any]]
) -> None:
    numbered = [
        row | {"version_id": version_id, "position": position} for position, row in enumerate(rows)
    ]
    connection.execute(insert(table), numbered)


def _window_row(window: TimeWindow) -> dict[str, Any]:
    clocks = {"start": f"{window.start:%H:%M}", "end": f"{window.end:%H:%M}"}
    return asdict(window) | clocks


# ---- reading


def _find_branch(connection: Connection, branch_id: str, *, lock: bool = False) -> Branch | None:
    """The branch. With *lock*, its row is locked until this transaction ends."""
    query = select(branches).where(branches.c.branch_id == branch_id)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _branch(row)


def _find_version(connection: Connection, branch_id: str, number: int | None) -> Row[Any] | None:
    """That version; without a number the active one, which is the newest that is published."""
    query = select(versions).where(versions.c.branch_id == branch_id)
    if number is None:
        query = query.where(versions.c.status == "published")
    else:
        query = query.where(versions.c.number == number)
    return connection.execute(query.order_by(versions.c.number.desc()).limit(1)).one_or_none()


def _menu(connection: Connection, version_id: int) -> Menu:
    def rows(table: Table) -> Sequence[Row[Any]]:
        query = select(table).where(table.c.version_id == version_id)
        return connection.execute(query.order_by(table.c.position)).all()

    return Menu(
        windows=tuple(_window(row) for row in rows(windows)),
        categories=tuple(Category(row.category_id, row.name) for row in rows(categories)),
        items=tuple(_item(row) for row in rows(items)),
    )


def _branch(row: Row[Any]) -> Branch:
    return Branch(row.branch_id, row.name, row.city, row.timezone)


def _version(row: Row[Any]) -> Version:
    return Version(
        branch_id=row.branch_id,
        number=row.number,
        status=row.status,
        created_at=row.created_at,
        published_at=row.published_at,
        version_hash=row.version_hash,
    )


def _window(row: Row[Any]) -> TimeWindow:
    start, end = time.fromisoformat(row.start), time.fromisoformat(row.end)
    return TimeWindow(row.code, row.name, tuple(row.weekdays), start, end)


def _item(row: Row[Any]) -> Item:
    return Item(
        item_id=row.item_id,
        category_id=row.category_id,
        name=row.name,
        price=row.price,
        description=row.description,
        tags=tuple(row.tags),
        allergens=tuple(row.allergens),
        windows=tuple(row.windows),
        available=row.available,
        image_name=row.image_name,
    )
