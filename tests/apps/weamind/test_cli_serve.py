"""`serve`, and the command line itself: a start in one line, an end that loses no event."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from local_line.local import LocalLine

from apps.weamind.cli.arguments import main
from apps.weamind.cli.serving import listen
from dibs.testing import Server
from tests.apps.weamind.conftest import ACCESS_TOKEN, SECRET, is_forecast
from tests.apps.weamind.test_bot_settings import OURS

pytestmark = pytest.mark.only_on("linux", "darwin")
ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "apps.weamind"]
NEEDED = {"LINE_CHANNEL_SECRET": SECRET, "LINE_CHANNEL_ACCESS_TOKEN": ACCESS_TOKEN}


def environment(**settings: str) -> dict[str, str]:
    """Nothing of ours but *settings*."""
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    return clean | {"PYTHONPATH": str(ROOT)} | settings


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=60,
    )


# ------------------------------------------------------------------------------- the command line


def test_help_loads_nothing_of_the_bot() -> None:
    """Neither a web server nor a database: `--help` answers at once."""
    code = (
        "import sys\n"
        "from apps.weamind.cli.arguments import main\n"
        "try: main(['doctor', '--help'])\n"
        "except SystemExit as end: print(end.code, *sorted(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    code, *loaded = done.stdout.splitlines()[-1].split()
    assert code == "0" and "apps.weamind.cli.arguments" in loaded
    heavy = {"uvicorn", "starlette", "sqlalchemy", "alembic", "pydantic", "httpx2", "redis", "PIL"}
    assert heavy.isdisjoint(name.partition(".")[0] for name in loaded)
    assert [name for name in loaded if name.startswith("apps.weamind.")] == [
        "apps.weamind.cli",
        "apps.weamind.cli.arguments",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["serve", "doctor", "richmenu", "exit codes", ".env"]),
        (["serve", "--help"], ["--host", "--port", "8003"]),
        (["doctor", "--help"], ["--json"]),
        (["richmenu", "--help"], ["apply", "show", "remove"]),
        (["richmenu", "apply", "--help"], ["may be repeated"]),
    ],
)
def test_every_command_has_help(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command is explained."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out = capsys.readouterr().out
    assert end.value.code == 0 and all(word in out for word in words)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["richmenu"],
        ["richmenu", "draw"],
        ["serve", "--port", "65536"],
        ["serve", "--port", "-1"],
        ["serve", "--port", "eighty"],
        ["doctor", "--fast"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_two(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """2, and what would be right."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()
    assert end.value.code == 2 and said.out == "" and "usage:" in said.err


# -------------------------------------------------------------------------------------- the start


def test_settings_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each mistake, nothing else, and 2."""
    monkeypatch.chdir(tmp_path)
    for setting in OURS:
        monkeypatch.delenv(setting, raising=False)
    monkeypatch.setenv("REDIS_URL", "redis://me:pass-word@localhost:port")
    assert main(["serve"]) == 2
    said = capsys.readouterr()
    names = [line.split(": ")[1] for line in said.err.splitlines()]
    assert sorted(names) == ["LINE_CHANNEL_ACCESS_TOKEN", "LINE_CHANNEL_SECRET", "REDIS_URL"]
    assert said.out == "" and "pass-word" not in said.err


def test_a_database_that_cannot_be_used(tmp_path: Path) -> None:
    """One line, no traceback, and 1."""
    url = "postgresql://me:pass-word@127.0.0.1:9/bot"
    done = run(tmp_path, "serve", "--port", "0", DATABASE_URL=url, **NEEDED)
    assert done.returncode == 1 and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("weamind: DATABASE_URL: the database cannot be used (")
    assert "pass-word" not in line and SECRET not in line


def test_a_place_to_listen() -> None:
    """A port that is taken, and a host that is not ours, are reported in a sentence."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=rf"^port {port} of 127.0.0.1: .*in use.*--port$"):
            listen("127.0.0.1", port)
    with listen("127.0.0.1", port):  # free again at once, though it was just closed
        pass
    with pytest.raises(OSError, match=r"^--host: no\.such\.host\.invalid is no address"):
        listen("no.such.host.invalid", 0)


def test_a_small_answer_leaves_at_once() -> None:
    """asyncio sees that it is TCP, and does not wait for more: LINE has two seconds."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


# ---------------------------------------------------------------------------------------- the end


@asynccontextmanager
async def running(folder: Path, **settings: str) -> AsyncIterator[tuple[str, Process]]:
    """The bot as an operator starts it; its address, and the process."""
    with (folder / "stderr").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "serve", "--port", "0"),
            cwd=folder,
            env=environment(**settings),
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout
    try:
        async with asyncio.timeout(60):
            said = (await process.stdout.readline()).decode()
        assert said.startswith("WeaMind listens at http://"), (folder / "stderr").read_text()
        yield said.split()[-1], process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_to_end_lets_it_finish_what_it_began(
    number: signal.Signals, tmp_path: Path, valkey: Server
) -> None:
    """While a forecast is made: LINE gets the forecast, and the exit code is 0."""
    async with LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line:
        settings = {"LINE_API_BASE": line.api_base, "REDIS_URL": valkey.url, **NEEDED}
        settings |= {"WEATHER_PROVIDER": "sample", "SAMPLE_DELAY_SECONDS": "1"}
        async with running(tmp_path, **settings) as (url, process):
            async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as http:
                assert (await http.get("/health")).json() == {"status": "ok"}
                ready = (await http.get("/ready")).json()
                assert ready == {"status": "ok", "database": "ok", "redis": "ok"}
                assert (await http.get("/")).status_code == 404
            line.webhook_url = f"{url}/line/webhook"
            assert (await line.say("板橋")).is_ok
            process.send_signal(number)
            async with asyncio.timeout(60):
                assert await process.wait() == 0
            [answer] = line.chat().sent
            assert is_forecast(answer)
    assert (tmp_path / "weamind.db").exists()
    said = (tmp_path / "stderr").read_text()
    assert "waiting for 1 events" in said and "Traceback" not in said
    for secret in (SECRET, ACCESS_TOKEN, line.me.chat_id, "板橋"):
        assert secret not in said


async def test_interrupted_twice_it_ends_at_once(tmp_path: Path) -> None:
    """A second Ctrl-C does not wait for an event that would take a minute."""
    async with LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line:
        settings = {"LINE_API_BASE": line.api_base, "REDIS_URL": "redis://127.0.0.1:9", **NEEDED}
        settings |= {"WEATHER_PROVIDER": "sample", "SAMPLE_DELAY_SECONDS": "60"}
        settings |= {"SHUTDOWN_SECONDS": "300"}
        async with running(tmp_path, **settings) as (url, process):
            line.webhook_url = f"{url}/line/webhook"
            assert (await line.say("板橋")).is_ok
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                while "waiting for 1 events" not in (tmp_path / "stderr").read_text():
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(30):
                assert await process.wait() == 0
    assert line.chat().sent == []
