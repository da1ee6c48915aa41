"""Bodies that are hashed as they arrive, however they are cut."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs._http.bodies import BodyHash, FormReader
from dibs._http.facts import RequestFacts

from .submitted import JSON, facts, form, key


def long(body: bytes, size: int, headers: dict[str, str] = JSON) -> RequestFacts:
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
    assert key(first, by=["body"]) == key(long(body, size), by=["body"])
    assert key(first, by=["path.id"]) == key(long(b"{}", size), by=["path.id"])


@pytest.mark.parametrize("size", [1, 2, 5, 64, 1000])
def test_of_a_long_form_all_fields_and_files_count_however_it_was_cut(size: int) -> None:
    """A big upload that is sent twice is the same, though its boundary is not."""

    def upload(title: bytes, end: bytes, boundary: str, cut: int) -> RequestFacts:
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
    whole, cut = (FormReader(mark.encode(), "multipart/form-data") for _ in range(2))
    whole.add(body)
    while body:
        for size in sizes:
            cut.add(body[:size])
            body = body[size:]
    assert whole.form() == cut.form()
