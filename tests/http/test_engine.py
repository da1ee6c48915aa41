"""The engine for HTTP: which requests are guarded, as what, and what they are told. No I/O."""

import dataclasses
import gzip
import importlib
import inspect
import json
import math
import re
from datetime import timedelta
from typing import Any, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs import Duplicate, Mismatch, Unavailable, UsageError
from dibs._http.bodies import BodyHash, FormReader, fields_of_multipart
from dibs._http.options import GuardKeywords, GuardOptions
from dibs._http.policy import Once, Policy, PolicyKeywords, PreventDuplicateSubmit, find
from dibs._http.problems import document, refusal, replay
from dibs._http.responses import RESPONSE_CODEC, Recording, Response, storable
from dibs._http.submission import (
    Facts,
    InvalidRequest,
    Submission,
    identify,
    read_key,
    split_key_lines,
    submission_of,
)

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
SECRET = b"of the tests"


def facts(body: bytes = b"{}", **changes: Any) -> Facts:
    given: dict[str, Any] = {
        "method": "POST", "route": "POST /orders/{id}", "path": "/orders/17", "query": "",
        "headers": JSON, "body": body, "user": "U4711", "path_fields": {"id": "17"},
    }  # fmt: skip
    return Facts(**{**given, **changes})


def submitted(seen: Facts, *, keys: tuple[str, ...] = (), **options: Any) -> Submission:
    policy = Policy(window=10, **options)
    found = submission_of(policy, seen, list(keys), SECRET)
    assert isinstance(found, Submission)
    return found


def key(seen: Facts, **options: Any) -> str:
    return submitted(seen, **options).key


# ---- who submits


def identified(said: object) -> str | None:
    """Who it is, of a request that itself says nothing."""
    return identify(said, {}, "::1").user


def test_a_user_is_a_text_a_number_or_a_uuid() -> None:
    """None and "" mean that it is not known; 0 is somebody."""
    assert identified(b"U1") == identified("U1") and identified(b"") is None
    assert identified("U1") != identified("U2") and identified(1) == identified("1") != identified(
        0
    )
    assert identified(UUID(int=1)) == identified(str(UUID(int=1)))
    assert identified(None) is None and identified("") is None and identified(0) is not None


async def _somebody() -> str:
    return "U1"


@pytest.mark.parametrize("make", [object, _somebody, lambda: True, lambda: 1.5, lambda: ("U1",)])
def test_whatever_else_says_who_it_is_is_refused(make: Any) -> None:
    """An object has the same text for all, or another one each time: both are nobody's name."""
    said = make()
    with pytest.raises(UsageError, match="user"):
        identified(said)
    if hasattr(said, "close"):
        said.close()


# ---- which requests are guarded


def test_a_route_is_a_method_and_a_path() -> None:
    """`{id}` is one part of a path, `*` is anything; a star for the method means no safe one."""
    for route, method, path, fits in (
        ("POST /orders", "POST", "/orders", True),
        ("POST /orders", "PUT", "/orders", False),
        ("POST /orders", "POST", "/orders/", False),
        ("post,put /orders", "PUT", "/orders", True),
        ("PUT /orders/{id}", "PUT", "/orders/17", True),
        ("PUT /orders/{id}", "PUT", "/orders/", False),
        ("PUT /orders/{id}", "PUT", "/orders/17/lines", False),
        ("PUT /orders/{id}/lines/{line}", "PUT", "/orders/17/lines/2", True),
        ("* /forms/*", "DELETE", "/forms/a/b", True),
        ("* /forms/*", "GET", "/forms/a", False),
        ("* /forms/*", "HEAD", "/forms/a", False),
        ("GET /forms/*", "GET", "/forms/a", True),
        ("* /forms/*", "POST", "/forms/a\nb", True),
        ("POST /a.b", "POST", "/axb", False),
    ):
        assert Policy(route, window=1).covers(method, path) is fits, (route, method, path)


def test_the_first_policy_that_fits_is_the_one() -> None:
    """In the order in which they are given; none is nobody's business."""
    narrow, wide = Policy("POST /a/b", window=1), Policy("POST /a/*", window=2)
    assert find((narrow, wide), "POST", "/a/b") is narrow
    assert find((wide, narrow), "POST", "/a/b") is wide
    assert find((narrow, wide), "POST", "/b") is None
    assert not Policy(window=1).covers("POST", "/a/b"), "without a route it covers nothing"


def test_the_fields_of_a_route_are_told_from_a_path() -> None:
    """As text, by name; another path has none; `at` is the same policy elsewhere."""
    policy = Policy("PUT /orders/{order}/lines/{line}", window=1)
    assert policy.path_fields("/orders/17/lines/2") == {"order": "17", "line": "2"}
    assert policy.path_fields("/orders/17") == {}
    assert policy.at("PUT /x/{y}").path_fields("/x/1") == {"y": "1"}


@pytest.mark.parametrize(
    "options",
    [
        {"route": "/orders"},
        {"route": "POST orders"},
        {"route": "POST, PUT /orders"},
        {"route": "POST /orders/{id:int}"},
        {"route": "POST /orders/{id"},
        {"route": "POST /a/{id}/b/{id}"},
        {"route": "POST /a/{1}"},
        {"window": 0},
        {"window": -1},
        {"window": math.nan},
        {"lease": 0},
        {"after": "later"},
        {"on_error": "replay"},
        {"key": "maybe"},
        {"on_outage": "ajar"},
        {"by": ["cookies.a"]},
        {"by": [""]},
        {"by": ["header"]},
        {"by": ["body."]},
        {"by": ["body..id"]},
        {"header": ""},
        {"header": "X Key"},
        {"header": "X-Key\r\nX"},
        {"most": -1},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_made(options: dict[str, Any]) -> None:
    """UsageError, in words, and not at the first request."""
    with pytest.raises(UsageError):
        Policy(**{"window": 10, **options})


def test_a_window_is_seconds_or_a_timedelta_and_a_path_may_stand_alone() -> None:
    """As everywhere in dibs."""
    policy = Policy(window=timedelta(minutes=1), by="body.id")  # type: ignore[arg-type]
    assert policy.terms.window == 60 and policy.by == ("body.id",)


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
    """32 hex digits, keyed: another secret, other digits, so nobody can try who it was."""
    seen = facts(b'{"mail":"a@b.c"}', user="U4711")
    first = submission_of(Policy(window=1), seen, [], b"one")
    other = submission_of(Policy(window=1), seen, [], b"two")
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


@pytest.mark.parametrize(
    "headers", [{**JSON, "content-encoding": "gzip"}, {**FORM, "content-encoding": "gzip"}]
)
def test_of_a_body_that_is_compressed_all_of_it_counts(headers: dict[str, str]) -> None:
    """What `by` names cannot be seen in it; two carts must not become one."""
    one, two = (gzip.compress(b'{"cart": %d}' % cart, mtime=0) for cart in (1, 2))
    seen = [facts(body, headers=headers) for body in (one, two, one)]
    first, second, again = (key(each, by="body.cart") for each in seen)
    assert first != second and first == again


@pytest.mark.parametrize("headers", [JSON, {"content-type": "text/csv"}, {}])
def test_of_a_body_that_cannot_be_looked_into_all_of_it_counts(headers: dict[str, str]) -> None:
    """Broken JSON, or no kind of which it is known how to read it."""
    first, second = (key(facts(body, headers=headers), by="body.cart") for body in (b"1;a", b"1;b"))
    assert first != second


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


# ---- bodies


def form(*parts: tuple[str, str, bytes], boundary: str = "xyz") -> tuple[dict[str, str], bytes]:
    """A multipart form: name, file name or nothing, content."""
    body, mark = b"", boundary.strip('"')
    for name, file, content in parts:
        about = f'form-data; name="{name}"' + (f'; filename="{file}"' if file else "")
        body += f"--{mark}\r\nContent-Disposition: {about}\r\n\r\n".encode() + content + b"\r\n"
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    return headers, body + f"--{mark}--\r\n".encode()


def form_key(*parts: tuple[str, str, bytes], boundary: str = "xyz", **options: Any) -> str:
    headers, body = form(*parts, boundary=boundary)
    return key(facts(body, headers=headers), **options)


def test_a_form_is_the_same_whatever_its_boundary() -> None:
    """It is another one each time a browser sends the same form; the order of names is nothing."""
    first = form_key(("a", "", b"1"), ("b", "", b"2"), boundary="one")
    assert form_key(("b", "", b"2"), ("a", "", b"1"), boundary="twotwo") == first
    assert form_key(("a", "", b"1"), ("b", "", b"3"), boundary="one") != first
    assert form_key(("a", "", b"1"), ("b", "", b"2"), boundary='"quoted one"') == first


def test_uploads_are_a_part_of_a_form() -> None:
    """By their names and all of their bytes, also where there is nothing else."""
    first = form_key(("title", "", b"cat"), ("file", "cat.png", b"\x89PNG 1"))
    assert form_key(("title", "", b"cat"), ("file", "cat.png", b"\x89PNG 1"), boundary="b") == first
    assert form_key(("title", "", b"cat"), ("file", "cat.png", b"\x89PNG 2")) != first
    assert form_key(("title", "", b"cat"), ("file", "dog.png", b"\x89PNG 1")) != first
    assert form_key(("title", "", b"dog"), ("file", "cat.png", b"\x89PNG 1")) != first
    assert form_key(("title", "", b"cat")) != first
    alone = form_key(("file", "cat.png", b"1"), boundary="one")
    assert form_key(("file", "cat.png", b"1"), boundary="two") == alone
    assert form_key(("file", "cat.png", b"2"), boundary="two") != alone


def test_the_values_of_one_name_are_in_their_order() -> None:
    """First choice and second choice are not the same ballot as the other way round."""
    ballot = form_key(("choice", "", b"A"), ("choice", "", b"B"))
    assert form_key(("choice", "", b"B"), ("choice", "", b"A")) != ballot
    one, two = facts(b"c=A&c=B&d=1", headers=FORM), facts(b"c=B&c=A&d=1", headers=FORM)
    assert key(one) != key(two)
    assert key(one) == key(facts(b"d=1&c=A&c=B", headers=FORM))


def test_fields_of_forms_are_found_by_path() -> None:
    """Of both kinds of form, names of any language, repeated ones as a list."""
    assert form_key(("姓名", "", "王".encode()), by=["body.姓名"]) != form_key(
        ("姓名", "", "李".encode()), by=["body.姓名"]
    )
    one = facts(b"cart=1&note=x", headers=FORM)
    assert key(one, by=["body.cart"]) == key(
        facts(b"cart=1&note=y", headers=FORM), by=["body.cart"]
    )
    assert key(one, by=["body.cart"]) != key(
        facts(b"cart=2&note=x", headers=FORM), by=["body.cart"]
    )
    two = facts(b"cart=1&cart=2", headers=FORM)
    assert key(two, by=["body.cart.1"]) != key(one, by=["body.cart.1"])


def test_a_form_that_is_broken_is_its_bytes() -> None:
    """Another boundary than it says, or none: nothing can be left out of it."""
    for kind in ("multipart/form-data", "multipart/form-data; boundary=other"):
        headers = {"content-type": kind}
        assert fields_of_multipart(kind, b"--x\r\n\r\n\r\n--x--") is None
        assert key(facts(b"--x 1", headers=headers)) != key(facts(b"--x 2", headers=headers))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "head",
    [
        b"Content-Disposition: form-data" + b"; a=b" * 200_000,
        b"Content-Disposition: " + b"(" * 1_000_000,
        b"Content-Disposition: form-data" + b'; name="' * 130_000,
        b'Content-Disposition: form-data; name="' + b"\\x" * 500_000,
        b"Content-Disposition: form-data; name=" + b" " * 1_000_000,
        b"content-disposition " * 50_000,
    ],
    ids=lambda head: head[-20:].decode(),
)
def test_a_form_made_to_hurt_costs_no_more_than_another(head: bytes) -> None:
    """A megabyte of parameters, brackets or quotes: an answer at once, and no recursion."""
    headers = {"content-type": "multipart/form-data; boundary=x"}
    assert key(facts(b"--x\r\n" + head + b"\r\n\r\nvalue\r\n--x--", headers=headers))


def test_json_that_is_broken_is_its_bytes() -> None:
    """It is for the application to refuse it; two different ones are not the same."""
    for one, two in ((b"{", b"["), (b"\xff{}", b"\xfe{}"), (b"1" * 5000, b"1" * 5001)):
        assert key(facts(one)) != key(facts(two)) and key(facts(one)) == key(facts(one))
    assert key(facts(b"null")) != key(facts(b""))
    assert key(facts(b"[NaN]")) != key(facts(b"[Infinity]"))


def test_numbers_count_with_all_their_digits() -> None:
    """Amounts that differ beyond the precision of a float are different; layout is not."""
    assert key(facts(b'{"a": 12345678901234567.89}')) != key(facts(b'{"a": 12345678901234567.88}'))
    assert key(facts(b"[1e400]")) != key(facts(b"[1e500]"))
    assert key(facts(b"[1e99999999999999999999]")) != key(facts(b"[1e99999999999999999998]"))
    assert key(facts(b"[0.10]")) == key(facts(b"[0.1]")) == key(facts(b"[1e-1]"))


def test_json_that_is_nested_beyond_reason_is_its_bytes() -> None:
    """No recursion is too deep: not an error, and two different ones differ."""
    deep = [b"[" * depth + b"]" * depth for depth in (100, 90_000, 90_001)]
    assert len({key(facts(body)) for body in deep}) == 3
    assert key(facts(deep[1]), by=["body.0.0"]) != key(facts(deep[2]), by=["body.0.0"])


def long(body: bytes, size: int, headers: dict[str, str] = JSON) -> Facts:
    """What an edge knows of a body that it does not hold in memory, cut into pieces of *size*."""
    hashing = BodyHash(headers["content-type"])
    for start in range(0, len(body), size):
        hashing.add(body[start : start + size])
    return facts(b"", long=hashing.result(), headers=headers)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_of_a_long_body_every_byte_counts_however_it_was_cut(size: int) -> None:
    """A retry is not cut where the first try was."""
    body = b'{"cart":' + b"1" * 3000 + b"}"
    first = long(body, 10_000)
    assert key(first) == key(long(body, size))
    assert key(first) != key(long(body[:-2] + b"2}", size))
    assert key(first) != key(long(body + b" ", size))
    assert key(first, by=["body.cart"]) == key(long(body, size), by=["body.cart"])
    assert key(first, by=["path.id"]) == key(long(b"{}", size), by=["path.id"])


@pytest.mark.parametrize("size", [1, 2, 5, 64, 1000])
def test_of_a_long_form_all_fields_and_files_count_however_it_was_cut(size: int) -> None:
    """A big upload that is sent twice is the same, though its boundary is not."""

    def upload(title: bytes, end: bytes, boundary: str, cut: int) -> Facts:
        file = ("file", "a.mp4", b"\r\n--x" * 500 + end)
        headers, body = form(("title", "", title), file, boundary=boundary)
        return long(body, cut, headers)

    first = upload(b"cat", b"1", "aaaa", 100_000)
    assert key(first) == key(upload(b"cat", b"1", "bbbbbbbb", size))
    assert key(first) != key(upload(b"dog", b"1", "aaaa", size))
    assert key(first) != key(upload(b"cat", b"2", "aaaa", size))
    by_title: dict[str, Any] = {"by": ["body.title"]}
    assert key(first, **by_title) == key(upload(b"cat", b"2", "cccc", size), **by_title)
    assert key(first, **by_title) != key(upload(b"dog", b"1", "cccc", size), **by_title)


@settings(max_examples=200)
@given(st.binary(max_size=200), st.lists(st.integers(1, 30), min_size=1), st.sampled_from("ab"))
def test_a_form_is_read_the_same_however_it_was_cut(
    body: bytes, sizes: list[int], mark: str
) -> None:
    """Also what is no form at all."""
    body = b"--a\r\n" + body.replace(b"0", b"\r\n--a").replace(b"1", b"\r\n\r\n") + b"\r\n--a--"
    whole, cut = FormReader(mark.encode()), FormReader(mark.encode())
    whole.add(body)
    while body:
        for size in sizes:
            cut.add(body[:size])
            body = body[size:]
    assert whole.fields() == cut.fields()


def test_kinds_of_bodies_are_apart() -> None:
    """A form and a list of pairs in JSON that say the same are not the same."""
    bodies = [(b"a=1", FORM), (b'[["a","1"]]', JSON), (b'[["a","1"]]', {"content-type": "text/x"})]
    assert len({key(facts(body, headers=headers)) for body, headers in bodies}) == 3


# ---- the client's key


def client_key(*lines: str, use: Any = "required") -> str | InvalidRequest | None:
    return read_key(Policy(window=1, key=use), list(lines))


def test_a_raw_key_and_a_quoted_one_are_the_same() -> None:
    """Most clients send it raw, the draft of the header wants quotes."""
    assert client_key("abc-1") == client_key('"abc-1"') == client_key(' "abc-1" ') == "abc-1"
    assert client_key(r'"a\"b\\c"') == r"a\c".replace("a", 'a"b')
    assert client_key('"a b, c"') == "a b, c"


def test_a_key_has_1_to_255_visible_characters() -> None:
    """Everything else is malformed, and so is a list of two."""
    assert client_key("k" * 255) == client_key('"' + "k" * 255 + '"') == "k" * 255
    for bad in (
        "", "  ", '""', "k" * 256, '"' + "k" * 256 + '"', "a b", "a\tb", "café", '"é"', '"a', 'a"',
        "a,b", '"a", "b"', "a\x7f", "\x00", '"a\\b"',
    ):  # fmt: skip
        trouble = client_key(bad)
        assert isinstance(trouble, InvalidRequest) and trouble.kind == "key-malformed", bad
        assert not bad.strip() or bad not in trouble.detail, "a refusal does not repeat it"


def test_two_lines_are_no_key() -> None:
    """Nobody can know which one counts: also where a server has joined them."""
    assert isinstance(client_key("a", "b"), InvalidRequest)
    assert isinstance(client_key("a", "a", use="optional"), InvalidRequest)
    assert split_key_lines(["a, b"]) == ["a", " b"]
    assert split_key_lines(['"a, b"']) == ['"a, b"'], "a comma in quotes joins nothing"
    assert split_key_lines(['"a","b"']) == ['"a"', '"b"']


def test_a_key_is_missing_only_where_it_is_required() -> None:
    """Where it is optional the request itself is the key; where nobody asked it is nothing."""
    trouble = client_key()
    assert isinstance(trouble, InvalidRequest) and trouble.kind == "key-missing"
    assert client_key(use="optional") is None
    keyless = submitted(facts(), key="optional")
    assert not keyless.by_client and keyless.payload is None
    assert submitted(facts(), keys=("a",)) == submitted(facts())


def test_a_clients_key_is_of_one_user_and_one_place() -> None:
    """The same key of another person, or for another route or path, is another submission."""
    first = key(facts(), keys=("k1",), key="required")
    assert key(facts(), keys=('"k1"',), key="optional") == first
    assert key(facts(b'{"other":1}', query="x=1"), keys=("k1",), key="required") == first
    for change in ({"user": "U0"}, {"path": "/b"}, {"method": "PUT"}, {"route": "POST /b"}):
        assert key(facts(**change), keys=("k1",), key="required") != first
    assert key(facts(), keys=("k2",), key="required") != first
    assert key(facts()) != first


def test_the_payload_is_told_apart_by_query_and_body() -> None:
    """And by nothing else: headers and spelling may differ in a retry."""

    def payload(seen: Facts) -> str | None:
        return submitted(seen, keys=("k1",), key="required").payload

    first = payload(facts(b'{"a":1,"b":2}'))
    assert first == payload(facts(b'{"b":2, "a":1}', headers={**JSON, "x-try": "2"}))
    assert first != payload(facts(b'{"a":1,"b":3}'))
    assert first != payload(facts(b'{"a":1,"b":2}', query="dry=1"))
    one = form(("a", "", b"1"), ("f", "x.png", b"1"), boundary="one")
    two = form(("a", "", b"1"), ("f", "x.png", b"1"), boundary="two")
    other = form(("a", "", b"1"), ("f", "x.png", b"2"), boundary="one")
    assert payload(facts(one[1], headers=one[0])) == payload(facts(two[1], headers=two[0]))
    assert payload(facts(one[1], headers=one[0])) != payload(facts(other[1], headers=other[0]))


# ---- anything that may come


BODIES = st.binary(max_size=200) | st.sampled_from(
    [b"--x\r\n\r\n", b"--x--", b"\r\n--x\r\nContent-Disposition:;name=\r\n\r\n", b"%", b"a=%ff&=;"]
)
KINDS = st.text(max_size=40) | st.sampled_from(
    ["application/json", "x/y+json", *FORM.values(), "multipart/form-data; boundary=x"]
)
WORDS = st.text(max_size=30)
PATHS = st.sampled_from(
    ["user", "path", "path.id", "query", "query.a", "header.x", "body", "body.a"]
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
    """Whatever bytes and headers come: a key or a refusal, the same for the same, no exception."""
    seen = Facts(
        method=method, route="r", path=path, query=query, headers={"content-type": kind},
        body=body, user=user,
    )  # fmt: skip
    if is_long:
        hashing = BodyHash(kind)
        hashing.add(body)
        seen = seen._replace(body=b"", long=hashing.result())
    policy = Policy(window=1, key=use, by=tuple(by))
    found = submission_of(policy, seen, lines, SECRET)
    assert found == submission_of(policy, seen, lines, SECRET)
    if isinstance(found, InvalidRequest):
        assert refusal(policy, found, by_client=True).status == 400
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


PAIRS = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=2), st.binary(max_size=5)), max_size=4
)


@given(PAIRS)
def test_a_form_is_the_same_sent_either_way(pairs: list[tuple[str, bytes]]) -> None:
    """By name and value, whatever the values are, and whatever the boundary."""
    fields = [(name, "", value) for name, value in pairs]
    headers, body = form(*fields, boundary="one-boundary")
    found = fields_of_multipart(headers["content-type"], body)
    expected = sorted(pairs, key=lambda pair: pair[0])
    assert found == [[name, value.decode("utf-8", "surrogateescape")] for name, value in expected]
    assert form_key(*fields, boundary="q") == form_key(*fields, boundary="rrrr")


# ---- what an answer leaves behind


@pytest.mark.parametrize(
    ("status", "replaying", "otherwise"),
    [
        (200, "finish", "finish"), (201, "finish", "finish"), (204, "finish", "finish"),
        (302, "finish", "finish"), (400, "finish", "release"), (401, "release", "release"),
        (403, "release", "release"), (404, "finish", "release"), (407, "release", "release"),
        (408, "release", "release"), (409, "finish", "release"), (422, "finish", "release"),
        (425, "release", "release"), (429, "release", "release"), (500, "fail", "fail"),
        (503, "fail", "fail"),
    ],
)  # fmt: skip
def test_what_an_answer_leaves_behind(status: int, replaying: str, otherwise: str) -> None:
    """A 4xx is kept where answers are, unless it says "log in" or "later"; else it is free."""
    assert Policy(window=1, after="replay").outcome(status) == replaying
    assert Policy(window=2, after="hold").outcome(status) == otherwise
    assert Policy(window=1, after="release").outcome(status) == otherwise


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


LINES = st.text(st.characters(exclude_characters="\r\n\0"), max_size=10)


@given(st.integers(100, 599), st.lists(st.tuples(LINES, LINES), max_size=3), st.binary())
def test_a_kept_answer_comes_back_as_it_was(status: int, headers: Any, body: bytes) -> None:
    """Whatever its headers and its body hold."""
    kept = Response(status, tuple(headers), body)
    assert RESPONSE_CODEC.decode(RESPONSE_CODEC.encode(kept)) == kept


@pytest.mark.parametrize("bad", ["a\r\nset-cookie: x=1", "a\nb", "a\rb", "a\0b"])
def test_a_header_that_would_break_its_line_is_not_given_again(bad: str) -> None:
    """Whoever can write to the store cannot write headers of their own."""
    for line in (("x-a", bad), (bad, "v")):
        with pytest.raises(ValueError, match="a line break"):
            RESPONSE_CODEC.decode(RESPONSE_CODEC.encode(Response(200, (line,), b"")))


# ---- what they are told


def told(error: Any, *, by_client: bool = False, **options: Any) -> tuple[Response, Any]:
    answer = refusal(Policy(window=60, **options), error, by_client=by_client)
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
        answer, body = told(error, by_client=by_client)
        assert (answer.status, body["type"], body.get("retryAfter")) == (
            status, f"urn:dibs:{kind}", wait,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("left", "shown"), [(0.0, 1), (0.001, 1), (1.0, 1), (1.001, 2), (9.2, 10), (math.inf, 60)]
)
def test_retry_after_is_rounded_up_and_at_least_1(left: float, shown: int) -> None:
    """Who comes back then does not come too early; a key without an end is waited for once."""
    _, body = told(Duplicate("k", left, "running", None, "n"))
    assert body["retryAfter"] == shown


def test_a_message_is_in_the_body_in_its_own_language() -> None:
    """As `message` and as the detail; without one there is a sentence, and no `message`."""
    answer, body = told(Duplicate("k", 1, "running", "請稍候…", "n"), message="請稍候…")
    assert body["message"] == body["detail"] == "請稍候…" and body["state"] == "running"
    assert "請稍候…".encode() in answer.body
    _, body = told(Duplicate("secret-key", 1, "done", None, "n"))
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


# ---- decorators and documents


def test_the_decorators_pass_a_policy_on() -> None:
    """With every option; the seed's own has the seed's names, and leaves nothing behind."""
    seen: list[Policy] = []

    def guard(policy: Policy, view: Any) -> Any:
        seen.append(policy)
        return view

    Once(guard)(
        window=5, after="replay", on_error="hold", message="m", key="optional", by="body.id",
        header="X-Key", lease=3, on_outage="closed", most=7,
    )(len)  # fmt: skip
    PreventDuplicateSubmit(guard)(interval=10, message="please wait", by=["body.id"])(len)
    assert seen[0] == Policy(
        window=5, after="replay", on_error="hold", message="m", key="optional", by=("body.id",),
        header="X-Key", lease=3, on_outage="closed", most=7,
    )  # fmt: skip
    assert seen[1] == Policy(window=10, message="please wait", by=("body.id",))
    assert seen[1].after == "release"
    with pytest.raises(UsageError):
        PreventDuplicateSubmit(guard)(interval=0)


def test_the_decorators_take_a_policy() -> None:
    """One policy may serve several views; a route of its own would be ignored, and is refused."""

    def guard(policy: Policy, view: Any) -> Any:
        return policy

    orders: Any = Policy(window=5, after="replay", key="required")
    given: Any = Once(guard)(orders)(len)
    assert given is orders
    mixed: dict[str, Any] = {"policy": orders, "window": 5}
    with pytest.raises(UsageError, match="not both"):
        Once(guard)(**mixed)
    with pytest.raises(UsageError, match="has no route"):
        Once(guard)(Policy("POST /orders", window=5))
    unknown: dict[str, Any] = {"window": 5, "route": "POST /orders"}
    with pytest.raises(TypeError, match="'route'"):
        Once(guard)(**unknown)


def test_an_option_is_declared_in_two_places() -> None:
    """What editors complete and what is checked are the same options, each with documentation."""
    routes = {"route", "exempt"}
    for keywords, options, beside in (
        (PolicyKeywords, Policy, routes),
        (GuardKeywords, GuardOptions, set[str]()),
    ):
        names = {field.name for field in dataclasses.fields(options)}
        assert set(get_type_hints(keywords)) == names - beside
        documented = inspect.getsource(options)
        for name in names:
            assert re.search(rf'^    {name}: .*\n    """\S', documented, re.M), name


@pytest.mark.parametrize("name", ["asgi", "wsgi", "starlette", "fastapi", "flask", "django", "drf"])
def test_every_integration_exports_the_policy(name: str) -> None:
    """It is imported from where it is used."""
    module = importlib.import_module(f"dibs.integrations.{name}")
    assert module.Policy is Policy and "Policy" in module.__all__


def test_an_operation_is_told_what_its_guard_may_answer() -> None:
    """By the policy; what was documented by hand stays as it was."""
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
