"""Settings: names, defaults, and mistakes that are reported in one line each, without secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.types import Message

from apps.weamind.core.config import Settings, SettingsError, read_settings
from apps.weamind.main import create_app
from dibs.testing.servers import free_port

pytestmark = pytest.mark.only_on("linux", "darwin")
NEEDED = {"LINE_CHANNEL_SECRET": "a-secret", "LINE_CHANNEL_ACCESS_TOKEN": "a-token"}
OURS = [name.upper() for name in Settings.model_fields] + ["PROCESSING_LOCK_TIMEOUT"]


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment with nothing of ours but what is needed, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_defaults_are_the_seeds(env: pytest.MonkeyPatch) -> None:
    """Lock on, 5 seconds, selective, every refusal answered; no push; nothing of LINE's is ours."""
    settings = read_settings()
    assert settings.processing_lock_enabled is True
    assert settings.processing_lock_timeout_seconds == 5
    assert settings.processing_lock_scope == "selective"
    assert settings.processing_lock_busy_reply == "every"
    assert settings.redis_url == "redis://localhost:6379/0"
    assert settings.database_url == "sqlite:///weamind.db"
    assert settings.weather_provider == "open-meteo" and settings.sample_delay_seconds == 0
    assert settings.line_api_base == "https://api.line.me"
    assert settings.push_fallback is False and settings.liff_id is None


def test_the_seeds_other_name(env: pytest.MonkeyPatch) -> None:
    """PROCESSING_LOCK_TIMEOUT is an alias; where both are there, the longer name is meant."""
    env.setenv("PROCESSING_LOCK_TIMEOUT", "7")
    assert read_settings().processing_lock_timeout_seconds == 7
    env.setenv("PROCESSING_LOCK_TIMEOUT_SECONDS", "3")
    assert read_settings().processing_lock_timeout_seconds == 3


def test_a_file_and_the_environment(env: pytest.MonkeyPatch) -> None:
    """`.env` is read; the environment goes before it; what is empty counts as not there."""
    Path(".env").write_text(
        "PROCESSING_LOCK_ENABLED=false\nLIFF_ID=\nLINE_CHANNEL_SECRET=other\nUNKNOWN=1\n"
        "REDIS_URL=embedded://\nLINE_API_BASE=http://127.0.0.1:1/line/\n"
    )
    settings = read_settings()
    assert settings.processing_lock_enabled is False and settings.liff_id is None
    assert settings.line_channel_secret.get_secret_value() == "a-secret"
    assert settings.redis_url == "embedded://"
    assert settings.line_api_base == "http://127.0.0.1:1/line"


def test_what_is_copied_with_spaces(env: pytest.MonkeyPatch) -> None:
    """A line end at the end of a secret is not a part of it."""
    env.setenv("LINE_CHANNEL_SECRET", " a-secret\n")
    assert read_settings().line_channel_secret.get_secret_value() == "a-secret"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LINE_CHANNEL_SECRET", "wörd"),
        ("LINE_CHANNEL_ACCESS_TOKEN", "two words"),
        ("LINE_API_BASE", "api.line.me"),
        ("LINE_API_BASE", "ftp://api.line.me"),
        ("REDIS_URL", "http://me:pass-word@localhost"),
        ("REDIS_URL", "redis://me:pass-word@localhost:port"),
        ("DATABASE_URL", "mysql://me:pass-word@localhost/d"),
        ("DATABASE_URL", "bot.db"),
        ("WEATHER_PROVIDER", "crystal-ball"),
        ("SAMPLE_DELAY_SECONDS", "-1"),
        ("SAMPLE_DELAY_SECONDS", "nan"),
        ("PROCESSING_LOCK_ENABLED", "perhaps"),
        ("PROCESSING_LOCK_TIMEOUT_SECONDS", "0"),
        ("PROCESSING_LOCK_TIMEOUT_SECONDS", "forever"),
        ("PROCESSING_LOCK_MIN_SECONDS", "-1"),
        ("PROCESSING_LOCK_MIN_SECONDS", "nan"),
        ("LOG_LEVEL", "loud"),
        ("PROCESSING_LOCK_SCOPE", "some"),
        ("PROCESSING_LOCK_BUSY_REPLY", "none"),
        ("PUSH_FALLBACK", "x"),
        ("LIFF_ID", "https://liff.line.me/1"),
        ("EVENT_CONCURRENCY", "0"),
        ("EVENT_QUEUE_LIMIT", "many"),
        ("SHUTDOWN_SECONDS", "inf"),
    ],
)
def test_a_mistake_is_one_line(env: pytest.MonkeyPatch, name: str, value: str) -> None:
    """It names the setting, and never says what it was."""
    env.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        read_settings()
    [line] = raised.value.mistakes
    assert line.startswith(f"{name}: ") and "\n" not in line
    for secret in (value, "pass-word", "a-secret", "a-token"):
        assert secret not in str(raised.value) or len(secret) < 5


def test_all_mistakes_at_once(env: pytest.MonkeyPatch) -> None:
    """One start reports all four mistakes."""
    env.delenv("LINE_CHANNEL_SECRET")
    env.delenv("LINE_CHANNEL_ACCESS_TOKEN")
    env.setenv("PROCESSING_LOCK_TIMEOUT", "-5")
    env.setenv("REDIS_URL", "nowhere")
    with pytest.raises(SettingsError) as raised:
        read_settings()
    names = sorted(line.partition(":")[0] for line in raised.value.mistakes)
    assert names == ["LINE_CHANNEL_ACCESS_TOKEN", "LINE_CHANNEL_SECRET",
                     "PROCESSING_LOCK_TIMEOUT_SECONDS", "REDIS_URL"]  # fmt: skip


def test_cwa_needs_its_key(env: pytest.MonkeyPatch) -> None:
    """The setting that is missing is named."""
    env.setenv("WEATHER_PROVIDER", "cwa")
    with pytest.raises(SettingsError, match="CWA_API_KEY: is needed"):
        read_settings()
    env.setenv("CWA_API_KEY", "k-1")
    assert read_settings().cwa_api_key is not None


def test_secrets_are_not_printed(env: pytest.MonkeyPatch) -> None:
    """Neither by the settings nor by the parts that got them."""
    env.setenv("CWA_API_KEY", "k-1")
    settings = read_settings()
    for secret in ("a-secret", "a-token", "k-1"):
        assert secret not in repr(settings) and secret not in str(settings)


def started(environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uvicorn", "apps.weamind.main:app", "--port", str(free_port())]
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    clean["PYTHONPATH"] = str(Path.cwd())
    return subprocess.run(
        command, cwd=folder, env=clean | environment, capture_output=True, text=True
    )


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    """One line for each mistake, no traceback, no secret, and an exit code that is not 0."""
    mistakes = {**NEEDED, "REDIS_URL": "redis://me:pass-word@localhost:port", "LIFF_ID": "?"}
    done = started(mistakes, tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "REDIS_URL: " in said and "LIFF_ID: " in said
    assert "Traceback" not in said and "pass-word" not in said and "a-secret" not in said


async def test_a_database_that_is_not_there(env: pytest.MonkeyPatch) -> None:
    """The same for what only turns out at the start."""
    env.setenv("DATABASE_URL", "sqlite:////no/such/folder/x.db")
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        said.append(message)

    await create_app()({"type": "lifespan", "asgi": {}, "state": {}}, receive, send)
    [message] = said
    assert message["type"] == "lifespan.startup.failed"
    assert message["message"].startswith("DATABASE_URL: the database cannot be used (")
    assert "\n" not in message["message"]
