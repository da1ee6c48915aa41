"""What a request submits: the facts of it, and the key under which it counts as the same."""

import functools
import hmac
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl

from ..errors import UsageError
from .bodies import LongBody
from .forms import Field, by_name, fields_of_multipart

if TYPE_CHECKING:
    from .policy import Policy

_print = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_ROOTS = ("user", "path", "query", "header", "body")
_MISSING: Any = None
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED = re.compile(
    r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"'
    # Parameters of a structured field (RFC 9651) are allowed, and mean nothing to us.
    r'(?: *; *[a-z*][-a-z0-9_.*]*(?:=(?:%?"(?:[^"\\]|\\["\\])*"|[!#-+\--:<-~]+))?)*'
)


class Facts(NamedTuple):
    """What is known of a request before anybody has worked on it."""

    method: str
    route: str
    """What the route is called, for people and events: no value of this request is in it."""
    path: str
    query: str
    """As it stands in the address, without the question mark."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """All of it; nothing, if it is `long`, or if it was read as `fields`."""
    user: str | None
    """Who submits; None: not known."""
    path_fields: Mapping[str, str] = {}
    client: str | None = None
    """What tells those apart who are not known."""
    long: LongBody | None = None
    """What is known of a body that is too long to be held in memory."""
    fields: list[Field] | None = None
    """The fields and files of a form that the framework has read."""
    service: str = ""
    host: str = ""

    @property
    def kind(self) -> str:
        """The media type of the body, without its parameters."""
        return _kind(self.headers.get("content-type", ""))

    @property
    def is_json(self) -> bool:
        """True: the body should be JSON."""
        kind = self.kind
        return kind == "application/json" or kind.endswith("+json")

    @property
    def is_coded(self) -> bool:
        """True: the body is compressed, so only whoever unpacks it knows what it says."""
        coding = self.headers.get("content-encoding")
        return coding is not None and coding.strip().lower() not in ("", "identity")


@functools.lru_cache(maxsize=256)
def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


class Submission(NamedTuple):
    """Under which key a request counts as the same, and what must not differ."""

    key: str
    payload: str | None
    by_client: bool
    """The client named it."""
    policy: "Policy"
    """What it is guarded by: with a client's key, or without one."""
    accepts: str | None = None
    """Which codings of an answer the client can read; None: it has not said."""


class KeyTrouble(NamedTuple):
    """The request cannot be told from others: its key is unclear, or it did not arrive whole."""

    kind: str
    sentence: str
    status: int = 400


INCOMPLETE = KeyTrouble("incomplete", "The request broke off before its end. Nothing was done.")


def too_large(limit: int) -> KeyTrouble:
    """The body is longer than the policy takes."""
    return KeyTrouble("too-large", f"This takes requests of {limit} bytes at most.", 413)


def check_paths(paths: tuple[str, ...]) -> None:
    """UsageError: a path begins with something that a request does not have, or leads nowhere."""
    for path in paths:
        if path.partition(".")[0] not in _ROOTS:
            raise UsageError(f"by: {path!r} begins with none of {', '.join(_ROOTS)}")
        if "" in path.split(".") or path == "header":
            raise UsageError(f"by: {path!r} names nothing; write body.cart.id, header.x-tenant …")


def submission_of(
    policy: "Policy", facts: Facts, keys: list[str], secret: bytes
) -> Submission | KeyTrouble | None:
    """The key of this request; None: it is not guarded. *keys*: the header, a line each.

    Everything in it went through a hash that is keyed with *secret*: the store holds no personal
    data, and nobody can try who submitted what.
    """
    given = None if policy.key == "never" else read_key(policy, keys)
    if isinstance(given, KeyTrouble):
        return given
    if given is None and policy.key == "only":
        return None
    place = _place(facts.service, facts.host, facts.method, facts.route)
    where = (secret, place, facts.user)
    accepts = facts.headers.get("accept-encoding")
    if given is not None:
        payload = digest(secret, facts.query, *_body(facts))
        key = digest(*where, "key", facts.path, given)
        return Submission(key, payload, True, policy, accepts)
    if policy.by:
        words = [word for path in policy.by for word in (path, *_chosen(path, facts))]
    else:
        words = [facts.path, facts.query, *_body(facts)]
    key = digest(*where, facts.client, "by" if policy.by else "all", *words)
    return Submission(
        key, None, False, policy.without_key(is_known=facts.user is not None), accepts
    )


def digest(secret: bytes, *parts: str | bytes | None) -> str:
    """The same for the same parts, 32 hex digits. Each says how long it is: none runs over."""
    data = b"".join([_part(part) for part in parts])
    return hmac.digest(secret, data, "sha256")[:16].hex()


@functools.lru_cache(maxsize=256)
def _place(*parts: str) -> bytes:
    """Which endpoint it is: there are few of them."""
    return b"".join([_part(part) for part in parts])


def _part(part: str | bytes | None) -> bytes:
    if part is None:
        return b"-"
    data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
    return b"%d:%b" % (len(data), data)


def read_key(policy: "Policy", keys: list[str]) -> str | KeyTrouble | None:
    """The client's key: `abc` and `"abc"` are the same; None: there is none, and need not be."""
    name = policy.header
    if not keys:
        if policy.key in ("optional", "only"):
            return None
        return KeyTrouble("key-missing", f"This request needs the header {name}.")
    if len(keys) > 1:
        return KeyTrouble("key-malformed", f"{name} must be sent once, not {len(keys)} times.")
    text = keys[0].strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if not _KEY.fullmatch(text) or '"' in text or "," in text:
        return KeyTrouble("key-malformed", f"{name} must be 1 to 255 visible ASCII characters.")
    return text


def is_quoted(text: str) -> bool:
    """True: it is one key in quotes."""
    return _QUOTED.fullmatch(text.strip()) is not None


# ---- what was submitted


def _body(facts: Facts) -> tuple[str, str | bytes]:
    """What kind of body it is, and what it says: layout and order do not matter, where it is
    known how. Kinds are apart: a form and a list of pairs in JSON are not the same.
    """
    fields = _fields(facts)
    if fields is not None:
        return "form", _print(fields)
    if facts.long is not None:
        return "long", facts.long.digest
    text = _flat(_said(facts))
    return ("raw", facts.body) if text is None else ("json", text)


def _said(facts: Facts) -> Any:
    """What a body of JSON says; None: it is none, or cannot be read."""
    return _json(facts.body) if facts.is_json and not facts.is_coded else None


def _json(body: bytes) -> Any:
    """What it says; None: nothing, or it is broken, or nested beyond reason."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _flat(data: Any) -> str | None:
    """As text that does not depend on the order of keys; None: nothing, or nested too deeply."""
    try:
        return None if data is None else _print(data)
    except RecursionError:
        return None


def _fields(facts: Facts) -> list[Field] | None:
    """The fields and files of a form, sorted by name; None: it is none, or a very long one."""
    if facts.fields is not None:
        return facts.fields
    if facts.is_coded:
        return None
    if facts.long is not None:
        return facts.long.fields
    kind = facts.kind
    if kind == "application/x-www-form-urlencoded":
        return _pairs(facts.body.decode("utf-8", "surrogateescape"))
    if kind == "multipart/form-data":
        return fields_of_multipart(facts.headers["content-type"], facts.body)
    return None


def _pairs(text: str) -> list[list[str]]:
    pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape")
    return by_name([[name, value] for name, value in pairs])


def _chosen(path: str, facts: Facts) -> tuple[str | bytes | None, ...]:
    """What stands there; of a body that cannot be looked into, all of it."""
    if path.partition(".")[0] == "body" and _is_opaque(facts):
        return _body(facts)
    return (_flat(_look_up(path, facts)),)


def _is_opaque(facts: Facts) -> bool:
    """True: there is a body, but no fields can be found in it."""
    has_body = bool(facts.body) or facts.long is not None
    return has_body and _fields(facts) is None and _said(facts) is None


def _look_up(path: str, facts: Facts) -> Any:
    """What a request lacks is None, like what it leaves empty."""
    root, *words = path.split(".")
    if root == "user":
        return facts.user
    if root == "header":
        return facts.headers.get(".".join(words).lower())
    value: Any = facts.path if root == "path" and not words else _tree(root, facts)
    for word in words:
        value = _step(value, word)
    return value


def _tree(root: str, facts: Facts) -> Any:
    if root == "path":
        return facts.path_fields
    if root == "query":
        return _as_mapping(_pairs(facts.query))
    fields = _fields(facts)
    return _said(facts) if fields is None else _as_mapping(fields)


def _as_mapping(fields: list[Field]) -> dict[str, Any]:
    """Names to values; a file's value is its name and its hash."""
    found: dict[str, list[Any]] = {}
    for name, *rest in fields:
        found.setdefault(name, []).append(rest[0] if len(rest) == 1 else rest)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _step(value: Any, word: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(word)
    if isinstance(value, list) and word.isdecimal() and int(word) < len(cast("list[Any]", value)):
        return cast("list[Any]", value)[int(word)]
    return _MISSING
