"""Who submits, as far as the application and the request say."""

from typing import Any
from uuid import UUID

import pytest

from dibs import UsageError
from dibs._http.facts import read_headers
from dibs._http.submission import Submitter, identify, session_value


def submitter(
    headers: dict[str, str], at: str | None = "::1", said: object = None, session: str | None = None
) -> Submitter:
    found = identify(said, headers, at, session)
    assert isinstance(found, Submitter)
    return found


def identified(said: object) -> str | None:
    """Who it is, of a request that itself says nothing."""
    return submitter({}, said=said).user


def test_a_user_is_a_text_a_number_or_a_uuid() -> None:
    """None and "" mean that it is not known; 0 is a user."""
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
    """An object has the same text for all, or another one each time: neither identifies a user."""
    said = make()
    with pytest.raises(UsageError, match="user"):
        identified(said)
    if hasattr(said, "close"):
        said.close()


@pytest.mark.parametrize(
    "login",
    [
        "Bearer", "Bearer  ", "Basic", "Bearer null", "Token undefined", "Bearer None",
        "Bearer NaN", "Bearer [object Object]", "Bearer [object Promise]", 'Bearer "undefined"',
        "bearer false", "Bearer 0", "Bearer {}", "Bearer []", "Basic Og==", "Basic bnVsbDpudWxs",
        "Basic dW5kZWZpbmVkOnVuZGVmaW5lZA==", "Bearer <null>", "Bearer nil", "Bearer  ''",
    ],
)  # fmt: skip
def test_a_login_without_a_credential_is_nobody(login: str) -> None:
    """It is the same for all users: one would get the response that was made for another."""
    first, second = [submitter({"authorization": login}, at) for at in ("::1", "::2")]
    assert first.user is None and first.client != second.client


@pytest.mark.parametrize("login", ["Bearer a", "Token 00", "Basic OnM=", "Basic dTo=", "Key nulls"])
def test_a_login_with_a_credential_is_somebody(login: str) -> None:
    """Also one with a user or a password only."""
    assert submitter({"authorization": login}).user is not None


@pytest.mark.parametrize(
    "logins",
    [
        ["Bearer a", "bearer a", "Bearer  a", "Bearer\ta", " Bearer \t a "],
        ["Basic YW5uOng=", "basic YW5uOng=", "Basic YW5u.Ong=", "Basic YW5uOng=="],
    ],
)  # fmt: skip
def test_a_login_is_one_in_every_spelling(logins: list[str]) -> None:
    """Else one person would be several, with a submission each."""
    assert len({submitter({"authorization": login}).user for login in logins}) == 1
    other = "Basic YW5uOnk=" if "Basic" in logins[0] else "Bearer b"
    assert submitter({"authorization": other}) != submitter({"authorization": logins[0]})


def test_a_client_may_have_no_address() -> None:
    """Behind a socket of the machine, say: what else it sends tells it apart."""
    alone = submitter({}, None)
    assert alone.user is None and alone == submitter({}, "")
    assert alone != submitter({"user-agent": "x"}, None)


def test_a_session_is_who_has_its_cookie() -> None:
    """Regardless of other cookies; an empty one, or another, identifies no user."""

    def user(cookies: str) -> str | None:
        return submitter({"cookie": cookies}, session="sid").user

    assert user("sid=abc") == user("theme=dark; sid=abc") == "session abc"
    assert user("sid=abc") != user("sid=abd")
    assert user("sid=") is user("side=abc") is user("") is user("sid=undefined") is None


def test_a_session_is_read_as_python_reads_cookies() -> None:
    """Or not at all, where parsers disagree."""
    assert session_value('a=b; sid="x\\054y"; c', "sid") == "x,y"
    assert session_value("my_sid=a; sid=b; sid_2=c; d=sid", "sid") == "b"
    assert session_value("sid=a; sid = a", "sid") == "a"
    for cookies in ("sid=a;sid=b", "sid=a;\u00a0sid=b", "sid=a\x85", "sid; sid=a", 'sid="a" b'):
        assert session_value(cookies, "sid") is None, cookies


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "cookies",
    [
        'sid"' + "a" * 200_000,
        "sid" + " " * 200_000 + '"',
        'sid=a; x="' + 'y="' * 50_000,
        'sid=a; x="' + '\\"' * 100_000,
        "sid " * 50_000,
    ],
    ids=lambda cookies: cookies[:12],
)
def test_cookies_made_to_hurt_cost_no_more_than_others(cookies: str) -> None:
    """Quotes, spaces or no sign of a value, as long as a server lets them be."""
    assert session_value(cookies, "sid") in (None, "", "a")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["a", "cookie"])
def test_many_lines_of_one_name_cost_no_more_than_others(name: str) -> None:
    """A client may send as many as the server takes; they are joined once."""
    headers = read_headers([(name, "x=1")] * 200_000 + [("b", "c")])
    joint = "; " if name == "cookie" else ", "
    assert headers == {name: joint.join(["x=1"] * 200_000), "b": "c"}
    assert headers.repeated == (name,)
