"""DibsMiddleware keeps every promise of the torture suite, on a real Valkey."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import pytest
from dibs_torture import CASES, Adapter, App, Case
from dibs_torture.targets import DISCONNECT_CASES, FINISHED, Target, fill, stored_in

from dibs import AsyncDibs
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.testing import Server
from tests.torture.running import OPTIONAL, tortured

BUDGET = 2.0


def seen_from(server: Server, **options: Any) -> Adapter:
    """An adapter for all cases, those that look into the store included."""
    stored: dict[str, Any] = {"store": server, "contents": functools.partial(stored_in, server)}
    stored["full"] = functools.partial(fill, server)
    times = {"lease": 2.0, "window": 60.0}
    stored |= {"also_guarded": "POST /guarded/also", "also_method": "PUT /guarded"}
    return Adapter(compares="content", **(stored | times | options))


def our_own(server: Server, policy: Policy, adapter: Adapter) -> Target:
    """DibsMiddleware, with a budget that has room: an overloaded machine is not an outage."""
    opened: list[AsyncDibs] = []

    def wrap(app: App, service: str = "") -> App:
        opened.append(AsyncDibs(server.url, budget=BUDGET))
        return DibsMiddleware(app, dibs=opened[-1], policies=[policy], service=service)

    async def shutdown() -> None:
        while opened:
            await opened.pop().aclose()

    other = functools.partial(wrap, service="another")
    adapter = dataclasses.replace(adapter, shutdown=shutdown, within=20, other_service=other)
    return Target("dibs", wrap, adapter)


@pytest.fixture(scope="module")
def ours() -> Iterator[Target]:
    policy = Policy("POST,PUT /guarded*", after="replay", key="required", window=60, lease=2)
    with Server.start("valkey") as server:
        exempt = dict.fromkeys(DISCONNECT_CASES, FINISHED)
        yield our_own(server, policy, seen_from(server, exempt=exempt))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_our_own_middleware_keeps_every_promise(case: Case, ours: Target) -> None:
    """DibsMiddleware keeps every promise, on a real Valkey, outages included."""
    verdict = await case.check(ours.wrap, adapter=ours.adapter)
    is_left_out = case.name in {*OPTIONAL, *ours.adapter.exempt}
    assert verdict.outcome == ("not applicable" if is_left_out else "passed"), verdict


@pytest.mark.parametrize("name", DISCONNECT_CASES)
async def test_an_app_that_does_not_finish_for_a_retry_is_told(name: str, valkey: Server) -> None:
    """With on_disconnect="release" nothing is kept of it, so it may stop when its client leaves."""
    policy = Policy(
        "POST,PUT /guarded*", after="replay", key="required", window=60, lease=2,
        on_disconnect="release",
    )  # fmt: skip
    guard = our_own(valkey, policy, seen_from(valkey))
    [case] = [each for each in CASES if each.name == name]
    verdict = await case.check(guard.wrap, adapter=guard.adapter)
    assert verdict.outcome == "passed", verdict


@pytest.mark.parametrize("after", ["hold", "release"])
def test_our_own_guard_without_keys(after: Any, valkey: Server) -> None:
    """DibsMiddleware as a guard for forms: no keys, no replays, and every promise that is left."""
    policy = Policy("POST,PUT /guarded*", after=after, window=60, lease=2)
    guard = our_own(valkey, policy, seen_from(valkey, store=None, header=None, after=after))
    report = tortured(guard.wrap, guard.adapter)
    assert not report.failed, report


# What depends on whether a request carries a key, and on who is known.
KEYS = {case.name for case in CASES if {"key", "users", "keyless runs"} & set(case.needs)}
KEYS |= {"keyless_is_guarded", "unknown_client", "two_keys", "other_query", "other_path"}


@pytest.mark.parametrize(("key", "keyless"), [("only", "run"), ("optional", "guard")])
def test_our_own_guard_with_keys_that_are_not_required(
    key: Any, keyless: Any, valkey: Server
) -> None:
    """`key="only"` lets pass what carries none, `key="optional"` guards it by its content."""
    policy = Policy("POST,PUT /guarded*", after="replay", key=key, window=60, lease=2)
    adapter = seen_from(valkey, store=None, required=False, keyless=keyless)
    guard = our_own(valkey, policy, adapter)
    chosen = [case for case in CASES if case.name in KEYS]
    report = tortured(guard.wrap, guard.adapter, chosen)
    assert not report.failed, report
    wanted = "keyless_runs" if keyless == "run" else "keyless_is_guarded"
    assert wanted in {verdict.case for verdict in report.passed}
