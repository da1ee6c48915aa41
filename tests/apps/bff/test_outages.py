"""The menu BFF without Redis, in a cluster, and when a process dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest

from dibs.testing import Server, eventually
from dibs.testing.servers import free_port
from tests.topologies import start_cluster

from .service import (
    KEY,
    LOCK,
    RAISE,
    Bff,
    Run,
    Store,
    good_answer,
    is_problem,
    rush,
    saying,
)

pytestmark = pytest.mark.only_on("linux", "darwin")


async def test_a_failed_load_is_the_answer_of_all_processes(run: Run, valkey: Server) -> None:
    """Three processes, a store-service that hangs: it is asked once, and all guests get that
    failure."""
    with saying(200, good_answer()) as say:
        say.hangs.set()
        bffs = run(*(Bff(valkey.url, say.url) for _ in range(3)))
        answers, _ = await rush(*bffs, guests=30)
        say.hangs.clear()
        assert {answer.status_code for answer in answers} == {503}
        assert say.calls == 1
        await asyncio.to_thread(eventually, lambda: bffs[1].read().status_code == 200)


def test_a_bff_that_dies_while_it_loads(run: Run, valkey: Server) -> None:
    """Its guests lose their connection; those of the other process get the menu: one more call."""
    store = Store(delay=2.5)
    run(store, first := Bff(valkey.url, store.url), second := Bff(valkey.url, store.url))
    with ThreadPoolExecutor(20) as guests:
        lost = guests.submit(first.read)
        eventually(lambda: LOCK in valkey.keys() and store.calls == 1)
        waiting = [guests.submit(second.read) for _ in range(10)]
        first.child.kill()
        assert isinstance(lost.exception(), httpx.TransportError)
        assert {answer.result().status_code for answer in waiting} == {200}
    assert store.calls == 2


# ------------------------------------------------------------------------------- Redis is out


async def test_menus_without_redis(run: Run, own_server: Server) -> None:
    """Menus are served all the same: one load a process for all who ask at once; then as before."""
    store = Store(delay=2.0)  # all have come by then, also to a busy machine
    run(store, bff := Bff(own_server.url, store.url), other := Bff(own_server.url, store.url))
    assert bff.http.get("/ready").json()["status"] == "ok"
    assert other.http.get("/ready").json()["status"] == "ok"
    own_server.freeze()
    answers, _ = await rush(bff, other, guests=100)
    assert {answer.status_code for answer in answers} == {200}
    assert store.calls == 2
    assert {answer.headers["X-Cache"] for answer in answers} == {"bypass", "shared"}
    assert bff.http.get("/health").status_code == 200
    ready = bff.http.get("/ready")
    assert ready.status_code == 200
    assert ready.json() == {"status": "degraded", "redis": "out", "storeService": "ok"}

    own_server.thaw()
    await asyncio.to_thread(eventually, lambda: bff.read().headers["X-Cache"] == "hit", within=90)


def test_without_redis_and_store_service_it_is_not_ready(run: Run, own_server: Server) -> None:
    """Neither Redis nor a store-service: not ready, and guests get a quick refusal."""
    [bff] = run(Bff(own_server.url, f"http://127.0.0.1:{free_port()}"))
    own_server.kill()
    assert is_problem(bff.http.get("/ready"), 503)["redis"] == "out"
    since = time.monotonic()
    is_problem(bff.read(), 503)
    assert time.monotonic() - since < 20


# ------------------------------------------------------------------------------- a cluster


async def test_in_a_cluster_a_menu_and_its_lock_share_a_slot(
    run: Run, start_server: Callable[..., Server]
) -> None:
    """The lock is in the slot of its menu: 60 guests are one call, and publishing works."""
    nodes = await asyncio.to_thread(start_cluster, start_server)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    store = Store(delay=0.4)
    run(store, first := Bff(url, store.url), second := Bff(url, store.url))
    answers, _ = await rush(first, second, guests=60)
    assert {answer.status_code for answer in answers} == {200}
    assert store.calls == 1
    assert first.http.get("/ready").json()["status"] == "ok"
    published = first.publish(RAISE)
    assert published.headers["X-Cache-Invalidated"] == "done"
    assert second.read().json()["versionNo"] == published.json()["versionNo"]
    assert [key for node in nodes for key in node.keys()] == [KEY]
