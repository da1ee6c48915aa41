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

Parsers differ in which of two equal names they take. So what says who submits, where, or how the
body is read is refused if it comes twice: otherwise one person could get another's response.
"""

import base64
import binascii
import functools
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import parse_qsl
from uuid import UUID

from .._core.keys import canonical_json, digest, plain_text
from ..errors import UsageError
from .bodies import (
    LONG_TO_PARSE,
    MOST_FIELDS,
    Field,
    LongBody,
    fields_of_multipart,
    form_fields,
)
from .policy import GuardOptions, Policy, canonical_path, has_control_characters

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
_NO_CREDENTIAL = frozenset(
    (
        "", "0", "false", "nan", "nil", "none", "null", "object null", "object object",
        "object promise", "object undefined", "true", "undefined",
    )
)  # fmt: skip
"""What clients send for a person who has not logged in: a program has joined a missing token to its
scheme. In lower case, without the signs around it."""
_SIGNS_AROUND = re.compile(r"^\W+|\W+$")
_ONLY_ONCE = frozenset(("host", "authorization", "content-type"))
"""Headers of which two lines are ambiguous: who submits, where, and how the body is read."""
_WITHOUT_COMMAS = ("basic", "bearer", "dpop")
"""Schemes whose credential has no comma: with one, a server has joined two lines."""
_LOGIN_COOKIE = re.compile(
    r"(?:^|;)(?![^=;]*[cx]srf)[^=;]*(?:sess|sid|auth|token|jwt|login)", re.IGNORECASE
)
"""A cookie by whose name people seem to log in."""
_BARE_VALUE = re.compile(r"[!#-:<-\[\]-~]*")
_QUOTED_VALUE = re.compile(r'"((?:[ !#-:<-\[\]-~]|\\[ -~])*)"')
_COOKIE = re.compile(r'([^=;]*)=((?:\s*"(?:[^"\\]|\\.)*"\s*(?=;|$))|[^;]*)')
"""A cookie whose value may contain a semicolon in quotes."""


class RequestHeaders(dict[str, str]):
    """The headers of a request, by their names in lower case."""

    repeated: tuple[str, ...] = ()
    """Names that came in several lines, whose values are joined."""


def read_headers(lines: Iterable[tuple[str, str]]) -> RequestHeaders:
    """The headers in *lines* of names and values. HTTP/2 may split cookies."""
    headers = RequestHeaders()
    for given, value in lines:
        name = given.lower()
        if name in headers:
            joint = "; " if name == "cookie" else ", "
            headers[name] = f"{headers[name]}{joint}{value}"
            headers.repeated = (*headers.repeated, name)
        else:
            headers[name] = value
    return headers


class RequestFacts(NamedTuple):
    """What is known of a request before it is handled."""

    method: str
    route: str
    """The template of the route, for events: it holds no value of this request."""
    path: str
    query: str
    """The query string as it was sent, without the question mark."""
    headers: RequestHeaders
    body: bytes = b""
    """The whole body; empty if it is `long`, or was parsed into `fields`."""
    user: object = None
    """What the application says who submits; None and "": it does not know."""
    user_kind: str = "user"
    """Where `user` comes from, so that names from two sources are never equal."""
    path_fields: Mapping[str, object] = {}
    """The fields of the path, with the values that the endpoint gets."""
    place: str | None = None
    """What the router matched, see `routed_place`; None: not known, the path counts."""
    address: str | None = None
    """The address of the client."""
    long: LongBody | None = None
    """What is known of a body that is too long for memory."""
    fields: list[Field] | None = None
    """The fields and files of a form that the framework has parsed."""
    host: str | None = None
    """The host as the framework has it; None: the Host header."""

    @property
    def is_long_to_parse(self) -> bool:
        """True: what it submits is to be read beside the event loop."""
        return len(self.body) > LONG_TO_PARSE

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


Unknown = Literal["scheme", "cookie"]


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
    unknown: Unknown | None = None
    """What may say who submits, and does not identify the user."""


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


TIMED_OUT = InvalidRequest(
    "timeout", "The request body did not arrive in time. The request was not processed.", 408
)
NO_ROOM = InvalidRequest(
    "overloaded", "Too many long requests are being received. Try again soon.", 503
)


def too_large(limit: int) -> InvalidRequest:
    """The body is longer than the policy accepts."""
    return InvalidRequest("too-large", f"The request body exceeds {limit} bytes.", 413)


def ambiguous(what: str) -> InvalidRequest:
    """*what* came more than once, so its readers may disagree about it."""
    return InvalidRequest("ambiguous", f"{what} was sent more than once; send it once.")


_BAD_PATH = InvalidRequest("ambiguous", "The path contains a control character.")


def submission_of(
    policy: Policy,
    facts: RequestFacts,
    keys: list[str],
    options: GuardOptions[Any],
    secret: bytes | None = None,
) -> Submission | InvalidRequest | None:
    """The submission of this request; None: it is not guarded. *keys*: the lines of the header.

    All of it is hashed, keyed with *secret* (default: that of *options*): the store holds no
    personal data, and without the secret it cannot be tested who submitted what.
    """
    secret = options.key if secret is None else secret
    given = None if policy.key == "never" else read_key(policy, keys)
    if isinstance(given, InvalidRequest):
        return given
    if given is None and policy.key == "only":
        return None
    submitter = _submitter(policy, facts, options)
    if isinstance(submitter, InvalidRequest):
        return submitter
    user, client = submitter
    place = _place(facts)
    if isinstance(place, InvalidRequest):
        return place
    host = ""
    if options.per_host:
        host = options.host(facts.headers.get("host", "") if facts.host is None else facts.host)
    endpoint = _endpoint(options.service or "", host, facts.method, facts.route)
    accepted = facts.headers.get("accept-encoding")
    if given is not None:
        payload = _hashed(secret, facts.query, *_content(facts))
        key = _hashed(secret, endpoint, user, "key", place, given)
        unknown = None if user is not None else _unknown(policy, facts.headers)
        return Submission(key, payload, True, policy, accepted, unknown)
    if policy.by:
        selected = _Selected(user, place, facts)
        words = [word for path in policy.by for word in (path, *_chosen(path, selected))]
    else:
        words = [place, facts.query, *_content(facts)]
    kind = "by" if policy.by else "all"
    key = _hashed(secret, endpoint, user, client, kind, *words)
    keyless = policy.without_key(is_known=user is not None)
    unknown = None if user is not None else _unknown(keyless, facts.headers)
    return Submission(key, None, False, keyless, accepted, unknown)


def routed_place(template: str, fields: Mapping[str, object]) -> str:
    """The route that a router has matched, and the values of its fields.

    It stands for the path, which may be spelled in several ways: `07` and `7` are one number.
    """
    if not fields:
        return template
    return f"{template} {canonical_json({name: _text(value) for name, value in fields.items()})}"


def _place(facts: RequestFacts) -> str | InvalidRequest:
    """The place of the endpoint: what the router matched, or the path in one spelling."""
    if facts.place is not None:
        return facts.place
    if facts.path[:2] != "//" and facts.path.isprintable():
        return facts.path
    # Some routers accept `/orders` with a line feed. No client sends one by accident.
    return _BAD_PATH if has_control_characters(facts.path) else canonical_path(facts.path)


def _text(value: object) -> str:
    """*value* as text: of one route, equal texts are equal values."""
    if isinstance(value, Decimal):
        value = value.normalize()
    text = plain_text(value)
    return str(value) if text is None else text


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


def _submitter(
    policy: Policy, facts: RequestFacts, options: GuardOptions[Any]
) -> Submitter | InvalidRequest:
    """Who submits; or what was said twice."""
    headers = facts.headers
    for name in headers.repeated:
        if name in _ONLY_ONCE or (policy.by and f"header.{name}" in map(str.lower, policy.by)):
            return ambiguous(name)
    # Some servers join lines by commas; then the application sees them joined as well.
    if "," in headers.get("host", ""):
        return ambiguous("host")
    if "," in facts.media_type:
        return ambiguous("content-type")
    address, session_cookie = facts.address, options.session_cookie
    return identify(facts.user, headers, address, session_cookie, kind=facts.user_kind)


def identify(
    user: object,
    headers: Mapping[str, str],
    address: str | None,
    session_cookie: str | None = None,
    *,
    kind: str = "user",
) -> Submitter | InvalidRequest:
    """Who submits. *user*: what the application says; None and "" mean that it does not know.

    *kind*: where *user* comes from, so that names from two sources are never equal. UsageError:
    *user* is of a type that cannot identify a user.
    """
    scheme = credential = ""
    if authorization := headers.get("authorization", ""):
        scheme, _, credential = authorization.partition(" ")
        scheme, credential = scheme.lower(), credential.strip()
    if "," in credential and scheme in _WITHOUT_COMMAS:
        return ambiguous("authorization")
    if name := user if type(user) is str else _name(user):
        return Submitter(f"{kind} {name}", None)
    cookies = headers.get("cookie", "")
    if session_cookie is not None:
        session = session_value(cookies, session_cookie)
        if session is None:
            return ambiguous("The session cookie")
        if _is_credential("", session):
            return Submitter(f"session {session}", None)
    if scheme in _STABLE and _is_credential(scheme, credential):
        return Submitter(f"authorization {scheme} {credential}", None)
    # With their lengths: a cookie could contain another client's address.
    parts = (address or "", cookies, headers.get("user-agent", ""), authorization)
    return Submitter(None, "".join([f"{len(part)}:{part}" for part in parts]))


def _is_credential(scheme: str, text: str) -> bool:
    """Whether *text* belongs to one person: what stands for a missing value is the same for all."""
    if len(text) <= 24 and _SIGNS_AROUND.sub("", text).lower() in _NO_CREDENTIAL:
        return False
    return scheme != "basic" or not _is_empty_login(text)


def _is_empty_login(text: str) -> bool:
    """True: neither the user nor the password of a Basic credential has a value."""
    if len(text) > 64:
        return False
    try:
        user, _, password = base64.b64decode(text, validate=True).decode("latin-1").partition(":")
    except (ValueError, binascii.Error):
        return False
    return user.lower() in _NO_CREDENTIAL and password.lower() in _NO_CREDENTIAL


def _unknown(policy: Policy, headers: Mapping[str, str]) -> Unknown | None:
    """What may say who submits in a request whose user is not identified."""
    scheme = headers.get("authorization", "").partition(" ")[0]
    if scheme and scheme.lower() not in _STABLE:
        return "scheme"
    if policy.after != "replay" or not _LOGIN_COOKIE.search(headers.get("cookie", "")):
        return None
    return "cookie"


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


def session_value(cookies: str, name: str) -> str | None:
    """The value of the session cookie; "": there is none. None: its readers may disagree.

    Of two cookies with one name, some take the first and some the last. To some, a semicolon in
    quotes is text, or a space separates cookies.
    """
    if name not in cookies:
        return ""
    if cookies.count(name) == 1 and '"' not in cookies:
        before, _, after = cookies.partition(name)
        value = after[1:].partition(";")[0]
        is_plain = after[:1] == "=" and (not before or before[-2:] == "; ")
        if is_plain and _BARE_VALUE.fullmatch(value):
            return value
    pairs = [each.partition("=") for each in cookies.split(";")]
    named = [(each, value) for each, _, value in pairs if each.strip() == name]
    if any(each.strip(" \t") != name for each, _ in named):
        return None  # to some, other white space is a part of the name
    found = [value for _, value in named]
    if '"' in cookies:
        quoted = _COOKIE.findall(cookies)
        if found != [value for each, value in quoted if each.strip() == name]:
            return None
    if cookies.count(name) > len(found) and len(_cookie_named(name).findall(cookies)) > len(found):
        return None
    values = {_value(text) for text in found}
    return None if len(values) > 1 else values.pop() if values else ""


@functools.cache
def _cookie_named(name: str) -> re.Pattern[str]:
    return re.compile(rf'(?<![^\s;"]){re.escape(name)}(?=\s*(?:[=;]|$))')


def _value(text: str) -> str | None:
    """The value of a cookie without its quotes; None: its readers may disagree."""
    text = text.strip(" \t")
    if _BARE_VALUE.fullmatch(text):
        return text
    quoted = _QUOTED_VALUE.fullmatch(text)
    if quoted is None:
        return None
    return re.sub(r"\\(?:([0-3][0-7]{2})|(.))", _unescaped, quoted[1])


def _unescaped(escape: re.Match[str]) -> str:
    return escape[2] if escape[1] is None else chr(int(escape[1], 8))


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
        if facts.body.count(b"&") >= MOST_FIELDS:
            return None
        return _pairs(facts.body.decode("utf-8", "surrogateescape"))
    if media_type == "multipart/form-data":
        return fields_of_multipart(facts.headers["content-type"], facts.body)
    return None


def _pairs(text: str) -> list[Field]:
    return form_fields(parse_qsl(text, keep_blank_values=True, errors="surrogateescape"))


class _Selected(NamedTuple):
    """What `by=` can select from."""

    user: str | None
    place: str
    facts: RequestFacts


def _chosen(path: str, of: _Selected) -> tuple[str | bytes | None, ...]:
    """The value at *path*; of a body that cannot be parsed, all of it."""
    if path.partition(".")[0] == "body" and _is_opaque(of.facts):
        return _content(of.facts)
    return (_canonical(_look_up(path, of)),)


def _is_opaque(facts: RequestFacts) -> bool:
    """True: there is a body, and it has no fields that can be read."""
    has_body = bool(facts.body) or facts.long is not None
    return has_body and _fields(facts) is None and _json_body(facts) is None


def _look_up(path: str, of: _Selected) -> Any:
    """The value at *path*; None: it is missing or null."""
    root, *words = path.split(".")
    if root == "user":
        return of.user
    if root == "header":
        return of.facts.headers.get(".".join(words).lower())
    value: Any = of.place if root == "path" and not words else _tree(root, of.facts)
    for word in words:
        value = _step(value, word)
    return value


def _tree(root: str, facts: RequestFacts) -> Any:
    if root == "path":
        return {name: _text(value) for name, value in facts.path_fields.items()}
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
