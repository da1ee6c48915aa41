"""What a customer's browser does with an order: sends it, twice at once, or again when it must."""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from time import monotonic, time
from typing import Any

import httpx2 as httpx

KEY = "Idempotency-Key"
DIES = ("X-Dies", "before the answer")
"""A header that kills the service when it has committed the order."""
_SHOWN = ("Location", "Retry-After", "Idempotent-Replayed")
"""The headers of an answer that are shown."""
_AT_WORK = 0.5
"""Seconds after which the service is working on an order."""
_MOST = 10
"""How often an order is sent again."""

Json = dict[str, Any]


class Browser:
    """One customer at one shop."""

    def __init__(self, http: httpx.AsyncClient, url: str, customer: str) -> None:
        self._http = http
        self._url = f"{url}/orders"
        self._customer = {"X-User-Id": customer}

    async def orders(self) -> list[Json]:
        """The customer's orders, the newest first. httpx.HTTPError: no valid answer."""
        answer = await self._http.get(self._url, headers=self._customer)
        return answer.raise_for_status().json()["orders"]

    async def click_twice(self, items: Sequence[Json]) -> list[Json]:
        """Send two requests at once without a key. httpx.HTTPError: no answer."""
        return list(await asyncio.gather(self._send(items), self._send(items)))

    async def retry(self, items: Sequence[Json]) -> list[Json]:
        """Send a request whose answer is lost, and then another one with the same key."""
        key = f"slip-{secrets.token_hex(4)}"
        return [await self._send(items, key, is_lost=True), await self._send(items, key)]

    async def be_interrupted(
        self,
        items: Sequence[Json],
        dying: AbstractAsyncContextManager[None],
        *headers: tuple[str, str],
    ) -> list[Json]:
        """Send a request that gets no answer: the service dies at work, or by these headers."""
        key = f"slip-{secrets.token_hex(4)}"
        async with dying:
            at, since = time(), monotonic()
            sent = asyncio.create_task(self._send(items, key, *headers))
            await asyncio.wait([sent], timeout=None if headers else _AT_WORK)
        await asyncio.wait([sent])
        if (error := sent.exception()) is None:
            return [sent.result()]
        if not isinstance(error, httpx.HTTPError):
            raise error
        return [{"at": at, "key": key, "took": monotonic() - since}]

    async def send_again(self, items: Sequence[Json], key: str) -> list[Json]:
        """Repeat the request, as Retry-After says, while the answer is 409; return the last one."""
        at, since, refused = time(), monotonic(), 0
        while (exchange := await self._send(items, key))["status"] == 409 and refused < _MOST:
            refused += 1
            await asyncio.sleep(float(exchange["headers"].get("Retry-After", 1)))
        return [exchange | {"at": at, "took": monotonic() - since, "refused": refused}]

    async def _send(
        self,
        items: Sequence[Json],
        key: str | None = None,
        *others: tuple[str, str],
        is_lost: bool = False,
    ) -> Json:
        at, since = time(), monotonic()
        headers = self._customer | ({KEY: key} if key else {}) | dict(others)
        order = {"items": items}
        async with self._http.stream("POST", self._url, json=order, headers=headers) as answer:
            # The answer has begun, so the order is placed. A client that disconnects now never
            # reads the result.
            said = {} if is_lost else await _said(answer)
        return {"at": at, "key": key, "took": monotonic() - since} | said


async def _said(answer: httpx.Response) -> Json:
    """The shop's answer; of a lost one, nothing is known."""
    await answer.aread()
    shown = {name: answer.headers[name] for name in _SHOWN if name in answer.headers}
    words = {"status": answer.status_code, "reason": answer.reason_phrase}
    return words | {"headers": shown, "body": answer.json()}
