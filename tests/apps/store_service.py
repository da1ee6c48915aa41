"""The store-service in the process of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2 as httpx

from apps.databases import Timeouts
from apps.menu.store import Settings, create_app

PATIENT = Timeouts(statement=60, pool=60, connect=60)
"""A busy machine is no outage."""

NOON = "2026-11-16T12:00:00+08:00"  # a Monday
T = TypeVar("T")


@asynccontextmanager
async def served(
    url: str, *, delay: float = 0.0, timeouts: Timeouts = PATIENT
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service on that database."""
    app = create_app(Settings(url, delay, timeouts))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://store") as client:
            yield client


async def resolve(client: httpx.AsyncClient, branch_id: str, **more: Any) -> dict[str, Any]:
    answer = await client.post("/resolveActive", json={"branchId": branch_id, **more})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body.keys() == {"responseCode", "msg", "data"}
    return body


async def active(client: httpx.AsyncClient, branch_id: str, at: str = NOON) -> dict[str, Any]:
    body = await resolve(client, branch_id, at=at)
    assert body["responseCode"] == "00000", body
    return body["data"]


async def publish(client: httpx.AsyncClient, branch_id: str, edition: Any) -> dict[str, Any]:
    answer = await client.post(f"/branches/{branch_id}/menus", json=edition)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def at_once(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """What all of them return. Not gather, which lets the others go on when one has failed."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["detail"]
    return body


def price(menu: dict[str, Any], item_id: str) -> int:
    return next(item["price"] for item in menu["items"] if item["itemId"] == item_id)
