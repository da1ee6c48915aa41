"""What was submitted, in a few bytes: equal payloads have equal fingerprints."""

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

_TEXT = (decimal.Decimal, uuid.UUID, pathlib.PurePath)
_TIMES = (datetime.datetime, datetime.date, datetime.time)


def fingerprint(payload: object, secret: bytes = b"") -> bytes:
    """The same for equal payloads, whatever the order of their keys; 32 hex digits.

    With a *secret*, nobody without it can guess the payload from it. UsageError: a part of the
    payload is not data (a connection, a request, an open file …).
    """
    data = payload if isinstance(payload, bytes) else _canonical(payload)
    return hmac.digest(secret, data, hashlib.sha256)[:16].hex().encode()


def _canonical(payload: object) -> bytes:
    plain = _plain(payload)
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
        errors="surrogatepass"
    )


def _plain(value: Any) -> Any:
    """*value* in the words of JSON, each type so that no two different values look the same."""
    if value is None or isinstance(value, str | bool | int | float):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_key(key): _plain(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, set | frozenset):
        return {"set": sorted(_canonical(item).decode() for item in cast("Iterable[Any]", value))}
    return _leaf(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else f"{type(key).__name__}:{_plain(key)}"


def _leaf(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if isinstance(value, _TIMES):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, _TEXT):
        return str(value)
    return _model(value)


def _model(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump())
    kind = cast(Any, type(value))
    if dataclasses.is_dataclass(kind):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(kind)}
    if hasattr(kind, "__struct_fields__"):  # msgspec
        return {name: _plain(getattr(value, name)) for name in kind.__struct_fields__}
    raise UsageError(f"a payload is data; {kind.__name__} is not")
