"""Causes: a code for machines, a sentence for people."""

import pickle
import socket
import ssl

import pytest
import redis.exceptions

from dibs import Unavailable
from dibs._core.causes import SENTENCES, cause_for, code_of_reply
from dibs._core.connection import Breaker, Outage
from dibs._core.lease import (
    mistake,
    store_is_out,
)
from dibs._core.request import ErrorReply
from dibs._transport.connection_errors import cause_of
from dibs.errors import Cause

REDIS_6 = "ERR Error running script (call to f_0f): @user_script:6: @user_script: 6: -{} You can't"
REDIS_7 = "{} You can't. script: 0f, on @user_script:6."


@pytest.mark.parametrize("word", ["READONLY", "NOREPLICAS", "MISCONF", "OOM", "LOADING", "BUSY"])
@pytest.mark.parametrize("form", ["{} no", REDIS_6, REDIS_7])
def test_a_store_that_cannot_serve_is_recognised_in_and_outside_scripts(
    form: str, word: str
) -> None:
    """Redis 6 and KeyDB put the word behind their own; Redis 7 and Valkey put it first."""
    assert code_of_reply(form.format(word)) == word.lower()
    assert word.lower() in SENTENCES


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ERR Connection refused", "backend"),
        ("ERR Connection timed out", "backend"),
        ("upstream failure", "backend"),
        ("ERR max daily request limit exceeded. Limit: 10000, Usage: 10001.", "quota"),
        ("ERR DB capacity quota exceeded", "quota"),
        ("ERR max single record size exceeded", None),
        ("ERR max number of clients reached", "max_clients"),
        ("ERR syntax error", None),
        ("NOSCRIPT No matching script.", None),
        ("WRONGTYPE Operation against a key", None),
        ("ERR unknown command 'READONLY-x', with args beginning with: 'OOM'", None),
    ],
)
def test_what_proxies_and_services_answer_is_told_from_mistakes(
    text: str, code: str | None
) -> None:
    """A backend that is gone and a quota that is used up are outages; a bad request is not."""
    assert code_of_reply(text) == code


def raised_from(inner: BaseException, outer: BaseException) -> BaseException:
    outer.__context__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "refused"),
        (ConnectionResetError(), "disconnected"),
        (EOFError(), "disconnected"),
        (TimeoutError(), "connect"),
        (redis.exceptions.TimeoutError("Timeout connecting to server"), "connect"),
        (redis.exceptions.ConnectionError("Connection closed by server."), "disconnected"),
        (redis.exceptions.BusyLoadingError("Redis is loading"), "loading"),
        (ConnectionError("LOADING Redis is loading the dataset in memory"), "loading"),
        (redis.exceptions.ConnectionError("something new"), "other"),
        (ssl.SSLError(1, "handshake failure"), "tls"),
        (OSError(113, "No route to host"), "unreachable"),
    ],
)
def test_every_failure_to_connect_has_a_code(error: BaseException, code: str) -> None:
    """The library's own errors, the system's, and those inside them."""
    assert cause_of(error).code == code
    assert code in SENTENCES
    wrapped = raised_from(error, redis.exceptions.ConnectionError("Error connecting to x:1."))
    assert cause_of(wrapped).code == code


def test_a_name_that_does_not_resolve_is_dns() -> None:
    """redis-py hides the resolver's error in its own."""
    inner = socket.gaierror(-2, "Name or service not known")
    error = redis.exceptions.ConnectionError("Error -2 connecting to x:1. Name or …")
    assert cause_of(raised_from(inner, error)).code == "dns"


def test_a_cause_keeps_its_code_on_its_way() -> None:
    """From the connection through the breaker and an error to another process."""
    breaker = Breaker()
    breaker.trip(1.0, cause_for("silent", "no answer within 0.25 s"))
    outage = Outage(breaker.cause, sent=False)
    assert (outage.cause.code, str(outage.cause)) == ("silent", "no answer within 0.25 s")
    error = pickle.loads(pickle.dumps(Unavailable(outage.cause, "user:*")))
    assert (error.cause, error.detail) == ("silent", "no answer within 0.25 s")
    assert "no answer" in str(error)
    assert Outage("what?", sent=True).cause.code == "other"
    assert Outage("what?", sent=True, code="dns").cause == Cause("what?", "dns")


def test_errors_are_told_apart() -> None:
    """A server that cannot serve is an outage; the rest are mistakes, reported without the key."""
    assert store_is_out(ErrorReply("LOADING Redis is loading the dataset in memory"))
    assert not store_is_out(ErrorReply("WRONGTYPE Operation against a key"))
    unknown = ErrorReply("ERR unknown command 'X', with args beginning with: 'user:42'")
    assert "user:42" not in str(mistake(unknown))
    assert "ACL" in str(mistake(ErrorReply("NOPERM this user has no permissions")))
