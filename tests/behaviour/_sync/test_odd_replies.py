# Generated from tests/behaviour/_async/test_odd_replies.py by unasync.py – do not edit.
"""A server or proxy that answers oddly: every verb ends, with a result or an error of dibs."""

import random

import pytest

from dibs import Dibs, DibsError, Event, Unavailable
from dibs.testing import Server
from tests.odd_replies import ANSWERS, MutatingLine, OddServer

from .odd_verbs import VERBS, options, work


@pytest.mark.parametrize("name", VERBS)
def test_whatever_a_server_answers_a_verb_ends(name: str) -> None:
    """Nulls, numbers, errors, shapes of other commands, garbage: nothing else comes out."""
    with OddServer(lambda _: b"") as odd:
        for answer in ANSWERS.values():
            odd.answer = lambda _, answer=answer: answer
            with Dibs(odd.url, **options(name)) as dibs:
                try:
                    VERBS[name](dibs)
                except DibsError:
                    pass


@pytest.mark.parametrize("name", VERBS)
def test_mutated_replies_of_a_server_do_no_harm(valkey: Server, name: str) -> None:
    """Bytes that changed on their way: the same."""
    with MutatingLine(valkey.port, random.Random(name)) as line:
        line.share = 0.3
        for _ in range(15):
            with Dibs(line.url, **options(name)) as dibs:
                try:
                    VERBS[name](dibs)
                except DibsError:
                    pass


def test_a_reply_that_cannot_be_read_is_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """The policy decides; event, log line and exception have its code."""
    events: list[Event] = []
    with OddServer(lambda _: b"*1\r\n:1\r\n") as odd:
        with Dibs(odd.url, budget=5, listeners=[events.append]) as dibs:
            with dibs.hold("user:1", ttl=5) as lease:
                assert not lease.guarded
            with pytest.raises(Unavailable) as caught:
                dibs.try_hold("user:1", ttl=5, on_outage="closed")
    assert caught.value.cause == "protocol"
    assert {event.cause for event in events if event.kind == "outage"} == {"protocol"}
    assert "(protocol: " in caplog.text
    assert "user:1" not in caplog.text


@pytest.mark.parametrize("code", ["READONLY", "MOVED", "OOM", "MISCONF"])
def test_what_a_server_says_begins_no_line_in_a_log(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And holds nothing that a terminal would obey: in the record, and in the exception."""
    text = f"-{code} 1 \x1b[2J\x9b\u202e\u2028CRITICAL\r\n".encode()
    with OddServer(lambda _: text) as odd:
        with Dibs(odd.url, budget=0.3, on_outage="closed") as dibs:
            with pytest.raises(DibsError) as caught:
                dibs.try_hold("user:1", ttl=5)
    assert str(caught.value).isprintable()
    assert all(message.isprintable() for message in caplog.messages)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_odd_answer_to_the_handshake_does_no_harm(name: str) -> None:
    """It is an outage, or a mistake in the settings, or there is an older protocol. Nothing of the
    parser comes out, and no connection stays open.
    """
    with OddServer(lambda _: b"+OK\r\n", hello=ANSWERS[name]) as odd:
        with Dibs(odd.url, budget=0.1, connect=0.3, on_outage="closed") as dibs:
            try:
                dibs.try_hold("k", ttl=5)
            except DibsError:
                pass


def test_the_end_of_a_claim_does_not_loop() -> None:
    """Nothing but nulls: the work runs once, and its end is an outage."""
    with OddServer(lambda _: b"_\r\n") as odd:
        with Dibs(odd.url, budget=5) as dibs:
            assert dibs.once("k", window=5, after="replay")(work)() == 1


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_nor_does_an_odd_sentinel_or_node_of_a_cluster(kind: str) -> None:
    """What it says about its masters or slots is not believed either."""
    with OddServer(lambda _: b"") as odd:
        address = odd.url.removeprefix("redis://")
        url = f"redis+{kind}://{address}" + ("/main" if kind == "sentinel" else "")
        for name, answer in ANSWERS.items():
            if "moved" in name:  # to a port that does not answer: each hop has its time
                continue
            odd.answer = lambda _, answer=answer: answer
            with Dibs(url, **options("hold")) as dibs:
                try:
                    VERBS["hold"](dibs)
                except DibsError:
                    pass
