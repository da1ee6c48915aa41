"""`once(…, within=…)` on an endpoint: its rows, its key and its response are one commit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import AsyncDibs, UsageError
from dibs.testing import Server
from tests.databases.worlds import Database, sqlite_database

from . import Call
from .tills import KEYED, POLICY, TILLS, ask, opened

pytestmark = pytest.mark.usefixtures("nothing_stays_open")
every_till = pytest.mark.parametrize("name", TILLS)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return sqlite_database(str(tmp_path / "app.db"))


class Boom(Exception):
    pass


# ---- duplicates


@every_till
async def test_the_table_answers_when_redis_has_forgotten(
    valkey: Server, database: Database, name: str
) -> None:
    """The same status, headers and body as Redis replays; then Redis knows it again."""
    async with opened(name, valkey, database) as till:
        first = await till.post(headers=KEYED)
        by_redis = await till.post(headers=KEYED)
        valkey.flush()
        by_table = await till.post(headers=KEYED)
        assert (first.status, first.json, first.is_replay) == (201, {"order": 1}, False)
        assert by_table == by_redis
        assert (by_table.body, by_table.is_replay) == (first.body, True)
        assert by_table.headers["x-order"] == "yes" and "set-cookie" not in by_table.headers
        assert till.rows == (1, 1) and len(till.runs) == 1
        till.world.ask("DELETE FROM dibs_done")
        assert await till.post(headers=KEYED) == by_redis


DEAD = b"5a1f-2c - 193310c1a40@web-1:4711"
"""A claim of a process that was killed."""


@every_till
async def test_the_table_answers_for_a_first_copy_that_seems_dead(
    valkey: Server, database: Database, name: str
) -> None:
    """Killed after its commit: when a renewal is overdue, its client's retry is answered; before,
    and if nothing was committed, it is refused.
    """
    async with opened(name, valkey, database, lease=30) as till:
        first = await till.post(headers=KEYED)
        by_redis = await till.post(headers=KEYED)
        redis, key = valkey.client(), valkey.keys()[0]
        redis.set(key, DEAD, px=25_000)
        refused = await till.post(headers=KEYED)
        assert (refused.status, refused.json["state"]) == (409, "running")
        redis.pexpire(key, 19_500)
        assert await till.post(headers=KEYED) == by_redis and by_redis.body == first.body
        till.world.ask("DELETE FROM dibs_done")
        redis.set(key, DEAD, px=10_000)
        assert (await till.post(headers=KEYED)).status == 409
        assert len(till.runs) == 1 and len(till.world.orders()) == 1


@every_till
async def test_the_table_answers_while_redis_is_out(
    own_server: Server, database: Database, name: str
) -> None:
    """`on_outage="open"` is safe: one order, also for a key that Redis has never seen."""
    async with opened(name, own_server, database) as till:
        first = await till.post(headers=KEYED)
        own_server.kill()
        again = await till.post(headers=KEYED)
        assert (again.body, again.is_replay) == (first.body, True)
        for _ in range(2):
            answer = await till.post(headers={"idempotency-key": "k-2"})
            assert (answer.status, answer.json) == (201, {"order": 2})
        assert till.rows == (2, 2)


@every_till
async def test_a_key_with_another_body_is_refused_by_the_table_too(
    valkey: Server, database: Database, name: str
) -> None:
    """422, as from Redis."""
    async with opened(name, valkey, database) as till:
        await till.post(headers=KEYED, body=b'{"cart": 1}')
        for _ in range(2):
            refused = await till.post(headers=KEYED, body=b'{"cart": 2}')
            assert (refused.status, refused.json["type"]) == (422, "urn:dibs:payload-mismatch")
            valkey.flush()
        assert till.rows == (1, 1)


@every_till
async def test_a_request_that_is_held_is_refused_by_the_table_too(
    valkey: Server, database: Database, name: str
) -> None:
    """`after="hold"` records that it was done, and no response."""
    async with opened(name, valkey, database, after="hold", key="never") as till:
        assert (await till.post()).status == 201
        valkey.flush()
        refused = await till.post()
        assert (refused.status, refused.json["state"]) == (429, "done")
        assert till.rows == (1, 1)


@every_till
async def test_a_response_that_is_too_long_is_done_and_not_stored(
    valkey: Server, database: Database, name: str
) -> None:
    """As in Redis: a duplicate is refused, and does not run."""
    async with opened(name, valkey, database, most=5) as till:
        assert (await till.post(headers=KEYED)).status == 201
        valkey.flush()
        refused = await till.post(headers=KEYED)
        assert (refused.status, refused.json["type"]) == (409, "urn:dibs:already-done")
        assert till.rows == (1, 1)


# ---- what is not committed


@every_till
async def test_an_endpoint_that_raises_leaves_nothing(
    valkey: Server, database: Database, name: str
) -> None:
    """Its rows are rolled back, its key is free."""
    async with opened(name, valkey, database) as till:
        till.error = Boom()
        await ask(till, headers=KEYED)
        assert (till.rows, valkey.keys()) == ((0, 0), [])
        till.error = None
        assert (await till.post(headers=KEYED)).status == 201
        assert till.rows == (1, 1)


NOT_FINAL: dict[str, tuple[int, dict[str, str]]] = {
    "500": (500, {}),
    "503": (503, {"retry-after": "1"}),
    "422": (422, {}),
    "409 with Retry-After": (409, {"retry-after": "5"}),
    "429": (429, {}),
}


@every_till
@pytest.mark.parametrize("case", NOT_FINAL)
async def test_an_answer_that_is_not_final_is_rolled_back(
    valkey: Server, database: Database, name: str, case: str
) -> None:
    """The client gets it; rows and record do not stay, and the next attempt runs."""
    async with opened(name, valkey, database) as till:
        till.status, till.headers = NOT_FINAL[case]
        assert (await till.post(headers=KEYED)).status == till.status
        assert (till.rows, valkey.keys()) == ((0, 0), [])
        till.status, till.headers = 201, {}
        assert (await till.post(headers=KEYED)).json == {"order": 2}
        assert till.rows == (1, 1)


@every_till
async def test_a_final_4xx_is_committed_with_its_rows(
    valkey: Server, database: Database, name: str
) -> None:
    """A card that was declined: what the endpoint has noted about it stays, too."""
    async with opened(name, valkey, database) as till:
        till.status = 402
        await till.post(headers=KEYED)
        valkey.flush()
        again = await till.post(headers=KEYED)
        assert (again.status, again.is_replay, till.rows) == (402, True, (1, 1))


@every_till
async def test_a_stream_is_refused_before_the_commit(
    valkey: Server, database: Database, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be sent before it is known whether the transaction commits."""
    async with opened(name, valkey, database) as till:
        till.is_streaming = True
        answer = await ask(till, headers=KEYED)
        assert answer is None or answer.status == 500
        assert (till.rows, valkey.keys()) == ((0, 0), [])


def failing(begin: Any) -> Any:
    """*begin*, whose transactions are rolled back at their end, with an error."""

    @contextlib.contextmanager
    def plain() -> Iterator[Any]:
        with begin() as value:
            yield value
            raise Boom("at the commit")

    @contextlib.asynccontextmanager
    async def for_tasks() -> AsyncIterator[Any]:
        async with begin() as value:
            yield value
            raise Boom("at the commit")

    return for_tasks if hasattr(begin(), "__aenter__") else plain


@pytest.mark.parametrize("name", ["starlette", "fastapi", "fastapi plain", "flask"])
async def test_a_commit_that_fails_is_no_success(
    valkey: Server, database: Database, name: str
) -> None:
    """Nothing of the 201 has been sent: the client gets a 500."""
    async with opened(name, valkey, database) as warm:  # there is a table
        await warm.post(headers={"idempotency-key": "k-0"})
    async with opened(name, valkey, database, opener=failing) as till:
        if name == "flask":
            assert (await till.post(headers=KEYED)).status == 500
        else:
            call = Call(till.app, headers=KEYED)
            with pytest.raises(Boom):
                await call.run()
            assert call.status == 500
        assert till.rows == (1, 1)
    async with opened(name, valkey, database) as till:
        assert not (await till.post(headers=KEYED)).is_replay


# ---- requests without a key


@every_till
async def test_requests_without_a_key_have_a_transaction_too(
    valkey: Server, database: Database, name: str
) -> None:
    """`key="only"` does not guard them; their rows are committed."""
    async with opened(name, valkey, database, key="only") as till:
        for _ in range(2):
            assert (await till.post()).status == 201
        assert till.rows == (2, 0)


# ---- mistakes


def endpoint(session: Any) -> None: ...


def nothing() -> None: ...


class Orders:
    def post(self, session: Any) -> None: ...


MISTAKES: dict[str, tuple[dict[str, Any], Callable[..., Any], str]] = {
    "nothing to record": ({"after": "release"}, endpoint, 'write after="replay"'),
    "on_error": ({"on_error": "hold"}, endpoint, 'on_error="hold" cannot'),
    "without a key": ({"key": "optional", "keyless": "release"}, endpoint, 'after="replay"'),
    "no argument": ({}, nothing, "as the first argument; there is none"),
    "a method": ({}, Orders.post, "a method has self there"),
    "not callable": ({"within": object()}, endpoint, "engine.begin without"),
}


@pytest.mark.parametrize("case", MISTAKES)
@pytest.mark.parametrize("framework", ["fastapi", "flask", "django"])
def test_a_mistake_is_an_error_where_it_is_written(framework: str, case: str) -> None:
    """Before anything runs."""
    from importlib import import_module

    once = import_module(f"dibs.integrations.{framework}").once
    options, view, said = MISTAKES[case]
    with pytest.raises(UsageError, match=said):
        once(**{**POLICY, "within": contextlib.nullcontext, **options})(view)


def test_an_async_view_of_django_cannot_have_one() -> None:
    """Django's transactions belong to threads."""
    from dibs.integrations.django import atomic, once

    async def view(request: Any) -> None: ...

    with pytest.raises(UsageError, match="within= is for plain views"):
        once(**POLICY, within=atomic())(view)


async def test_a_transaction_of_the_wrong_kind_is_refused(
    valkey: Server, database: Database
) -> None:
    """A plain endpoint with an async session, and the reverse."""
    from tests.databases.worlds import AsyncSessionWorld, SessionWorld

    for name, kind in (("fastapi plain", AsyncSessionWorld), ("fastapi", SessionWorld)):
        world = kind(database)
        async with opened(name, valkey, database, opener=lambda _, world=world: world.begin) as it:
            with pytest.raises(UsageError, match="needs a transaction for asyncio"):
                await it.post(headers=KEYED)
        await world.close()


# ---- FastAPI


async def test_what_fastapi_shows_of_such_an_endpoint(valkey: Server, database: Database) -> None:
    """The session is no parameter of the API; the refusals are documented."""
    async with opened("fastapi", valkey, database) as till:
        operation = till.app.openapi()["paths"]["/orders"]["post"]
        assert [each["name"] for each in operation["parameters"]] == ["Idempotency-Key"]
        assert "requestBody" not in operation and {"409", "422"} <= set(operation["responses"])


async def test_an_http_exception_rolls_back(valkey: Server, database: Database) -> None:
    """What is raised is not stored; a final 4xx that stays is returned."""
    from fastapi import HTTPException

    async with opened("fastapi", valkey, database) as till:
        till.error = HTTPException(404)
        assert (await till.post(headers=KEYED)).status == 404
        assert (till.rows, valkey.keys()) == ((0, 0), [])


async def test_a_response_that_does_not_fit_its_model_is_rolled_back(
    valkey: Server, database: Database
) -> None:
    """The model is checked after the endpoint has returned, and before the commit."""
    async with opened("fastapi", valkey, database) as till:
        till.facts = {}
        till.answer = lambda: (201, {}, {"order": "none"})  # type: ignore[method-assign]
        with pytest.raises(Exception, match="order"):
            await till.post(headers=KEYED)
        assert (till.rows, valkey.keys()) == ((0, 0), [])


async def test_a_dependency_cannot_have_one(valkey: Server, database: Database) -> None:
    """The endpoint has the work; its dependencies end before it begins."""
    from fastapi import Depends, FastAPI

    from dibs.integrations.fastapi import install, once
    from tests.databases.worlds import AsyncSessionWorld

    world, app = AsyncSessionWorld(database), FastAPI()

    @once(**POLICY, within=world.begin)
    async def paid(session: Any) -> None: ...

    @app.post("/orders", dependencies=[Depends(paid)])
    async def order() -> None: ...

    async with AsyncDibs(valkey.url) as dibs:
        install(app, dibs)
        with pytest.raises(UsageError, match="for the endpoint"):
            await Call(app, headers=KEYED).run()
    await world.close()


async def test_an_endpoint_that_is_cancelled_leaves_nothing(
    valkey: Server, database: Database
) -> None:
    """As by a time limit around the application: rolled back, and the key is free."""
    from fastapi import FastAPI

    from dibs.integrations.fastapi import install, once
    from tests.databases.worlds import AsyncSessionWorld

    world, app, begun = AsyncSessionWorld(database), FastAPI(), asyncio.Event()

    @app.post("/orders")
    @once(**POLICY, within=world.begin)
    async def order(session: Any) -> None:
        await world.insert(session, "ann", 1)
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        install(app, dibs)
        task = Call(app, headers=KEYED).start()
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        assert (world.orders(), world.records(), valkey.keys()) == ([], 0, [])
        assert (await Call(app, headers=KEYED).run()).status == 200
        assert (len(world.orders()), world.records()) == (1, 1)
    await world.close()


async def test_a_client_that_leaves_in_the_middle_has_its_answer_later(
    valkey: Server, database: Database
) -> None:
    """The endpoint continues, and its answer is committed."""
    async with opened("fastapi", valkey, database) as till:
        call = Call(till.app, headers={**KEYED, "content-type": "application/json"})
        call.leave_after_body()
        await call.run()
        valkey.flush()
        assert (await till.post(headers=KEYED)).is_replay and till.rows == (1, 1)


# ---- Django


async def test_a_transaction_around_the_view_decides(valkey: Server, database: Database) -> None:
    """As with ATOMIC_REQUESTS: if it is rolled back, there is no record, and Redis knows none."""
    from django.db import transaction

    from dibs.integrations.django import atomic

    from . import edges_django

    async with opened("django", valkey, database) as till:
        view, alias = edges_django.current, till.world.alias  # type: ignore[attr-defined]

        def in_a_transaction(request: Any) -> Any:
            with atomic(using=alias)():
                answer = view(request)
                transaction.set_rollback(is_rolled_back, using=alias)
                return answer

        edges_django.current = in_a_transaction
        is_rolled_back = True
        assert (await till.post(headers=KEYED)).status == 201
        assert till.rows == (0, 0)
        is_rolled_back = False
        assert (await till.post(headers=KEYED)).json == {"order": 2}
        valkey.flush()
        assert (await till.post(headers=KEYED)).is_replay and till.rows == (1, 1)


async def test_functions_of_django_rest_framework(valkey: Server, database: Database) -> None:
    """`@api_view` renders its response after the guard: it is rendered in the transaction."""
    from rest_framework.decorators import api_view
    from rest_framework.response import Response

    from dibs.integrations.drf import once

    from . import edges_django

    async with opened("drf", valkey, database) as till:
        guarded = once(**POLICY, within=till.world.begin)

        @api_view(["POST"])
        @guarded
        def order(request: Any) -> Any:
            till.insert(None)
            return Response({"order": 1}, status=201)

        edges_django.current = order
        await till.post(headers=KEYED)
        valkey.flush()
        again = await till.post(headers=KEYED)
        assert (again.status, again.json, again.is_replay) == (201, {"order": 1}, True)
        assert till.rows == (1, 1)


async def test_a_commit_does_not_wait_for_threads_that_wait_for_its_connection(
    valkey: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More requests than threads, more threads than connections: all of them are answered."""
    from anyio.to_thread import current_default_thread_limiter
    from sqlalchemy import create_engine
    from sqlalchemy.pool import QueuePool

    few: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 20}
    engine = create_engine(database.url(), poolclass=QueuePool, **few)
    monkeypatch.setattr(current_default_thread_limiter(), "total_tokens", 2)
    async with opened("fastapi plain", valkey, database, opener=lambda _: engine.begin) as till:
        keys = [{"idempotency-key": f"k-{number}"} for number in range(8)]
        answers = await asyncio.gather(*(till.post(headers=each) for each in keys))
        assert [answer.status for answer in answers] == [201] * 8
        assert till.rows == (8, 8)
    engine.dispose()


@pytest.mark.parametrize("name", ["starlette", "fastapi", "flask"])
async def test_a_success_for_what_was_rolled_back_is_a_warning(
    valkey: Server, database: Database, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error handler that answers 202 tells the client what is not true."""
    async with opened(name, valkey, database) as till:
        till.error = Boom()
        if name == "flask":
            till.app.register_error_handler(Boom, lambda error: ("accepted", 202))
        else:
            from starlette.responses import PlainTextResponse

            async def accepted(request: Any, error: Exception) -> Any:
                return PlainTextResponse("accepted", 202)

            till.app.add_exception_handler(Boom, accepted)
        first = await till.post(headers=KEYED)
        assert (first.status, till.rows, valkey.keys()) == (202, (0, 0), [])
        (warning,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
        assert warning.startswith("POST ") and "was rolled back" in warning
        assert "answered 202" in warning
        till.error = None
        assert (await till.post(headers=KEYED)).status == 201 and till.rows == (1, 1)
