"""`@once` on a view of Django inside of a transaction, as ATOMIC_REQUESTS opens one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

import pytest
from django.db import connections

from dibs.testing import Server
from tests.databases.worlds import Database, DjangoWorld
from tests.integrations import edges_django
from tests.integrations.conftest import nothing_stays_open as nothing_stays_open
from tests.integrations.edges import Reply
from tests.integrations.tills import KEYED, POLICY, Till

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

DATABASES = ("postgresql", "sqlite")


class Counter(Till):
    """A view in a transaction around it."""

    world: DjangoWorld

    async def submit(self) -> Reply:
        return await self.post(headers=KEYED)


View = Callable[[Counter, dict[str, Any]], Any]


def plain(till: Counter, policy: dict[str, Any]) -> Any:
    from django.http import JsonResponse

    from dibs.integrations.django import once

    @once(**policy)
    def order(request: Any) -> Any:
        till.insert(None)
        return JsonResponse(till.answer()[2], status=till.status)

    return order


def template(till: Counter, policy: dict[str, Any]) -> Any:
    from django.template import engines
    from django.template.response import SimpleTemplateResponse

    from dibs.integrations.django import once

    class Page(SimpleTemplateResponse):
        def resolve_template(self, template: Any) -> Any:
            return engines["django"].from_string('{"order": {{ order }}}')

    @once(**policy)
    def order(request: Any) -> Any:
        till.insert(None)
        return Page("", till.answer()[2], "application/json", till.status)

    return order


def stream(till: Counter, policy: dict[str, Any]) -> Any:
    from django.http import StreamingHttpResponse

    from dibs.integrations.django import once

    @once(**{**policy, "after": "hold"})
    def order(request: Any) -> Any:
        till.insert(None)
        till.answer()
        return StreamingHttpResponse(iter([b"{}"]), status=till.status)

    return order


def method(till: Counter, policy: dict[str, Any]) -> Any:
    from django.views import View

    class Orders(View):
        post = lambda self, request: plain(till, policy)(request)  # noqa: E731

    return Orders.as_view()


def atomic_above(till: Counter, policy: dict[str, Any]) -> Any:
    """Without the setting, and the decorators in the wrong order."""
    from django.db import transaction

    return transaction.atomic(using=till.world.alias)(plain(till, policy))


def rest_class(till: Counter, policy: dict[str, Any]) -> Any:
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from dibs.integrations.drf import once

    class Orders(APIView):
        @once(**policy)
        def post(self, request: Any) -> Any:
            till.insert(None)
            return Response(till.answer()[2], status=till.status)

    return Orders.as_view()


def rest_mixin(till: Counter, policy: dict[str, Any]) -> Any:
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from dibs.integrations.drf import OnceMixin, Policy

    class Orders(OnceMixin, APIView):
        dibs_policy = Policy(**policy)

        def post(self, request: Any) -> Any:
            till.insert(None)
            return Response(till.answer()[2], status=till.status)

    return Orders.as_view()


def rest_function(till: Counter, policy: dict[str, Any]) -> Any:
    from rest_framework.decorators import api_view
    from rest_framework.response import Response

    from dibs.integrations.drf import once

    @api_view(["POST"])
    @once(**policy)
    def order(request: Any) -> Any:
        till.insert(None)
        return Response(till.answer()[2], status=till.status)

    return order


def within(till: Counter, policy: dict[str, Any]) -> Any:
    from django.http import JsonResponse

    from dibs.integrations.django import once

    @once(**policy, within=till.world.begin)
    def order(request: Any) -> Any:
        till.insert(None)
        return JsonResponse(till.answer()[2], status=till.status)

    return order


VIEWS: tuple[View, ...] = (
    plain, template, method, atomic_above, rest_class, rest_mixin, rest_function, within
)  # fmt: skip
every_view = pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
every_database = pytest.mark.parametrize("kind", DATABASES)


@contextmanager
def atomic_requests(world: DjangoWorld, is_set: bool = True) -> Iterator[None]:
    settings: Any = connections.settings
    setting = settings[world.alias]
    setting["ATOMIC_REQUESTS"] = is_set
    try:
        yield
    finally:
        setting["ATOMIC_REQUESTS"] = False  # requests of other tests would open it


@asynccontextmanager
async def opened(
    view: View, server: Server, database: Database, **policy: Any
) -> AsyncIterator[Counter]:
    till = Counter("django", DjangoWorld(database))
    async with AsyncExitStack() as stack:
        stack.enter_context(atomic_requests(till.world, view is not atomic_above))
        till.app = await edges_django.build("django", stack, server, till, {}, dict(POLICY))
        edges_django.current = view(till, {**POLICY, **policy})
        yield till


@every_view
@every_database
async def test_an_answer_whose_commit_fails_is_not_replayed(
    valkey: Server, new_database: Callable[[str], Database], view: View, kind: str
) -> None:
    """The client gets a 500, the key is free, and the next attempt runs."""
    async with opened(view, valkey, new_database(kind)) as till:
        till.world.refuse_commits()
        assert (await till.submit()).status == 500
        assert valkey.keys() == []
        till.world.allow_commits()
        again = await till.submit()
        assert (again.status, again.json, again.is_replay) == (201, {"order": 2}, False)
        replayed = await till.submit()
        assert (replayed.body, replayed.is_replay, till.world.paid()) == (again.body, True, 1)


async def test_a_stream_whose_commit_fails_is_not_done(
    valkey: Server, new_database: Callable[[str], Database]
) -> None:
    """Its claim ends with the commit, or else with the stream."""
    async with opened(stream, valkey, new_database("sqlite")) as till:
        till.world.refuse_commits()
        assert (await till.submit()).status == 500
        assert valkey.keys() == []
        till.world.allow_commits()
        assert [(await till.submit()).status for _ in range(2)] == [201, 409]


@every_view
async def test_a_transaction_that_is_rolled_back_leaves_no_answer(
    valkey: Server, new_database: Callable[[str], Database], view: View
) -> None:
    """By code around the view, which sends its 201 all the same."""
    transaction: Any = import_module("django.db.transaction")
    async with opened(view, valkey, new_database("sqlite")) as till:
        inner, alias = edges_django.current, till.world.alias

        def rolled_back(request: Any) -> Any:
            with transaction.atomic(using=alias):
                answer = inner(request)
                transaction.set_rollback(True, using=alias)
                return answer

        edges_django.current = rolled_back
        assert (await till.submit()).status == 201
        assert (till.world.paid(), valkey.keys()) == (0, [])
        edges_django.current = inner
        assert (await till.submit()).json == {"order": 2}
        assert till.world.paid() == 1


@every_view
async def test_before_the_commit_a_duplicate_is_refused_as_running(
    valkey: Server, new_database: Callable[[str], Database], view: View
) -> None:
    """It does not get an answer that may never come true."""
    transaction: Any = import_module("django.db.transaction")
    async with opened(view, valkey, new_database("sqlite")) as till:
        inner, seen = edges_django.current, list[Reply]()

        def asked_before_the_commit(request: Any) -> Any:
            edges_django.current = inner
            with transaction.atomic(using=till.world.alias):
                answer = inner(request)
                seen.append(asyncio.run_coroutine_threadsafe(till.submit(), loop).result(20))
                return answer

        loop, edges_django.current = asyncio.get_running_loop(), asked_before_the_commit
        first = await till.submit()
        assert (seen[0].status, seen[0].json["state"]) == (409, "running")
        assert (await till.submit()).body == first.body


async def test_plain_views_under_asgi(
    valkey: Server, new_database: Callable[[str], Database]
) -> None:
    """They run in a thread, as their transactions do."""
    from django.core.handlers.asgi import ASGIHandler

    async with opened(plain, valkey, new_database("sqlite")) as till:
        till.name, till.app = "django under asgi", ASGIHandler()
        till.world.refuse_commits()
        assert (await till.submit()).status == 500
        assert valkey.keys() == []
        till.world.allow_commits()
        assert (await till.submit()).json == {"order": 2}
        assert (await till.submit()).is_replay and till.world.paid() == 1


async def test_async_views_cannot_have_such_a_transaction(
    valkey: Server, new_database: Callable[[str], Database]
) -> None:
    """Django refuses to call them, so nothing is claimed."""
    async with opened(plain, valkey, new_database("sqlite")) as till, AsyncExitStack() as stack:
        till.name = "django async"
        till.app = await edges_django.build(till.name, stack, valkey, till, {}, dict(POLICY))
        assert (await till.submit()).status == 500
        assert (till.runs, valkey.keys()) == ([], [])


async def test_a_second_database_decides_too(
    valkey: Server, new_database: Callable[[str], Database], tmp_path: Any
) -> None:
    """The answer is stored after the last of the commits."""
    from tests.databases.worlds import sqlite_database

    async with opened(plain, valkey, new_database("postgresql")) as till:
        other = DjangoWorld(sqlite_database(str(tmp_path / "other.db")))
        till.during = functools.partial(other.insert, None, "bob", 1)
        till.world.refuse_commits()
        with atomic_requests(other):
            assert (await till.submit()).status == 500
            assert (valkey.keys(), till.world.paid()) == ([], 0)
            till.world.allow_commits()
            assert (await till.submit()).json == {"order": 2}
            assert (await till.submit()).is_replay and till.world.paid() == 1


@every_view
async def test_an_error_after_the_commit_does_not_let_a_retry_run(
    valkey: Server, new_database: Callable[[str], Database], view: View
) -> None:
    """Such as that of a broker to which the view hands a job `on_commit`: the order is stored."""
    transaction: Any = import_module("django.db.transaction")
    async with opened(view, valkey, new_database("sqlite")) as till:
        errors = [OSError("no broker")]

        def enqueue() -> None:
            if errors:
                raise errors.pop()

        till.during = lambda: transaction.on_commit(enqueue, using=till.world.alias)
        assert (await till.submit()).status == 500
        again = await till.submit()
        assert (again.status, till.world.paid(), len(till.runs)) in ANSWERED


ANSWERED = [(201, 1, 1), (409, 1, 1)]
"""The order that was committed, or that it is done."""


async def test_a_commit_that_fails_is_an_error_of_the_view(
    valkey: Server, new_database: Callable[[str], Database]
) -> None:
    """`on_error="hold"` keeps the key."""
    async with opened(plain, valkey, new_database("sqlite"), on_error="hold") as till:
        till.world.refuse_commits()
        assert (await till.submit()).status == 500
        assert (await till.submit()).status == 409
        assert len(till.runs) == 1


async def test_an_answer_that_is_not_final_leaves_the_key_free(
    valkey: Server, new_database: Callable[[str], Database]
) -> None:
    """Committed or rolled back, also with `on_error="hold"`."""
    async with opened(plain, valkey, new_database("sqlite"), on_error="hold") as till:
        till.status = 422
        assert (await till.submit()).status == 422
        assert valkey.keys() == []


@pytest.mark.parametrize("view", [plain, rest_class, within], ids=lambda view: view.__name__)
@pytest.mark.parametrize("is_set", [True, False])
async def test_a_transaction_of_a_test_case_never_commits(
    valkey: Server, new_database: Callable[[str], Database], view: View, is_set: bool
) -> None:
    """So tests of an application see the stored answer when the view has returned."""
    from django.test import Client

    transaction: Any = import_module("django.db.transaction")
    async with opened(view, valkey, new_database("sqlite")) as till:

        def case_of_a_test() -> list[Any]:
            case: Any = transaction.atomic(using=till.world.alias)
            case._from_testcase = True
            with case, atomic_requests(till.world, is_set):
                answers = [Client().post("/orders", headers=KEYED) for _ in range(2)]
                transaction.set_rollback(True, using=till.world.alias)
            till.world.connection.close()
            return answers

        first, again = await asyncio.to_thread(case_of_a_test)
        assert (first.status_code, again.content, len(till.runs)) == (201, first.content, 1)
        assert again["idempotent-replayed"] == "true"
