"""Idempotency-Key: how it is read, and whose it is."""

from typing import Any

from dibs._http.facts import InvalidRequest, RequestFacts
from dibs._http.policy import Policy
from dibs._http.submission import read_key, split_key_lines

from .submitted import JSON, facts, form, key, submitted


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
    """It is unclear which one counts: also where a server has joined them."""
    assert isinstance(client_key("a", "b"), InvalidRequest)
    assert isinstance(client_key("a", "a", use="optional"), InvalidRequest)
    assert split_key_lines(["a, b"]) == ["a", " b"]
    assert split_key_lines(['"a, b"']) == ['"a, b"'], "a comma in quotes joins nothing"
    assert split_key_lines(['"a","b"']) == ['"a"', '"b"']


def test_a_key_is_missing_only_where_it_is_required() -> None:
    """Where it is optional the request itself is the key; where none is expected it is ignored."""
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

    def payload(seen: RequestFacts) -> str | None:
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
