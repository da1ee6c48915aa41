"""What a caller gets in place of the response."""

import gzip
import json
import math
import zlib
from typing import Any

import pytest

from dibs import Duplicate, Mismatch, Unavailable
from dibs._http.facts import InvalidRequest
from dibs._http.policy import Policy
from dibs._http.problems import busy, document, refusal_response, replay
from dibs._http.responses import Response, readable


def decoded(stored: Response, accept_encoding: str | None) -> Response | None:
    return readable(stored, accept_encoding, 1_000_000)


def refused(error: Any, *, by_client: bool = False, **options: Any) -> tuple[Response, Any]:
    answer = refusal_response(Policy(window=60, **options), error, by_client=by_client)
    body = json.loads(answer.body)
    headers = dict(answer.headers)
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    assert int(headers["content-length"]) == len(answer.body)
    assert body["status"] == answer.status and body["type"].startswith("urn:dibs:")
    assert headers.get("retry-after") == (str(body["retryAfter"]) if "retryAfter" in body else None)
    return answer, body


def test_the_table_of_refusals() -> None:
    """429 without a client's key; with one 409 and 422; 400 for a bad key; 503 in an outage."""
    running = Duplicate("k", 3.0, "running", None, "n")
    done = Duplicate("k", 3.0, "done", None, "n")
    for error, by_client, status, kind, wait in (
        (running, False, 429, "duplicate-submission", 3),
        (done, False, 429, "duplicate-submission", 3),
        (running, True, 409, "in-progress", 3),
        (done, True, 409, "already-done", None),
        (Mismatch("k", "n"), True, 422, "payload-mismatch", None),
        (InvalidRequest("key-missing", "Name it."), True, 400, "key-missing", None),
        (Unavailable("gone", "n"), False, 503, "unavailable", 1),
    ):
        answer, body = refused(error, by_client=by_client)
        assert (answer.status, body["type"], body.get("retryAfter")) == (
            status, f"urn:dibs:{kind}", wait,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("left", "shown"), [(0.0, 1), (0.001, 1), (1.0, 1), (1.001, 2), (9.2, 10), (math.inf, 10)]
)
def test_retry_after_is_rounded_up_and_at_least_1(left: float, shown: int) -> None:
    """Who comes back then does not come too early; a key without an end is waited for once."""
    _, body = refused(Duplicate("k", left, "running", None, "n"))
    assert body["retryAfter"] == shown


@pytest.mark.parametrize(
    ("after", "state", "left", "most"),
    [
        ("hold", "running", 120, 60),
        ("replay", "running", 300, 10),
        ("release", "running", 300, 10),
        ("hold", "done", 59.5, 60),
        ("replay", "done", 45, 45),
    ],
)
def test_a_long_lease_does_not_keep_clients_away(
    after: Any, state: Any, left: float, most: int
) -> None:
    """The lease is for crashes: a running request ends earlier, and then the window counts."""
    _, body = refused(Duplicate("k", left, state, None, "n"), after=after, lease=300)
    assert body["retryAfter"] == most


def test_a_503_says_what_is_true_of_any_attempt() -> None:
    """An earlier one with the same key may have been processed: only this one was not."""
    gone = Unavailable("gone", "n")
    _, keyed = refused(gone, by_client=True, header="X-Key")
    _, keyless = refused(gone)
    assert "The request was not processed" not in str(keyed) + str(keyless)
    assert keyed["detail"].endswith(
        "This attempt was not processed; repeat it soon, with the same X-Key."
    )
    assert keyless["detail"].endswith("This attempt was not processed; try again soon.")
    lease = json.loads(busy(gone).body)
    assert lease["detail"].endswith("This attempt was not processed; try again soon.")


def test_a_message_is_in_the_body_in_its_own_language() -> None:
    """As `message` and as the detail; without one there is a sentence, and no `message`."""
    answer, body = refused(Duplicate("k", 1, "running", "請稍候…", "n"), message="請稍候…")
    assert body["message"] == body["detail"] == "請稍候…" and body["state"] == "running"
    assert "請稍候…".encode() in answer.body
    _, body = refused(Duplicate("secret-key", 1, "done", None, "n"))
    assert "message" not in body and "secret-key" not in str(body)


def test_a_replay_is_the_first_answer_and_says_so() -> None:
    """Its length is counted again; a 204 has none."""
    policy = Policy(window=1)
    answer = replay(policy, Response(201, (("x-a", "b"),), b"body"))
    assert answer.status == 201 and answer.body == b"body"
    assert answer.headers == (
        ("x-a", "b"), ("idempotent-replayed", "true"), ("content-length", "4"),
    )  # fmt: skip
    assert "content-length" not in dict(replay(policy, Response(204, (), b"")).headers)


def test_an_operation_is_told_what_its_guard_may_answer() -> None:
    """By the policy; what was document by hand stays as it was."""
    operation: dict[str, Any] = {"responses": {"200": {}, "422": {"description": "ours"}}}
    document(operation, Policy(window=1, key="required", after="replay"))
    assert set(operation["responses"]) == {"200", "400", "409", "422", "503"}
    assert operation["responses"]["422"] == {"description": "ours"}
    assert operation["parameters"][0]["required"] is True
    document(operation, Policy(window=1, key="required"))
    assert len(operation["parameters"]) == 1
    plain: dict[str, Any] = {}
    document(plain, Policy(window=1, on_outage="open", message="One moment."))
    assert set(plain["responses"]) == {"429"} and "parameters" not in plain
    assert plain["responses"]["429"]["description"] == "One moment."
    assert "Retry-After" in plain["responses"]["429"]["headers"]
    document(None, Policy(window=1))
    document(untouched := {}, None)
    assert untouched == {}


# ---- content codings


def test_what_cannot_be_unpacked_is_not_sent() -> None:
    """Brotli has no place in the standard library; a body that is not what it says has none."""
    vary = ("vary", "Origin, Accept-Encoding")
    plain = Response(200, (("content-encoding", "identity"), vary), b"x")
    assert decoded(plain, None) == plain
    for coding, body in (("gzip", gzip.compress(b"x")), ("deflate", zlib.compress(b"x"))):
        found = decoded(Response(200, (("content-encoding", coding), vary), body), None)
        assert found == Response(200, (vary,), b"x")
    for coding in ("br", "zstd", "gzip, br", "gzip"):
        kept = Response(200, (("content-encoding", coding), vary), b"unreadable")
        assert decoded(kept, None) is None and decoded(kept, "identity") is None
        assert decoded(kept, coding) == kept or "," in coding
        chosen_by_nobody = Response(200, (("content-encoding", coding),), b"unreadable")
        assert decoded(chosen_by_nobody, None) == chosen_by_nobody


def test_every_member_of_a_gzip_body_is_decompressed() -> None:
    """A body may consist of several members, and of padding after them (RFC 1952)."""
    gzipped = ("content-encoding", "gzip")
    body = gzip.compress(b"one, ") + gzip.compress(b"two")
    for whole in (body, body + bytes(8)):
        assert decoded(Response(200, (gzipped,), whole), "identity") == Response(
            200, (), b"one, two"
        )
    assert decoded(Response(200, (gzipped,), body[:-4]), "identity") is None


@pytest.mark.parametrize(
    ("accepts", "is_kept"),
    [
        ("gzip", True), ("GZIP ; q=0.5", True), ("x-gzip", True), ("br, *;q=0.1", True),
        ("deflate, gzip;q=1.0", True), ("gzip;q=0.001", True), ("", False), ("br", False),
        ("gzip;q=0", False), ("gzip; q = 0.00", False), ("*;q=0", False), ("*, gzip;q=0", False),
        ("identity", False),
    ],
)  # fmt: skip
def test_which_codings_a_client_accepts(accepts: str, is_kept: bool) -> None:
    """By name, by its other name, or by a star; a weight of 0 is a no."""
    kept = Response(200, (("content-encoding", " GZip"), ("a", "b")), gzip.compress(b"x"))
    plain = Response(200, (("a", "b"),), b"x")
    assert decoded(kept, accepts) == (kept if is_kept else plain)


def test_a_replay_is_decompressed_up_to_a_limit() -> None:
    """Whoever may choose a response could fill the memory by asking for it again."""
    gzipped = ("content-encoding", "gzip")
    for body in (gzip.compress(b"x" * 1_000_001), gzip.compress(b"x" * 600_000) * 2):
        assert decoded(Response(200, (gzipped,), body), "identity") is None
    assert decoded(Response(200, (gzipped,), gzip.compress(b"") * 5000), "identity") is None
    whole = decoded(Response(200, (gzipped,), gzip.compress(b"x" * 1_000_000)), "identity")
    assert whole is not None and len(whole.body) == 1_000_000
