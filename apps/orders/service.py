"""Placing orders, each once, and showing them to the customers who placed them."""

import functools
import re
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Depends, Header, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter
from sqlalchemy import Connection
from starlette.background import BackgroundTask

from apps.databases import Threads, Timeouts
from dibs.integrations.fastapi import Policy

from .database import OrderDatabase, add
from .orders import NewOrder, Order

WINDOW = 10
"""Seconds during which the same order of the same customer is a double click."""
LEASE = 5
"""Seconds until an order can be submitted again whose process died."""
KEY = "Idempotency-Key"
PLACED_ONCE = Policy(
    key="optional",
    header=KEY,
    after="replay",
    window=24 * 3600,
    keyless="hold",
    keyless_window=WINDOW,
    lease=LEASE,
    message="This order was submitted a moment ago.",
)
_ID = re.compile(r"[0-9a-f]{32}")
_USER = re.compile(r"[\x21-\x7e]{1,64}")


def customer_of(request: Request, x_user_id: Annotated[str | None, Header()] = None) -> str:
    """The customer, by the header of the gateway. 401: there is none, or more than one."""
    is_one = len(request.headers.getlist("x-user-id")) == 1
    if x_user_id is None or not is_one or not _USER.fullmatch(x_user_id):
        raise HTTPException(401, "X-User-Id must say who you are, in 1 to 64 visible characters.")
    return x_user_id


Customer = Annotated[str, Depends(customer_of)]


class OrderService:
    """The database and the answers from it: ready on entry, closed on exit."""

    def __init__(self, database_url: str, registry: CollectorRegistry, timeouts: Timeouts) -> None:
        """Nothing connects yet. ValueError: there can be no such database."""
        self._timeouts = timeouts
        self._database = OrderDatabase(database_url, timeouts)
        self._threads: Threads
        self._placed = Counter("orders_placed", "Orders that were placed.", registry=registry)

    async def __aenter__(self) -> "OrderService":
        """OperationalError: there is no such database."""
        self._threads = await Threads.open("orders", self._database, self._timeouts)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._threads.aclose()

    async def check(self) -> None:
        """Return if the database answers; else raise its error."""
        await self._threads.ask(self._database.ping)

    # ---- placing

    def begin(self) -> AbstractContextManager[Connection]:
        """The transaction in which an order is placed."""
        return self._database.begin()

    def place(self, connection: Connection, order: NewOrder, customer: Customer) -> Response:
        """Place an order, once.

        With the header Idempotency-Key, a client that sends it again gets the same answer, also
        in an outage of Redis. Without it, the same order is refused for ten seconds.
        """
        placed = Order(uuid4().hex, datetime.now(UTC), tuple(order.items))
        add(connection, customer, placed)
        where = {"Location": f"/orders/{placed.order_id}"}
        count = BackgroundTask(self._placed.inc)  # when it is committed
        return JSONResponse(placed.printed(), 201, where, background=count)

    # ---- showing

    async def recent(
        self,
        customer: Customer,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        before: Annotated[str | None, Query(pattern=f"^{_ID.pattern}$")] = None,
    ) -> Response:
        """Your orders, the newest first; `next` leads to older ones."""
        # One more than is shown: whether there is another page.
        page = functools.partial(self._database.recent, customer, most=limit + 1, before=before)
        found = await self._threads.ask(page)
        if found is None:
            raise HTTPException(400, "before: you have no such order")
        return JSONResponse(_listed(found, limit))

    async def show(self, order_id: str, customer: Customer) -> Response:
        """One of your orders. 404: there is none, or it is another's."""
        known = _ID.fullmatch(order_id)
        order = await self._threads.ask(self._database.find, customer, order_id) if known else None
        if order is None:
            raise HTTPException(404, "You have no such order.")
        return JSONResponse(order.printed())


# ---- out


def _listed(found: list[Order], limit: int) -> dict[str, Any]:
    shown = found[:limit]
    more = f"/orders?limit={limit}&before={shown[-1].order_id}" if len(found) > limit else None
    return {"orders": [order.printed() for order in shown], "next": more}
