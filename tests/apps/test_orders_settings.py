"""The orders service is started: settings, secrets, and what is in its log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from apps.orders.life_cycle import log_life_cycle
from apps.orders.main import create_app
from apps.orders.settings import Settings
from dibs import Event
from dibs.testing import Server
from dibs.testing import eventually as eventually_now
from dibs.testing.servers import free_port

from .orders_service import (
    SECRET,
    SOUP,
    TEA,
    is_placed,
    is_refused,
    served,
)

pytestmark = pytest.mark.only_on("linux", "darwin")
ROOT = Path(__file__).parents[2]


# ------------------------------------------------------------------------------- as it is served


def test_the_orders_service_runs_in_uvicorn(tmp_path: Path, valkey: Server) -> None:
    """With settings from `.env`, and a database in the working folder; it ends without output."""
    (tmp_path / ".env").write_text(f"REDIS_URL={valkey.url}\n")
    port = free_port()
    program = [sys.executable, "-m", "uvicorn", "apps.orders.main:app", "--port", str(port)]
    names = ("DATABASE_URL", "REDIS_URL")
    process = subprocess.Popen(
        [*program, "--app-dir", str(ROOT)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in names},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)
    try:
        eventually_now(lambda: is_answering(http), within=90)
        is_placed(http.post("/orders", json=TEA, headers={"X-User-Id": "alone"}))
        assert (tmp_path / "orders.db").stat().st_size > 0
        assert len(valkey.keys()) == 1
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate()
        assert "Application startup complete" in said and "Traceback" not in said, said
        assert "alone" not in said
    finally:
        http.close()
        process.kill()
        process.wait()
        process.stdout.close()


def is_answering(http: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return http.get("/ready").json()["status"] == "ok"
    return False


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings("nonsense://", "sqlite://"), "nonsense"),
        (Settings("embedded://", "mysql://localhost/shop"), "DATABASE_URL"),
        (Settings("embedded://", "orders.db"), "DATABASE_URL"),
        (Settings("redis://cache.shop.test:6379", "sqlite://"), "ORDERS_SECRET must be set"),
        (Settings("embedded://", "postgresql://me@db.shop.test/x"), "ORDERS_SECRET must be set"),
        (Settings("redis+sentinel://a:1,b:2/main", "sqlite://"), "ORDERS_SECRET must be set"),
        (Settings("embedded://", "sqlite://", "short"), "ORDERS_SECRET must have 16"),
    ],
)
def test_a_setting_that_cannot_be_used(settings: Settings, said: str) -> None:
    """Reported when the app is made, before anything connects."""
    with pytest.raises(ValueError, match=said):
        create_app(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [("ORDERS_REFUSALS", "xml"), ("DATABASE_STATEMENT_SECONDS", "long"),
     ("DATABASE_POOL_SECONDS", "0"), ("DATABASE_CONNECT_SECONDS", "inf")],
)  # fmt: skip
def test_a_setting_of_the_environment_is_checked(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A sentence says which one cannot be used."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name):
        Settings.from_environment()


# ------------------------------------------------------------------------------- secrets and names


async def test_a_key_depends_on_the_secret(sqlite: str, valkey: Server) -> None:
    """The same order of the same customer has another key under another secret: none can guess."""
    keys: list[str] = []
    for secret in (SECRET, "another secret of the tests"):
        valkey.flush()
        async with served(valkey.url, sqlite, secret=secret) as client:
            is_placed(await client.post("/orders", json=TEA))
            keys += valkey.keys()
    assert len(set(keys)) == 2


def test_without_a_secret_one_machine_has_one(caplog: pytest.LogCaptureFixture) -> None:
    """All its processes make the same one, and say so; elsewhere it must be set."""
    local = Settings("redis://127.0.0.1:1", "postgresql://me@/shop?host=/run/pg")
    assert local.usable_secret() == Settings("embedded://").usable_secret() != ""
    assert "ORDERS_SECRET is not set" in caplog.text


async def test_a_name_that_looks_like_an_address_is_a_name(sqlite: str, valkey: Server) -> None:
    """A user called 127.0.0.1 is not the anonymous user with that address."""
    async with served(valkey.url, sqlite) as client:
        nameless = httpx.Request("POST", "http://shop/lock-release-fast", json=TEA)
        named = client.post("/lock-release-fast", json=TEA, headers={"X-User-Id": "127.0.0.1"})
        answers = await asyncio.gather(client.send(nameless), named)
        assert [answer.status_code for answer in answers] == [200, 200]


# ------------------------------------------------------------------------------- the lock's log


async def test_the_life_of_a_lock_is_in_the_log(
    sqlite: str, valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Claimed, refused, done, and a lock value that does not match; no line names a user."""
    caplog.set_level("INFO", "apps.orders.lock")
    async with served(valkey.url, sqlite) as client:
        is_placed(await client.post("/orders", json=TEA))
        is_refused(await client.post("/orders", json=TEA), 429)
        valkey.flush()
        working = asyncio.create_task(client.post("/lock-release-fast", json=SOUP))
        while not valkey.keys():
            await asyncio.sleep(0.01)
        valkey.client().set(valkey.keys()[0], "somebody else's")
        assert (await working).status_code == 200
    ours = [record for record in caplog.records if record.name == "apps.orders.lock"]
    said = [(record.levelname, record.getMessage()) for record in ours]
    levels = [level for level, _ in said]
    assert levels == ["INFO", "INFO", "INFO", "INFO", "WARNING"], said
    for word, (_, line) in zip(("claimed", "done", "refused", "claimed"), said, strict=False):
        assert word in line
    assert "lock value does not match" in said[-1][1]
    assert not re.search(r"alone|oolong|[0-9a-f]{16}|else's", str(said))


@pytest.mark.parametrize(
    ("kind", "level", "words"),
    [
        ("claimed", "INFO", "claimed"),
        ("duplicate", "INFO", "refused"),
        ("released", "INFO", "released, after 1.500 s"),
        ("late", "WARNING", "value_mismatch"),
        ("leaked", "ERROR", "release failed"),
    ],
)
def test_each_step_has_the_level_of_the_seed(
    kind: Any, level: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """INFO for what is meant to happen, WARNING for another's lock, ERROR for a failed release."""
    caplog.set_level("INFO", "apps.orders.lock")
    held = None if kind in ("claimed", "duplicate") else 1.5
    log_life_cycle(Event(kind=kind, name="POST /orders", at=0.0, held=held))
    [record] = caplog.records
    assert record.levelname == level
    assert "POST /orders" in record.getMessage() and words in record.getMessage()


# ------------------------------------------------------------------------------- the seed's Result


async def test_refusals_in_the_seeds_envelope(sqlite: str, valkey: Server) -> None:
    """ORDERS_REFUSALS=result: `Result.error` with retryAfter and lockManagement, status and all."""
    async with served(valkey.url, sqlite, refusals="result") as client:
        is_placed(await client.post("/orders", json=TEA))
        done = is_result(await client.post("/orders", json=TEA), 429)
        assert done["lockManagement"] == "到期释放机制"
        first, second = await asyncio.gather(
            *(client.post("/lock-release-fast", json=TEA) for _ in range(2))
        )
        refused = first if first.status_code == 429 else second
        result = is_result(refused, 429)
        assert result["lockManagement"] == "自动释放机制"
        assert result["msg"] == "10秒防重复，但会主动释放"
        assert result["retryAfter"] == int(refused.headers["Retry-After"]) >= 1
        assert "lockManagement" not in is_result(await client.post("/orders", content=b"{"), 400)
        is_result(await client.get("/nowhere"), 404)
        is_result(await client.post("/orders", headers={"X-User-Id": ""}, json=TEA), 401)


def is_result(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    result = answer.json()
    assert (result["code"], result["data"]) == (status, None) and result["msg"]
    return result
