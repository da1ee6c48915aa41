"""The seed's three endpoints, to see the guard at work: fast, slow, slower than the interval."""

import asyncio
from typing import Any

from fastapi import APIRouter, Body

from dibs.integrations.fastapi import prevent_duplicate_submit

router = APIRouter(tags=["seed"])
Anything = dict[str, Any]
_NOTHING: Any = Body(default={})


def success(msg: str) -> Anything:
    """The seed's `Result.success`."""
    return {"code": 200, "msg": msg, "data": None}


@router.post("/lock-release-fast")
@prevent_duplicate_submit(interval=10, message="10秒防重复，但会主动释放")
async def fast_process(body: Anything = _NOTHING) -> Anything:
    """Works 1 s; free as soon as it is done, long before its 10 s are over."""
    await asyncio.sleep(1)
    return success("处理完成，锁已释放")


@router.post("/lock-release-slow")
@prevent_duplicate_submit(interval=5, message="5秒防重复，处理时间较长")
async def slow_process(body: Anything = _NOTHING) -> Anything:
    """Works 3 s; a second request is refused meanwhile, and accepted afterwards."""
    await asyncio.sleep(3)
    return success("长时间处理完成")


@router.post("/lock-timeout-test")
@prevent_duplicate_submit(interval=2, message="2秒防重复，处理时间超时")
async def timeout_process(body: Anything = _NOTHING) -> Anything:
    """Works 3 s, longer than its interval; a second request is still refused until the end."""
    await asyncio.sleep(3)
    return success("超时处理完成")
