"""The seed's menu cache, to the letter, on plain redis-py: what `dibs.cached` is compared with.

Its followers sleep 80 ms, look once more, and then all call downstream. Served as the BFF is; only
the keys begin with another word, so that the two do not meet. Do not copy this.
"""

import asyncio
import json
import os
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import redis.asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

CACHE_KEY = "seed:cis:menu:active:v1:{}"
LOCK_KEY = "seed:lock:cis:menu:active:v1:{}"
BASE_TTL_SECONDS = 180
LOCK_EXPIRE_SECONDS = 3
UNLOCK = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end
"""


class FindMenuActive:
    """FindMenuActiveUseCaseImpl, line for line."""

    def __init__(self, client: redis.asyncio.Redis, store: httpx.AsyncClient) -> None:
        self._redis = client
        self._store = store

    async def find_active(self, branch_id: str) -> tuple[Any, str]:
        """The menu, and where it came from: hit, or miss (it called the store-service)."""
        cache_key, lock_key = CACHE_KEY.format(branch_id), LOCK_KEY.format(branch_id)
        if cached := await self._redis.get(cache_key):
            return json.loads(cached), "hit"
        token = str(uuid.uuid4())
        locked = await self._redis.set(lock_key, token, nx=True, ex=LOCK_EXPIRE_SECONDS)
        try:
            if not locked:
                await asyncio.sleep(0.08)
            if cached := await self._redis.get(cache_key):
                return json.loads(cached), "hit"
            menu = await self._call_store_service(branch_id)
            await self._write_to_cache(cache_key, menu)
            return menu, "miss"
        finally:
            if locked:
                await self._redis.eval(UNLOCK, 1, lock_key, token)

    async def _call_store_service(self, branch_id: str) -> Any:
        answer = await self._store.post("/resolveActive", json={"branchId": branch_id})
        body = answer.json()
        if body["responseCode"] != "00000":
            raise RuntimeError(f"從 store-service 獲取菜單失敗。錯誤碼: {body['responseCode']}")
        return body["data"]

    async def _write_to_cache(self, key: str, menu: Any) -> None:
        spread = round(BASE_TTL_SECONDS * 0.2)
        ttl = max(60, BASE_TTL_SECONDS + random.randint(-spread, spread))
        await self._redis.set(key, json.dumps(menu), ex=ttl)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Connect as the environment says."""
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
    async with (
        redis.asyncio.Redis.from_url(os.environ["REDIS_URL"]) as client,
        httpx.AsyncClient(
            base_url=os.environ["STORE_SERVICE_URL"], limits=limits, timeout=30, trust_env=False
        ) as store,
    ):
        app.state.use_case = FindMenuActive(client, store)
        yield


async def find_active(request: Request) -> Response:
    """GET /menus/active?branchId=…, as the BFF answers it."""
    menu, how = await request.app.state.use_case.find_active(request.query_params["branchId"])
    return JSONResponse(menu, headers={"X-Cache": how})


app = Starlette(routes=[Route("/menus/active", find_active)], lifespan=lifespan)
