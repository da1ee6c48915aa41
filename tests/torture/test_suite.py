"""The torture suite itself: a faithful middleware passes, and every flaw is found."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dibs_torture import CASES, Adapter, App, Case, UsageError, Wrap, torture
from dibs_torture.asgi import Receive, Scope, Send

from tests.torture.middlewares import (
    SMALL,
    AnswersBeforeBody,
    CorrectMiddleware,
    EndsLate,
    IgnoresPayload,
    MissesCancellation,
    ReleasesForAnybody,
    ReplaysEveryHeader,
    TakesAnyKey,
    around,
    bare,
    cancels_when_client_leaves,
    collects_every_body,
    detaches_the_app,
    drops_unknown_facts,
    hides_disconnects,
    hides_exceptions,
    only_http,
    refuse,
    sends_at_the_end,
)
from tests.torture.running import NAMES, OPTIONAL, OUTAGES, failed, tortured

BACKGROUND = {"background_task_fails", "background_task_lasts", "background_task_cancelled"}
LEAVING = {"client_leaves", "client_leaves_and_sending_fails"}
STREAMS = {"stream_is_live", "stream_retried", "stream_left", "endless_stream_left"}
PAYLOADS = {"other_payload", "other_query", "payloads_that_begin_alike", "other_file"}
PAYLOADS |= {"json_is_no_form", "big_body_with_another_end"}
FLAWS: dict[str, tuple[Wrap, set[str]]] = {
    "ends_late": (
        EndsLate,
        {*BACKGROUND, "stored_before_the_last_byte", "client_leaves_and_sending_fails"}
        | {"cancelled_at_any_moment"},
    ),
    "misses_cancellation": (
        MissesCancellation,
        {"handler_cancelled", "cancelled_at_any_moment", "deadline_outside"},
    ),
    "releases_for_anybody": (
        ReleasesForAnybody,
        {"duplicates_at_once", "duplicates_while_running", "duplicate_cancelled"}
        | {"client_error", "replay_lasts", "other_payload", "cookies_change"}
        | {"big_body_cut_otherwise", "other_user"},
    ),
    "ignores_payload": (IgnoresPayload, PAYLOADS),
    "answers_before_body": (AnswersBeforeBody, {*PAYLOADS, "body_of_a_duplicate_is_read"}),
    "replays_every_header": (
        ReplaysEveryHeader,
        {"replay_drops_the_personal", "replay_has_no_trace_of_the_first", "replay_drops_cors"},
    ),
    "takes_any_key": (TakesAnyKey, {"empty_key", "two_keys", "quoted_key", "long_key", "odd_key"}),
    "collects_every_body": (
        around(collects_every_body),
        {"disconnect_is_true", "disconnect_is_true_elsewhere", "receive_is_cancelled"}
        | {"watcher_beside_the_answer", "unguarded_upload"},
    ),
    "sends_at_the_end": (
        around(sends_at_the_end),
        {*BACKGROUND, *STREAMS, "head_is_live", "unguarded_stream"},
    ),
    "hides_exceptions": (
        around(hides_exceptions),
        {"handler_raises", "head_then_raises", "body_breaks_off"},
    ),
    "hides_disconnects": (around(hides_disconnects), {"endless_stream_left"}),
    "detaches_the_app": (
        around(detaches_the_app),
        {"handler_cancelled", "deadline_outside", "background_task_cancelled"}
        | {"context_reaches_the_app"},
    ),
    "only_http": (around(only_http), {"websocket", "lifespan", "failed_startup"}),
    "drops_unknown_facts": (around(drops_unknown_facts), {"scope_is_kept"}),
    "cancels_when_client_leaves": (
        around(cancels_when_client_leaves),
        {*LEAVING, "stream_left", "watcher_beside_the_answer"},
    ),
}
HARMLESS_WITHOUT_A_GUARD = {
    *("handler_cancelled", "deadline_outside", "deadline_inside", "handler_raises"),
    *("server_error", "client_error", "no_answer", "head_then_raises", "body_breaks_off"),
    *("answer_is_untouched", "head_is_live", "stream_is_live", "endless_stream_left"),
    *("oversized_answer", "disconnect_is_true", "disconnect_is_true_elsewhere"),
    *("receive_is_cancelled", "watcher_beside_the_answer", "upload_breaks_off", "big_body"),
    *("other_user_while_running", "other_path", "other_query", "not_found_is_no_result"),
    *("payloads_that_begin_alike", "other_file", "json_is_no_form", "unknown_client"),
    *("other_methods", "open_route", "unguarded_post", "unguarded_upload", "unguarded_stream"),
    *("websocket", "lifespan", "failed_startup", "scope_is_kept", "context_reaches_the_app"),
    *("other_method", "other_user_by_case", "guarded_twice"),
    *("later_is_no_result", "login_is_no_result", "invalid_is_no_result"),
}


def test_a_correct_middleware_keeps_every_promise() -> None:
    """All cases can be passed at once, and only those that need a store do not apply."""
    report = tortured(CorrectMiddleware)
    assert not report.failed, report
    assert {verdict.case for verdict in report.not_applicable} == OUTAGES | OPTIONAL


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found_where_it_is(flaw: str) -> None:
    """Each flaw breaks the promises that it touches, and no other."""
    wrap, broken = FLAWS[flaw]
    sound = [case for case in CASES if case.name not in broken]
    assert failed(tortured(wrap, SMALL, sound)) == set()
    # What is bound to fail need not be waited for.
    hurried = dataclasses.replace(SMALL, within=0.3)
    ill = [case for case in CASES if case.name in broken]
    assert failed(tortured(wrap, hurried, ill)) == broken


def test_no_guard_at_all_is_found() -> None:
    """An app without a middleware breaks every promise of a middleware, and nothing else."""
    assert failed(tortured(bare)) == NAMES - HARMLESS_WITHOUT_A_GUARD - OUTAGES - OPTIONAL


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("after", ["replay", "hold", "release"])
def test_a_guard_of_any_kind_can_pass(after: Any, keyed: bool, waits: bool) -> None:
    """A guard without keys, without replays or without a memory is asked what makes sense."""
    header = "Idempotency-Key" if keyed else None
    adapter = dataclasses.replace(SMALL, after=after, header=header, waits=waits)
    report = tortured(
        lambda app: CorrectMiddleware(app, after=after, keyed=keyed, waits=waits), adapter=adapter
    )
    assert not report.failed, report
    assert len(report.passed) >= 30


def test_what_does_not_apply_says_why() -> None:
    """A case is not tried if its need is not met, or if the adapter exempts it; both say why."""
    adapter = Adapter(after="hold", on_error="hold", exempt={"big_body": "bodies are small here"})
    report = tortured(lambda app: CorrectMiddleware(app, after="hold"), adapter)
    reasons = {verdict.case: verdict.seen for verdict in report.not_applicable}
    assert reasons["replay_of_json"] == "it does not replay"
    assert reasons["handler_raises"] == "a failure keeps the key"
    assert reasons["big_body"] == "bodies are small here"
    assert reasons["store_hangs"] == "no store to stop was given"


async def test_a_task_left_behind_breaks_the_promise() -> None:
    """All tasks that a middleware starts must end with it; the suite ends and reports them."""

    async def littering(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        if scope["type"] == "http":
            litter.append(asyncio.ensure_future(asyncio.Event().wait()))

    litter: list[Any] = []
    report = await torture(around(littering), cases=[named("open_route"), named("websocket")])
    assert [verdict.outcome for verdict in report.verdicts] == ["failed", "passed"]
    assert "tasks were left behind: Event.wait" in report.failed[0].seen
    assert all(task.cancelled() for task in litter)


async def test_a_middleware_that_cannot_be_put_on_fails() -> None:
    """What `wrap` raises is a verdict, not a crash of the suite."""

    def wrap(app: App) -> App:
        raise RuntimeError("no such option")

    verdict = await named("open_route").check(wrap)
    assert verdict.failed
    assert "no such option" in verdict.seen


async def test_a_server_out_of_order_is_noticed() -> None:
    """A middleware that sends frames where a server would refuse them breaks a promise."""

    async def twice(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        if scope["type"] == "http":
            with contextlib.suppress(RuntimeError):
                await refuse(send, 500)

    verdict = await named("open_route").check(around(twice), adapter=SMALL)
    assert verdict.failed
    assert verdict.seen == "http.response.start was sent after the end of the answer"


async def test_hooks_and_lifespan_frame_each_case() -> None:
    """The order is: startup hook, wrap, lifespan; the case; lifespan, shutdown hook."""
    log: list[str] = []

    async def startup() -> None:
        log.append("startup hook")

    async def shutdown() -> None:
        log.append("shutdown hook")

    async def watching(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        log.append(f"{scope['type']} begins")
        await app(scope, receive, send)
        log.append(f"{scope['type']} ends")

    adapter = Adapter(startup=startup, shutdown=shutdown)
    verdict = await named("handler_raises").check(around(watching), adapter=adapter)
    assert not verdict.failed
    assert log[:3] == ["startup hook", "lifespan begins", "http begins"]
    assert log[-2:] == ["lifespan ends", "shutdown hook"]


@pytest.mark.parametrize(
    "options",
    [
        {"guarded": "/guarded"},
        {"also_guarded": "guarded"},
        {"keyless": "pass"},
        {"lease": 0},
        {"open": "get /"},
        {"after": "keep"},
        {"on_error": "ignore"},
        {"within": 0},
        {"big": -1},
        {"running": ()},
    ],
)
def test_an_adapter_that_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    """A mistake in an adapter is reported when it is made."""
    with pytest.raises(UsageError):
        Adapter(**options)


async def test_an_exemption_must_name_a_case() -> None:
    """A case that was renamed does not stay exempt in silence."""
    with pytest.raises(UsageError, match="no_such_case"):
        await torture(CorrectMiddleware, adapter=Adapter(exempt={"no_such_case": "why not"}))


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_every_case_has_a_name_and_a_promise() -> None:
    """Names are unique, and each promise is a sentence."""
    assert len(NAMES) == len(CASES) >= 70
    for case in CASES:
        assert case.promise.endswith(".")
        assert str(case) == case.name


def test_the_page_has_every_case() -> None:
    """The manual lists every case with its promise, word for word, and every option."""
    page = (Path(__file__).parents[2] / "packages/dibs-torture/MANUAL.md").read_text("utf-8")
    for case in CASES:
        assert f"| `{case.name}` | {case.promise} |" in page
    for option in dataclasses.fields(Adapter):
        assert re.search(rf"^\|.*`{option.name}`.* \|", page, re.MULTILINE), option.name


def test_the_suite_needs_the_standard_library_only() -> None:
    """Importing the suite loads no framework, no middleware that it knows by name, and not dibs."""
    code = "import sys, dibs_torture.__main__; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {"starlette", "fastapi", "idemkit", "dibs", "redis", "anyio"} & set(loaded)
