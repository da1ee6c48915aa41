"""The policy for payments of docs/how-to/form.md does what its table says."""

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fastapi import FastAPI

from dibs import AsyncDibs
from dibs.integrations.fastapi import Policy, install, once
from dibs.testing import Server, aeventually

PAGE = Path(__file__).parents[2] / "docs/how-to/form.md"
[WRITTEN] = re.findall(r"^payments = (Policy\(.*?^\))", PAGE.read_text("utf-8"), re.M | re.S)
PAYMENTS: Policy = eval(WRITTEN, {"Policy": Policy})
KEYED = {"x-user": "ann", "idempotency-key": "k-1"}


class Till:
    """Charges a card, and meanwhile something happens."""

    def __init__(self) -> None:
        self.charges = 0
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def charge(self) -> int:
        self.charges += 1
        self.begun.set()
        await self.go_on.wait()
        return self.charges


@asynccontextmanager
async def paying(server: Server, policy: Policy, till: Till) -> AsyncIterator[Any]:
    app = FastAPI(title="shop")
    app.post("/payments", status_code=201)(once(policy)(till.charge))
    async with AsyncDibs(server.url, budget=0.25) as dibs:
        install(app, dibs, user=lambda request: request.headers.get("x-user"))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            yield lambda: client.post("/payments", headers=KEYED)


@pytest.mark.parametrize(("lease", "status"), [(1, 409), (PAYMENTS.lease, 201)])
async def test_an_outage_during_a_charge_is_survived(
    own_server: Server, lease: Any, status: int
) -> None:
    """The client has its 201; a retry is a replay, or a 409 if the lease was shorter."""
    till = Till()
    async with paying(own_server, dataclasses.replace(PAYMENTS, lease=lease), till) as pay:
        first = asyncio.create_task(pay())
        await till.begun.wait()
        own_server.freeze()
        try:
            await asyncio.sleep(1.2)  # longer than the short lease, however slow this machine is
            till.go_on.set()
            assert (await first).status_code == 201
            assert (await pay()).status_code == 503
        finally:
            own_server.thaw()
        retries = [await pay()]

        async def is_answered() -> bool:
            retries.append(await pay())
            return retries[-1].status_code != 503

        await aeventually(is_answered, within=30)
    assert (till.charges, retries[-1].status_code) == (1, status)
    assert status != 201 or retries[-1].headers["idempotent-replayed"] == "true"
    assert status != 409 or retries[-1].json()["type"] == "urn:dibs:already-done"


async def test_a_server_without_persistence_forgets_what_was_paid(own_server: Server) -> None:
    """The reason for `appendonly yes`."""
    till = Till()
    till.go_on.set()
    async with paying(own_server, PAYMENTS, till) as pay:
        assert [(await pay()).status_code for _ in range(2)] == [201, 201] and till.charges == 1
        own_server.kill()
        assert (await pay()).status_code == 503
        own_server.restart()

        async def is_answered() -> bool:
            return (await pay()).status_code == 201

        await aeventually(is_answered, within=30)
    assert till.charges == 2
