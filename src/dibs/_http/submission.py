"""What a request submits: by whom, and under which key two requests are the same submission.

Who submits:
| what the request has | identity |
|---|---|
| `user=` returns a value | that value |
| the session cookie that the application named | its value |
| an Authorization header | its value, if its scheme is known to send the same one each time |
| none of these, but a client's key | none: key and payload decide |
| none of these, no key | address, cookies and browser: distinguishes clients, proves nothing |

The Cookie header as a whole is not an identity: any cookie may change between a request and its
retry. A client that is not identified can be refused, but never gets a stored response.
"""

import functools
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl
from uuid import UUID

from .._core.keys import canonical_json, digest
from ..errors import UsageError
from .bodies import Field, LongBody, fields_of_multipart, form_fields
from .policy import Policy

_MISSING: Any = None
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED = re.compile(
    r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"'
    # Parameters of a structured field (RFC 9651) are allowed, and ignored.
    r'(?: *; *[a-z*][-a-z0-9_.*]*(?:=(?:%?"(?:[^"\\]|\\["\\])*"|[!#-+\--:<-~]+))?)*'
)
_STABLE = frozenset(
    ("basic", "bearer", "dpop", "token", "jwt", "key", "apikey", "api-key", "x-api-key")
)
"""Authorization schemes whose header is the same for a request and its retry. With any other, such
as one that signs each request, a retry would be another user's, and run again."""
_NO_CREDENTIAL = ("", "null", "undefined")
"""What browsers send for a person who has not logged in: a script has joined a missing token to its
scheme."""


class RequestFacts(NamedTuple):
    """What is known of a request before it is handled."""

    method: str
    route: str
    """The template of the route, for events: it holds no value of this request."""
    path: str
    query: str
    """The query string as it was sent, without the question mark."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """The whole body; empty if it is `long`, or was parsed into `fields`."""
    user: str | None
    """Who submits; None: not identified."""
    path_fields: Mapping[str, str] = {}
    client: str | None = None
    """Tells clients apart that are not identified."""
    long: LongBody | None = None
    """What is known of a body that is too long for memory."""
    fields: list[Field] | None = None
    """The fields and files of a form that the framework has parsed."""
    service: str = ""
    host: str = ""

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters."""
        return _media_type(self.headers.get("content-type", ""))

    @property
    def is_json(self) -> bool:
        """True: the body is declared as JSON."""
        media_type = self.media_type
        return media_type == "application/json" or media_type.endswith("+json")

    @property
    def is_compressed(self) -> bool:
        """True: the body has a content coding, so its fields cannot be read here."""
        coding = self.headers.get("content-encoding")
        return coding is not None and coding.strip().lower() not in ("", "identity")


@functools.lru_cache(maxsize=256)
def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


class Submission(NamedTuple):
    """The key of a request, and the payload that must be the same under that key."""

    key: str
    payload: str | None
    by_client: bool
    """True: the client sent the key."""
    policy: Policy
    """The policy that applies: with a client's key, or without one."""
    accept_encoding: str | None = None
    """The codings that the client accepts; None: it did not say."""
    is_login_unknown: bool = False
    """True: there is an Authorization header that does not identify the user."""


class InvalidRequest(NamedTuple):
    """Why a request cannot be guarded: its key is malformed, or it did not arrive as a whole."""

    kind: str
    detail: str
    status: int = 400


def applied(policy: Policy, submission: Submission | InvalidRequest) -> Policy:
    """The policy by which the response ends the claim: a request without a key has another one."""
    return submission.policy if isinstance(submission, Submission) else policy


INCOMPLETE = InvalidRequest(
    "incomplete", "The request body is incomplete. The request was not processed."
)


def too_large(limit: int) -> InvalidRequest:
    """The body is longer than the policy accepts."""
    return InvalidRequest("too-large", f"The request body exceeds {limit} bytes.", 413)


def submission_of(
    policy: Policy, facts: RequestFacts, keys: list[str], secret: bytes
) -> Submission | InvalidRequest | None:
    """The submission of this request; None: it is not guarded. *keys*: the lines of the header.

    All of it is hashed, keyed with *secret*: the store holds no personal data, and without the
    secret it cannot be tested who submitted what.
    """
    given = None if policy.key == "never" else read_key(policy, keys)
    if isinstance(given, InvalidRequest):
        return given
    if given is None and policy.key == "only":
        return None
    endpoint = _endpoint(facts.service, facts.host, facts.method, facts.route)
    accepted = facts.headers.get("accept-encoding")
    is_unknown = facts.user is None and bool(facts.headers.get("authorization"))
    if given is not None:
        payload = _hashed(secret, facts.query, *_content(facts))
        key = _hashed(secret, endpoint, facts.user, "key", facts.path, given)
        return Submission(key, payload, True, policy, accepted, is_unknown)
    if policy.by:
        words = [word for path in policy.by for word in (path, *_chosen(path, facts))]
    else:
        words = [facts.path, facts.query, *_content(facts)]
    kind = "by" if policy.by else "all"
    key = _hashed(secret, endpoint, facts.user, facts.client, kind, *words)
    keyless = policy.without_key(is_known=facts.user is not None)
    return Submission(key, None, False, keyless, accepted, is_unknown)


def _hashed(secret: bytes, *parts: str | bytes | None) -> str:
    return digest(secret, b"".join([_with_length(part) for part in parts]))


@functools.lru_cache(maxsize=256)
def _endpoint(*parts: str) -> bytes:
    return b"".join([_with_length(part) for part in parts])


def _with_length(part: str | bytes | None) -> bytes:
    """Unambiguous when joined: each part begins with its length."""
    if part is None:
        return b"-"
    data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
    return b"%d:%b" % (len(data), data)


def read_key(policy: Policy, keys: list[str]) -> str | InvalidRequest | None:
    """The client's key: `abc` and `"abc"` are the same. None: there is none, and need not be."""
    name = policy.header
    if not keys:
        if policy.key in ("optional", "only"):
            return None
        return InvalidRequest("key-missing", f"The header {name} is required.")
    if len(keys) > 1:
        return InvalidRequest("key-malformed", f"{name} was sent {len(keys)} times; send it once.")
    text = keys[0].strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if not _KEY.fullmatch(text) or '"' in text or "," in text:
        return InvalidRequest("key-malformed", f"{name} must be 1 to 255 visible ASCII characters.")
    return text


def split_key_lines(lines: list[str]) -> list[str]:
    """The lines of the key's header where the server has joined them by commas.

    Only a quoted key may contain a comma, so joined lines can be distinguished from a single one.
    """
    return [part for line in lines for part in ([line] if _is_quoted(line) else line.split(","))]


def _is_quoted(text: str) -> bool:
    return _QUOTED.fullmatch(text.strip()) is not None


# ---- who submits


class Submitter(NamedTuple):
    """Who submits."""

    user: str | None
    """The user, as far as the application authenticates users; None: not identified."""
    client: str | None
    """Tells clients apart that are not identified."""


def identify(
    user: object,
    headers: Mapping[str, str],
    address: str | None,
    session_cookie: str | None = None,
    *,
    kind: str = "user",
) -> Submitter:
    """Who submits. *user*: what the application says; None and "" mean that it does not know.

    *kind*: where *user* comes from, so that names from two sources are never equal. UsageError:
    *user* is of a type that cannot identify a user.
    """
    if name := user if type(user) is str else _name(user):
        return Submitter(f"{kind} {name}", None)
    cookies = headers.get("cookie", "")
    if session_cookie is not None and (value := _cookie(cookies, session_cookie)):
        return Submitter(f"session {value}", None)
    authorization = headers.get("authorization", "")
    if _is_login(authorization):
        return Submitter(f"authorization {authorization}", None)
    # With their lengths: a cookie could contain another client's address.
    parts = (address or "", cookies, headers.get("user-agent", ""), authorization)
    return Submitter(None, "".join([f"{len(part)}:{part}" for part in parts]))


def _is_login(authorization: str) -> bool:
    """Whether the header identifies its user. Without a credential it is the same for all."""
    scheme, _, credential = authorization.partition(" ")
    return scheme.lower() in _STABLE and credential.strip().lower() not in _NO_CREDENTIAL


def _name(user: object) -> str:
    """*user* as text; "": not known. UsageError: *user* cannot identify a user.

    The text of an arbitrary object may be the same for several people, or differ for each request:
    one would get the response of another, or a retry would run again.
    """
    if user is None:
        return ""
    if isinstance(user, bytes):  # a header of ASGI
        return user.decode("latin-1")
    if isinstance(user, bool) or not isinstance(user, str | int | UUID):
        kind = type(user).__name__
        raise UsageError(f"user must be a string, bytes, an int, a UUID or None, not {kind}")
    return str(user)


def _cookie(cookies: str, name: str) -> str:
    for pair in cookies.split(";"):
        cookie, _, value = pair.partition("=")
        if cookie.strip() == name and value.strip():
            return value.strip()
    return ""


# ---- the payload


def _content(facts: RequestFacts) -> tuple[str, str | bytes]:
    """The format of the body, and its content independent of layout and order, if it is known how.

    Formats are apart: a form and a list of pairs in JSON are not the same.
    """
    fields = _fields(facts)
    if fields is not None:
        return "form", canonical_json(fields)
    if facts.long is not None:
        return "long", facts.long.digest
    text = _canonical(_json_body(facts))
    return ("raw", facts.body) if text is None else ("json", text)


def _json_body(facts: RequestFacts) -> Any:
    """The data of a JSON body; None: it is not JSON, or invalid, or nested too deeply."""
    if not facts.is_json or facts.is_compressed:
        return None
    try:
        text = facts.body.decode(json.detect_encoding(facts.body), "surrogatepass")
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _float(text: str) -> float | dict[str, str]:
    """A float, or the digits where a float has too few: two amounts may differ in the last one."""
    number = float(text)
    try:
        is_exact = repr(number) == text or Decimal(repr(number)) == Decimal(text)
    except ArithmeticError:  # an exponent that not even a Decimal can hold
        is_exact = False
    return number if is_exact else {"~number": text}


_DECODER = json.JSONDecoder(parse_float=_float)


def _canonical(data: Any) -> str | None:
    """As JSON with sorted keys; None: there is no data, or it is nested too deeply."""
    try:
        return None if data is None else canonical_json(data)
    except RecursionError:
        return None


def _fields(facts: RequestFacts) -> list[Field] | None:
    """The fields and files of a form, sorted by name; None: not a form, or too long to parse."""
    if facts.fields is not None:
        return facts.fields
    if facts.is_compressed:
        return None
    if facts.long is not None:
        return facts.long.fields
    media_type = facts.media_type
    if media_type == "application/x-www-form-urlencoded":
        return _pairs(facts.body.decode("utf-8", "surrogateescape"))
    if media_type == "multipart/form-data":
        return fields_of_multipart(facts.headers["content-type"], facts.body)
    return None


def _pairs(text: str) -> list[Field]:
    return form_fields(parse_qsl(text, keep_blank_values=True, errors="surrogateescape"))


def _chosen(path: str, facts: RequestFacts) -> tuple[str | bytes | None, ...]:
    """The value at *path*; of a body that cannot be parsed, all of it."""
    if path.partition(".")[0] == "body" and _is_opaque(facts):
        return _content(facts)
    return (_canonical(_look_up(path, facts)),)


def _is_opaque(facts: RequestFacts) -> bool:
    """True: there is a body, and it has no fields that can be read."""
    has_body = bool(facts.body) or facts.long is not None
    return has_body and _fields(facts) is None and _json_body(facts) is None


def _look_up(path: str, facts: RequestFacts) -> Any:
    """The value at *path*; None: it is missing or null."""
    root, *words = path.split(".")
    if root == "user":
        return facts.user
    if root == "header":
        return facts.headers.get(".".join(words).lower())
    value: Any = facts.path if root == "path" and not words else _tree(root, facts)
    for word in words:
        value = _step(value, word)
    return value


def _tree(root: str, facts: RequestFacts) -> Any:
    if root == "path":
        return facts.path_fields
    if root == "query":
        return _as_mapping(_pairs(facts.query))
    fields = _fields(facts)
    return _json_body(facts) if fields is None else _as_mapping(fields)


def _as_mapping(fields: list[Field]) -> dict[str, Any]:
    """Names to values; the value of a file is its name and its hash."""
    groups: dict[str, list[Any]] = {}
    for name, *rest in fields:
        groups.setdefault(name, []).append(rest[0] if len(rest) == 1 else rest)
    return {name: values[0] if len(values) == 1 else values for name, values in groups.items()}


def _step(value: Any, word: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(word)
    if isinstance(value, list) and word.isdecimal() and int(word) < len(cast("list[Any]", value)):
        return cast("list[Any]", value)[int(word)]
    return _MISSING
