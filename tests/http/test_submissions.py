"""What a request submits, and the key under which it counts as the same."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs._http.bodies import BodyHash
from dibs._http.facts import InvalidRequest, RequestFacts, RequestHeaders
from dibs._http.policy import GuardOptions, Policy
from dibs._http.problems import refusal_response
from dibs._http.submission import Submission, split_key_lines, submission_of

from .submitted import FORM, JSON, SITE, facts, key

# ---- the key, without one of the client's


def test_everything_that_was_submitted_counts_by_default() -> None:
    """User, method, route, path, query and body: another one is another submission."""
    first = facts(b'{"tea":1}')
    changes: list[dict[str, Any]] = [
        {"user": "U4712"}, {"user": None}, {"method": "PUT"}, {"route": "POST /other"},
        {"path": "/orders/18"}, {"query": "a=1"}, {"body": b'{"tea":2}'}, {"body": b""},
    ]  # fmt: skip
    keys = [key(first), *[key(first._replace(**change)) for change in changes]]
    assert len(set(keys)) == len(keys)


def test_headers_and_spelling_do_not_count() -> None:
    """Trace ids, cookies, the order of keys and white space make no other submission."""
    first = key(facts(b'{"a":1,"b":[1,2]}'))
    other = {"content-type": "application/json; charset=utf-8", "traceparent": "00-1", "x-a": "b"}
    assert key(facts(b' { "b" : [ 1, 2 ],\n "a": 1 }', headers=other)) == first
    assert key(facts(b'{"a":1,"b":[2,1]}')) != first, "the order of a list is what it says"
    assert key(facts(b'{"a":1.0,"b":[1,2]}')) != first


def test_parts_do_not_run_into_each_other() -> None:
    """What is moved from one part to the next is another submission."""
    assert key(facts(path="/a", query="b")) != key(facts(path="/ab", query=""))
    assert key(facts(user="a", path="b")) != key(facts(user="ab", path=""))
    assert key(facts(query="", body=b"1:x")) != key(facts(query="1:x", body=b""))
    assert key(facts(user=None)) != key(facts(user="-"))


def test_a_key_holds_nothing_of_the_request() -> None:
    """32 hex digits, keyed: another secret, other digits, so users cannot be guessed."""
    seen = facts(b'{"mail":"a@b.c"}', user="U4711")
    first, other = [
        submission_of(Policy(window=1), seen, [], GuardOptions(secret=secret))
        for secret in (b"one", b"two")
    ]
    assert isinstance(first, Submission) and isinstance(other, Submission)
    assert first.key != other.key and first.payload is None
    assert len(first.key) == 32 and set(first.key) <= set("0123456789abcdef")


BY: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("user", {}, {"user": "U4712"}),
    ("path", {}, {"path": "/orders/18"}),
    ("path.id", {}, {"path_fields": {"id": "18"}}),
    ("query", {}, {"query": "page=2"}),
    ("query.page", {"query": "page=1&x=1"}, {"query": "page=2&x=1"}),
    ("header.x-tenant", {}, {"headers": {**JSON, "x-tenant": "b"}}),
    ("body", {}, {"body": b'{"a":1}'}),
    ("body.cart.id", {"body": b'{"cart":{"id":1}}'}, {"body": b'{"cart":{"id":2}}'}),
    ("body.lines.1.sku", {"body": b'{"lines":[0,{"sku":1}]}'}, {"body": b'{"lines":[0,{}]}'}),
]


@pytest.mark.parametrize(("path", "one", "two"), BY, ids=[row[0] for row in BY])
def test_by_a_path_only_that_counts(path: str, one: dict[str, Any], two: dict[str, Any]) -> None:
    """And the user, the method and the route, always."""
    first, second = facts(**one), facts(**{**one, **two})
    assert key(first, by=[path]) != key(second, by=[path])
    other = {"path": "/elsewhere", "query": "page=1&y=9", "body": first.body + b" "}
    same = {name: value for name, value in other.items() if not path.startswith(name)}
    assert key(first._replace(**same), by=[path]) == key(first, by=[path])
    for always in ({"user": "U0"}, {"method": "PUT"}, {"route": "POST /other"}):
        assert key(first._replace(**always), by=[path]) != key(first, by=[path])


def test_what_a_request_lacks_is_like_what_it_leaves_empty() -> None:
    """A path that leads nowhere is None; no request makes it fail."""
    for body in (b"", b"[]", b'"text"', b'{"cart":7}', b'{"cart":[1]}', b'{"cart":null}'):
        assert key(facts(body), by=["body.cart.id"]) == key(facts(b"{}"), by=["body.cart.id"])
    assert key(facts(b'{"a":[1]}'), by=["body.a.7"]) == key(facts(b"{}"), by=["body.a.7"])


def test_paths_and_their_values_are_not_confused() -> None:
    """By two fields: which value belongs to which field counts."""
    one, two = facts(b'{"a":"1"}'), facts(b'{"b":"1"}')
    assert key(one, by=["body.a", "body.b"]) != key(two, by=["body.a", "body.b"])
    assert key(facts(b'{"a":1}'), by=["body.a"]) != key(facts(b'{"a":"1"}'), by=["body.a"])


def test_json_that_is_broken_is_its_bytes() -> None:
    """It is for the application to refuse it; two different ones are not the same."""
    for one, two in ((b"{", b"["), (b"\xff{}", b"\xfe{}"), (b"1" * 5000, b"1" * 5001)):
        assert key(facts(one)) != key(facts(two)) and key(facts(one)) == key(facts(one))
    assert key(facts(b"null")) != key(facts(b""))
    assert key(facts(b"[NaN]")) != key(facts(b"[Infinity]"))


def test_json_that_is_nested_beyond_reason_is_its_bytes() -> None:
    """No recursion is too deep: not an error, and two different ones differ."""
    deep = [b"[" * depth + b"]" * depth for depth in (100, 90_000, 90_001)]
    assert len({key(facts(body)) for body in deep}) == 3


def test_kinds_of_bodies_are_apart() -> None:
    """A form and a list of pairs in JSON that say the same are not the same."""
    bodies = [(b"a=1", FORM), (b'[["a","1"]]', JSON), (b'[["a","1"]]', {"content-type": "text/x"})]
    assert len({key(facts(body, headers=headers)) for body, headers in bodies}) == 3


# ---- anything that may come


BODIES = st.binary(max_size=200) | st.sampled_from(
    [b"--x\r\n\r\n", b"--x--", b"\r\n--x\r\nContent-Disposition:;name=\r\n\r\n", b"%", b"a=%ff&=;"]
)
KINDS = st.text(max_size=40) | st.sampled_from(
    ["application/json", "x/y+json", *FORM.values(), "multipart/form-data; boundary=x"]
)
WORDS = st.text(max_size=30)
PATHS = st.sampled_from(
    ["user", "path", "path.id", "query", "query.a", "query.a.*", "header.x", "body", "body.a"]
)
USES: st.SearchStrategy[Any] = st.sampled_from(["never", "optional", "only", "required"])


@settings(max_examples=200)
@given(
    BODIES, KINDS, WORDS, WORDS, WORDS, st.none() | WORDS, st.lists(WORDS, max_size=2), USES,
    st.lists(PATHS, max_size=3), st.booleans(),
)  # fmt: skip
def test_no_request_makes_the_engine_fail(
    body: bytes, kind: str, method: str, path: str, query: str, user: str | None,
    lines: list[str], use: Any, by: list[str], is_long: bool,
) -> None:  # fmt: skip
    """For any bytes and headers: a key or a refusal, the same for the same, no exception."""
    seen = RequestFacts(
        method=method, route="r", path=path, query=query, body=body, user=user,
        headers=RequestHeaders({"content-type": kind}),
    )  # fmt: skip
    if is_long:
        hashing = BodyHash(kind)
        hashing.add(body)
        seen = seen._replace(body=b"", long=hashing.result())
    policy = Policy(window=1, key=use, by=tuple(by))
    found = submission_of(policy, seen, lines, SITE)
    assert found == submission_of(policy, seen, lines, SITE)
    if isinstance(found, InvalidRequest):
        assert refusal_response(policy, found, by_client=True).status in (400, 413)
    assert isinstance(split_key_lines(lines), list)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


def _shuffled(value: Any) -> Any:
    """The same, with its keys in another order."""
    if isinstance(value, dict):
        return {name: _shuffled(each) for name, each in reversed(value.items())}
    return [_shuffled(each) for each in value] if isinstance(value, list) else value


@given(VALUES, VALUES)
def test_json_is_the_same_if_it_says_the_same(one: Any, two: Any) -> None:
    """Order of keys, white space and escapes do not matter; everything else does."""
    plain = key(facts(json.dumps(one).encode()))
    spaced = json.dumps(_shuffled(one), indent=3, ensure_ascii=False)
    if one is not None:  # there is nothing to tell, and its bytes are what is compared
        assert key(facts(spaced.encode("utf-8", "surrogatepass"))) == plain
    other = key(facts(json.dumps(two).encode()))
    assert (plain == other) is (json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True))


def test_numbers_count_with_all_their_digits() -> None:
    """Amounts that differ beyond the precision of a float are different; layout is not."""
    assert key(facts(b'{"a": 12345678901234567.89}')) != key(facts(b'{"a": 12345678901234567.88}'))
    assert key(facts(b"[1e400]")) != key(facts(b"[1e500]"))
    assert key(facts(b"[1e99999999999999999999]")) != key(facts(b"[1e99999999999999999998]"))
    assert key(facts(b"[0.10]")) == key(facts(b"[0.1]")) == key(facts(b"[1e-1]"))


def test_a_form_with_too_many_fields_is_compared_by_its_bytes() -> None:
    """To parse a megabyte of them takes a third of a second."""
    many = b"&".join([b"a=1", b"b=2"] * 5_001)
    other = b"&".join([b"b=2", b"a=1"] * 5_001)
    few = (b"a=1&b=2", b"b=2&a=1")
    assert key(facts(few[0], headers=FORM)) == key(facts(few[1], headers=FORM))
    assert key(facts(many, headers=FORM)) == key(facts(many, headers=FORM))
    assert key(facts(many, headers=FORM)) != key(facts(other, headers=FORM))
