"""What an answer leaves behind, by its status, size and headers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import UsageError
from dibs._http.policy import Policy, outcome_of
from dibs._http.responses import RESPONSE_CODEC, Recording, Response, storable


@pytest.mark.parametrize(
    ("status", "replaying", "otherwise"),
    [
        (200, "returned", "returned"), (201, "returned", "returned"), (204, "returned", "returned"),
        (302, "returned", "returned"), (400, "released", "released"), (401, "released", "released"),
        (403, "released", "released"), (404, "returned", "released"), (407, "released", "released"),
        (408, "released", "released"), (409, "returned", "released"), (422, "released", "released"),
        (402, "returned", "released"), (410, "returned", "released"), (423, "released", "released"),
        (425, "released", "released"), (429, "released", "released"), (500, "raised", "raised"),
        (503, "raised", "raised"),
    ],
)  # fmt: skip
def test_what_an_answer_leaves_behind(status: int, replaying: str, otherwise: str) -> None:
    """A 4xx is kept where answers are, unless it says "correct it", "log in" or "later"."""
    assert Policy(window=1, after="replay").outcome(status) == replaying
    assert Policy(window=2, after="hold").outcome(status) == otherwise
    assert Policy(window=1, after="release").outcome(status) == otherwise


@pytest.mark.parametrize(
    ("status", "headers", "body", "is_later"),
    [
        (409, [("Retry-After", "5")], b"", True),
        (409, [(b"retry-after", b"5")], b"", True),
        (499, [("Retry-After", "5")], b"", True),
        (500, [("Retry-After", "5")], b"", False),
        (503, [("Retry-After", "5")], b"", False),
        (400, [("Content-Type", "application/json")], b'{"type": "urn:dibs:busy"}', True),
        (503, [("Content-Type", "application/problem+json")], b'{"type":"urn:dibs:busy"}', True),
        (409, [("Content-Type", "application/json")], b'{"type": "urn:dibs:busy"}', True),
        (409, [("Content-Type", "text/plain")], b'{"type": "urn:dibs:busy"}', False),
        (409, [("Content-Type", "application/json")], b'{"type": "about:blank"}', False),
    ],
)
def test_an_answer_that_says_later(status: int, headers: Any, body: bytes, is_later: bool) -> None:
    """By its header, unless it is an error with an unknown outcome; or because it is ours."""
    recording = Recording(1000)
    recording.begin(status, headers)
    recording.add(body)
    assert recording.is_later is is_later
    assert Policy(window=1, on_error="hold").outcome(503, is_later=True) == "released"


def test_an_answer_is_kept_up_to_a_size() -> None:
    """To the byte; what is beyond it is forgotten at once, and nothing comes back."""
    recording = Recording(Policy(window=1, after="replay", most=4).record_limit)
    recording.begin(200, (("A", "b"),))
    recording.add(b"ab")
    recording.add(memoryview(bytearray(b"cd")))  # type: ignore[arg-type]
    assert recording.response == Response(200, (("a", "b"),), b"abcd")
    recording.add(b"e")
    assert recording.response is None
    recording.add(b"f")
    assert recording.response is None and recording.status == 200


def test_nothing_is_recorded_where_nothing_is_replayed() -> None:
    """A guard that keeps no answers has none in memory."""
    recording = Recording(Policy(window=2, after="hold").record_limit)
    recording.begin(200, ())
    recording.add(b"x" * 100)
    assert recording.response is None


def test_what_belongs_to_one_person_or_connection_is_not_kept() -> None:
    """Cookies, credentials, hop-by-hop and CORS headers, the time: not for a second reader."""
    personal = [
        "Set-Cookie", "WWW-Authenticate", "Authorization", "Connection", "Keep-Alive", "Date",
        "Transfer-Encoding", "Upgrade", "Trailer", "TE", "Proxy-Authenticate", "Content-Length",
        "Access-Control-Allow-Origin", "Clear-Site-Data", "Server", "X-Request-Id",
        "Server-Timing", "X-Runtime", "X-Response-Time", "X-Process-Time", "X-RateLimit-Remaining",
        "RateLimit", "RateLimit-Policy", "X-Amzn-Trace-Id", "X-Trace-Id",
    ]  # fmt: skip
    kept = ["Content-Type", "Location", "ETag", "X-Total", "Link", "Cache-Control", "Vary"]
    found = storable(tuple((name, "v") for name in personal + kept))
    assert [name for name, _ in found] == [name.lower() for name in kept]


NAMES = st.from_regex(r"[a-z][a-z0-9!#$&'*+.^_`|~-]{0,9}", fullmatch=True).filter(
    lambda name: bool(storable([(name, "")]))
)
VALUES = st.from_regex(r"[\t -~\x80-\xff]{0,10}", fullmatch=True)


@given(st.integers(200, 599), st.lists(st.tuples(NAMES, VALUES), max_size=3), st.binary())
def test_a_kept_answer_comes_back_as_it_was(status: int, headers: Any, body: bytes) -> None:
    """For any headers and any body."""
    kept = Response(status, tuple(headers), body)
    assert RESPONSE_CODEC.decode(RESPONSE_CODEC.encode(kept)) == kept


@pytest.mark.parametrize("bad", ["a\r\nset-cookie: x=1", "a\nb", "a\rb", "a\0b"])
def test_a_header_that_would_break_its_line_is_not_given_again(bad: str) -> None:
    """A program that can write to the store cannot inject headers."""
    for line in (("x-a", bad), (bad, "v")):
        with pytest.raises(ValueError, match="cannot be sent"):
            RESPONSE_CODEC.decode(RESPONSE_CODEC.encode(Response(200, (line,), b"")))


@pytest.mark.parametrize(
    "head",
    [
        "[99999,[]]", "[100,[]]", "[-1,[]]", "[true,[]]", '["201",[]]', "[201.0,[]]", "7", "[]",
        '[201,[["set-cookie","admin=1"]]]', '[201,[["Set-Cookie","a"]]]', '[201,[[1,"a"]]]',
        '[201,[["transfer-encoding","chunked"]]]', '[201,[["content-length","99"]]]',
        '[201,[["a","\\u6f22"]]]', '[201,[["a",1]]]', '[201,[["a","b","c"]]]',
        '[201,[["x-csrf-token","t"]]]', '[201,[["a b","c"]]]', "[" * 3000,
    ],
)  # fmt: skip
def test_what_is_read_is_what_could_have_been_written(head: str) -> None:
    """A record that was changed in the store is no response: nothing of it is sent."""
    with pytest.raises((ValueError, TypeError, RecursionError)):
        RESPONSE_CODEC.decode(head.encode() + b"\nbody")


@pytest.mark.parametrize("status", [206, 304])
def test_an_answer_to_the_conditions_of_one_request_is_not_stored(status: int) -> None:
    """That it was done is: a retry without If-None-Match would get nothing, or a part."""
    recording = Recording(100)
    recording.begin(status, [("content-type", "text/plain")])
    recording.add(b"a part")
    assert recording.response is None
    assert outcome_of(Policy(window=1, after="replay"), recording) == "returned"


@pytest.mark.parametrize("status", [406, 412, 416, 417, 428])
def test_conditions_that_failed_are_not_final(status: int) -> None:
    """The client asks again with others."""
    assert Policy(window=1, after="replay").outcome(status) == "released"
    assert Policy(window=1, after="replay", store=(status,)).outcome(status) == "returned"


def test_headers_of_a_session_are_not_kept() -> None:
    """Known ones, and those that the policy names, in any case."""
    policy = Policy(window=1, not_replayed=("X-Desk", "x-seat"))
    names = ("X-CSRF-Token", "X-Auth-Token", "Refresh-Token", "x-desk", "X-SEAT", "X-Total")
    kept = policy.stored(Response(200, storable([(name, "v") for name in names]), b""))
    assert kept.headers == (("x-total", "v"),)
    with pytest.raises(UsageError, match="not_replayed"):
        Policy(window=1, not_replayed=("a b",))


@pytest.mark.parametrize("status", [404, 405, 413, 415])
def test_a_middleware_does_not_store_what_a_router_says(status: int) -> None:
    """It cannot know whether there is an endpoint; a decorated endpoint has said it itself."""
    assert Policy("POST /a", window=1, after="replay").outcome(status) == "released"
    assert Policy(window=1, after="replay").outcome(status) == "returned"
    chosen = Policy("POST /a", window=1, after="replay", store=(status,))
    assert chosen.outcome(status) == "returned"
    assert chosen.outcome(409) == "released"


def test_a_middleware_stores_what_only_an_endpoint_says() -> None:
    """409 does not come from a path that does not exist."""
    assert Policy("POST /a", window=1, after="replay").outcome(409) == "returned"


@pytest.mark.parametrize(("status", "reads"), [(200, False), (399, False), (400, True)])
def test_an_error_is_looked_at_although_it_is_not_stored(status: int, reads: bool) -> None:
    """It may say that nothing was done; of the rest only the status counts."""
    recording = Recording(None)
    recording.begin(status, [("Retry-After", "5")])
    assert recording.reads_body is reads
    assert recording.is_later is reads
    stored = Recording(10)
    stored.begin(status, [])
    assert stored.reads_body
