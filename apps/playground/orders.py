"""The `once` panel: an order that is sent twice, and placed once.

GET  /orders/all      200: this visitor's orders, and what the server keeps about them · 503
POST /orders/double   {"items": {sku: quantity}}   200: both answers, and what came of them
POST /orders/retry    the same, with a key; the first answer is lost   · 400 · 503
POST /orders/kill     the same; the service is killed at work, and the order sent again   · 409
POST /orders/forget   the same; it is killed after its commit, and Redis forgets all orders   · 409

The shop is the orders service in its own process, started when the panel is first opened.
"""

import asyncio
import functools
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from time import time
from typing import Any

import httpx2 as httpx
import redis.asyncio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .engine import Engine, plain_client
from .exchanges import DIES, Browser
from .faults import Faults, visitor_of
from .opening import Opening
from .shop import Shop, open_shop

_KEYS = "orders:once:*"
_MOST_KEYS = 5
"""How many of a visitor's keys are shown."""
_EVENT = re.compile(r'^dibs_events_total\{kind="(\w+)",name="([^"]*)"\} (\S+)$', re.MULTILINE)
_OUT = (redis.RedisError, OSError)

Json = dict[str, Any]
Events = Counter[tuple[str, str]]
"""How many events the listener of the service got, by kind and name."""
Look = tuple[list[Json], Events, set[str] | None]

_WAYS: dict[str, Callable[[Browser, Sequence[Json]], Awaitable[list[Json]]]] = {
    "double": Browser.click_twice,
    "retry": Browser.retry,
}
_DEADLY = ("kill", "forget")


class OrdersPanel:
    """The shop behind the panel, started when needed, and ended on exit."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        self._open = AsyncExitStack()
        self._opening: Opening[Shop]
        self._kept: dict[str, dict[str, str]] = {}
        """The keys that each visitor's requests have left, the newest first, and how."""
        self._turn: asyncio.Lock
        self._http: httpx.AsyncClient

    @property
    def routes(self) -> list[Route]:
        """The routes of the panel, below its own path."""
        return [
            Route("/all", self.look, methods=["GET"]),
            Route("/{way}", self.order, methods=["POST"]),
        ]

    # ---- beginning and end

    async def __aenter__(self) -> "OrdersPanel":
        work = functools.partial(open_shop, self._engine, self._open)
        self._opening = Opening("shop", work)
        self._kept = {}
        self._turn = asyncio.Lock()
        client = httpx.AsyncClient(timeout=20, trust_env=False)
        self._http = await self._open.enter_async_context(client)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.end_requests()
        await self._open.aclose()

    async def end_requests(self) -> None:
        """Stop without waiting for a shop that is just being opened."""
        await self._opening.stop()

    # ---- answers

    async def look(self, request: Request) -> Response:
        """The visitor's orders, before the first click."""
        visitor = visitor_of(request)
        shop = await self._opening.result()
        try:
            orders = await Browser(self._http, shop.url, visitor).orders()
        except httpx.HTTPError as error:
            raise _no_answer(error) from None
        return JSONResponse({"orders": orders, "keys": await self._keys(visitor)})

    async def order(self, request: Request) -> Response:
        """Send an order, and return the exchanges and what has changed."""
        visitor, way = visitor_of(request), request.path_params["way"]
        if way not in (*_WAYS, *_DEADLY):
            raise HTTPException(404, "The ways are double, retry, kill and forget.")
        items, shop = await _items(request), await self._opening.result()
        async with self._turn:  # else one visitor's events and keys would be another's
            try:
                if way not in _DEADLY:
                    return JSONResponse(await self._watched(shop, visitor, way, items))
                async with self._faults.during("kill", "the orders service", visitor):
                    return JSONResponse(await self._watched(shop, visitor, way, items))
            except OSError as error:
                raise HTTPException(503, f"The shop does not open again: {error}.") from None
            except httpx.HTTPError as error:
                raise _no_answer(error) from None

    async def _watched(self, shop: Shop, visitor: str, way: str, items: list[Json]) -> Json:
        browser = Browser(self._http, shop.url, visitor)
        before, counted, known = await self._looked(shop, browser)
        if way in _DEADLY:
            if way == "kill":
                exchanges = await browser.be_interrupted(items, shop.dying())
            else:
                exchanges = await browser.be_interrupted(items, shop.replaced(), DIES)
                await self._forget()
            # Another process answers now, which has counted from the start.
            browser, counted = Browser(self._http, shop.url, visitor), Events()
            exchanges += await browser.send_again(items, exchanges[0]["key"])
        else:
            exchanges = await _WAYS[way](browser, items)
        orders, events, keys = await self._looked(shop, browser)
        self._kept[visitor] = dict.fromkeys(_new(keys, known), way) | self._kept.get(visitor, {})
        ids = {order["orderId"] for order in before}
        return {
            "exchanges": exchanges,
            "placed": sum(order["orderId"] not in ids for order in orders),
            "orders": orders,
            "events": _as_rows(events - counted),
            "keys": await self._keys(visitor),
        }

    async def _looked(self, shop: Shop, browser: Browser) -> Look:
        return await asyncio.gather(browser.orders(), self._events(shop), self._all_keys())

    # ---- what dibs has done

    async def _events(self, shop: Shop) -> Events:
        page = (await self._http.get(f"{shop.url}/metrics")).raise_for_status().text
        return Counter({(kind, name): int(float(n)) for kind, name, n in _EVENT.findall(page)})

    async def _all_keys(self) -> set[str] | None:
        """The service's keys on the server. None: the server does not answer."""
        try:
            async with self._server() as server:
                return {key async for key in server.scan_iter(_KEYS, count=1000)}
        except _OUT:
            return None

    async def _forget(self) -> None:
        """Delete the orders' keys on the server. 503: it does not answer."""
        try:
            async with self._server() as server:
                async for key in server.scan_iter(_KEYS, count=1000):
                    await server.delete(key)
        except _OUT as error:
            raise HTTPException(503, f"The server does not answer: {error}.") from None

    async def _keys(self, visitor: str) -> list[Json] | None:
        """The keys of *visitor*, with their remaining time. None: the server does not answer."""
        kept = self._kept.get(visitor, {})
        try:
            async with self._server() as server, server.pipeline(transaction=False) as asked:
                for key in kept:
                    asked.pttl(key)
                    asked.strlen(key)
                said = await asked.execute()
        except _OUT:
            return None
        found = zip(kept.items(), said[::2], said[1::2], strict=True)
        keys = [
            {"key": key, "way": way, "left": ms / 1000, "bytes": size}
            for (key, way), ms, size in found
            if ms > 0
        ][:_MOST_KEYS]
        shown = {each["key"] for each in keys}
        # Those of an order that was placed meanwhile were not asked for, and stay.
        self._kept[visitor] = {
            key: how
            for key, how in self._kept.get(visitor, {}).items()
            if key in shown or key not in kept
        }
        return keys

    def _server(self) -> "redis.asyncio.Redis":
        """A plain client that asks once. OSError: the server is stopped, or was never there."""
        if self._engine.is_frozen:
            raise OSError("the server is stopped")
        return plain_client(self._engine.socket())


# ---- in


async def _items(request: Request) -> list[Json]:
    """The lines of the order; the shop decides whether the items exist."""
    try:
        body = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body must be JSON.") from None
    items = body.get("items") if isinstance(body, dict) else None
    if not isinstance(items, dict) or not items:
        raise HTTPException(400, "items must be an object of quantities, with one at least.")
    return [{"sku": sku, "quantity": quantity} for sku, quantity in items.items()]


# ---- out


def _new(keys: set[str] | None, known: set[str] | None) -> set[str]:
    """The keys that are new, if both lists are known."""
    return set() if keys is None or known is None else keys - known


def _as_rows(events: Events) -> list[Json]:
    at = time()
    return [{"at": at, "kind": k, "name": name, "count": n} for (k, name), n in events.items()]


def _no_answer(error: httpx.HTTPError) -> HTTPException:
    return HTTPException(503, f"The shop does not answer: {type(error).__name__}.")
