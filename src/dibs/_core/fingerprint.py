"""Equal data, equal bytes: the canonical form of a value, and its fingerprint."""

import base64
import dataclasses
import datetime
import decimal
import enum
import hashlib
import hmac
import json
import pathlib
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..errors import UsageError

canonical_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode
"""JSON text that does not depend on the order of keys. RecursionError: nested too deeply."""

_TEXT = (decimal.Decimal, uuid.UUID, pathlib.PurePath)
_TIMES = (datetime.datetime, datetime.date, datetime.time)


def fingerprint(payload: object, secret: bytes = b"") -> bytes:
    """32 hex digits that are the same for equal payloads, whatever the order of their keys.

    With a *secret*, nobody without it can guess the payload from it. UsageError: a part of the
    payload is not data (a connection, a request, an open file …).
    """
    # No JSON begins with a ~, so bytes never equal the text, the number or the form they look like.
    is_raw = isinstance(payload, bytes | bytearray)
    return digest(secret, b"~" + payload if is_raw else _canonical(payload)).encode()


def digest(secret: bytes, data: bytes) -> str:
    """A hash of *data* that is keyed with *secret*: 32 hex digits."""
    return hmac.digest(secret, data, hashlib.sha256)[:16].hex()


def _canonical(payload: object) -> bytes:
    try:
        text = canonical_json(_plain(payload))
    except RecursionError:
        raise UsageError("the payload is nested too deeply") from None
    except UsageError:
        raise
    except ValueError:  # Python writes no number of more than 4300 digits
        raise UsageError("the payload contains a number with too many digits") from None
    return text.encode(errors="surrogatepass")


def _plain(value: Any) -> Any:
    """*value* in types that JSON has.

    What is serialized as text, as a number or as an object equals that: a UUID equals its text, a
    model its dict. What JSON cannot express (bytes, sets, keys that are not text) gets a key that
    begins with ~; keys of the caller that do so are escaped.
    """
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in _items(cast(Any, value))}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, set | frozenset):
        return {"~set": sorted(_text(item) for item in cast("Iterable[Any]", value))}
    return _leaf(value)


def _items(mapping: Any) -> Iterable[tuple[Any, Any]]:
    """Every pair: a form may have several values for one name, of which `items()` has only one."""
    if hasattr(mapping, "lists"):  # Django, Werkzeug
        return mapping.lists()
    if not hasattr(mapping, "multi_items"):
        return mapping.items()
    named: dict[Any, list[Any]] = {}
    for name, item in mapping.multi_items():  # Starlette, httpx
        named.setdefault(name, []).append(item)
    return named.items()


def _text(value: Any) -> str:
    return _canonical(value).decode(errors="surrogatepass")


def _key(key: Any) -> str:
    if isinstance(key, str) and not isinstance(key, enum.Enum):
        return f"~{key}" if key.startswith("~") else key
    return f"~{type(key).__name__}:{_text(key)}"


def _leaf(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"~bytes": base64.b64encode(value).decode()}
    if isinstance(value, _TIMES):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, _TEXT):
        return str(value)
    return _model(value)


def _model(value: Any) -> Any:
    kind = cast(Any, type(value))
    if hasattr(kind, "model_dump"):
        return _plain(value.model_dump())
    if dataclasses.is_dataclass(kind):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(kind)}
    if hasattr(kind, "__struct_fields__"):  # msgspec
        return {name: _plain(getattr(value, name)) for name in kind.__struct_fields__}
    raise UsageError(f"a payload must be data; {kind.__name__} is not")
