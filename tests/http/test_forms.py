"""Forms: the same fields and files are the same submission."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._http.bodies import Form, read_multipart

from .submitted import FORM, facts, form, key


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
        assert read_multipart(kind, b"--x\r\n\r\n\r\n--x--") is None
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


PAIRS = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=2), st.binary(max_size=5)), max_size=4
)


@given(PAIRS)
def test_a_form_is_the_same_sent_either_way(pairs: list[tuple[str, bytes]]) -> None:
    """By name and value, for any values and any boundary."""
    fields = [(name, "", value) for name, value in pairs]
    headers, body = form(*fields, boundary="one-boundary")
    found = read_multipart(headers["content-type"], body)
    expected = sorted(pairs, key=lambda pair: pair[0])
    texts = [[name, value.decode("utf-8", "surrogateescape")] for name, value in expected]
    assert found == Form(texts, is_plain=True)
    assert form_key(*fields, boundary="q") == form_key(*fields, boundary="rrrr")
