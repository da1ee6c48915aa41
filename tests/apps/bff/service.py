"""Processes of the menu BFF, and of the store-service behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, NamedTuple

import httpx2 as httpx
import redis

from apps.menu.bff_settings import Settings
from dibs.testing import Child, Server
from dibs.testing.servers import free_port

BRANCH = "tpe-main"  # it never closes
KEY = f"cis:menu:active:v1:{BRANCH}"
LOCK = f"lock:cis:menu:active:v1:{BRANCH}"
STALE = Settings().stale
RAISE = {"priceChangePercent": 5}


def serve(app: str, port: int, environment: dict[str, str]) -> None:
    """What `uvicorn app --port …` does; says when it is ready."""
    import os

    import uvicorn

    os.environ.update(environment)

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)
            print("ready", flush=True)

    Announcing(uvicorn.Config(app, port=port, log_level="warning", access_log=False)).run()


class Service:
    """An app in its own process, which can be frozen, killed and started again."""

    def __init__(self, app: str, **environment: str) -> None:
        self._app = app
        self._environment = environment
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.http = httpx.Client(base_url=self.url, timeout=20, trust_env=False)
        self._begin()

    def again(self) -> None:
        """Start it once more, at the same address."""
        self.child.close()
        self._begin()
        self.wait()

    def _begin(self) -> None:
        self.child = Child(serve, self._app, self._port, self._environment)

    def wait(self) -> None:
        assert self.child.line(within=90) == "ready"

    def close(self) -> None:
        self.http.close()
        self.child.close()


class Store(Service):
    def __init__(self, *, delay: float = 0.0) -> None:
        environment = {"DATABASE_URL": "sqlite://", "STORE_DELAY_SECONDS": str(delay)}
        super().__init__("apps.menu.store:app", **environment)

    @property
    def calls(self) -> int:
        """How often /resolveActive was called."""
        return self.http.get("/stats").json()["resolveActive"]


class Bff(Service):
    def __init__(self, redis_url: str, store_url: str, **environment: str) -> None:
        addresses = {"REDIS_URL": redis_url, "STORE_SERVICE_URL": store_url}
        super().__init__("apps.menu.bff:app", **addresses, **environment)

    def read(self, branch_id: str = BRANCH) -> httpx.Response:
        return self.http.get("/menus/active", params={"branchId": branch_id, "tableId": "A7"})

    def publish(self, edition: object, branch_id: str = BRANCH, **headers: str) -> httpx.Response:
        path = f"/admin/branches/{branch_id}/menus"
        return self.http.post(path, json=edition, headers=headers)


Run = Callable[..., list[Any]]


@contextmanager
def running() -> Iterator[Run]:
    """Wait until all of them are ready; close them afterwards."""
    with ExitStack() as stack:

        def run(*services: Service) -> list[Any]:
            for service in services:
                stack.callback(service.close)
            for service in services:
                service.wait()
            return list(services)

        yield run


class Street(NamedTuple):
    store: Store
    first: Bff
    second: Bff


async def rush(*bffs: Bff, guests: int) -> tuple[list[httpx.Response], float]:
    """All scan at once; what they get, and how long the last one waits."""
    limits = httpx.Limits(max_connections=None)
    params = {"branchId": BRANCH, "tableId": "A7"}
    async with httpx.AsyncClient(timeout=30, limits=limits, trust_env=False) as client:
        since = time.monotonic()
        urls = [f"{bffs[number % len(bffs)].url}/menus/active" for number in range(guests)]
        answers = await asyncio.gather(*(client.get(url, params=params) for url in urls))
        return answers, time.monotonic() - since


def is_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status and problem["detail"]
    return problem


def has_menu(server: Server) -> bool:
    """Whether a menu is cached: what a failed load leaves behind is none."""
    return b"menuVersionId" in (redis_of(server).get(KEY) or b"")


def redis_of(server: Server) -> redis.Redis:
    return server.client()


class Saying(ThreadingHTTPServer):
    """A store-service with scripted answers; while it hangs, it sends none."""

    daemon_threads = True
    status = 200
    body = b""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: list[bytes] = []
        self.hangs = Event()

    @property
    def calls(self) -> int:
        return len(self.asked)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Saying

    def do_POST(self) -> None:
        self.server.asked.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        while self.server.hangs.is_set():
            time.sleep(0.05)
        with contextlib.suppress(OSError):  # who asked may have gone
            self.answer()

    def answer(self) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def saying(status: int, body: bytes) -> Iterator[Saying]:
    with Saying(("127.0.0.1", 0), _Answer) as server:
        server.status, server.body = status, body
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def refusal(code: str) -> bytes:
    return json.dumps({"responseCode": code, "msg": "no", "data": None}).encode()


def good_answer(*, version: int = 1, ends_in: float | None = None) -> bytes:
    """A menu; *ends_in*: seconds until its time window ends, if it says so."""
    data = dict.fromkeys(["menuVersionId", "bizDate", "versionHash"], "x")
    end = datetime.now(UTC) + timedelta(seconds=ends_in or 0)
    window = {} if ends_in is None else {"endsAt": end.isoformat()}
    parts = {"timeWindow": window, "categories": [], "items": [], "versionNo": version}
    return json.dumps({"responseCode": "00000", "msg": "", "data": data | parts}).encode()


class Nonsense(NamedTuple):
    say: Saying
    bff: Bff
