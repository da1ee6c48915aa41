"""Runs in a clean environment that has one wheel: does what it promises work at all?

python smoke.py DISTRIBUTION EXTRA SERVER_URL PACKAGE…
"""

import asyncio
import functools
import importlib
import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from typing import Any


def library(url: str) -> None:
    """Each verb once, on threads and on asyncio."""
    from dibs import AsyncDibs, Busy, Dibs

    with Dibs(url, namespace="smoke:") as dibs:
        with dibs.hold("key", ttl=5) as lease:
            assert lease.guarded and dibs.try_hold("key", ttl=5) is None
        with dibs.claim("claim", window=5, after="replay") as claim:
            claim.complete(17)
        assert dibs.get_or_load("value", lambda: {"tea": 1}, ttl=5) == {"tea": 1}

    async def on_asyncio() -> None:
        async with AsyncDibs(url, namespace="smoke:") as dibs, dibs.hold("key", ttl=5):
            try:
                async with dibs.hold("key", ttl=5):
                    raise AssertionError("held twice")
            except Busy as busy:
                assert busy.retry_after > 0

    asyncio.run(on_asyncio())


def embedded(url: str) -> None:
    """A private server from the wheel."""
    from dibs import Dibs

    with Dibs("embedded://") as dibs, dibs.hold("key", ttl=5) as lease:
        assert lease.guarded


async def _post(app: Any, path: str) -> int:
    """The status of a POST, without any client."""
    sent: list[Any] = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "headers": [(b"authorization", b"Bearer ann")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"]


async def _second_is_refused(app: Any, dibs: Any) -> None:
    async with dibs:
        statuses = [await _post(app, "/orders"), await _post(app, "/orders")]
    assert statuses == [200, 429], statuses


def cli(url: str) -> None:
    """The command finds a lease, and says that another key is free."""
    from rich.console import Console

    from dibs import Dibs

    assert Console
    command = [sys.executable, "-m", "dibs", "peek", "--url", url, "--namespace", "cli:"]
    with Dibs(url, namespace="cli:") as dibs, dibs.hold("key", ttl=60):
        subprocess.run([*command, "key"], check=True, capture_output=True)
        assert subprocess.run([*command, "other"], capture_output=True).returncode == 1


def starlette(url: str) -> None:
    """The second of two equal requests is refused."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from dibs import AsyncDibs
    from dibs.integrations.starlette import install, once

    @once(window=10, after="hold")
    async def order(request: Any) -> Any:
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/orders", order, methods=["POST"])])
    dibs = AsyncDibs(url, namespace="starlette:")
    install(app, dibs)
    asyncio.run(_second_is_refused(app, dibs))


def fastapi(url: str) -> None:
    """The same in FastAPI."""
    from fastapi import FastAPI

    from dibs import AsyncDibs
    from dibs.integrations.fastapi import install, once

    app = FastAPI()
    dibs = AsyncDibs(url, namespace="fastapi:")
    install(app, dibs)

    @app.post("/orders")
    @once(window=10, after="hold")
    async def order() -> str:
        return "done"

    asyncio.run(_second_is_refused(app, dibs))


def flask(url: str) -> None:
    """The same in Flask."""
    from flask import Flask

    from dibs import Dibs
    from dibs.integrations.flask import install, once

    app = Flask("smoke")
    with Dibs(url, namespace="flask:") as dibs:
        install(app, dibs)

        @app.post("/orders")
        @once(window=10, after="hold")
        def order() -> str:
            return "done"

        client = app.test_client()
        assert [client.post("/orders").status_code for _ in range(2)] == [200, 429]


def _django(url: str, apps: list[str]) -> None:
    import django as framework
    from django.conf import settings

    settings.configure(
        SECRET_KEY="smoke", ROOT_URLCONF=(), INSTALLED_APPS=apps, ALLOWED_HOSTS=["*"],
        DIBS_URL=url, DIBS_NAMESPACE=f"django:{len(apps)}:", USE_TZ=True,
    )  # fmt: skip
    framework.setup()


def django(url: str) -> None:
    """The same in Django."""
    _django(url, [])
    from django.http import HttpResponse
    from django.test import RequestFactory

    from dibs.integrations.django import once

    @once(window=10, after="hold")
    def order(request: Any) -> Any:
        return HttpResponse("done")

    request = RequestFactory(headers={"authorization": "Bearer ann"}).post
    assert [order(request("/orders")).status_code for _ in range(2)] == [200, 429]


def drf(url: str) -> None:
    """The same in Django REST framework."""
    _django(url, ["django.contrib.auth", "django.contrib.contenttypes", "rest_framework"])
    from rest_framework.response import Response
    from rest_framework.test import APIRequestFactory
    from rest_framework.views import APIView

    from dibs.integrations.drf import OnceMixin, Policy

    class Orders(OnceMixin, APIView):
        dibs_policy = Policy(window=10, after="hold")
        authentication_classes = ()

        def post(self, request: Any) -> Any:
            return Response("done")

    request = APIRequestFactory(headers={"authorization": "Bearer ann"}).post
    view = Orders.as_view()
    assert [view(request("/orders")).status_code for _ in range(2)] == [200, 429]


def celery(url: str) -> None:
    """A second task is the first, while it waits."""
    from celery import Celery

    from dibs import Dibs
    from dibs.integrations.celery import unique

    app = Celery("smoke", broker="memory://")
    with Dibs(url, namespace="celery:") as dibs:

        @app.task(base=unique(dibs, "report:{account}"))
        def report(account: int) -> None: ...

        assert report.delay(42).id == report.delay(42).id != report.delay(43).id


def rq(url: str) -> None:
    """The same in RQ."""
    import redis

    from dibs import Dibs
    from dibs.integrations.rq import UniqueQueue, unique

    with Dibs(url, namespace="rq:") as dibs, redis.Redis.from_url(url) as connection:

        @unique(dibs, "report:{account}")
        def report(account: int) -> None: ...

        queue = UniqueQueue(connection=connection)
        found = [queue.enqueue_call(report, args=(each,)) for each in (42, 42, 43)]
        first, second, other = [job.id for job in found]
        assert first == second != other


def dramatiq(url: str) -> None:
    """The same in Dramatiq."""
    import dramatiq as framework
    from dramatiq.brokers.stub import StubBroker

    from dibs import Dibs
    from dibs.integrations.dramatiq import unique

    with Dibs(url, namespace="dramatiq:") as dibs:
        guarded = unique(dibs, "report:{account}")

        @framework.actor(broker=StubBroker(), actor_class=guarded)
        def report(account: int) -> None: ...

        first, second, other = [report.send(each).message_id for each in (42, 42, 43)]
        assert first == second != other


def taskiq(url: str) -> None:
    """While the first one runs, a second is the first."""
    from taskiq import InMemoryBroker

    from dibs import AsyncDibs
    from dibs.integrations.taskiq import unique

    async def on_asyncio() -> None:
        broker, running = InMemoryBroker(), asyncio.Event()
        async with AsyncDibs(url, namespace="taskiq:") as dibs:

            @unique(dibs, "report:{account}")
            @broker.task
            async def report(account: int) -> int:
                await running.wait()
                return account

            first, second = await report.kiq(42), await report.kiq(42)
            assert first.task_id == second.task_id
            running.set()
            assert (await second.wait_result(timeout=10)).return_value == 42

    asyncio.run(on_asyncio())


def arq(url: str) -> None:
    """A second job is the first, while it waits."""
    from arq import create_pool
    from arq.connections import RedisSettings

    from dibs import AsyncDibs
    from dibs.integrations.arq import enqueue_job, unique

    async def on_asyncio() -> None:
        pool = await create_pool(RedisSettings.from_dsn(url))
        async with AsyncDibs(url, namespace="arq:") as dibs:

            @unique(dibs, "report:{account}")
            async def report(ctx: Any, account: int) -> None: ...

            found = [await enqueue_job(pool, report, each) for each in (42, 42, 43)]
            first, second, other = [job.job_id for job in found]
            assert first == second != other
        await pool.aclose()

    asyncio.run(on_asyncio())


def prometheus(url: str) -> None:
    """Events become metrics."""
    from prometheus_client import generate_latest

    from dibs import Dibs
    from dibs.integrations.prometheus import PrometheusListener

    with Dibs(url, listeners=[PrometheusListener()]) as dibs, dibs.hold("smoke:metrics", ttl=5):
        pass
    assert b"dibs_" in generate_latest()


def opentelemetry(url: str) -> None:
    """Without an SDK the listener does nothing, and does no harm."""
    from dibs import Dibs
    from dibs.integrations.opentelemetry import OpenTelemetryListener

    with Dibs(url, listeners=[OpenTelemetryListener()]) as dibs:
        with dibs.hold("smoke:trace", ttl=5) as lease:
            assert lease.guarded


def structlog(url: str) -> None:
    """Events become entries."""
    from dibs import Dibs
    from dibs.integrations.structlog import StructlogListener
    from structlog.testing import capture_logs

    with capture_logs() as entries, Dibs(url, listeners=[StructlogListener(level="DEBUG")]) as dibs:
        with dibs.hold("smoke:log", ttl=5):
            pass
    assert [entry["event"] for entry in entries] == ["dibs.acquired", "dibs.released"]


def sentry(url: str) -> None:
    """Events become breadcrumbs; here, without a client."""
    from dibs import Dibs
    from dibs.integrations.sentry import SentryListener

    with Dibs(url, listeners=[SentryListener(level="DEBUG")]) as dibs:
        with dibs.hold("smoke:crumb", ttl=5) as lease:
            assert lease.guarded


def sqlalchemy(url: str) -> None:
    """The record of a submission commits with its work."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.pool import StaticPool

    from dibs import Dibs

    engine = create_engine("sqlite://", poolclass=StaticPool)
    with Dibs(url) as dibs:

        @dibs.once("smoke:{key}", window=5, after="replay", within=engine.begin)
        def place(connection: Any, key: str) -> int:
            return connection.execute(text("SELECT 7")).scalar_one()

        assert place("order") == place("order") == 7
    engine.dispose()


def linebot(url: str) -> None:
    """A dispatcher verifies a webhook of LINE's SDK and hands its event to a handler."""
    import base64
    import hashlib
    import hmac
    import json

    from dibs import Dibs
    from dibs.integrations.linebot import ThreadDispatcher
    from linebot.v3 import WebhookParser
    from linebot.v3.messaging import Configuration

    event = {
        "type": "unfollow", "mode": "active", "timestamp": 1, "webhookEventId": "smoke",
        "deliveryContext": {"isRedelivery": False}, "source": {"type": "user", "userId": "U1"},
    }  # fmt: skip
    body = json.dumps({"destination": "U0", "events": [event, event]}).encode()
    signature = base64.b64encode(hmac.digest(b"s", body, hashlib.sha256)).decode()
    runs: list[object] = []
    options = {"parser": WebhookParser("s"), "configuration": Configuration(access_token="t")}
    with Dibs(url, namespace="smoke:") as dibs, ThreadDispatcher(dibs, **options) as dispatcher:
        dispatcher.on("unfollow")(lambda event, reply: runs.append(event))
        assert dispatcher.receive(body, "x") == 400
        assert dispatcher.receive(body, signature) == 200
    assert len(runs) == 1, runs


def quick_json(codec: str, url: str) -> None:
    """A value is kept and read back by that library."""
    from dibs import Dibs

    with Dibs(url) as dibs:
        for _ in range(2):
            assert dibs.get_or_load(f"smoke:{codec}", lambda: {"a": [1]}, ttl=5, codec=codec) == {
                "a": [1]
            }


EXTRAS: dict[str, Callable[[str], None]] = {
    "": library,
    "arq": arq,
    "celery": celery,
    "cli": cli,
    "django": django,
    "dramatiq": dramatiq,
    "drf": drf,
    "embedded": embedded,
    "fastapi": fastapi,
    "flask": flask,
    "linebot": linebot,
    "msgspec": functools.partial(quick_json, "msgspec"),
    "orjson": functools.partial(quick_json, "orjson"),
    "opentelemetry": opentelemetry,
    "prometheus": prometheus,
    "rq": rq,
    "sentry": sentry,
    "sqlalchemy": sqlalchemy,
    "starlette": starlette,
    "structlog": structlog,
    "taskiq": taskiq,
}


def other(distribution: str, packages: list[str]) -> None:
    """A distribution beside dibs: its packages can be imported, its commands say what they do."""
    for package in packages:
        importlib.import_module(package)
    for script in importlib.metadata.distribution(distribution).entry_points:
        if script.group == "console_scripts":
            module = script.value.partition(":")[0].removesuffix(".__main__")
            subprocess.run([sys.executable, "-m", module, "--help"], check=True, capture_output=True)


def torture(target: str) -> None:
    """The suite knows the middleware by its name, and starts a server for it."""
    command = [sys.executable, "-m", "dibs_torture", target, "--case", "duplicates_at_once"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    name, extra, server, *found = sys.argv[1:]
    if name == "pydibs":
        EXTRAS[extra](server)
    elif name == "dibs-torture" and extra:
        torture(extra)
    else:
        other(name, found)
