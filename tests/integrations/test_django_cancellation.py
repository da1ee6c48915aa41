"""Django under ASGI: clients that leave, and a second cancellation."""

import asyncio
import json
from typing import Any

import pytest

from dibs.testing import Server

from . import Call
from .edges import opened
from .every_edge import KEYED

# ---- Django under ASGI


@pytest.mark.parametrize("edge", ["django async", "django middleware async"])
@pytest.mark.parametrize("is_sync", [False, True], ids=["async view", "sync view"])
async def test_django_finishes_the_work_of_a_client_that_leaves(
    valkey: Server, edge: str, is_sync: bool
) -> None:
    """Django cancels its view; the retry gets the answer, and the work is done once."""
    import threading

    from . import edges_django

    from asgiref.sync import sync_to_async  # isort: skip
    from django.http import JsonResponse  # isort: skip

    runs: list[int] = []
    gate = threading.Event()

    def work(request: Any) -> Any:
        runs.append(1)
        assert gate.wait(20)
        return JsonResponse({"order": len(runs)}, status=201)

    async def awork(request: Any) -> Any:
        runs.append(1)
        while not gate.is_set():
            await asyncio.sleep(0.01)
        return JsonResponse({"order": len(runs)}, status=201)

    async with opened(edge, valkey, after="replay", key="required") as shop:
        view = sync_to_async(work) if is_sync else awork
        if "middleware" not in edge:
            view = edges_django.once(window=60, after="replay", key="required")(view)
        edges_django.current = view
        headers = {**KEYED, "content-type": "application/json", "host": "shop"}
        call = Call(shop.app, headers=headers)
        task = call.start()
        while not runs:
            await asyncio.sleep(0.01)
        call.leave()
        await asyncio.sleep(0.1)
        assert (await shop.post(headers=KEYED)).status == 409
        gate.set()
        await task
        again = await shop.post(headers=KEYED)
        assert again.is_replay and again.json == {"order": 1} and len(runs) == 1


@pytest.mark.parametrize("edge", ["django async", "django middleware async"])
async def test_a_second_cancellation_is_obeyed(valkey: Server, edge: str) -> None:
    """A server that shuts down is not kept by a view that hangs; the key is free."""
    from . import edges_django

    begun = asyncio.Event()

    async def hangs(request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    policy: dict[str, Any] = {"window": 60, "after": "replay", "key": "required"}
    async with opened(edge, valkey, **policy) as shop:
        edges_django.current = hangs if "middleware" in edge else edges_django.once(**policy)(hangs)
        headers = {**KEYED, "content-type": "application/json", "host": "shop"}
        call = Call(shop.app, headers=headers)
        task = call.start()
        await begun.wait()
        others = asyncio.all_tasks() - {asyncio.current_task(), task}
        for _ in range(2):
            for other in others:
                other.cancel()
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        while valkey.keys():
            await asyncio.sleep(0.01)


async def test_what_a_view_sets_in_its_context_is_seen_outside(valkey: Server) -> None:
    """The view runs in its own task, as if it did not."""
    import contextvars

    from django.http import JsonResponse
    from django.test import override_settings

    from . import edges_django

    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")

    async def view(request: Any) -> Any:
        variable.set("set by the view")
        return JsonResponse({}, status=201)

    async with opened("django async", valkey, after="replay", key="required"):
        with override_settings(MIDDLEWARE=[f"{__name__}.looking"]):
            from django.core.handlers.asgi import ASGIHandler

            seen.clear()
            Looking.variable = variable
            edges_django.current = edges_django.once(window=60)(view)
            headers = {"content-type": "application/json", "host": "shop"}
            call = Call(ASGIHandler(), headers=headers)
            await call.run()
    assert seen == ["set by the view"] and json.loads(call.body) == {}


seen: list[str] = []


class Looking:
    variable: Any = None


def looking(get_response: Any) -> Any:
    """A middleware that looks at what the view has set."""

    async def middleware(request: Any) -> Any:
        response = await get_response(request)
        seen.append(Looking.variable.get())
        return response

    return middleware


looking.async_capable = True  # type: ignore[attr-defined]
looking.sync_capable = False  # type: ignore[attr-defined]
