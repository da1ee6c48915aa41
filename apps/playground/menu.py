"""The `cached` panel: a restaurant's menu, and 200 guests who scan its QR code at once.

GET  /menu/branches           200: the chain
GET  /menu/active?branch=…    200: the menu, and how it was got · 404 · 502 · 503
POST /menu/publish            {"branch", "percent" | "copyOf"}   201 · what the service says
POST /menu/rush               {"branch", "algorithm": "dibs" | "seed"}   200 · 409: one is under way
POST /menu/kill               {"branch"}   the same with dibs; the process that loads is killed

The services are started when the panel is opened first, which takes a second or two.
"""

import asyncio
import functools
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from itertools import cycle
from time import monotonic
from typing import Any

import httpx2 as httpx
import redis
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dibs import Unavailable

from .engine import Engine, plain_client
from .faults import Faults, visitor_of
from .guests import Scan, percentile, rush
from .menu_services import DELAY, MenuServices, open_services
from .opening import Opening

GUESTS = 200
_LOCK = "lock:cis:menu:active:v1:{}"
_LOOK = 0.005
_UNDER_WAY = DELAY / 4
"""Seconds after which a load has reached the store-service, and not ended."""
_KEYS = {"dibs": "cis:menu:active:v1:{}", "seed": "seed:cis:menu:active:v1:{}"}


class MenuPanel:
    """The services behind the panel, started when needed, and ended on exit."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        self._open = AsyncExitStack()
        self._opening: Opening[MenuServices]
        self._tables = cycle(range(2))
        self._rushing = False
        self._http: httpx.AsyncClient

    @property
    def routes(self) -> list[Route]:
        """The routes of the panel, below its own path."""
        return [
            Route("/branches", self.list_branches, methods=["GET"]),
            Route("/active", self.read, methods=["GET"]),
            Route("/publish", self.publish, methods=["POST"]),
            Route("/rush", self.let_them_rush, methods=["POST"]),
            Route("/kill", self.kill, methods=["POST"]),
        ]

    # ---- beginning and end

    async def __aenter__(self) -> "MenuPanel":
        work = functools.partial(open_services, self._engine, self._open)
        self._opening = Opening("restaurant", work)
        client = httpx.AsyncClient(timeout=20, trust_env=False)
        self._http = await self._open.enter_async_context(client)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.end_requests()
        await self._open.aclose()

    async def end_requests(self) -> None:
        """Stop without waiting for services that are just being started."""
        await self._opening.stop()

    # ---- answers

    async def list_branches(self, request: Request) -> Response:
        """List the restaurants of the chain."""
        visitor_of(request)
        store = (await self._opening.result()).store
        return _passed_on(await self._ask("GET", f"{store.url}/branches"))

    async def read(self, request: Request) -> Response:
        """Return what one guest sees, served by the two BFFs in turn."""
        visitor_of(request)
        services = await self._opening.result()
        table = next(self._tables)
        since = monotonic()
        params = {"branchId": request.query_params.get("branch", ""), "tableId": "A7"}
        url = f"{services.dibs[table].url}/menus/active"
        answer = await self._ask("GET", url, params=params)
        if answer.status_code != 200:
            return _passed_on(answer)
        facts = {"how": answer.headers["X-Cache"], "took": monotonic() - since, "bff": table + 1}
        return JSONResponse({"menu": answer.json()} | facts)

    async def publish(self, request: Request) -> Response:
        """Publish a new version, through the first BFF's admin call."""
        visitor_of(request)
        asked_for = await _read_request(request)
        percent, copy_of = asked_for.get("percent"), asked_for.get("copyOf")
        edition = {"priceChangePercent": percent} if copy_of is None else {"copyOf": copy_of}
        services = await self._opening.result()
        url = f"{services.dibs[0].url}/admin/branches/{asked_for['branch']}/menus"
        return _passed_on(await self._ask("POST", url, json=edition))

    async def let_them_rush(self, request: Request) -> Response:
        """Delete the menu, let 200 guests come at once, and count calls of the store-service."""
        visitor_of(request)
        asked_for = await _read_request(request)
        if asked_for.get("algorithm") not in _KEYS:
            raise HTTPException(400, "algorithm must be dibs or seed.")
        with self._alone():
            return JSONResponse(await self._rush(asked_for["algorithm"], asked_for["branch"]))

    async def kill(self, request: Request) -> Response:
        """Let 200 guests come, and kill the process that loads the menu for them."""
        visitor, asked_for = visitor_of(request), await _read_request(request)
        with self._alone():
            async with self._faults.during("kill", "the BFF that loads the menu", visitor):
                services, killed = await self._opening.result(), list[int]()
                work = self._kill_leader(services, asked_for["branch"], killed)
                killing = asyncio.create_task(work)
                try:
                    report = await self._rush("dibs", asked_for["branch"])
                finally:
                    killing.cancel()
                    await asyncio.wait([killing])
                    for number in killed:
                        await self._replace(services, number)
        return JSONResponse(report | {"killed": killed[0] + 1 if killed else None})

    async def _kill_leader(self, services: MenuServices, branch_id: str, killed: list[int]) -> None:
        """Kill the BFF that has the lock of the load; its number is in *killed* from then on."""
        pids = [child.pid for child in services.dibs]
        while True:
            with suppress(Unavailable):
                pid = await self._engine.pid_holding(_LOCK.format(branch_id))
                if pid in pids:
                    await asyncio.sleep(_UNDER_WAY)
                    killed.append(pids.index(pid))  # before the wait: who cancels it must know
                    return await services.dibs[killed[0]].kill()
            await asyncio.sleep(_LOOK)

    async def _replace(self, services: MenuServices, number: int) -> None:
        try:
            await services.replace(number, self._engine)
        except OSError as error:
            raise HTTPException(503, f"The BFF does not start again: {error}.") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._rushing:
            raise HTTPException(409, "One run at a time, please.")
        self._rushing = True
        try:
            yield
        finally:
            self._rushing = False

    async def _rush(self, algorithm: str, branch_id: str) -> dict[str, Any]:
        services = await self._opening.result()
        try:
            children = services.dibs if algorithm == "dibs" else await services.seed()
        except OSError as error:
            raise HTTPException(503, f"The other restaurant stays closed: {error}.") from None
        await self._delete(_KEYS[algorithm].format(branch_id))
        before = await self._calls(services)
        scans = await rush([child.port for child in children], branch_id, GUESTS)
        return _report(scans, await self._calls(services) - before)

    async def _delete(self, key: str) -> None:
        """Delete the key by a plain DEL, without dibs."""
        try:
            async with plain_client(self._engine.socket()) as client:
                await client.delete(key)
        except redis.RedisError:
            raise HTTPException(503, "The server is stopped; let it come back first.") from None

    async def _calls(self, services: MenuServices) -> int:
        return (await self._ask("GET", f"{services.store.url}/stats")).json()["resolveActive"]

    async def _ask(self, method: str, url: str, **content: Any) -> httpx.Response:
        try:
            return await self._http.request(method, url, **content)
        except httpx.HTTPError as error:
            raise HTTPException(503, f"No answer: {type(error).__name__}.") from None


# ---- in


async def _read_request(request: Request) -> dict[str, Any]:
    """The request of the page. 400: it is not JSON, or names no branch."""
    try:
        body = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body must be JSON.") from None
    branch_id = body.get("branch") if isinstance(body, dict) else None
    if not isinstance(branch_id, str) or not branch_id.replace("-", "").isalnum():
        raise HTTPException(400, "branch must be the id of a branch.")
    return body


# ---- out


def _report(scans: list[Scan], reached: int) -> dict[str, Any]:
    served = [scan for scan in scans if scan.status == 200]
    return {
        "guests": len(scans),
        "served": len(served),
        "reached": reached,
        "p50": percentile(served or scans, 50),
        "p99": percentile(served or scans, 99),
        "delay": DELAY,
        "how": [scan.how or "none" for scan in scans],
        "took": [round(scan.took, 3) for scan in scans],
    }


def _passed_on(answer: httpx.Response) -> Response:
    """The service's answer, with the message of a problem where the page looks for one."""
    body = answer.json()
    if answer.is_error:
        body = {"error": body.get("msg") or body.get("detail"), "code": body.get("responseCode")}
    return JSONResponse(body, answer.status_code)
