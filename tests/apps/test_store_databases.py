"""The store-service and its database: started at once, down, hanging, restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from apps.databases import Timeouts
from apps.menu.database import MenuDatabase
from apps.menu.documents import hash_of, parse_menu
from apps.menu.seed import sample_chain
from apps.menu.store import Settings
from dibs.testing import Child, eventually
from dibs.testing.servers import free_port
from tests.apps.postgres import Postgres

from .store_service import active, assert_problem, at_once, publish, served

pytestmark = pytest.mark.only_on("linux", "darwin")
ROOT = Path(__file__).parents[2]
Spawn = Callable[..., Child]


async def test_an_abandoned_call_leaves_nothing_behind(url: str) -> None:
    """Who goes away in the middle of a publication leaves a whole version or none, and no open
    connection when the service ends."""
    async with served(url) as client:
        calls = [publish(client, "tpe-main", {"priceChangePercent": 5}) for _ in range(8)]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    async with served(url) as client:
        versions = (await client.get("/branches/tpe-main/versions")).json()["versions"]
        assert [each["versionNo"] for each in versions] == list(range(len(versions), 0, -1))
        for version in versions:
            menu = (await client.get(f"/branches/tpe-main/menus/{version['versionNo']}")).json()
            assert hash_of(parse_menu(menu)) == version["versionHash"]


def _start_at_once(url: str) -> int:
    """In its own process: report that it is ready, wait for the signal, prepare the database."""
    from apps.menu.database import MenuDatabase
    from apps.menu.seed import sample_chain

    chain = sample_chain()
    database = MenuDatabase(url)
    print("ready", flush=True)
    input()
    database.prepare(chain)
    found = len(database.branches())
    database.close()
    return found


def test_many_may_start_at_once_on_an_empty_database(url: str, spawn: Spawn) -> None:
    """Six processes create and fill one database: none fails, and it is filled once."""
    children = [spawn(_start_at_once, url) for _ in range(6)]
    for child in children:
        assert child.line() == "ready"
    for child in children:
        child.tell()
    assert [child.result() for child in children] == [len(sample_chain())] * 6
    database = MenuDatabase(url)
    try:
        for branch, history in sample_chain():
            assert len(database.versions(branch.branch_id) or []) == len(history)
    finally:
        database.close()


# --------------------------------------------------------------------------------- as it is served


@contextmanager
def uvicorn(folder: Path, **settings: str) -> Iterator[str]:
    """`uvicorn apps.menu.store:app` in that folder; its address, before it answers."""
    port = free_port()
    program = [sys.executable, "-m", "uvicorn", "apps.menu.store:app", "--port", str(port)]
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    process = subprocess.Popen(
        [*program, "--app-dir", str(ROOT)],
        cwd=folder,
        env=inherited | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = ""
    try:
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate()
        assert "Application startup complete" in said, said
        assert "Traceback" not in said, said
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def is_healthy(address: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        answer = httpx.get(f"{address}/health", trust_env=False)
        return answer.json() == {"status": "ok"}
    return False


def test_the_store_service_runs_in_uvicorn(tmp_path: Path) -> None:
    """With a database in the working folder, and settings from `.env`."""
    (tmp_path / ".env").write_text("STORE_DELAY_SECONDS=0.4\n")
    with uvicorn(tmp_path) as address:
        eventually(lambda: is_healthy(address), within=90)
        assert (tmp_path / "menu.db").stat().st_size > 0
        with httpx.Client(base_url=address, trust_env=False) as client:
            began = time.monotonic()
            answer = client.post("/resolveActive", json={"branchId": "tpe-main", "tableId": "A1"})
            assert time.monotonic() - began >= 0.4
            assert answer.json()["responseCode"] == "00000"
            assert client.get("/stats").json() == {"resolveActive": 1}
            made = client.post("/branches/tpe-main/menus", json={"priceChangePercent": 5})
            assert made.json()["versionNo"] == 2
            assert client.post("/resolveActive", content=b" " * 2_000_000).status_code == 413


def test_two_services_may_start_at_once(url: str, tmp_path: Path) -> None:
    """Two uvicorns on one empty database both serve, and what one publishes the other serves."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(uvicorn(tmp_path, DATABASE_URL=url)) for _ in range(2)]
        for address in addresses:
            eventually(lambda address=address: is_healthy(address), within=90)
        with httpx.Client(trust_env=False) as client:
            lists = [client.get(f"{address}/branches").json() for address in addresses]
            assert lists[0] == lists[1]
            assert len(lists[0]["branches"]) == len(sample_chain())
            edition = {"priceChangePercent": 5}
            made = client.post(f"{addresses[0]}/branches/tpe-main/menus", json=edition).json()
            question = {"branchId": "tpe-main"}
            found = client.post(f"{addresses[1]}/resolveActive", json=question).json()
            assert found["data"]["versionHash"] == made["versionHash"]


async def test_a_database_that_is_down_is_a_503(postgres: Postgres) -> None:
    """problem+json while it is down; when it is back, so is the service."""
    async with served(postgres.new_database()) as client:
        before = await active(client, "tpe-main")
        postgres.stop()
        try:
            question = {"branchId": "tpe-main"}
            down = await client.post("/resolveActive", json=question)
            assert_problem(down, 503)
            assert down.headers["retry-after"] == "1"
            assert_problem(await client.get("/health"), 503)
        finally:
            postgres.start()
        assert await active(client, "tpe-main") == before


async def test_a_database_that_hangs_is_a_503(postgres: Postgres) -> None:
    """Also for more callers than there are threads; afterwards menus are served again."""
    timeouts = Timeouts(statement=1, pool=1, connect=2)
    async with served(postgres.new_database(), timeouts=timeouts) as client:
        await active(client, "tpe-main")
        with postgres.frozen():
            async with asyncio.timeout(20):  # hung for ever, before
                question = {"branchId": "tpe-main"}
                calls = [client.post("/resolveActive", json=question) for _ in range(30)]
                for answer in await asyncio.gather(*calls):
                    assert_problem(answer, 503)
        async with asyncio.timeout(20):
            while (await client.get("/health")).status_code == 503:
                await asyncio.sleep(0.05)
        await active(client, "tpe-main")


async def test_a_database_may_be_restarted(postgres: Postgres) -> None:
    """Later callers do not get one of the connections that it has dropped."""
    async with served(postgres.new_database()) as client:
        menus = await at_once(*(active(client, "tpe-main") for _ in range(5)))
        postgres.stop()
        postgres.start()
        assert await at_once(*(active(client, "tpe-main") for _ in range(5))) == menus


# ---------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("url", ["mysql://root:secret@db/menu", "menu.db", "redis://x"])
def test_another_kind_of_database_is_refused(url: str) -> None:
    """With a sentence that names the setting and keeps the password."""
    with pytest.raises(ValueError, match="DATABASE_URL must") as refused:
        MenuDatabase(url)
    assert "secret" not in str(refused.value)


def test_a_database_does_not_show_its_password() -> None:
    """Neither in its repr, nor by connecting before it is used."""
    database = MenuDatabase("postgres://chef:secret@nowhere.invalid/menu")
    assert "nowhere.invalid" in repr(database)
    assert "secret" not in repr(database)


@pytest.mark.parametrize("delay", ["-1", "nan", "inf", "soon"])
def test_a_delay_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, delay: str) -> None:
    """With a sentence that names the setting."""
    monkeypatch.setenv("STORE_DELAY_SECONDS", delay)
    with pytest.raises(ValueError, match="STORE_DELAY_SECONDS"):
        Settings.from_environment()


def test_the_environment_is_asked_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then `.env`, then the defaults; an empty setting is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", "")
    monkeypatch.delenv("STORE_DELAY_SECONDS", raising=False)
    assert Settings.from_environment() == Settings("sqlite:///menu.db", 0.0)
    (tmp_path / ".env").write_text("DATABASE_URL=sqlite:///a.db\nSTORE_DELAY_SECONDS=2\n")
    assert Settings.from_environment() == Settings("sqlite:///menu.db", 2.0)
    monkeypatch.delenv("DATABASE_URL")
    assert Settings.from_environment() == Settings("sqlite:///a.db", 2.0)
