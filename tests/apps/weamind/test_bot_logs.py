"""What the bot logs about the lock, how much of it, and that it names no person."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest

from apps.weamind.cli.findings import skipped
from apps.weamind.core import logs
from apps.weamind.core.config import SettingsError, read_settings
from apps.weamind.core.metrics import Metrics
from apps.weamind.core.processing_lock import ProcessingLockService
from apps.weamind.core.turns import ProcessingLock
from apps.weamind.line.events import Source as OurSource
from dibs import AsyncDibs
from dibs.testing import Server, eventually

from .conftest import RunBot
from .test_bot_settings import env

__all__ = ["env"]
pytestmark = pytest.mark.only_on("linux", "darwin")
KEY = "processing:user:U1"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and words of what the lock said; marks are left out."""
    return [
        (record.levelname, re.sub(r" [0-9a-f]{8}:", ":", record.getMessage()))
        for record in caplog.records
        if record.name == "apps.weamind.core.processing_lock"
    ]


CONNECTED = ("INFO", "connected to Redis")
ACQUIRED, MISSED, RELEASED = (
    ("DEBUG", f"processing lock: {word}") for word in ("acquired", "missed", "released")
)
OUT = ("WARNING", "Redis is unavailable: everybody is let through, without the lock")


def test_the_thread_service_says_what_it_does(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Connected once; acquired, missed and released, without any id."""
    caplog.set_level(logging.DEBUG)
    with closing(ProcessingLockService(valkey.url, counted_in=Metrics())) as service:
        assert service.try_acquire_lock(KEY, 5)
        assert not service.try_acquire_lock(KEY, 5)
        service.release_lock("processing:user:U2")
        with closing(ProcessingLockService(valkey.url, counted_in=Metrics())) as other:
            assert not other.try_acquire_lock(KEY, 5)
    assert lines(caplog) == [
        CONNECTED, ACQUIRED, MISSED, ("DEBUG", "processing lock: nothing to release"), CONNECTED,
        MISSED,
    ]  # fmt: skip
    assert "U1" not in caplog.text and "U2" not in caplog.text


def test_a_release_is_joined_to_its_acquire(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """By a mark that tells nothing else."""
    caplog.set_level(logging.DEBUG)
    with closing(ProcessingLockService(valkey.url, counted_in=Metrics())) as service:
        assert service.try_acquire_lock(KEY, 5)
        service.release_lock(KEY)
    assert lines(caplog) == [CONNECTED, ACQUIRED, RELEASED]
    marks = re.findall(r"processing lock ([0-9a-f]{8}):", caplog.text)
    assert len(marks) == 2 and marks[0] == marks[1]


def test_an_outage_is_one_warning(own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """When Redis goes, when it is back, and not at every tap in between."""
    caplog.set_level(logging.INFO)
    with closing(ProcessingLockService(own_server.url, counted_in=Metrics())) as service:
        assert service.try_acquire_lock(KEY, 5)
        own_server.freeze()
        for number in range(3):
            assert service.try_acquire_lock(f"{KEY}{number}", 5)
        assert lines(caplog) == [CONNECTED, OUT]
        own_server.thaw()

        def is_back() -> bool:
            service.try_acquire_lock(f"{KEY}9", 5)
            return lines(caplog)[-1] == CONNECTED

        eventually(is_back)
    assert lines(caplog) == [CONNECTED, OUT, CONNECTED]


async def test_the_bot_says_at_its_start(
    run_bot: RunBot, own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether Redis answers, before the first tap."""
    caplog.set_level(logging.INFO)
    async with run_bot(redis_url=own_server.url):
        assert lines(caplog) == [CONNECTED]
    own_server.kill()
    caplog.clear()
    async with run_bot(redis_url=own_server.url):
        assert lines(caplog) == [OUT]


async def test_the_lock_for_tasks_says_the_same(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Connected, acquired, missed, released."""
    caplog.set_level(logging.DEBUG)
    async with AsyncDibs(valkey.url) as dibs:
        lock = ProcessingLock(dibs, counted_in=Metrics())
        async with lock.turn(OurSource("user", "U1")), lock.turn(OurSource("user", "U1")):
            pass
    assert lines(caplog) == [CONNECTED, ACQUIRED, MISSED, RELEASED]
    assert "U1" not in caplog.text


def test_metrics_know_the_source_in_threads(valkey: Server) -> None:
    """The type of the source from which the key was built; unknown for a key of others."""
    metrics = Metrics()
    with closing(ProcessingLockService(valkey.url, counted_in=metrics)) as service:
        for kind in ("user", "group", "room"):
            key = service.build_actor_key(SimpleNamespace(type=kind, user_id=f"U-{kind}"))
            assert key is not None and service.try_acquire_lock(key, 5)
        assert service.try_acquire_lock("processing:user:U-other", 5)
        assert not service.try_acquire_lock("processing:user:U-room", 5)
    counted = metrics.registry.get_sample_value
    for status, kind in [
        ("acquired", "user"), ("acquired", "group"), ("acquired", "room"), ("acquired", "unknown"),
        ("busy", "room"),
    ]:  # fmt: skip
        labels = {"status": status, "source_type": kind}
        assert counted("processing_lock_acquire_total", labels) == 1, labels


# ------------------------------------------------------------------------------- how much


@pytest.fixture
def levels() -> Iterator[None]:
    """The loggers are as they were, afterwards."""
    before = {name: logging.getLogger(name).level for name in logs.OURS}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("levels")
def test_the_level_of_a_bot_among_others() -> None:
    """If logging is already configured, only a level that was chosen is set."""
    logs.log_if_nobody_does("INFO", is_chosen=False)
    assert logging.getLogger("apps").level == logging.NOTSET
    logs.log_if_nobody_does("DEBUG", is_chosen=True)
    assert [logging.getLogger(name).level for name in logs.OURS] == [logging.DEBUG] * 2


@pytest.mark.parametrize(("level", "expected"), [("debug", 2), ("INFO", 1), ("ERROR", 0)])
def test_the_log_level_decides_what_is_written(level: str, expected: int) -> None:
    """LOG_LEVEL decides what is written, on stderr, and only of what is ours."""
    code = f"""
import logging
from apps.weamind.core.config import Settings
from apps.weamind.core.logs import log_if_nobody_does
settings = Settings(_env_file=None, line_channel_secret="s", line_channel_access_token="t",
                    log_level={level!r})
log_if_nobody_does(settings.log_level, is_chosen=True)
log = logging.getLogger("apps.weamind.core.processing_lock")
log.debug("a debug line"); log.info("an info line")
logging.getLogger("httpx").info("somebody's coordinates")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = done.stderr.splitlines()
    assert len(said) == expected and "coordinates" not in done.stderr and done.stdout == ""


def test_settings_of_the_log(env: pytest.MonkeyPatch) -> None:
    """INFO; in any case; what is no level is one line."""
    assert read_settings().log_level == "INFO"
    env.setenv("LOG_LEVEL", "warning")
    assert read_settings().log_level == "WARNING"
    env.setenv("LOG_LEVEL", "loud")
    with pytest.raises(SettingsError, match=r"^LOG_LEVEL: "):
        read_settings()


# ------------------------------------------------------------------------------- two small errors


def test_one_of_two_that_belong_together(env: pytest.MonkeyPatch) -> None:
    """LINE_LOGIN_CHANNEL_ID without LIFF_ID is a mistake, and the other way round."""
    env.setenv("LINE_LOGIN_CHANNEL_ID", "123")
    with pytest.raises(SettingsError, match=r"^LIFF_ID: is needed for LINE_LOGIN_CHANNEL_ID$"):
        read_settings()
    env.setenv("LIFF_ID", "123-abc")
    assert read_settings().liff_id == "123-abc"
    env.delenv("LINE_LOGIN_CHANNEL_ID")
    with pytest.raises(SettingsError, match=r"^LINE_LOGIN_CHANNEL_ID: is needed for LIFF_ID$"):
        read_settings()


def test_the_doctor_keeps_names_and_findings_apart() -> None:
    """Also for its longest name."""
    said = skipped("everything else", "it needs the settings").text()
    assert said == "– everything else  not checked: it needs the settings"
