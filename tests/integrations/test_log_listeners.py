"""Events in logs: records of `logging`, entries of structlog, breadcrumbs of Sentry."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sentry_sdk
import structlog
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from dibs import Busy, Dibs, UsageError
from dibs.events import KINDS, MEASURES, Event
from dibs.integrations.logging import LoggingListener
from dibs.integrations.sentry import SentryListener
from dibs.integrations.structlog import StructlogListener
from dibs.testing import Server


def test_what_needs_attention_is_a_warning() -> None:
    """Every kind has a level; what happens in each call is DEBUG."""
    assert set(MEASURES) == KINDS
    for kind in ("outage", "lost", "late", "leaked", "failed", "missed", "rejected_write"):
        assert MEASURES[kind].level == logging.WARNING
    for kind in ("recovered", "elected", "started"):
        assert MEASURES[kind].level == logging.INFO
    for kind in ("acquired", "released", "hit", "renewed", "busy", "duplicate"):
        assert MEASURES[kind].level == logging.DEBUG


# ---- logging


def test_an_event_is_one_record_with_its_facts(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A sentence for people, attributes for machines; no key, no token."""
    caplog.set_level(logging.DEBUG, "dibs.events")
    with Dibs(valkey.url, budget=5, listeners=[LoggingListener(level="debug")]) as dibs:
        with dibs.hold("user:U4711", ttl=5) as lease:
            with pytest.raises(Busy), dibs.hold("user:U4711", ttl=5):
                pytest.fail("held twice")
    acquired, busy, released = caplog.records
    assert acquired.getMessage().startswith("dibs.acquired user:* guarded=True")
    assert (busy.levelno, busy.dibs_event) == (logging.DEBUG, "busy")  # type: ignore[attr-defined]
    assert released.dibs_held >= 0 and released.dibs_name == "user:*"  # type: ignore[attr-defined]
    shown = json.dumps([vars(record) for record in caplog.records], default=repr)
    assert "U4711" not in shown and lease.token not in shown


def test_below_its_level_a_listener_wants_no_events(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The default is INFO: what happens in each call is not even made into an event."""
    caplog.set_level(logging.DEBUG)
    listener = LoggingListener()
    assert "acquired" not in listener.kinds and "outage" in listener.kinds
    with Dibs(valkey.url, budget=5, listeners=[listener]) as dibs, dibs.hold("user:1", ttl=5):
        pass
    with Dibs("redis://127.0.0.1:1", listeners=[listener]) as dibs, dibs.hold("user:1", ttl=5):
        pass
    records = [record for record in caplog.records if record.name == "dibs.events"]
    assert [(each.levelname, each.dibs_event) for each in records] == [("WARNING", "outage")]  # type: ignore[attr-defined]
    assert records[0].dibs_cause == "refused"  # type: ignore[attr-defined]


@pytest.mark.parametrize("listener", [LoggingListener, StructlogListener, SentryListener])
def test_an_unknown_level_is_refused(listener: Any) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match="level"):
        listener(level="LOUD")


# ---- structlog


@pytest.fixture
def plain_structlog() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("plain_structlog")
def test_an_event_is_one_entry_of_structlog(valkey: Server) -> None:
    """With its facts as fields that JSON can hold, and what the application has bound."""
    structlog.contextvars.bind_contextvars(request_id="r1")
    capture = structlog.testing.LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, capture])
    with Dibs(valkey.url, budget=5, listeners=[StructlogListener(level="DEBUG")]) as dibs:
        with dibs.hold("user:U4711", ttl=5):
            pass
    structlog.contextvars.clear_contextvars()
    acquired, released = entries = capture.entries
    assert (acquired["event"], acquired["log_level"]) == ("dibs.acquired", "debug")
    assert acquired["name"] == "user:*" and acquired["request_id"] == "r1"
    assert released["held"] >= 0 and "U4711" not in json.dumps(entries)


@pytest.mark.usefixtures("plain_structlog")
def test_an_outage_is_a_warning_in_structlog() -> None:
    """With its cause as a code."""
    with structlog.testing.capture_logs() as entries:
        listeners = [StructlogListener()]
        with Dibs("redis://127.0.0.1:1", listeners=listeners) as dibs, dibs.hold("a:b", ttl=5):
            pass
    [outage] = entries
    assert (outage["event"], outage["log_level"]) == ("dibs.outage", "warning")
    assert outage["cause"] == "refused"


# ---- Sentry


class Kept(Transport):
    """Envelopes that stay here."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.envelopes: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)


@pytest.fixture
def sentry() -> Iterator[Kept]:
    kept = Kept()
    sentry_sdk.init(
        dsn="http://key@localhost/1", transport=kept, default_integrations=False,
        auto_enabling_integrations=False,
    )  # fmt: skip
    with sentry_sdk.isolation_scope():
        yield kept
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


def test_an_error_shows_what_dibs_did_before_it(valkey: Server, sentry: Kept) -> None:
    """Refusals and trouble are breadcrumbs; what went well is none. No key, no token."""
    with Dibs(valkey.url, budget=5, listeners=[SentryListener()]) as dibs:
        with dibs.hold("user:U4711", ttl=5), pytest.raises(Busy), dibs.hold("user:U4711", ttl=5):
            pytest.fail("held twice")
    with Dibs("redis://127.0.0.1:1", listeners=[SentryListener()]) as dibs:
        with dibs.hold("user:U4711", ttl=5):
            sentry_sdk.capture_message("something went wrong")
    [envelope] = sentry.envelopes
    event = envelope.get_event()
    assert event is not None
    crumbs = event["breadcrumbs"]["values"]  # type: ignore[index]
    assert [(each["message"], each["level"]) for each in crumbs] == [
        ("busy user:*", "debug"), ("outage user:*", "warning"),
    ]  # fmt: skip
    assert crumbs[1]["category"] == "dibs" and crumbs[1]["data"]["cause"] == "refused"
    assert "U4711" not in str(crumbs)


def test_breadcrumbs_of_dibs_are_in_order_with_all_others(sentry: Kept) -> None:
    """Sentry sorts them by their times, which must be of one type; else none is sorted."""
    SentryListener()(Event(kind="lost", name="user:*", at=1_800_000_000.0))
    sentry_sdk.add_breadcrumb(message="before", timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    sentry_sdk.capture_message("something went wrong")
    event = sentry.envelopes[0].get_event()
    assert event is not None
    crumbs = event["breadcrumbs"]["values"]  # type: ignore[index]
    assert [each["message"] for each in crumbs] == ["before", "lost user:*"]
    assert crumbs[1]["timestamp"].startswith("2027-01-15T08:00:00")


def test_without_sentry_nothing_happens() -> None:
    """The listener may be there before `sentry_sdk.init`, or without it."""
    SentryListener()(Event(kind="lost", name="user:*", at=0.0))


def test_the_listeners_show_what_they_do() -> None:
    """Their `repr` has the level, and no secret."""
    assert repr(LoggingListener()) == "<LoggingListener 'dibs.events', INFO>"
    assert repr(StructlogListener(level="WARNING")) == "<StructlogListener WARNING>"
    assert repr(SentryListener()) == "<SentryListener INFO>"
