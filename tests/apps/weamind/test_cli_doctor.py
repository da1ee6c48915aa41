"""`doctor`: each part that works is confirmed, each other has exactly one fix, and no secret is
shown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from local_line.local import LocalLine, served
from local_line.richmenus import check_menu, check_picture
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from apps.weamind.cli.arguments import main
from apps.weamind.cli.checks import account, database, menu, store, weather
from apps.weamind.cli.doctor import Check, results
from apps.weamind.cli.findings import Finding, degraded, exit_code, failed, ok, skipped, summary
from apps.weamind.core.database import migrate, open_engine
from apps.weamind.richmenu.applying import apply
from apps.weamind.richmenu.channel import Channel, Quota, Refused, Webhook
from apps.weamind.richmenu.definition import definition, picture
from apps.weamind.weather.cwa import Cwa
from apps.weamind.weather.open_meteo import OpenMeteo
from dibs.testing import Server
from tests.apps.weamind.conftest import ACCESS_TOKEN, SECRET, RunBot
from tests.apps.weamind.test_bot_settings import OURS

NAMES = ["settings", "LINE token", "webhook", "webhook test", "quota", "Redis", "lock", "database",
         "weather", "rich menu"]  # fmt: skip
NOWHERE = "redis://somebody:pass-word@127.0.0.1:9/0"


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An operator's environment, in an empty folder, with made-up weather."""
    monkeypatch.chdir(tmp_path)
    for setting in OURS:
        monkeypatch.delenv(setting, raising=False)
    monkeypatch.setenv("LINE_CHANNEL_SECRET", SECRET)
    monkeypatch.setenv("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN)
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/bot.db")
    monkeypatch.setenv("WEATHER_PROVIDER", "sample")
    return monkeypatch


async def examined(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit code, and what `--json` says of each check."""
    capsys.readouterr()
    code = await asyncio.to_thread(main, ["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    return code, {"status": said["status"], **{each["name"]: each for each in said["checks"]}}


def has_one_fix(finding: Finding, words: str) -> bool:
    """It says so, in one sentence."""
    return words in finding.fix and "\n" not in finding.fix and len(finding.text().split("→")) == 2


# ------------------------------------------------------------------------------- the whole of it


async def test_a_working_bot_passes_every_check(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run_bot: RunBot, valkey: Server
) -> None:
    """A bot that runs and has its menu: a ✓ for each of ten checks, and 0."""
    async with run_bot() as bot, Channel(bot.line.api_base, ACCESS_TOKEN) as channel:
        await apply(channel)
        env.setenv("LINE_API_BASE", bot.line.api_base)
        env.setenv("REDIS_URL", valkey.url)
        assert await asyncio.to_thread(main, ["doctor"]) == 0
        out = capsys.readouterr().out
        code, said = await examined(capsys)
    lines = out.splitlines()
    assert [line[:2] for line in lines[:10]] == ["✓ "] * 10
    assert [line[2:16].strip() for line in lines[:10]] == NAMES
    assert lines[10:] == ["", "All is well."]
    assert "Valkey" in lines[5] and "noeviction" in lines[5] and "made up" in lines[8]
    assert SECRET not in out and ACCESS_TOKEN not in out
    assert (code, said.pop("status")) == (0, "ok")
    assert list(said) == NAMES
    assert all(each["status"] == "ok" and each["fix"] == "" for each in said.values())
    assert not any("doctor" in key for key in valkey.keys())


async def test_a_broken_bot_fails_what_must_work(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid token, no Redis, no database.

    What must work is ✗, what depends on it is not checked, and neither tokens nor passwords are
    shown.
    """
    async with LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line:
        env.setenv("LINE_API_BASE", line.api_base)
        env.setenv("LINE_CHANNEL_ACCESS_TOKEN", "a-token-of-nobody")
        env.setenv("REDIS_URL", NOWHERE)
        env.setenv("DATABASE_URL", "postgresql://somebody:pass-word@127.0.0.1:9/bot")
        assert await asyncio.to_thread(main, ["doctor"]) == 1
    out = capsys.readouterr().out
    signs = {line[2:16].strip(): line[0] for line in out.splitlines() if line[:1] in "✓✗–" and line}
    assert signs == dict(zip(NAMES, "✓✗–––––✗✓–", strict=True))
    assert out.count("→") == 3 and "2 to be fixed" in out
    for secret in ("a-token-of-nobody", "pass-word", "somebody", SECRET):
        assert secret not in out


async def test_without_redis_the_bot_works(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run_bot: RunBot
) -> None:
    """Redis out is degraded: a warning with its fix, and 0."""
    async with run_bot(redis_url=NOWHERE) as bot:
        env.setenv("LINE_API_BASE", bot.line.api_base)
        env.setenv("REDIS_URL", NOWHERE)
        code, said = await examined(capsys)
    assert (code, said["status"]) == (0, "degraded")
    assert said["Redis"]["status"] == "degraded" and "Start Redis" in said["Redis"]["fix"]
    assert said["lock"]["status"] == "skipped"
    assert said["webhook test"]["status"] == said["database"]["status"] == "ok"


async def test_mistakes_in_settings_come_first(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One ✗ and one fix for each mistake; the rest is not looked at."""
    env.delenv("LINE_CHANNEL_SECRET")
    env.setenv("REDIS_URL", "http://me:pass-word@localhost")
    assert await asyncio.to_thread(main, ["doctor"]) == 1
    out = capsys.readouterr().out
    first, fix, second, other_fix, rest, _, end = out.splitlines()
    assert first.startswith("✗ settings") and "REDIS_URL" in first + second
    assert "LINE_CHANNEL_SECRET: is missing" in first + second
    assert "Set " in fix and "Set " in other_fix
    assert rest.startswith("– everything else") and end.startswith("2 to be fixed")
    assert "pass-word" not in out


async def test_a_check_that_never_ends() -> None:
    """It is given up after its time; those after it are looked at, those that need it are not."""

    async def never() -> Finding:
        await asyncio.Event().wait()
        raise AssertionError

    async def well() -> Finding:
        return ok("c", "fine")

    checks = [Check("a", never, fix="Fix it."), Check("b", well, "a"), Check("c", well)]
    found = [finding async for finding in results(checks, longest=0.05)]
    assert found == [
        Finding("a", "failed", "no answer within 0.05 s", "Fix it.", answers=False),
        skipped("b", "it needs a"),
        ok("c", "fine"),
    ]


async def test_line_fails_in_the_middle(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run_bot: RunBot, valkey: Server
) -> None:
    """An error of LINE's is a finding with LINE's own words, and not a traceback."""
    async with run_bot() as bot:
        env.setenv("LINE_API_BASE", bot.line.api_base)
        env.setenv("REDIS_URL", valkey.url)
        bot.line.fail_next("/v2/bot/message/quota", status=500)
        bot.line.fail_next("/v2/bot/channel/webhook/endpoint", status=503)
        code, said = await examined(capsys)
    assert code == 1
    assert said["quota"]["status"] == "degraded" and "LINE answered 500" in said["quota"]["found"]
    assert said["webhook"]["status"] == "failed" and said["webhook"]["fix"]
    assert said["webhook test"]["status"] == "skipped"


# ---------------------------------------------------------------------------------- how it is said


def test_a_fix_for_what_is_broken() -> None:
    """And for nothing else: a finding without one, or with a needless one, cannot be made."""
    for status in ("failed", "degraded"):
        with pytest.raises(ValueError, match="a fix is for"):
            Finding("x", status, "y")
    for status in ("ok", "skipped"):
        with pytest.raises(ValueError, match="a fix is for"):
            Finding("x", status, "y", "z")


@pytest.mark.parametrize(
    ("findings", "code", "last"),
    [
        ([ok("a", "x")], 0, "All is well."),
        ([ok("a", "x"), skipped("b", "y")], 0, "All is well."),
        ([degraded("a", "x", "f")], 0, "The bot works; 1 could be better."),
        ([degraded("a", "x", "f"), failed("b", "x", "f")], 1, "1 to be fixed before the bot"),
    ],
)
def test_what_must_work_decides_the_exit_code(
    findings: list[Finding], code: int, last: str
) -> None:
    """Only what must work decides about the exit code."""
    assert exit_code(findings) == code
    assert summary(findings).startswith(last)


# ------------------------------------------------------------------------------------ the account


@pytest.mark.parametrize(
    ("webhook", "fix"),
    [
        (None, "Set the webhook URL"),
        (Webhook("", True), "Set the webhook URL"),
        (Webhook("https://bot.example/webhook", True), "/line/webhook"),
        (Webhook("https://bot.example/line/webhook", False), "Use webhook"),
    ],
)
def test_a_webhook_that_is_wrong(webhook: Webhook | None, fix: str) -> None:
    """Not there, elsewhere, or switched off."""
    finding = account.judge_webhook(webhook)
    assert finding.status == "failed" and has_one_fix(finding, fix)


def test_a_webhook_behind_a_path() -> None:
    """What stands before the bot may have a path before ours; what may be secret is not shown."""
    finding = account.judge_webhook(Webhook("https://c:d@a.example/b/line/webhook?e=1", True))
    assert finding == ok("webhook", "https://a.example/b/line/webhook")


@pytest.mark.parametrize(
    ("result", "fix"),
    [
        ({"reason": "COULD_NOT_CONNECT", "statusCode": 0}, "Start the bot"),
        ({"reason": "REQUEST_TIMEOUT", "statusCode": 0}, "more than 2 s"),
        ({"reason": "ERROR_STATUS_CODE", "statusCode": 400}, "LINE_CHANNEL_SECRET"),
        ({"reason": "ERROR_STATUS_CODE", "statusCode": 404}, "Set the webhook URL"),
        ({"reason": "ERROR_STATUS_CODE", "statusCode": 503}, "EVENT_QUEUE_LIMIT"),
        ({"reason": "ERROR_STATUS_CODE", "statusCode": 502}, "stands before"),
        ({"reason": "UNCLASSIFIED"}, "stands before"),
        ({}, "stands before"),
    ],
)
def test_a_call_in_vain(result: dict[str, Any], fix: str) -> None:
    """Each reason has its own fix, and one that LINE invents tomorrow has one, too."""
    finding = account.judge_delivery(result)
    assert finding.status == "failed" and has_one_fix(finding, fix)


async def test_the_secret_of_another_channel(run_bot: RunBot) -> None:
    """LINE signs with one secret, the bot expects another: that is what the test call finds."""
    async with (
        run_bot(line_channel_secret="another-secret") as bot,
        Channel(bot.line.api_base, ACCESS_TOKEN) as channel,
    ):
        finding = await account.check_delivery(channel)
        assert "status 400" in finding.found and has_one_fix(finding, "LINE_CHANNEL_SECRET")


async def test_a_bot_that_does_not_run() -> None:
    """LINE cannot connect."""
    async with (
        LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line,
        Channel(line.api_base, ACCESS_TOKEN) as channel,
    ):
        assert has_one_fix(await account.check_webhook(channel), "Set the webhook URL")
        line.webhook_url = "http://127.0.0.1:9/line/webhook"
        assert has_one_fix(await account.check_delivery(channel), "Start the bot")
        line.fail_next("/v2/bot/channel/webhook/test", status=429)
        assert (await account.check_delivery(channel)).status == "degraded"
        line.fail_next("/v2/bot/channel/webhook/test", status=500)
        with pytest.raises(Refused):  # the doctor says it in LINE's words
            await account.check_delivery(channel)


async def test_the_doctor_finds_that_line_cannot_be_reached() -> None:
    """The fix is about the way to LINE, not about the token."""
    async with Channel("http://127.0.0.1:9", ACCESS_TOKEN) as channel:
        assert has_one_fix(await account.check_token(channel), "reach LINE_API_BASE")


@pytest.mark.parametrize(
    ("quota", "pushes", "status"),
    [
        (Quota(200, 12), True, "ok"),
        (Quota(None, 12), True, "ok"),
        (Quota(200, 200), False, "ok"),
        (Quota(200, 200), True, "degraded"),
    ],
)
def test_a_quota_that_is_used_up(quota: Quota, pushes: bool, status: str) -> None:
    """It matters only where the bot pushes."""
    assert account.judge_quota(quota, pushes=pushes).status == status


# ------------------------------------------------------------------------------------------- Redis


async def test_every_engine_tells_its_version(server: Server) -> None:
    """Which server, how far, which policy; and the lock works on it."""
    found = await store.check_server(server.url)
    version = ".".join(map(str, server.version))
    assert found.status == "ok" and version in found.found and "ms away" in found.found
    assert (await store.check_lock(server.url, True)).status == "ok"


async def test_other_targets(valkey: Server) -> None:
    """A socket is asked like a port; a private server is only tried."""
    assert "Valkey" in (await store.check_server(valkey.unix_url)).found
    assert "Valkey" in (await store.check_server(f"valkey://127.0.0.1:{valkey.port}")).found
    assert (await store.check_server("embedded://")).status == "ok"
    assert (await store.check_lock("embedded://", True)).status == "ok"


async def test_a_server_that_forgets(start_server: Callable[..., Server]) -> None:
    """With a bound and a policy that evicts, locks may go: degraded."""
    server = start_server(config=["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"])
    finding = await store.check_server(server.url)
    assert finding.status == "degraded" and has_one_fix(finding, "noeviction")


async def test_a_server_that_is_full(start_server: Callable[..., Server]) -> None:
    """It answers, and cannot take a lock."""
    server = start_server(config=["--maxmemory", "1"])
    assert (await store.check_server(server.url)).status == "ok"
    finding = await store.check_lock(server.url, True)
    assert finding.status == "degraded" and has_one_fix(finding, "takes writes")


async def test_a_server_with_a_password(own_server: Server) -> None:
    """Without it, or with a wrong one, access is denied; it is not shown."""
    server = own_server
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "right-word")
    for url in (server.url, f"redis://:pass-word@127.0.0.1:{server.port}"):
        finding = await store.check_server(url)
        assert finding.status == "degraded" and has_one_fix(finding, "user and the password")
        assert "pass-word" not in finding.text()
    right = f"redis://:right-word@127.0.0.1:{server.port}"
    assert (await store.check_server(right)).status == "ok"


async def test_many_servers_of_which_none_answers() -> None:
    """They are not asked about themselves: it is the lock that finds out."""
    url = "redis+sentinel://127.0.0.1:9/master"
    assert (await store.check_server(url)).status == "ok"
    finding = await store.check_lock(url, True)
    assert finding.status == "degraded" and has_one_fix(finding, "Start Redis")


async def test_a_lock_that_is_switched_off(valkey: Server) -> None:
    """It is not looked at."""
    assert (await store.check_lock(valkey.url, False)).status == "skipped"


# ------------------------------------------------------------------------------------ the database


async def test_tables_of_every_age_are_recognised(url: str) -> None:
    """None, the newest, and those of a bot that is newer than this one; looking changes nothing."""
    assert has_one_fix(await database.check(url), "Start the bot once")
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        assert has_one_fix(await database.check(url), "Start the bot once")
        migrate(engine)
        finding = await database.check(url)
        assert finding.status == "ok" and engine.dialect.name in finding.found
        with engine.begin() as connection:
            connection.execute(text("UPDATE weamind_schema SET version_num = '9999'"))
        assert has_one_fix(await database.check(url), "or a newer one")
    finally:
        engine.dispose()


async def test_looking_makes_no_file(tmp_path: Path) -> None:
    """A database that is not there is not there afterwards."""
    await database.check(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_database_that_is_none(tmp_path: Path) -> None:
    """Another file, or no server at that address: reported without the password."""
    (tmp_path / "bot.db").write_bytes(b"not a database at all, but long enough" * 100)
    with contextlib.closing(sqlite3.connect(tmp_path / "bot.db")) as connection:
        with pytest.raises(sqlite3.DatabaseError):
            connection.execute("SELECT * FROM sqlite_master")
    for url in (f"sqlite:///{tmp_path}/bot.db", "postgresql://me:pass-word@127.0.0.1:9/bot"):
        finding = await database.check(url)
        assert finding.status == "failed" and has_one_fix(finding, "DATABASE_URL")
        assert "pass-word" not in finding.text()


async def test_the_doctor_gives_up_on_a_database_that_hangs(eventually: Callable[..., Any]) -> None:
    """It is given up, and what still waits for it does not keep the process from ending."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/bot"
        checks = [Check("database", lambda: database.check(url), fix=database.REACH)]
        [finding] = [finding async for finding in results(checks, longest=0.05)]
        assert "no answer within" in finding.found and has_one_fix(finding, "Start the database")
        [waiting] = [thread for thread in threading.enumerate() if thread.name == "doctor"]
        assert waiting.daemon
    await eventually(lambda: not waiting.is_alive(), within=90)


# ------------------------------------------------------------------------- the weather, the menu


@pytest.mark.parametrize(
    ("status", "fix"), [(429, "Wait"), (401, "CWA_API_KEY"), (500, "choose another")]
)
async def test_a_provider_that_refuses(status: int, fix: str) -> None:
    """Asked too often, a key that is not known, or broken: each has its own fix."""

    async def refuse(request: object) -> JSONResponse:
        return JSONResponse({}, status)

    async with served(Starlette(routes=[Route("/{path:path}", refuse)])) as base_url:
        provider = Cwa("no-key-of-anybody", base_url=base_url)
        finding = await weather.check(provider)
        await provider.aclose()
    assert finding.status == "failed" and has_one_fix(finding, fix)
    assert "no-key-of-anybody" not in finding.text()


async def test_a_provider_that_is_not_there() -> None:
    """The fix is about the way to it."""
    provider = OpenMeteo(base_url="http://127.0.0.1:9")
    finding = await weather.check(provider)
    await provider.aclose()
    assert finding.status == "failed" and has_one_fix(finding, "reach the weather provider")


async def test_a_menu_that_is_not_ours() -> None:
    """None, a foreign one, an older one of ours: degraded, and how to apply it; then ✓."""
    async with (
        LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line,
        Channel(line.api_base, ACCESS_TOKEN) as channel,
    ):
        seen = [await menu.check(channel)]
        for name in ("somebody's", "dibs.weamind:0123456789abcdef"):
            menu_id = line.menus.create(check_menu(definition() | {"name": name}))
            line.menus.upload(menu_id, check_picture(picture(), "image/png"))
            line.menus.set_default(menu_id)
            seen.append(await menu.check(channel))
        assert all(has_one_fix(each, "richmenu apply") for each in seen)
        assert len({each.found for each in seen}) == 3
        await apply(channel)
        assert (await menu.check(channel)).status == "ok"
