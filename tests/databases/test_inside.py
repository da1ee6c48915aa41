"""What is inside a transaction ends with it: every verb, in every way to be inside, at every end.

No one else sees an effect before the COMMIT; after a commit every effect is there, after a rollback
none.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from sqlalchemy import event

from dibs import Dibs, Duplicate
from dibs._core.done_table import DIALECTS, ddl
from dibs.testing import Server, aeventually
from tests.databases.worlds import WORLDS, Database, World, settled, sqlite_database

DONE: dict[str, Any] = {"window": 60, "after": "replay"}
numbers = itertools.count(1)


# ---- one text for both halves


class Entered:
    """A context manager of either half as one of asyncio."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    async def __aenter__(self) -> Any:
        if hasattr(self.manager, "__aenter__"):
            return await self.manager.__aenter__()
        return self.manager.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        if hasattr(self.manager, "__aexit__"):
            return await self.manager.__aexit__(*error)
        return self.manager.__exit__(*error)


def plainly(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that awaits nothing of asyncio."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for the event loop")


def of_half(world: World, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """*function* as a function of the world's half, with the same parameters."""
    if world.is_async:
        return function

    def call(*args: Any) -> Any:
        return plainly(function(*args))

    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return call


def outside(look: Callable[[], Any]) -> Any:
    """What *look* returns in a thread that knows of no transaction."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(look()))
    thread.start()
    thread.join()
    return found[0]


# ---- verbs


class Verb:
    """One verb, used inside; and what others see of it."""

    is_lease = False
    """Its end is a release, after a rollback as well."""

    def __init__(self, world: World, dibs: Any, other: Dibs, valkey: Server) -> None:
        self.world, self.dibs, self.other, self.valkey = world, dibs, other, valkey
        self.key = f"inside:{next(numbers)}"

    def prepare(self) -> None:
        """What is there before."""

    async def act(self) -> None:
        raise NotImplementedError

    def is_seen(self) -> bool:
        raise NotImplementedError

    def value(self) -> bytes:
        return self.valkey.client().get(self.key) or b""


class Hold(Verb):
    is_lease = True
    options: ClassVar[dict[str, Any]] = {"ttl": 30}
    until: Any = None

    async def act(self) -> None:
        more = {} if self.until is None else {"until": self.until}
        async with Entered(self.dibs.hold(self.key, **self.options, **more)):
            assert not self.is_seen()

    def is_seen(self) -> bool:
        return not self.valkey.client().exists(self.key)


class HoldRenewed(Hold):
    options: ClassVar[dict[str, Any]] = {"ttl": 30, "renew": True}


class HoldTwice(Hold):
    """The unit sees its own effects: the key is held again, and released later still."""

    options: ClassVar[dict[str, Any]] = {"ttl": 30, "wait": 5}

    async def act(self) -> None:
        for _ in range(2):
            await super().act()


class Limit(Hold):
    options: ClassVar[dict[str, Any]] = {"ttl": 30, "limit": 1}

    def is_seen(self) -> bool:
        return not self.valkey.client().zcard(self.key)


class Exclusive(Hold):
    async def act(self) -> None:
        async def work() -> None: ...

        await settled(self.dibs.exclusive(self.key, ttl=30)(of_half(self.world, work))())


class TryHold(Hold):
    async def act(self) -> None:
        lease = await settled(self.dibs.try_hold(self.key, ttl=30))
        assert await settled(lease.release())
        assert not await settled(lease.release())


class Once(Verb):
    """Also its second call: the unit sees its own result."""

    async def act(self) -> None:
        calls: list[int] = []

        async def work(key: str) -> int:
            calls.append(1)
            return 7

        once = self.dibs.once("{key}", **DONE)(of_half(self.world, work))
        for _ in range(2):
            assert await settled(once(self.key)) == 7
        assert calls == [1]

    def is_seen(self) -> bool:
        return self.value().startswith(b"dibs1 done")


class ClaimHeld(Once):
    async def act(self) -> None:
        for times in range(2):
            with pytest.raises(Duplicate) if times else contextlib.nullcontext():
                async with Entered(self.dibs.claim(self.key, window=60, after="hold")):
                    pass


class ClaimReleased(Hold):
    """It leaves nothing: the unit may claim it again, and others may not."""

    async def act(self) -> None:
        for _ in range(2):
            async with Entered(self.dibs.claim(self.key, window=60)):
                pass


class Cached(Verb):
    loaded = "new"

    def cached(self, dibs: Any) -> Any:
        async def load() -> str:
            return self.loaded

        function = of_half(self.world, load) if dibs is self.dibs else lambda: self.loaded
        return dibs.cached(self.key, ttl=60, type=str, tags=[f"{self.key}:tag"])(function)

    async def act(self) -> None:
        assert await settled(self.cached(self.dibs)()) == "new"
        self.loaded = "another"
        assert await settled(self.cached(self.dibs)()) == "new"
        self.loaded = "new"

    def is_seen(self) -> bool:
        return self.value().startswith(b"dibs1 json") and b"new" in self.value()


class CachedMany(Cached):
    async def act(self) -> None:
        async def load(items: list[str]) -> dict[str, str]:
            return dict.fromkeys(items, self.loaded)

        many = self.dibs.cached_many("{item}", ttl=60, type=str)(of_half(self.world, load))
        assert await settled(many([self.key])) == {self.key: "new"}


class CacheSet(Cached):
    def prepare(self) -> None:
        self.loaded = "old"
        assert self.cached(self.other)() == "old"

    async def act(self) -> None:
        cached = self.cached(self.dibs)
        assert await settled(cached.set(value="new"))
        assert await settled(cached()) == "new"


class Invalidate(Cached):
    """Who reads the old rows before the COMMIT must not keep what is read."""

    def prepare(self) -> None:
        self.loaded = "old"
        assert self.cached(self.other)() == "old"

    async def invalidate(self, cached: Any) -> None:
        assert await settled(cached.invalidate())

    async def act(self) -> None:
        cached = self.cached(self.dibs)
        await self.invalidate(cached)
        assert outside(self.cached(self.other)) == "old"
        self.loaded = "new"
        assert await settled(cached()) == "new"
        self.loaded = "old"

    def is_seen(self) -> bool:
        return outside(lambda: self.cached(self.other).peek()) is None


class InvalidateTag(Invalidate):
    async def invalidate(self, cached: Any) -> None:
        assert await settled(self.dibs.invalidate_tag(f"{self.key}:tag"))


class AfterCommit(Verb):
    """In order, and one that raises is not in the way of the next."""

    async def act(self) -> None:
        self.called: list[int] = []

        async def first() -> None:
            self.called.append(1)
            raise KeyError("logged")

        await settled(self.dibs.after_commit(of_half(self.world, first)))
        await settled(self.dibs.after_commit(lambda: self.called.append(2)))

    def is_seen(self) -> bool:
        assert self.called in ([], [1, 2])
        return bool(self.called)


LEASES = (Hold, HoldRenewed, HoldTwice, Limit)
VERBS: tuple[type[Verb], ...] = (
    *LEASES, Exclusive, TryHold, Once, ClaimHeld, ClaimReleased, Cached, CachedMany, CacheSet,
    Invalidate, InvalidateTag, AfterCommit,
)  # fmt: skip


# ---- worlds

IN_WORLDS = (
    "session/postgresql", "session/sqlite", "async-session/postgresql", "async-session/sqlite",
    "django/postgresql", "engine/postgresql", "async-engine/postgresql", "psycopg/postgresql",
    "asyncpg/postgresql", "sqlite3/sqlite",
)  # fmt: skip
SAYS_WHEN = ("session/", "async-session/", "django/")
"""Drivers that say when a transaction has ended that was given to dibs."""


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """With a table in which the COMMIT of some orders fails."""
    driver, _, kind = request.param.partition("/")
    connection: Any = None
    if kind == "sqlite":
        database = sqlite_database(str(Path(tmp_path_factory.mktemp("inside")) / "app.db"))
    else:
        url = request.getfixturevalue("postgres").new_database()
        connection = psycopg.connect(url, autocommit=True)

        def ask(sql: str) -> list[Any]:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

        database = Database(kind, url, ask)
    made = WORLDS[driver][0](database)
    made.name = request.param
    made.refuse_commits()
    for statement in ddl(DIALECTS[kind]).split(";"):
        if statement.strip():
            made.ask(statement)
    yield made
    plainly(made.close()) if not made.is_async else None
    if connection is not None:
        connection.close()


@contextlib.asynccontextmanager
async def foreign_keys(world: World) -> AsyncIterator[None]:
    """SQLite looks at them only where it is told to."""
    engine = getattr(world, "engine", None)
    if world.database.kind != "sqlite" or engine is None:
        yield
        return
    engine = getattr(engine, "sync_engine", engine)

    def connected(connection: Any, _: Any) -> None:
        connection.cursor().execute("PRAGMA foreign_keys = ON")

    event.listen(engine, "connect", connected)
    try:
        yield
    finally:
        event.remove(engine, "connect", connected)


class Case:
    """One verb in one transaction, which ends in one way."""

    def __init__(self, world: World, verb: Verb, end: str) -> None:
        self.world, self.verb, self.end = world, verb, end
        self.customer = "ann" if end == "commit fails" else f"customer {next(numbers)}"
        if world.database.kind == "sqlite" and self.customer != "ann":
            world.ask(f"INSERT INTO shoppers VALUES ('{self.customer}')")
        self.has_worked = self.has_ended = False

    # ---- the transaction

    @property
    def begin(self) -> Any:
        """Opens a transaction; before its COMMIT nothing must be seen."""
        hooks = (self.before_commit, self.after_commit)
        return (async_begin if self.world.is_async else plain_begin)(self.world, *hooks)

    def before_commit(self) -> None:
        if self.has_worked and not self.has_ended:
            assert not self.verb.is_seen()
        elif self.has_ended and self.end == "unknown":
            raise ConnectionError("the table cannot be asked")

    def after_commit(self) -> None:
        is_first = self.has_worked and not self.has_ended
        self.has_ended = self.has_worked
        if is_first and self.end in ("reply lost", "unknown"):
            raise ConnectionError("the reply is lost")

    async def work(self, session: Any) -> int:
        await settled(self.world.insert(session, self.customer, 1))
        await self.verb.act()
        assert not self.verb.is_seen()
        self.has_worked = True
        if self.end == "rollback":
            raise KeyError("rolls back")
        return 7

    # ---- how it is inside

    async def within(self, dibs: Any) -> None:
        if self.world.hands_over:
            work: Any = of_half(self.world, self._handed)
        else:
            work = of_half(self.world, self._bare)
        once = dibs.once("work:{key}", within=self.begin, **DONE)(work)
        assert await settled(once(self.customer)) == 7
        assert await settled(once(self.customer)) == 7  # and is not run again

    async def _handed(self, session: Any, key: str) -> int:
        return await self.work(session)

    async def _bare(self, key: str) -> int:
        return await self.work(None)

    async def claimed(self, dibs: Any) -> None:
        async with Entered(self.begin()) as session:
            await self._claimed(dibs, session)

    async def _claimed(self, dibs: Any, session: Any) -> int:
        using = {} if self.world.hands_over else {"using": getattr(self.world, "alias", None)}
        claim: Any
        async with Entered(dibs.claim(f"work:{self.customer}:claim", **DONE)) as claim:
            async with Entered(claim.within(session, **using)):
                return await self.work(session)

    async def nested(self, dibs: Any) -> None:
        """The claim inside joins the transaction around it."""

        async def handed(session: Any, key: str) -> int:
            return await self._claimed(dibs, session)

        async def bare(key: str) -> int:
            return await self._claimed(dibs, None)

        work = of_half(self.world, handed if self.world.hands_over else bare)
        once = dibs.once("work:{key}", within=self.begin, **DONE)(work)
        assert await settled(once(self.customer)) == 7

    async def until(self, dibs: Any) -> None:
        """dibs knows nothing of the transaction but what `until` says."""
        async with Entered(self.begin()) as session:
            setattr(self.verb, "until", session)  # noqa: B010
            await self.work(session)


def plain_begin(world: World, before: Callable[[], None], after: Callable[[], None]) -> Any:
    begin = world.begin

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        with begin() as session:
            yield session
            before()
        after()

    setattr(opened, "yields_nothing", not world.hands_over)  # noqa: B010
    return opened if world.hands_over else DjangoBegin(begin, before, after)


class DjangoBegin:
    """The same around Django's `atomic`, of whose type dibs must see it."""

    yields_nothing = True

    def __init__(self, begin: Any, before: Any, after: Any) -> None:
        self.begin, self.before, self.after = begin, before, after

    def __call__(self) -> Any:
        manager = self.begin()
        before, after = self.before, self.after

        class Atomic(type(manager)):  # type: ignore[misc]
            def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
                if error is None:
                    try:
                        before()
                    except BaseException as failed:
                        super().__exit__(type(failed), failed, failed.__traceback__)
                        raise
                answer = super().__exit__(kind, error, trace)
                if error is None:
                    after()
                return answer

        Atomic.__module__ = type(manager).__module__
        Atomic.__name__ = "Atomic"
        manager.__class__ = Atomic
        return manager


def async_begin(world: World, before: Callable[[], None], after: Callable[[], None]) -> Any:
    begin = world.begin

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with begin() as session:
            yield session
            before()
        after()

    return opened


AROUND = ("within", "claimed", "nested", "until")
ENDS = ("commit", "rollback", "commit fails", "reply lost", "unknown")


WITH_EVERY_VERB = ("session/postgresql", "async-session/sqlite")
"""Elsewhere a lease, a claim and a value are enough: what a verb does depends on no driver."""


def is_possible(name: str, verb: type[Verb], around: str, end: str) -> bool:
    """Whether there is such a case."""
    if name not in WITH_EVERY_VERB and verb not in (Hold, Once, Cached, Invalidate):
        return False
    if around == "until" and (verb not in LEASES or name.startswith("django/")):
        return False
    if around in ("claimed", "until") and name.startswith("asyncpg/"):
        return False  # a connection has no transaction before dibs begins one
    if end == "commit fails" and name.startswith("sqlite3/"):
        return False  # foreign keys are not looked at
    is_seen = around in ("within", "nested") or name.startswith(SAYS_WHEN)
    if not is_seen and not verb.is_lease:
        return False  # what a commit would decide, which no one sees
    return around == "within" or end not in ("reply lost", "unknown")


CASES = [
    pytest.param(name, *case, id=" ".join((name, case[0].__name__, *case[1:])))
    for name in IN_WORLDS
    for case in itertools.product(VERBS, AROUND, ENDS)
    if is_possible(name, *case)
]


@pytest.mark.parametrize(("world", "verb", "around", "end"), CASES, indirect=["world"])
async def test_what_is_inside_ends_with_what_is_around_it(
    world: World, valkey: Server, verb: type[Verb], around: str, end: str
) -> None:
    """A cell: nothing is seen before the COMMIT, all of it after, nothing after a rollback."""
    dibs = world.dibs(valkey.url)
    with Dibs(valkey.url) as other:
        used = verb(world, dibs, other, valkey)
        used.prepare()
        case = Case(world, used, end)

        async def run() -> None:
            fails = end in ("rollback", "commit fails", "unknown")
            failed: Exception | None = None
            try:
                await getattr(case, around)(dibs)
            except AssertionError:
                raise
            except Exception as error:
                failed = error
            assert bool(failed) == fails, failed

        async with foreign_keys(world):
            await world.awaited(run if world.is_async else lambda: plainly(run()))()
            name = getattr(world, "name", "")
            is_known = end == "unknown" and name.startswith(SAYS_WHEN)
            is_told = end in ("commit", "reply lost") or is_known
            is_unclear = end in ("unknown", "commit fails") and not name.startswith(SAYS_WHEN)
            is_again = is_unclear and isinstance(used, Invalidate)
            expected = used.is_lease or is_told or is_again
            await aeventually(lambda: used.is_seen() == expected)
            committed = case.customer in world.orders() if end != "commit fails" else False
            assert committed == (end in ("commit", "reply lost", "unknown"))
        await world.closed(dibs)
    if world.is_async:
        await world.close()
