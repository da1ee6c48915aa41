"""What `by=` selects is what the application reads, or the request is refused.

Where two values of one name came, or the body is not what it says, readers differ: the application
would work for one user, and the guard compare another.
"""

import gzip
import json
from typing import Any

import pytest

from dibs._http.bodies import SHORT, BodyHash
from dibs._http.facts import InvalidRequest, RequestFacts
from dibs._http.policy import Policy
from dibs._http.submission import submission_of

from .submitted import FORM, JSON, SITE, facts, form, key


def refused(seen: RequestFacts, by: str) -> str:
    """Why the request is refused."""
    found = submission_of(Policy(window=10, by=[by]), seen, [], SITE)
    assert isinstance(found, InvalidRequest), found
    assert "7" not in found.detail and "8" not in found.detail
    return found.kind


# ---- a name that came twice


@pytest.mark.parametrize("sent", ["user=7&user=8", "user=8&user=7", "user=7&x=1&%75ser=8"])
def test_a_name_with_two_values_is_ambiguous(sent: str) -> None:
    """Some frameworks take the first, some the last."""
    assert refused(facts(query=sent), "query.user") == "ambiguous"
    assert refused(facts(sent.encode(), headers=FORM), "body.user") == "ambiguous"
    headers, body = form(("user", "", b"7"), ("user", "", b"8"))
    assert refused(facts(body, headers=headers), "body.user") == "ambiguous"
    assert refused(facts(fields=[["user", "7"], ["user", "8"]]), "body.user") == "ambiguous"


def test_one_value_twice_is_one() -> None:
    """All readers agree. And a name that is not selected may have several values."""
    once, twice = facts(query="user=7"), facts(query="user=7&user=7&tag=a&tag=b")
    assert key(once, by=["query.user"]) == key(twice, by=["query.user"])


def test_all_values_of_a_name_are_selected_by_a_star() -> None:
    """For a list of checkboxes; each of them by its number."""
    for root, make in (("query", _in_query), ("body", _in_form)):
        one, two, other = make("a=1"), make("a=1&a=2"), make("a=2&a=1")
        assert len({key(each, by=[f"{root}.a.*"]) for each in (one, two, other)}) == 3
        assert key(one, by=[f"{root}.a.0"]) == key(two, by=[f"{root}.a.0"])
        assert key(two, by=[f"{root}.a.1"]) != key(other, by=[f"{root}.a.1"])


def _in_query(text: str) -> RequestFacts:
    return facts(query=text)


def _in_form(text: str) -> RequestFacts:
    return facts(text.encode(), headers=FORM)


@pytest.mark.parametrize(
    "body", ['{"a":7,"a":8}', '{"a":8,"b":{},"a":7}', '{"a":7,"b":[{"c":1,"c":2}]}']
)
def test_a_name_that_comes_twice_in_json_is_ambiguous(body: str) -> None:
    """Parsers differ here, too. Where nothing is selected, the bytes mean what Python reads."""
    assert refused(facts(body.encode()), "body.a") == "ambiguous"
    assert key(facts(b'{"a":7,"a":8}')) == key(facts(b'{"a":8}'))


# ---- a body that is not what it says


@pytest.mark.parametrize("media", ["text/plain", "", "application/octet-stream", "text/json"])
def test_json_is_found_whatever_the_body_calls_itself(media: str) -> None:
    """Many applications read JSON without a look at Content-Type."""
    seen = facts(b'{"a": 7 }', headers={"content-type": media} if media else {})
    assert key(seen, by=["body.a"]) == key(facts(b'{"a":7}'), by=["body.a"])


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"a":7}', {**JSON, "content-encoding": "br"}),
        (b"a=7", {**FORM, "content-encoding": "x"}),
        (gzip.compress(b'{"a":7}', mtime=0), {**JSON, "content-encoding": "gzip"}),
        (b'{"a":7,}', JSON), (b"\xff\xfe\xfd", JSON), (b"1;a", {"content-type": "text/csv"}),
        (b"[" * 100_000, JSON), (b'{"a":' + b"9" * 5000 + b"}", JSON),
        ('{"a":7}'.encode("cp037"), {"content-type": "application/json; charset=cp037"}),
        (b'{"a":"+ADc-"}', {"content-type": 'application/json; charset="utf-7"'}),
        (b"a=+ADc-", {"content-type": "application/x-www-form-urlencoded;charset=utf-7"}),
        (b"{}", {"content-type": "multipart/form-data"}),
        (b'{"a":7}', {"content-type": "multipart/form-data; boundary=x"}),
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_read_is_refused(body: bytes, headers: dict[str, str]) -> None:
    """Compared by its bytes, each white space in it would make another submission."""
    assert refused(facts(body, headers=headers), "body.a") == "unreadable"
    assert key(facts(body, headers=headers)), "as a whole it is compared by its bytes"
    assert key(facts(body, headers=headers), by=["body"])


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", '"utf-8"', "us-ascii", "utf8", "utf_8"])
def test_the_usual_charsets_are_read(charset: str) -> None:
    """Also one that Python finds by itself."""
    for media in ("application/json", "application/x-www-form-urlencoded"):
        headers = {"content-type": f"{media}; charset={charset}"}
        body = b"a=7" if media.endswith("urlencoded") else b'{"a":7}'
        assert key(facts(body, headers=headers), by=["body.a"])
    wide = facts('{"a":7}'.encode("utf-16"), headers={"content-type": "application/json"})
    assert key(wide, by=["body.a"]) == key(facts(b'{"a":7}'), by=["body.a"])
    assert key(facts(b'\xef\xbb\xbf{"a":7}'), by=["body.a"]) == key(wide, by=["body.a"])


def test_a_body_that_is_too_long_to_be_read_is_refused() -> None:
    """Padded with spaces it would be another one each time."""
    hashing = BodyHash("application/json")
    hashing.add(b'{"a":7}' + b" " * SHORT)
    assert refused(facts(b"", long=hashing.result()), "body.a") == "too-large"
    many = b"&".join([b"x=1"] * 10_001 + [b"a=7"])
    assert refused(facts(many, headers=FORM), "body.a") == "too-large"
    headers, body = form(*[("x", "", b"1")] * 10_001, ("a", "", b"7"))
    assert refused(facts(body, headers=headers), "body.a") == "unreadable"


def test_a_long_form_is_read() -> None:
    """By its fields, whatever its files are."""
    headers, body = form(("a", "", b"7"), ("f", "f.txt", b"x" * SHORT))
    hashing = BodyHash(headers["content-type"])
    hashing.add(body)
    long = facts(b"", headers=headers, long=hashing.result())
    short_headers, short = form(("a", "", b"7"))
    assert key(long, by=["body.a"]) == key(facts(short, headers=short_headers), by=["body.a"])


def test_nothing_is_missing_in_no_body() -> None:
    """As in one without that field."""
    assert key(facts(b""), by=["body.a"]) == key(facts(b"{}"), by=["body.a"])


# ---- numbers


@pytest.mark.parametrize("text", ["7.0", "7e0", "70e-1", "7.000", "0.7e1"])
def test_a_number_is_one_in_every_spelling(text: str) -> None:
    """To a database, 7.0 is the user 7."""
    seen = facts(json.dumps({"a": "?"}).replace('"?"', text).encode())
    assert key(seen, by=["body.a"]) == key(facts(b'{"a":7}'), by=["body.a"])


def test_other_numbers_stay_apart() -> None:
    """Also beyond what a float can tell."""
    texts = ["7", '"7"', "7.5", "true", "9007199254740993.0", "9007199254740992", "1e300", "1e301"]
    keys = {key(facts(b'{"a":%b}' % each.encode()), by=["body.a"]) for each in texts}
    assert len(keys) == len(texts)
    assert key(facts(b'{"a":-0.0}'), by=["body.a"]) == key(facts(b'{"a":0}'), by=["body.a"])


# ---- what the endpoint gets


def test_the_value_that_the_endpoint_gets_counts() -> None:
    """A framework that converts it knows that `07` is 7. It decides also where two were sent."""

    def keyed(query: str, **given: Any) -> str:
        return key(facts(query=query, given=given), by=["query.user"])

    seven = keyed("user=7", **{"query.user": "7"})
    assert seven == keyed("user=07", **{"query.user": "7"})
    assert seven == keyed("user=8&user=7", **{"query.user": "7"})
    assert seven != keyed("user=7", **{"query.user": "8"})
