"""What is a duplicate where a job is enqueued, in every framework, and what its caller gets."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, Duplicate, UsageError
from dibs.integrations._unique_jobs import TransactionOptions, UniqueOptions
from dibs.testing import Server

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Enqueue = Callable[..., Awaitable[Any]]
"""Enqueues a job with a key; what the framework answers, or the id of the job that it returns."""
FRAMEWORKS = ("celery", "rq", "dramatiq", "taskiq", "arq")


def report(account: str, page: int = 0) -> None: ...


async def report_async(account: str, page: int = 0) -> None: ...


async def report_in_arq(ctx: Any, account: str, page: int = 0) -> None: ...


@asynccontextmanager
async def enqueueing(framework: str, url: str, **options: Any) -> AsyncGenerator[Enqueue]:
    async with AsyncExitStack() as stack:
        name = "q" + uuid.uuid4().hex
        template = name + ":{account}"
        make = globals()[f"_{framework}"]
        yield await make(stack, url, name, template, options)


async def _celery(stack: Any, url: str, name: str, template: str, options: Any) -> Enqueue:
    from celery import Celery

    from dibs.integrations.celery import unique

    dibs, app = stack.enter_context(Dibs(url)), stack.enter_context(Celery(name, broker=url))
    task: Any = app.task(base=unique(dibs, template, **options), name=name)(report)

    async def enqueue(*args: Any) -> Any:
        return id_in(task.apply_async(args, queue="nobody"), "id")

    return enqueue


async def _rq(stack: Any, url: str, name: str, template: str, options: Any) -> Enqueue:
    import redis

    from dibs.integrations.rq import UniqueQueue, unique

    dibs, connection = stack.enter_context(Dibs(url)), redis.Redis.from_url(url)
    stack.callback(connection.close)
    job, queue = unique(dibs, template, **options)(report), UniqueQueue(name, connection=connection)

    async def enqueue(*args: Any) -> Any:
        return id_in(queue.enqueue(job, *args), "id")

    return enqueue


async def _dramatiq(stack: Any, url: str, name: str, template: str, options: Any) -> Enqueue:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    from dibs.integrations.dramatiq import unique

    dibs, broker = stack.enter_context(Dibs(url)), RedisBroker(url=url)
    stack.callback(broker.client.connection_pool.disconnect)
    stack.callback(broker.close)
    made: Any = unique(dibs, template, **options)
    actor = dramatiq.actor(actor_class=made, broker=broker, queue_name=name)(report)

    async def enqueue(*args: Any) -> Any:
        return id_in(actor.send(*args), "message_id")

    return enqueue


async def _taskiq(stack: Any, url: str, name: str, template: str, options: Any) -> Enqueue:
    from taskiq_redis import RedisStreamBroker

    from dibs.integrations.taskiq import unique

    dibs = await stack.enter_async_context(AsyncDibs(url))
    broker = RedisStreamBroker(url, name)
    await broker.startup()
    stack.push_async_callback(broker.connection_pool.disconnect)
    stack.push_async_callback(broker.shutdown)
    task = unique(dibs, template, **options)(broker.task(task_name=name)(report_async))

    async def enqueue(*args: Any) -> Any:
        return id_in(await task.kiq(*args), "task_id")

    return enqueue


async def _arq(stack: Any, url: str, name: str, template: str, options: Any) -> Enqueue:
    from arq import create_pool
    from arq.connections import RedisSettings

    from dibs.integrations.arq import enqueue_job, unique

    dibs = await stack.enter_async_context(AsyncDibs(url))
    pool = await create_pool(RedisSettings.from_dsn(url), default_queue_name=name)
    stack.push_async_callback(pool.connection_pool.disconnect)
    stack.push_async_callback(pool.aclose)
    job = unique(dibs, template, **options)(report_in_arq)

    async def enqueue(*args: Any) -> Any:
        return id_in(await enqueue_job(pool, job, *args), "job_id")

    return enqueue


def id_in(job: Any, name: str) -> Any:
    return getattr(job, name, job)


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_duplicate_can_be_an_error(broker: Server, framework: str) -> None:
    """Its note is the id of the existing job."""
    async with enqueueing(framework, broker.url, on_duplicate="raise") as enqueue:
        first = await enqueue("acme")
        with pytest.raises(Duplicate) as caught:
            await enqueue("acme")
        assert caught.value.note == first
        assert await enqueue("other") != first


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_duplicate_can_be_answered_by_a_function(broker: Server, framework: str) -> None:
    """It gets the error, and the arguments that it names."""
    calls: list[Any] = []

    def answer(error: Duplicate, account: str, page: int) -> str:
        calls.append((error.note, account, page))
        return "it is on its way"

    async with enqueueing(framework, broker.url, on_duplicate=answer) as enqueue:
        first = await enqueue("acme")
        assert await enqueue("acme", 7) == "it is on its way"
        assert calls == [(first, "acme", 7)]


@pytest.mark.parametrize("framework", ["taskiq", "arq"])
async def test_the_answer_to_a_duplicate_may_be_awaited(broker: Server, framework: str) -> None:
    """Where enqueueing is."""

    async def answer(error: Duplicate) -> str:
        return "later"

    async with enqueueing(framework, broker.url, on_duplicate=answer) as enqueue:
        await enqueue("acme")
        assert await enqueue("acme") == "later"


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_answer_that_asks_for_too_much_is_a_mistake(
    broker: Server, framework: str
) -> None:
    """Where the job is declared."""

    def answer(error: Duplicate, customer: str) -> None: ...

    with pytest.raises(UsageError, match="on_duplicate= takes 'customer'"):
        async with enqueueing(framework, broker.url, on_duplicate=answer) as enqueue:
            await enqueue("acme")  # Celery creates a task at its first use


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_several_jobs_with_one_key_can_be_allowed(broker: Server, framework: str) -> None:
    """With `limit=2` a third is a duplicate of the first."""
    async with enqueueing(framework, broker.url, limit=2) as enqueue:
        first, second = await enqueue("acme"), await enqueue("acme")
        assert first != second
        assert await enqueue("acme") == first
        assert await enqueue("other") not in (first, second)


@pytest.mark.parametrize("again", ["replace", "postpone"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_newer_job_replaces_one_that_waits(
    broker: Server, framework: str, again: str
) -> None:
    """It is sent, and its id is that of the job with the key."""
    options = {"until": "start", "again": again, "on_duplicate": "raise"}
    async with enqueueing(framework, broker.url, **options) as enqueue:
        account = uuid.uuid4().hex
        first = await enqueue(account)
        second = await enqueue(account, 2)
        assert first != second != await enqueue("other")
        [key] = broker.client().keys(f"q*:{account}")
        assert broker.client().get(key).endswith(b"\n" + second.encode())


def test_on_duplicate_is_one_of_three() -> None:
    """Where the job is declared."""
    with pytest.raises(UsageError, match='"return", "raise" or a function'):
        UniqueOptions(on_duplicate="log")  # type: ignore[arg-type]


def test_an_answer_that_nothing_awaits_is_a_mistake() -> None:
    """Celery, RQ and Dramatiq would return a coroutine, which never runs."""

    async def answer(error: Duplicate) -> str:
        return "later"

    with pytest.raises(UsageError, match="on_duplicate must be a plain function"):
        TransactionOptions(on_duplicate=answer)


def test_a_duplicate_in_a_canvas_of_celery_is_a_result(broker: Server) -> None:
    """Raised in a group it would leave the rest unsent, and in a worker no caller gets it.

    Callers that wait for it get the error there.
    """
    from celery import Celery, group

    from dibs.integrations.celery import unique

    with Dibs(broker.url) as dibs, Celery("c", broker=broker.url, backend=broker.url) as app:
        made = unique(dibs, "canvas:{account}", on_duplicate="raise")
        task: Any = app.task(base=made, name="canvas")(report)
        parts = [task.s(each).set(queue="nobody") for each in ("a", "a", "b")]
        first, second, third = group(parts).apply_async().results
        assert (first.state, second.state, third.state) == ("PENDING", "FAILURE", "PENDING")
        assert type(second.result).__name__ == "Duplicate"
