"""Requests and responses of the console, without I/O: routes, headers, rights, refusals."""

import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from .._internal_api import shorten
from .._key_texts import Facts, advice, listed, next_steps
from ..errors import UsageError

HOST: Literal["host"] = "host"
AccessRule = Callable[[Any], bool | Awaitable[bool]] | Literal["host"]
"""A function of the request that returns a bool, or "host": the application around the console
has decided before the request comes here."""


class Rights(NamedTuple):
    """What one request may do."""

    read: bool
    release: bool = False
    keys: bool = False


class Rules(NamedTuple):
    """The application's rules; None: no one."""

    read: AccessRule
    release: AccessRule | None
    keys: AccessRule | None


def checked_rules(allow: object, allow_release: object, allow_keys: object) -> Rules:
    """Return the rules.

    Raises UsageError if one is neither a function nor "host", or `allow` is missing.
    """
    return Rules(
        _checked_rule("allow", allow),
        None if allow_release is None else _checked_rule("allow_release", allow_release),
        None if allow_keys is None else _checked_rule("allow_keys", allow_keys),
    )


def _checked_rule(what: str, rule: Any) -> Any:
    if rule == HOST or callable(rule):
        return rule
    raise UsageError(
        f"{what} must be a function of the request that returns a bool, or {HOST!r} if the"
        f" application around the console decides who may see it; not {rule!r}"
    )


def asked(rule: AccessRule | None, request: object) -> Any:
    """The answer of *rule*, or an awaitable of it. None: False. "host": True."""
    if rule is None:
        return False
    return True if isinstance(rule, str) else rule(request)


def decided(answer: object) -> bool:
    """The answer of a rule. UsageError: it is not a bool.

    An object is not taken for a yes: a user who is not logged in is an object, too.
    """
    if isinstance(answer, bool):
        return answer
    raise UsageError(f"a rule must return True or False, not {type(answer).__name__}")


COOKIE = "dibs_console"
HEADER = "x-dibs-console"
"""A POST repeats the cookie here; no form, and no page of another origin, can send it."""
LONGEST_BODY = 4096

HTML = "text/html; charset=utf-8"
JSON = "application/json"

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", _CSP),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_ASSETS = {
    "console.css": "text/css; charset=utf-8",
    **dict.fromkeys(
        ("console.js", "dom.js", "facts.js", "process.js", "server.js"),
        "text/javascript; charset=utf-8",
    ),
    "icon.svg": "image/svg+xml",
}
_TOKEN = re.compile(r"[0-9a-f]{32}")


class ConsoleRequest(NamedTuple):
    """What the console reads of a request."""

    method: str
    path: str
    """Below the place where the console is mounted."""
    root: str
    """Where it is mounted: "" or "/dibs"."""
    query: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    is_https: bool = False

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the query string."""
        try:
            return dict(parse_qsl(self.query, max_num_fields=20))
        except ValueError:  # more fields than any view has
            return {}

    @property
    def cookie(self) -> str | None:
        """The token of this browser, if it has one."""
        for part in self.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE and _TOKEN.fullmatch(value):
                return value
        return None


class ConsoleResponse(NamedTuple):
    """What is sent back."""

    status: int
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    more: tuple[tuple[str, str], ...] = ()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """All of them; the same protections on every response."""
        length = ("Content-Length", str(len(self.body)))
        return [("Content-Type", self.kind), length, *_ALWAYS, *self.more]


def sentence(status: int, text: str, *more: tuple[str, str]) -> ConsoleResponse:
    """Return a plain text."""
    return ConsoleResponse(status, f"{text}\n".encode(), more=more)


def json_response(status: int, value: Mapping[str, Any], *more: tuple[str, str]) -> ConsoleResponse:
    """Return *value* as JSON."""
    return ConsoleResponse(status, json_bytes(value), JSON, more)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return *value* as JSON, on one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


# ---- routes

STATE, RELEASE, WHY = "/api/state", "/api/release", "/api/why"

FORBIDDEN = sentence(403, "You may not see this page.")
NOT_FOUND = sentence(404, "There is no such page.")
FOREIGN = json_response(403, {"error": "This request came from another site."})


def respond(request: ConsoleRequest, *, new_token: str) -> ConsoleResponse | None:
    """Return the response to *request*; None: it needs data.

    *new_token*: for a browser without one.
    """
    path = request.path
    if path in (STATE, RELEASE, WHY):
        return _refused_request(request)
    if request.method not in ("GET", "HEAD"):
        return sentence(405, "This page can only be read.", ("Allow", "GET, HEAD"))
    if path == "" and request.root:
        # Relative, so that it is right behind any proxy; the page's own addresses need the slash.
        return ConsoleResponse(
            307, more=(("Location", quote(request.root.rsplit("/", 1)[-1]) + "/"),)
        )
    if path in ("", "/"):
        return _console_page(request, new_token=new_token)
    return (
        _asset_response(path.removeprefix("/static/")) if path.startswith("/static/") else NOT_FOUND
    )


def _refused_request(request: ConsoleRequest) -> ConsoleResponse | None:
    """Return why the data is not for this request.

    None: it is, as far as the request itself tells.
    """
    expected = ("POST",) if request.path == RELEASE else ("GET",)
    if request.method not in expected:
        return sentence(405, "This method is not allowed.", ("Allow", expected[0]))
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return FOREIGN
    return None if request.method == "GET" or _is_own(request) else FOREIGN


def _is_own(request: ConsoleRequest) -> bool:
    """Return whether a POST was sent by our own page.

    Same origin, and it knows the browser's token.
    """
    headers, cookie = request.headers, request.cookie
    given = headers.get(HEADER, "")
    if cookie is None or not hmac.compare_digest(given.encode(), cookie.encode()):
        return False
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        return False
    if "sec-fetch-site" in headers:
        return headers["sec-fetch-site"] == "same-origin"
    origin, host = headers.get("origin", ""), headers.get("host", "")
    return bool(host) and urlsplit(origin).netloc.lower() == host.lower()


def _console_page(request: ConsoleRequest, *, new_token: str) -> ConsoleResponse:
    page = _static_file("console.html")
    if request.cookie is not None:
        return ConsoleResponse(200, page, HTML)
    secure = "; Secure" if request.is_https else ""
    # Without a path: the browser takes that of the page, which a proxy may know alone.
    cookie = f"{COOKIE}={new_token}; HttpOnly; SameSite=Strict{secure}"
    return ConsoleResponse(200, page, HTML, (("Set-Cookie", cookie),))


def _asset_response(name: str) -> ConsoleResponse:
    kind = _ASSETS.get(name)
    return NOT_FOUND if kind is None else ConsoleResponse(200, _static_file(name), kind)


@cache
def _static_file(name: str) -> bytes:
    return (files("dibs.console") / "static" / name).read_bytes()


# ---- releasing


class Release(NamedTuple):
    """What a viewer wants released."""

    row_id: str
    seen: str
    """Which holding of the key was shown."""


def release_in(body: bytes) -> Release | None:
    """Return what the body of a POST asks for; None: it makes no sense."""
    try:
        value = json.loads(body)
        row_id, seen = value["id"], value["seen"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_text = isinstance(row_id, str) and isinstance(seen, str)
    # A hint with # is that of a value that dibs did not write: not to be deleted from here.
    is_ours = is_text and 0 < len(seen) <= 100 and not seen.startswith("#")
    return Release(row_id, seen) if is_ours else None


def wanted_release(body: bytes, *, is_allowed: bool) -> Release | ConsoleResponse:
    """Return what is to be released; or the refusal."""
    release = release_in(body)
    if not is_allowed:
        return json_response(403, {"error": "You may not release."})
    return release or json_response(400, {"error": "The request is malformed."})


def released(outcome: str) -> ConsoleResponse:
    """The answer to a release."""
    answers = {
        "released": (200, "Released."),
        "free": (409, "It is free already. Nothing was changed."),
        "other": (409, "It has another holder now, or was completed. Nothing was changed."),
        "lost": (409, "It was not found again. Nothing was changed."),
    }
    status, text = answers[outcome]
    return json_response(status, {"outcome": outcome, "said": text})


# ---- why


def explained(reason: Facts | None, *, keys: bool) -> ConsoleResponse:
    """Return why a key is as it is, as `dibs why` says it. *keys*: whole keys and notes."""
    if reason is None:
        return json_response(404, {"error": "It no longer exists."})
    if not keys:
        reason = reason._replace(place=reason.place._replace(key=shorten(reason.place.key)))
    texts = advice(reason)
    if not keys:  # a command with a shortened key does nothing
        texts = [text for text in texts if "`dibs " not in text]
    return json_response(200, {
        "key": reason.place.key, "facts": listed(reason, whole=keys),
        "next": next_steps(reason), "advice": texts,
    })  # fmt: skip
