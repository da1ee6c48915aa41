"""The orders service in the process of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2 as httpx

from apps.orders.main import create_app
from apps.orders.settings import Settings

TEA = {"items": [{"sku": "oolong-tea", "quantity": 2}, {"sku": "rice.roll", "quantity": 1}]}
SOUP = {"items": [{"sku": "oolong-tea", "quantity": 3}]}
SECRET = "a secret of the tests"


def is_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status and problem["detail"] and problem["title"]
    return problem


def is_refused(answer: httpx.Response, status: int, message: str | None = None) -> int:
    """A duplicate gets a polite refusal. Returns its Retry-After."""
    problem = is_problem(answer, status)
    seconds = int(answer.headers["Retry-After"])
    assert problem["retryAfter"] == seconds >= 1
    if message is not None:
        assert problem["message"] == problem["detail"] == message
    return seconds


def is_placed(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    order = answer.json()
    assert answer.headers["Location"] == f"/orders/{order['orderId']}"
    return order


class Answered(NamedTuple):
    """An answer, and when it came: by our clock, before asking and after the answer."""

    asked: float
    answered: float
    answer: httpx.Response


FAST, SLOW, TIMEOUT = "/lock-release-fast", "/lock-release-slow", "/lock-timeout-test"


@asynccontextmanager
async def served(
    redis_url: str, database_url: str, customer: str = "alone", **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, without a network in between."""
    app = create_app(Settings(redis_url, database_url, **({"secret": SECRET} | settings)))
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://shop",
            headers={"X-User-Id": customer},
        ) as client:
            yield client
