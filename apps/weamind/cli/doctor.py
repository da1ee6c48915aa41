"""`doctor`: one check after another, each with a deadline, each with one fix if it fails."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from ..core.config import Settings, SettingsError, read_settings
from ..richmenu.channel import Channel, LineError
from ..weather.sources import open_provider
from .checks import account, database, menu, store, weather
from .findings import Finding, Status, document, exit_code, failed, ok, skipped, summary

LONGEST = 10.0
"""What a check may take, in seconds, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at, once what it *needs* holds."""

    name: str
    look: Callable[[], Awaitable[Finding]]
    needs: str | None = None
    gravity: Status = "failed"
    """What it is if there is no answer at all."""
    fix: str = "Run it again; if it stays so, look at the logs of what did not answer."


def doctor(*, as_json: bool) -> int:
    """The exit code: 0 if everything works that must."""
    try:
        findings = asyncio.run(_examined(aloud=not as_json))
    except KeyboardInterrupt:
        return 1
    if as_json:
        print(json.dumps(document(findings), ensure_ascii=False, indent=2))
    else:
        _say(f"\n{summary(findings)}")
    return exit_code(findings)


async def _examined(*, aloud: bool) -> list[Finding]:
    findings: list[Finding] = []
    async for finding in examine():
        findings.append(finding)
        if aloud:
            _say(finding.text())
    return findings


async def examine() -> AsyncIterator[Finding]:
    """One finding after another, as they come."""
    try:
        settings = read_settings()
    except SettingsError as error:
        for mistake in error.mistakes:
            yield failed("settings", mistake, _fix_of(mistake))
        yield skipped("everything else", "it needs the settings")
        return
    yield ok("settings", "complete")
    async with AsyncExitStack() as stack:
        async for finding in results(await checks_for(settings, stack)):
            yield finding


def _fix_of(mistake: str) -> str:
    name = mistake.partition(":")[0]
    return f"Set {name} in the environment or in .env; deploy/.env.example explains it."


async def checks_for(settings: Settings, stack: AsyncExitStack) -> list[Check]:
    """All checks, in their order; what they open is closed by *stack*."""
    token = settings.line_channel_access_token.get_secret_value()
    channel = await stack.enter_async_context(Channel(settings.line_api_base, token))
    provider = open_provider(
        settings.weather_provider,
        cwa_key=settings.cwa_api_key.get_secret_value() if settings.cwa_api_key else "",
        sample_delay=settings.sample_delay_seconds,
    )
    stack.push_async_callback(provider.aclose)
    pushes, url = settings.push_fallback, settings.redis_url
    on = settings.processing_lock_enabled
    return [
        Check("LINE token", lambda: account.check_token(channel), fix=account.REACH_LINE),
        Check("webhook", lambda: account.check_webhook(channel), "LINE token"),
        Check("webhook test", lambda: account.check_delivery(channel), "webhook"),
        Check("quota", lambda: account.check_quota(channel, pushes), "LINE token", "degraded"),
        Check("Redis", lambda: store.check_server(url), None, "degraded", store.START),
        Check("lock", lambda: store.check_lock(url, on), "Redis", "degraded", store.START),
        Check("database", lambda: database.check(settings.database_url), fix=database.REACH),
        Check("weather", lambda: weather.check(provider), fix=weather.REACH),
        Check("rich menu", lambda: menu.check(channel), "LINE token", "degraded"),
    ]


async def results(checks: list[Check], *, longest: float = LONGEST) -> AsyncIterator[Finding]:
    """What each of *checks* finds, within *longest* seconds each."""
    found: dict[str, Finding] = {}
    for check in checks:
        if check.needs and not found[check.needs].holds:
            finding = skipped(check.name, f"it needs {check.needs}")
        else:
            finding = await _look(check, longest)
        found[check.name] = finding
        yield finding


async def _look(check: Check, longest: float) -> Finding:
    try:
        async with asyncio.timeout(longest):
            return await check.look()
    except TimeoutError:
        found = f"no answer within {longest:g} s"
    except LineError as error:
        found = str(error)
    return Finding(check.name, check.gravity, found, check.fix, answers=False)


def _say(text: str) -> None:
    """A terminal that cannot show a sign shows another."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)
