"""What a request submits: the facts of it, and the key under which it counts as the same."""

import hmac
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl

from ..errors import UsageError
from .forms import by_name, fields_of_multipart

if TYPE_CHECKING:
    from .policy import Policy

_print = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_ROOTS = ("user", "path", "query", "header", "body")
_MISSING: Any = None
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"')


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
    """All of it; of a very long one (`is_whole` is False) the beginning."""
    user: str | None
    """Who submits: whatever tells two people apart."""
    path_fields: Mapping[str, str] = {}
    is_whole: bool = True

    @property
    def kind(self) -> str:
        """The media type of the body, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_json(self) -> bool:
        """True: the body should be JSON."""
        return self.kind == "application/json" or self.kind.endswith("+json")


class Submission(NamedTuple):
    """Under which key a request counts as the same, and what must not differ."""

    key: str
    payload: str | None
    by_client: bool
    """The client named it."""


class KeyTrouble(NamedTuple):
    """The client was asked to name its submission, and did not, or not clearly."""

    kind: str
    sentence: str


def check_paths(paths: tuple[str, ...]) -> None:
    """UsageError: a path begins with something that a request does not have, or leads nowhere."""
    for path in paths:
        if path.partition(".")[0] not in _ROOTS:
            raise UsageError(f"by: {path!r} begins with none of {', '.join(_ROOTS)}")
        if "" in path.split(".") or path == "header":
            raise UsageError(f"by: {path!r} names nothing; write body.cart.id, header.x-tenant …")


def submission_of(
    policy: "Policy", facts: Facts, keys: list[str], secret: bytes
) -> Submission | KeyTrouble:
    """The key of this request. *keys*: what stood in the header, a line each.

    Everything in it went through a hash that is keyed with *secret*: the store holds no personal
    data, and nobody can try who submitted what.
    """
    given = None if policy.key == "never" else read_key(policy, keys)
    if isinstance(given, KeyTrouble):
        return given
    who = (secret, facts.method, facts.route, facts.user)
    if given is not None:
        payload = digest(secret, facts.query, _body(facts))
        return Submission(digest(*who, "key", facts.path, given), payload, True)
    if policy.by:
        chosen = [word for path in policy.by for word in (path, _chosen(path, facts))]
        return Submission(digest(*who, "by", *chosen), None, False)
    return Submission(digest(*who, "all", facts.path, facts.query, _body(facts)), None, False)


def digest(secret: bytes, *parts: str | bytes | None) -> str:
    """The same for the same parts, 32 hex digits. Each says how long it is: none runs over."""
    data = b"".join([_part(part) for part in parts])
    return hmac.digest(secret, data, "sha256")[:16].hex()


def _part(part: str | bytes | None) -> bytes:
    if part is None:
        return b"-"
    data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
    return b"%d:%b" % (len(data), data)


def read_key(policy: "Policy", keys: list[str]) -> str | KeyTrouble | None:
    """The client's key: `abc` and `"abc"` are the same; None: there is none, and need not be."""
    name = policy.header
    if not keys:
        if policy.key == "optional":
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


def _body(facts: Facts) -> str | bytes:
    """The body so that layout and order do not matter, where it is known how."""
    fields = _fields(facts)
    if fields is not None:
        body = _print(fields).encode()
    elif facts.is_json and facts.is_whole:
        return _flat(_json(facts.body)) or facts.body
    else:
        body = facts.body
    # What is not read may differ: its length is all that is known of it.
    return body if facts.is_whole else f"{facts.headers.get('content-length')} ".encode() + body


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


def _fields(facts: Facts) -> list[list[str]] | None:
    """The names and values of a form that are text, sorted by name; None: it is none."""
    if facts.kind == "application/x-www-form-urlencoded":
        return _pairs(facts.body.decode("utf-8", "surrogateescape"))
    if facts.kind == "multipart/form-data":
        kind = facts.headers["content-type"]
        return fields_of_multipart(kind, facts.body, is_whole=facts.is_whole)
    return None


def _pairs(text: str) -> list[list[str]]:
    pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape")
    return by_name([[name, value] for name, value in pairs])


def _chosen(path: str, facts: Facts) -> str | bytes | None:
    """What stands there; of a body that was not read to its end, all that is known."""
    if path.partition(".")[0] == "body" and not facts.is_whole:
        return _body(facts)
    return _flat(_look_up(path, facts))


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
    return _json(facts.body) if facts.is_json else _as_mapping(_fields(facts) or [])


def _as_mapping(pairs: list[list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _step(value: Any, word: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(word)
    if isinstance(value, list) and word.isdecimal() and int(word) < len(cast("list[Any]", value)):
        return cast("list[Any]", value)[int(word)]
    return _MISSING
