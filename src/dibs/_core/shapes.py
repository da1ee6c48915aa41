"""Types ↔ what JSON knows: dataclasses, pydantic models, msgspec structs, containers of them."""

import dataclasses
import datetime
import decimal
import enum
import hashlib
import types
import uuid
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import UsageError

_LEAVES: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    datetime.datetime: (lambda value: value.isoformat(), datetime.datetime.fromisoformat),
    datetime.date: (lambda value: value.isoformat(), datetime.date.fromisoformat),
    datetime.time: (lambda value: value.isoformat(), datetime.time.fromisoformat),
    datetime.timedelta: (
        lambda value: value.total_seconds(),
        lambda plain: datetime.timedelta(seconds=plain),
    ),
    decimal.Decimal: (str, decimal.Decimal),
    uuid.UUID: (str, uuid.UUID),
}
_SEQUENCES = (list, tuple, set, frozenset)


class Shape:
    """How values of one type become plain JSON and back."""

    def __init__(self, of: Any) -> None:
        self._of = of
        try:
            described = describe(of)
        except Exception as error:  # it names itself, or a name that exists for type checkers only
            said = f"{_name(of)} cannot be described ({type(error).__name__})"
            raise UsageError(f"{said}; pass another type= or codec=") from error
        self.fingerprint = hashlib.sha256(described.encode()).hexdigest()[:8]

    def to_plain(self, value: Any) -> Any:
        """*value* as dicts, lists, strings and numbers. UsageError: it is not of the type."""
        try:
            return _to_plain(self._of, value)
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"the loaded value is not a {_name(self._of)}: {error}") from None

    def from_plain(self, plain: Any) -> Any:
        """The value. Any exception means that *plain* is not of this shape."""
        return _from_plain(self._of, plain)


def says_more_than_json(of: Any) -> bool:
    """True: decoding should go through the type."""
    if _is_model(of) or of in _LEAVES or isinstance(of, enum.EnumMeta):
        return True
    if get_origin(of) in (tuple, set, frozenset):
        return True
    return any(says_more_than_json(part) for part in get_args(of) if not isinstance(part, str))


def returned_type(function: Callable[..., Any]) -> Any:
    """What *function* says it returns, where that says more than JSON; else None."""
    try:
        of = get_type_hints(function).get("return")
    except Exception:  # names that exist for type checkers only
        return None
    return of if of is not None and says_more_than_json(of) else None


def describe(of: Any) -> str:
    """The type as text that changes when its fields do."""
    if _is_pydantic(of):
        return repr(of.model_json_schema())
    if _is_struct(of):
        return f"{_name(of)}({_described(_struct_hints(of))})"
    if _is_dataclass(of):
        return f"{_name(of)}({_described(_hints(of))})"
    if isinstance(of, enum.EnumMeta):
        return f"{_name(of)}[{','.join(str(member.value) for member in of)}]"  # type: ignore[attr-defined]
    if get_args(of):
        return f"{get_origin(of)}[{','.join(describe(part) for part in get_args(of))}]"
    return _name(of)


def _described(hints: dict[str, Any]) -> str:
    return ",".join(f"{name}:{describe(hint)}" for name, hint in hints.items())


# ---- to plain


def _to_plain(of: Any, value: Any) -> Any:
    if value is None or of is Any:
        return value
    if _is_pydantic(of):
        return of.model_validate(value).model_dump(mode="json")
    if _is_struct(of):
        return _to_builtins(value)
    if _is_dataclass(of):
        return {name: _to_plain(hint, getattr(value, name)) for name, hint in _hints(of).items()}
    if of in _LEAVES:
        return _LEAVES[of][0](value)
    if isinstance(of, enum.EnumMeta):
        return value.value
    return _container_to_plain(of, value)


def _container_to_plain(of: Any, value: Any) -> Any:
    origin, args = get_origin(of), get_args(of)
    if origin in _SEQUENCES:
        return [_to_plain(part, item) for part, item in zip(_parts(of, value), value, strict=True)]
    if origin is dict:
        return {str(key): _to_plain(args[1], item) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        return _to_plain(_member(of, value), value)
    return value


# ---- from plain


def _from_plain(of: Any, plain: Any) -> Any:
    if of is Any or (plain is None and _may_be_none(of)):
        return plain
    if plain is None:
        raise TypeError(f"nothing is not {_name(of)}")
    if _is_pydantic(of):
        return of.model_validate(plain)
    if _is_struct(of):
        return _convert(plain, of)
    if _is_dataclass(of):
        return of(**{name: _from_plain(hint, plain[name]) for name, hint in _hints(of).items()})
    if of in _LEAVES:
        return _LEAVES[of][1](plain)
    if isinstance(of, enum.EnumMeta):
        make: Any = of
        return make(plain)
    return _container_from_plain(of, plain)


def _container_from_plain(of: Any, plain: Any) -> Any:
    origin, args = get_origin(of), get_args(of)
    if origin in _SEQUENCES:
        parts = _parts(of, plain)
        items = [_from_plain(part, item) for part, item in zip(parts, plain, strict=True)]
        make: Any = origin
        return make(items)
    if origin is dict:
        return {_key(args[0], key): _from_plain(args[1], item) for key, item in plain.items()}
    if origin in (Union, types.UnionType):
        return _first_that_fits(args, plain)
    if origin is Literal or isinstance(plain, _json_type(of)):
        return plain
    raise TypeError(f"{type(plain).__name__} is not {_name(of)}")


def _first_that_fits(members: tuple[Any, ...], plain: Any) -> Any:
    for member in members:
        try:
            return _from_plain(member, plain)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
    raise TypeError(f"{type(plain).__name__} fits none of the union")


def _key(of: Any, text: str) -> Any:
    return int(text) if of is int else _from_plain(of, text)


def _json_type(of: Any) -> Any:
    if of is float:
        return (int, float)
    return of if isinstance(of, type) else object


# ---- looking at types


def _parts(of: Any, values: Any) -> list[Any]:
    """The type of each item: `tuple[int, str]` has one for each, the others one for all."""
    args = get_args(of)
    if get_origin(of) is tuple and args[-1] is not Ellipsis:
        return list(args)
    return [args[0]] * len(values)


def _member(of: Any, value: Any) -> Any:
    """The member of a union that *value* is."""
    for member in get_args(of):
        if isinstance(value, get_origin(member) or member):
            return member
    raise TypeError(f"{type(value).__name__} is none of {of}")


def _may_be_none(of: Any) -> bool:
    return of is type(None) or type(None) in get_args(of)


def _hints(of: Any) -> dict[str, Any]:
    hints = get_type_hints(of)
    return {field.name: hints[field.name] for field in dataclasses.fields(of) if field.init}


def _struct_hints(of: Any) -> dict[str, Any]:
    hints = get_type_hints(of)
    return {name: hints[name] for name in of.__struct_fields__}


def _is_model(of: Any) -> bool:
    return _is_pydantic(of) or _is_struct(of) or _is_dataclass(of)


def _is_pydantic(of: Any) -> bool:
    return isinstance(of, type) and hasattr(of, "model_validate")


def _is_struct(of: Any) -> bool:
    return isinstance(of, type) and hasattr(of, "__struct_fields__")


def _is_dataclass(of: Any) -> Any:
    return isinstance(of, type) and dataclasses.is_dataclass(of) and not _is_pydantic(of)


def _name(of: Any) -> str:
    return getattr(of, "__qualname__", repr(of))


def _to_builtins(value: Any) -> Any:
    import msgspec  # a struct was given, so it is installed

    return msgspec.to_builtins(value, str_keys=True)


def _convert(plain: Any, of: Any) -> Any:
    import msgspec

    return msgspec.convert(plain, of, strict=False)
