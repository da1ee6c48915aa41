"""`python -m tests.exactly_once --http`: the storm over endpoints with `within=`.

Each service has one endpoint, which adds a row. uvicorn or gunicorn run it in a process,
which is killed at random, at every statement, and between its commit and its answer. Clients
retry under the same key, at any of the services, until they have a 201.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from dibs.testing.servers import free_port
from tests.exactly_once import INSERT, Storm, _Deadly

SERVICES = ("fastapi", "fastapi-plain", "flask", "django-http", "django-atomic")
STORM = "DIBS_STORM"
"""What a service has to know, as JSON in its environment."""
POLICY: dict[str, Any] = {"window": 600, "after": "replay", "key": "required", "lease": 1}
POLICY["wait"] = 1


class Service:
    """A server and its workers."""

    def __init__(self, name: str, port: int, **facts: Any) -> None:
        environment = {**os.environ, STORM: json.dumps({"name": name, **facts})}
        self._process = subprocess.Popen(
            [sys.executable, "-m", *_server(name, port)],
            env=environment, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    @property
    def is_gone(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _server(name: str, port: int) -> list[str]:
    if name.startswith("fastapi"):
        return ["uvicorn", "--factory", f"{__name__}:create", "--port", str(port),
                "--log-level", "critical"]  # fmt: skip
    return ["gunicorn", f"{__name__}:create()", "--bind", f"127.0.0.1:{port}", "--threads", "4"]


class HttpStorm(Storm):
    """What is killed are services; clients wait for their answers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ports = [free_port() for _ in self._slots]
        self._clients: dict[int, subprocess.Popen[bytes]] = {}

    def _start(self, slot: int) -> None:
        facts = {"database": self._urls[slot], "redis": self._redis.url, "deadly": 0.002}
        running: dict[int, Any] = self._running
        running[slot] = Service(self._driver, self._ports[slot], **facts)
        if slot not in self._clients:
            seed = self._chance.randrange(10**9)
            plan = [self._ports, self._intents, seed, str(self._answers(slot))]
            command = [sys.executable, "-m", "tests.storm_services", json.dumps(plan)]
            self._clients[slot] = subprocess.Popen(command)

    def _restart_dead(self) -> None:
        for slot, service in self._running.items():
            if service.is_gone:  # type: ignore[attr-defined]
                service.kill()  # its workers
                self.faults["killed"] += 1
                self._start(slot)
        self._ended |= {slot for slot, each in self._clients.items() if each.poll() is not None}

    def _end_all(self) -> None:
        for process in (*self._clients.values(), *self._running.values()):
            process.kill()


# ---- a client


def submit_all(ports: list[int], intents: int, seed: int, answers: str) -> None:
    """Submit every intent until it is answered."""
    chance = random.Random(seed)
    with Path(answers).open("a") as file:
        for number in chance.sample(range(intents), intents):
            answer = None
            while answer is None:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = _answer(chance.choice(ports), f"i{number}")
                time.sleep(0 if answer else 0.05)
            file.write(f"i{number} {answer} .\n")
            file.flush()


def _answer(port: int, intent: str) -> str | None:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    with contextlib.closing(line):
        line.request("POST", f"/intents/{intent}", b"{}", {"Idempotency-Key": intent})
        answer = line.getresponse()
        body = answer.read()
    return json.loads(body)["number"] if answer.status == 201 else None


# ---- the services


def create() -> Any:
    """The application that the environment names."""
    facts = json.loads(os.environ[STORM])
    deadly = _Deadly(random.Random(), facts["deadly"])
    name = facts["name"]
    build = _flask if name == "flask" else _django if name.startswith("django") else _fastapi
    return build(facts, deadly)


def _driver_options(facts: dict[str, Any]) -> dict[str, Any]:
    """Without prepared statements, so that the proxy sees what is executed."""
    return {} if facts["database"].startswith("sqlite") else {"prepare_threshold": None}


def _fastapi(facts: dict[str, Any], deadly: _Deadly) -> Any:
    from fastapi import FastAPI
    from sqlalchemy import create_engine, text
    from sqlalchemy.ext.asyncio import create_async_engine

    from dibs import AsyncDibs
    from dibs.integrations.fastapi import install, once

    app = FastAPI()
    if facts["name"] == "fastapi":
        url = facts["database"].replace("sqlite://", "sqlite+aiosqlite://")
        engine = create_async_engine(url, connect_args=_driver_options(facts))
        deadly.listen(engine.sync_engine)

        @app.post("/intents/{intent}", status_code=201)
        @once(**POLICY, within=engine.begin)
        async def place(connection: Any, intent: str) -> dict[str, str]:
            number = uuid4().hex
            await connection.execute(text(INSERT.format(intent, number)))
            await asyncio.sleep(0.005)
            return {"number": number}
    else:
        plain = create_engine(facts["database"], connect_args=_driver_options(facts))
        deadly.listen(plain)

        @app.post("/intents/{intent}", status_code=201)
        @once(**POLICY, within=plain.begin)
        def place_in_thread(connection: Any, intent: str) -> dict[str, str]:
            number = uuid4().hex
            connection.execute(text(INSERT.format(intent, number)))
            time.sleep(0.005)
            return {"number": number}

    install(app, AsyncDibs(facts["redis"]))

    async def dying(scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            deadly()  # it has committed
            await send(message)

        await app(scope, receive, sending)

    return dying


def _flask(facts: dict[str, Any], deadly: _Deadly) -> Any:
    from flask import Flask
    from sqlalchemy import create_engine, text

    from dibs import Dibs
    from dibs.integrations.flask import install, once

    app = Flask("storm")
    engine = create_engine(facts["database"], connect_args=_driver_options(facts))
    deadly.listen(engine)

    @app.post("/intents/<intent>")
    @once(**POLICY, within=engine.begin)
    def place(connection: Any, intent: str) -> Any:
        number = uuid4().hex
        connection.execute(text(INSERT.format(intent, number)))
        time.sleep(0.005)
        return {"number": number}, 201

    install(app, Dibs(facts["redis"]))
    return _dying(app, deadly)


def _django(facts: dict[str, Any], deadly: _Deadly) -> Any:
    import django
    from django.conf import settings
    from django.urls import path
    from sqlalchemy import make_url

    urls: Any = ModuleType("urls")
    url = make_url(facts["database"])
    backend = "sqlite3" if url.drivername == "sqlite" else "postgresql"
    database = {"ENGINE": f"django.db.backends.{backend}", "NAME": url.database}
    if backend == "postgresql":
        database |= {"USER": url.username, "HOST": url.host or url.query["host"]}
        database |= {"PORT": url.port or ""}
    database["ATOMIC_REQUESTS"] = facts["name"] == "django-atomic"
    settings.configure(
        DATABASES={"default": database},
        ROOT_URLCONF=urls,
        DIBS_SERVICE="storm",
        SECRET_KEY="of the storm",
        ALLOWED_HOSTS=["*"],
        DIBS_URL=facts["redis"],
    )
    django.setup()
    from django.core.handlers.wsgi import WSGIHandler
    from django.db import connection
    from django.http import JsonResponse

    from dibs.integrations.django import atomic, once

    @once(**POLICY, within=atomic())
    def place(request: Any, intent: str) -> Any:
        number = uuid4().hex
        with connection.cursor() as cursor:
            cursor.execute(INSERT.format(intent, number))
        time.sleep(0.005)
        return JsonResponse({"number": number}, status=201)

    def execute(run: Any, *args: Any) -> Any:
        deadly()
        try:
            return run(*args)
        finally:
            deadly()

    def view(request: Any, intent: str) -> Any:
        with connection.execute_wrapper(execute):
            return place(request, intent)

    urls.urlpatterns = [path("intents/<str:intent>", view)]
    return _dying(WSGIHandler(), deadly)


def _dying(app: Any, deadly: _Deadly) -> Any:
    def dying(environ: Any, start_response: Any) -> Any:
        answer = app(environ, start_response)
        deadly()  # it has committed
        return answer

    return dying


if __name__ == "__main__":
    submit_all(*json.loads(sys.argv[1]))
