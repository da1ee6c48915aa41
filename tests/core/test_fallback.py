"""Requests that were made for another server than the one that answers."""

import pytest

from dibs._core.capabilities import Engine, by_script
from dibs._core.claim import complete_request
from dibs._core.connection import worth_repeating
from dibs._core.lease import acquire_request, release_request, shorten_request, value_request
from dibs._core.request import ErrorReply, Request, commands_in

from .engines import ENGINES

LACKING = ErrorReply("ERR unknown command 'DELIFEQ', with args beginning with: 'k' 't' ")


def words_of(request: Request | None) -> list[list[bytes]]:
    assert request is not None
    return [words for _, words in commands_in(request.payload)]


@pytest.mark.parametrize("engine", ENGINES[:2])
def test_what_a_server_lacks_is_done_by_script(engine: Engine) -> None:
    """The same keys and arguments as the script has that an older server gets from the start."""
    old = ENGINES[3]
    made = [
        (acquire_request(engine, b"k", b"t", 5), acquire_request(old, b"k", b"t", 5)),
        (shorten_request(engine, b"k", b"t", 5, 9.0), shorten_request(old, b"k", b"t", 5, 9.0)),
        (release_request(engine, b"k", b"t", 9.0), release_request(old, b"k", b"t", 9.0)),
        (complete_request(engine, b"k", b"t", b"left", 5, 9.0),
         complete_request(old, b"k", b"t", b"left", 5, 9.0)),
    ]  # fmt: skip
    for native, script in made:
        found = by_script(native, ErrorReply("ERR syntax error"))
        assert found is not None
        got, expected = words_of(found), words_of(script)
        assert got[0][0] == b"EVAL"
        assert got[0][2:] == expected[0][2:] and got[1:] == expected[1:]
        assert (found.replies, found.key, found.until) == (script.replies, b"k", script.until)


def test_other_errors_and_other_requests_stay_as_they_are() -> None:
    """A refusal of the server is not about the command; and what has no script has none."""
    release = release_request(ENGINES[1], b"k", b"t", 9.0)
    assert by_script(release, ErrorReply("NOPERM no permissions")) is None
    assert by_script(release, ErrorReply("WRONGTYPE of another kind")) is None
    assert by_script(value_request(b"k"), LACKING) is None


def test_what_is_delivered_later_is_delivered_to_an_older_server_as_well() -> None:
    """Sent again: what the server cannot do now, and by script what it can never do."""
    release = release_request(ENGINES[1], b"k", b"t", 9.0)
    assert worth_repeating(release, 1) is None
    assert worth_repeating(release, ErrorReply("LOADING the dataset")) is release
    assert words_of(worth_repeating(release, LACKING))[0][0] == b"EVAL"
    assert worth_repeating(release, ErrorReply("NOPERM no permissions")) is None
