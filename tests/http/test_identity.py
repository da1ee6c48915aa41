"""Who submits, as far as the application and the request say."""

from typing import Any
from uuid import UUID

import pytest

from dibs import UsageError
from dibs._http.submission import identify


def identified(said: object) -> str | None:
    """Who it is, of a request that itself says nothing."""
    return identify(said, {}, "::1").user


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


@pytest.mark.parametrize("login", ["Bearer", "Bearer  ", "Basic", "Bearer null", "Token undefined"])
def test_a_login_without_a_credential_is_nobody(login: str) -> None:
    """It is the same for all users: one would get the response that was made for another."""
    first, second = [identify(None, {"authorization": login}, at) for at in ("::1", "::2")]
    assert first.user is None and first.client != second.client
    assert identify(None, {"authorization": "Bearer a"}, "::1").user is not None


def test_a_client_may_have_no_address() -> None:
    """Behind a socket of the machine, say: what else it sends tells it apart."""
    alone = identify(None, {}, None)
    assert alone.user is None and alone == identify(None, {}, "")
    assert alone != identify(None, {"user-agent": "x"}, None)


def test_a_session_is_who_has_its_cookie() -> None:
    """Regardless of other cookies; an empty one, or another, identifies no user."""

    def user(cookies: str) -> str | None:
        return identify(None, {"cookie": cookies}, "::1", "sid").user

    assert user("sid=abc") == user("theme=dark; sid=abc") == "session abc"
    assert user("sid=abc") != user("sid=abd")
    assert user("sid=") is user("side=abc") is user("") is None
