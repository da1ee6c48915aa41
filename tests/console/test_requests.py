"""Requests of the console, without I/O: what is refused, and what every response carries."""

import json
from typing import Any

import pytest

from dibs.console.http import (
    COOKIE,
    HEADER,
    ConsoleRequest,
    ConsoleResponse,
    release_in,
    respond,
)

TOKEN = "0123456789abcdef" * 2
OURS = {
    "host": "shop.example",
    "origin": "https://shop.example",
    "cookie": f"session=1; {COOKIE}={TOKEN}",
    HEADER: TOKEN,
    "content-type": "application/json",
}


def reply(path: str = "/", method: str = "GET", root: str = "/dibs", **headers: str) -> Any:
    request = ConsoleRequest(
        method, path, root, "", {key.replace("_", "-"): headers[key] for key in headers}
    )
    return respond(request, new_token=TOKEN)


def posted(**changes: str | None) -> ConsoleResponse | None:
    headers = {**OURS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    given = {name: value for name, value in headers.items() if value is not None}
    request = ConsoleRequest("POST", "/api/release", "/dibs", "", given)
    return respond(request, new_token="")


def test_a_release_from_our_own_page_is_heard() -> None:
    """The same origin, the token of the browser in cookie and header, JSON."""
    assert posted() is None
    assert posted(origin=None, sec_fetch_site="same-origin") is None


@pytest.mark.parametrize(
    "change",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": None},
        {"origin": "https://shop.example.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"x_dibs_console": None},
        {"x_dibs_console": ""},
        {"x_dibs_console": "f" * 32},
        {"x_dibs_console": "é" * 32},
        {"cookie": None},
        {"cookie": f"{COOKIE}="},
        {"cookie": f"{COOKIE}=; x=1", "x_dibs_console": ""},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
    ],
    ids=str,
)
def test_a_release_from_elsewhere_is_refused(change: dict[str, str | None]) -> None:
    """Another site, another origin of the same site, a form, or a browser without our cookie."""
    refused = posted(**change)
    assert refused is not None and refused.status == 403


def test_data_is_not_for_other_sites() -> None:
    """A page elsewhere cannot even make the server be read."""
    assert reply("/api/state", sec_fetch_site="cross-site").status == 403
    assert reply("/api/why", sec_fetch_site="same-site").status == 403
    assert reply("/api/state", sec_fetch_site="same-origin") is None


def test_releasing_needs_a_post_and_everything_else_only_reads() -> None:
    """GET releases nothing, POST reads nothing."""
    assert reply("/api/release").status == 405
    assert reply("/", "POST").status == 405
    assert reply("/static/console.css", "DELETE").status == 405


@pytest.mark.parametrize("path", ["/", "/static/console.js", "/nowhere", "/api/release", ""])
def test_every_response_carries_the_protections(path: str) -> None:
    """No cache, no frame, no outside resource, no inline script, no sniffing."""
    headers = dict(reply(path).headers)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy
    assert headers["Cache-Control"] == "no-store" and headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_cookie_is_for_the_console_alone_and_not_for_scripts() -> None:
    """A browser without one gets one with the page: strict, and secure over HTTPS.

    It names no path, so it is for that of the page, also behind a proxy that cuts off a prefix
    unknown to the application: with a path, it would never be sent back.
    """
    cookie = dict(reply().headers)["Set-Cookie"]
    assert cookie == f"{COOKIE}={TOKEN}; HttpOnly; SameSite=Strict"
    assert "Set-Cookie" not in dict(reply(cookie=f"{COOKIE}={TOKEN}").headers)
    https = ConsoleRequest("GET", "/", "", "", {}, is_https=True)
    page = respond(https, new_token=TOKEN)
    assert page is not None
    assert dict(page.headers)["Set-Cookie"].endswith("; HttpOnly; SameSite=Strict; Secure")


def test_the_address_without_a_slash_leads_to_the_one_with_it() -> None:
    """Relative, so that it is right behind a proxy that cuts off a part of the path."""
    assert dict(reply("", root="/admin/dibs").headers)["Location"] == "dibs/"
    assert reply("", root="").status == 200


@pytest.mark.parametrize(
    "path", ["/static/../http.py", "/static/", "/static/%2e%2e", "/x/static/a"]
)
def test_only_the_files_of_the_page_are_served(path: str) -> None:
    """No path leads out of them."""
    assert reply(path).status == 404


def test_a_query_of_many_fields_is_as_if_there_were_none() -> None:
    """Queries come from anywhere."""
    assert ConsoleRequest("GET", "/", "", "a=1&" * 1000, {}).fields == {}
    assert ConsoleRequest("GET", "/", "", "group=cached&page=%32", {}).fields == {
        "group": "cached",
        "page": "2",
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"id": 1, "seen": "a"}',
        b'{"id": "a", "seen": ""}',
        b"\xff",
        b'{"id": "a", "seen": "#12345678"}',
    ],
)
def test_a_release_that_makes_no_sense_is_none(body: bytes) -> None:
    """Neither is it guessed what was meant."""
    assert release_in(body) is None
    whole = json.dumps({"id": "a", "seen": "b"}).encode()
    assert release_in(whole) == ("a", "b")
