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
import functools
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from uuid import UUID

from .._core.keys import canonical_json, digest
from ..errors import UsageError
from .content import content_of, selected
from .facts import InvalidRequest, RequestFacts, ambiguous, endpoint_method, value_text
from .policy import GuardOptions, Policy, canonical_path, has_control_characters, without_end

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
_COOKIE = re.compile(r'(?:^|;)([^=;]*+)=((?:\s*"(?:[^"\\]|\\.)*"\s*(?=;|$))|[^;]*)')
"""A cookie whose value may contain a semicolon in quotes. It begins where one can: else a header
without any would be read again from each of its characters."""


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


def applied(policy: Policy, submission: Submission | InvalidRequest) -> Policy:
    """Return the policy by which the response ends the claim.

    A request without a key has another one.
    """
    return submission.policy if isinstance(submission, Submission) else policy


_BAD_HOST = InvalidRequest("ambiguous", "The host is malformed.")
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
        known = options.host(facts.headers.get("host", "") if facts.host is None else facts.host)
        if known is None:
            return _BAD_HOST
        host = known
    if facts.method == "HEAD":
        policy = policy.without_responses()
    method = endpoint_method(facts.method)
    endpoint = _endpoint(options.service or "", host, method, facts.route)
    accepted = facts.headers.get("accept-encoding")
    if given is not None:
        payload = _hashed(secret, facts.query, *content_of(facts))
        key = _hashed(secret, endpoint, user, "key", place, given)
        unknown = None if user is not None else _unknown(policy, facts.headers)
        return Submission(key, payload, True, policy, accepted, unknown)
    if policy.by:
        words = selected(policy.by, user, place, facts)
        if isinstance(words, InvalidRequest):
            return words
    else:
        words = [place, facts.query, *content_of(facts)]
    kind = "by" if policy.by else "all"
    key = _hashed(secret, endpoint, user, client, kind, *words)
    keyless = policy.without_key(is_known=user is not None)
    unknown = None if user is not None else _unknown(keyless, facts.headers)
    return Submission(key, None, False, keyless, accepted, unknown)


def routed_place(template: str, fields: Mapping[str, object]) -> str:
    """Return the route that a router has matched, and the values of its fields.

    It stands for the path, which may be spelled in several ways: `07` and `7` are one number.
    """
    if not fields:
        return template
    texts = {name: value_text(value) for name, value in fields.items()}
    return f"{template} {canonical_json(texts)}"


def _place(facts: RequestFacts) -> str | InvalidRequest:
    """Return the place of the endpoint: what the router matched, or the path in one spelling."""
    if facts.place is not None:
        return facts.place
    path = without_end(facts.path)
    if path[:2] != "//" and path.isprintable():
        return path
    # Some routers accept `/orders` with a line feed. No client sends one by accident.
    return _BAD_PATH if has_control_characters(path) else canonical_path(path)


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
    """Return the client's key: `abc` and `"abc"` are the same.

    None: there is none, and need not be.
    """
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
    """Return the lines of the key's header where the server has joined them by commas.

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
    """Return who submits; or what was said twice."""
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
        scheme, _, credential = authorization.strip().replace("\t", " ").partition(" ")
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
        if _is_credential(session):
            return Submitter(f"session {session}", None)
    if scheme in _STABLE and (login := _login(scheme, credential)):
        return Submitter(f"authorization {scheme} {login}", None)
    # With their lengths: a cookie could contain another client's address.
    parts = (address or "", cookies, headers.get("user-agent", ""), authorization)
    return Submitter(None, "".join([f"{len(part)}:{part}" for part in parts]))


def _is_credential(text: str) -> bool:
    """Return whether *text* belongs to one person.

    What stands for a missing value is the same for all.
    """
    return len(text) > 24 or _SIGNS_AROUND.sub("", text).lower() not in _NO_CREDENTIAL


def _login(scheme: str, credential: str) -> str:
    """Return a credential, with one text for one login; "": it belongs to nobody."""
    if not _is_credential(credential):
        return ""
    if scheme != "basic":
        return credential
    try:  # what is not of its alphabet is ignored, also by frameworks
        plain = base64.b64decode(credential).decode("latin-1")
    except ValueError:
        return credential
    user, _, password = plain.partition(":")
    return plain if _is_credential(user) or _is_credential(password) else ""


def _unknown(policy: Policy, headers: Mapping[str, str]) -> Unknown | None:
    """Return what may say who submits in a request whose user is not identified."""
    scheme = headers.get("authorization", "").replace("\t", " ").strip().partition(" ")[0]
    if scheme and scheme.lower() not in _STABLE:
        return "scheme"
    if policy.after != "replay" or not _LOGIN_COOKIE.search(headers.get("cookie", "")):
        return None
    return "cookie"


def _name(user: object) -> str:
    """Return *user* as text; "": not known. UsageError: *user* cannot identify a user.

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
    """Return the value of the session cookie; "": there is none. None: its readers may disagree.

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
    """Return the value of a cookie without its quotes; None: its readers may disagree."""
    text = text.strip(" \t")
    if _BARE_VALUE.fullmatch(text):
        return text
    quoted = _QUOTED_VALUE.fullmatch(text)
    if quoted is None:
        return None
    return re.sub(r"\\(?:([0-3][0-7]{2})|(.))", _unescaped, quoted[1])


def _unescaped(escape: re.Match[str]) -> str:
    return escape[2] if escape[1] is None else chr(int(escape[1], 8))
