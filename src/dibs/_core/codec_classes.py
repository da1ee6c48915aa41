"""Classes with fields ↔ JSON: dataclasses, named tuples, TypedDicts, pydantic, msgspec."""

import dataclasses
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from .codec_converters import (
    A_DICT,
    A_LIST,
    A_TUPLE,
    DICT,
    EVERY_KIND,
    LIST,
    ConversionError,
    Converter,
    Read,
    Unsupported,
    Write,
    conversion_error,
)
from .signatures import signature_of

FieldConverters = Mapping[str, Converter]
_AGAIN = "it does not come back from JSON as it is"


def _describe_class(name: str, fields: FieldConverters) -> str:
    return f"{name}({','.join(f'{field}:{each.text}' for field, each in fields.items())})"


def _error_within(fields: FieldConverters, part_of: Callable[[str], Any]) -> ConversionError | None:
    """Return which field it was; looked for when it has happened."""
    for name, field in fields.items():
        try:
            field.write(part_of(name))
        except ConversionError as error:
            return ConversionError(f"{name}: {error}")
        except AttributeError:
            return ConversionError(f"{name} is missing")
    return None


# ---- dataclasses


def is_dataclass(of: Any) -> bool:
    """Return True if the class, not an instance."""
    return isinstance(of, type) and dataclasses.is_dataclass(of)


def field_names(cls: Any) -> list[str]:
    """Return all of them, also those that `__init__` does not take."""
    return [field.name for field in dataclasses.fields(cls)]


def dataclass(cls: Any, name: str, fields: FieldConverters) -> Converter:
    """Its fields, by name. It is made again by its own `__init__`; other fields are set then.

    Unsupported: `__init__` needs more than the fields.
    """
    make = _instance_maker(cls, name, fields)
    put = _field_writer(cls, name, fields)

    def write(value: Any) -> Any:
        plain = put(value)
        if not is_certain:
            _check_again(plain, make, put)
        return plain

    is_certain = _is_generated(cls)
    text = _describe_class(name, fields)
    return Converter(name, text, put if is_certain else write, make, DICT, frozenset({cls}))


def _field_writer(cls: Any, name: str, fields: FieldConverters) -> Write:
    writers = [(field, each.write) for field, each in fields.items()]

    def write(value: Any) -> Any:
        if type(value) is not cls:
            raise _not_this_class(value, cls, name)
        try:
            return {field: write(getattr(value, field)) for field, write in writers}
        except (ConversionError, AttributeError) as error:
            raise _error_within(fields, lambda field: getattr(value, field)) or error from None

    return write


def _not_this_class(value: object, cls: type, name: str) -> ConversionError:
    error = conversion_error(value, name)
    return ConversionError(f"{error} itself; name both types") if isinstance(value, cls) else error


def _instance_maker(cls: Any, name: str, fields: FieldConverters) -> Read:
    given = [field.name for field in dataclasses.fields(cls) if field.init]
    positions = _positional_fields(cls, name, given)
    first = [(field, fields[field].read) for field in positions]
    named = [(field, fields[field].read) for field in given if field not in positions]
    later = [(field, each.read) for field, each in fields.items() if field not in given]

    def make(plain: Any) -> Any:
        if type(plain) is not A_DICT:
            raise conversion_error(plain, name)
        return cls(*[read(plain[field]) for field, read in first])

    def make_with_names(plain: Any) -> Any:
        if type(plain) is not A_DICT:
            raise conversion_error(plain, name)
        positional = [read(plain[field]) for field, read in first]
        value = cls(*positional, **{field: read(plain[field]) for field, read in named})
        for field, read in later:
            object.__setattr__(value, field, read(plain[field]))
        return value

    return make_with_names if named or later else make


def _positional_fields(cls: Any, name: str, given: list[str]) -> list[str]:
    """Return the fields that `__init__` takes in this order.

    Raises Unsupported if it does not take them all.
    """
    parameters = signature_of(cls).parameters.values()
    by_name = {
        each.name
        for each in parameters
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    needed = {
        each.name for each in parameters if each.name in by_name and each.default is each.empty
    }
    if not by_name >= set(given) or not needed <= set(given):
        raise Unsupported(f"{name} cannot be constructed from its fields alone")
    order = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return given if order[: len(given)] == given else []


def _is_generated(cls: Any) -> bool:
    """Return True if what makes it again sets the fields and does nothing else."""
    code = getattr(cls.__init__, "__code__", None)
    return not hasattr(cls, "__post_init__") and getattr(code, "co_filename", "") == "<string>"


def _check_again(plain: Any, make: Read, put: Write) -> None:
    """ConversionError: its `__init__` or `__post_init__` makes something else of the fields."""
    try:
        round_trip = put(make(plain))
    except Exception as error:
        raise ConversionError(f"{_AGAIN} ({type(error).__name__})") from None
    if repr(round_trip) != repr(plain):
        raise ConversionError(_AGAIN)


# ---- named tuples and TypedDicts


def is_named_tuple(of: Any) -> bool:
    """Return True for the class of a named tuple."""
    return isinstance(of, type) and issubclass(of, A_TUPLE) and hasattr(of, "_fields")


def named_tuple(cls: Any, name: str, fields: FieldConverters) -> Converter:
    """Return a list, as JSON makes of any tuple."""
    writers = [each.write for each in fields.values()]
    readers = [each.read for each in fields.values()]

    def write(value: Any) -> Any:
        if type(value) is not cls:
            raise conversion_error(value, name)
        try:
            return [convert(part) for convert, part in zip(writers, value, strict=True)]
        except ConversionError as error:
            raise _error_within(fields, lambda field: getattr(value, field)) or error from None

    def read(plain: Any) -> Any:
        if type(plain) is not A_LIST:
            raise conversion_error(plain, name)
        return cls._make([convert(part) for convert, part in zip(readers, plain, strict=True)])

    return Converter(name, _describe_class(name, fields), write, read, LIST, frozenset({cls}))


def typed_dict(name: str, fields: FieldConverters, required: frozenset[str]) -> Converter:
    """Return a dict with these keys and no others."""

    def convert(value: Any, by: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
        if type(value) is not A_DICT:
            raise conversion_error(value, name)
        if not required <= value.keys() <= fields.keys():
            raise ConversionError(f"{name} has other keys than this dict")
        return {field: by[field](part) for field, part in value.items()}

    def write(value: Any) -> Any:
        try:
            return convert(value, writers)
        except ConversionError as error:
            if type(value) is not A_DICT:
                raise
            present = {field: fields[field] for field in fields if field in value}
            raise _error_within(present, lambda field: value[field]) or error from None

    writers = {field: each.write for field, each in fields.items()}
    readers = {field: each.read for field, each in fields.items()}
    text = f"{_describe_class(name, fields)}!{','.join(sorted(required))}"
    is_plain = all(each.is_plain for each in fields.values())
    reading: Read = lambda plain: convert(plain, readers)  # noqa: E731
    return Converter(name, text, write, reading, DICT, frozenset({dict}), is_plain)


# ---- pydantic and msgspec: they know how


def is_pydantic(of: Any) -> bool:
    """Return True if a model, also of a library that is built on pydantic."""
    return isinstance(of, type) and hasattr(of, "model_validate") and hasattr(of, "model_dump")


def pydantic(cls: Any) -> Converter:
    """As pydantic writes JSON. What it would not read back equal is a ConversionError."""
    name = cls.__qualname__
    is_json_only = cls.model_config.get("strict") or "val_json_bytes" in cls.model_config

    def put(value: Any) -> Any:
        return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)

    def read(plain: Any) -> Any:
        # A strict model takes text for a date from JSON only.
        return (
            cls.model_validate_json(json.dumps(plain))
            if is_json_only
            else cls.model_validate(plain)
        )

    has_own_form = hasattr(cls, "__pydantic_root_model__") and cls.__pydantic_root_model__
    has_own_form = has_own_form or bool(cls.__pydantic_decorators__.model_serializers)
    kinds = EVERY_KIND if has_own_form else DICT
    text = f"{name}:{cls.model_json_schema()!r}"
    return Converter(name, text, _type_checked(cls, name, put, read), read, kinds, frozenset({cls}))


def is_struct(of: Any) -> bool:
    """Return True for the class of a msgspec struct."""
    return isinstance(of, type) and hasattr(of, "__struct_fields__")


def struct(of: Any, cls: Any, name: str) -> Converter:
    """As msgspec writes JSON. What it would not read back equal is a ConversionError."""
    import msgspec  # a struct was given, so it is installed

    def put(value: Any) -> Any:
        return msgspec.to_builtins(value, str_keys=True)

    def read(plain: Any) -> Any:
        return msgspec.convert(plain, of, str_keys=True)

    kinds = LIST if cls.__struct_config__.array_like else DICT
    text = f"{name}:{msgspec.json.schema(of)!r}"
    return Converter(name, text, _type_checked(cls, name, put, read), read, kinds, frozenset({cls}))


def _type_checked(cls: type, name: str, put: Write, read: Read) -> Write:
    def write(value: Any) -> Any:
        if type(value) is not cls:
            raise _not_this_class(value, cls, name)
        try:
            plain = put(value)
            round_trip = read(plain)
            is_same = _is_same(round_trip, value)
        except Exception as error:  # its text may hold the value
            raise ConversionError(f"{_AGAIN} ({type(error).__name__})") from None
        if not is_same:
            raise ConversionError(_AGAIN)
        return plain

    return write


def _is_same(one: Any, two: Any) -> bool:
    """Equal, with the type of every part; NaN is NaN, and what a model hides does not count.

    Not by `repr`: that of a secret is the same for every secret.
    """
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        pairs = cast("dict[Any, Any]", one)
        return list(pairs) == list(two) and all(_is_same(pairs[key], two[key]) for key in pairs)
    if isinstance(one, list | tuple | deque):
        items = cast("list[Any]", one)
        return len(items) == len(two) and all(map(_is_same, items, two))
    parts = _parts_of_model(one)
    if parts is not None:
        return _is_same(parts, _parts_of_model(two))
    return one == two or (one != one and two != two)


def _parts_of_model(value: Any) -> dict[str, Any] | None:
    """Return the fields of a model and what it has besides; None: it is no model."""
    cls = cast(Any, type(value))
    if is_pydantic(cls):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if is_struct(cls):
        return {name: getattr(value, name, None) for name in cls.__struct_fields__}
    return (
        {name: getattr(value, name, None) for name in field_names(cls)}
        if is_dataclass(cls)
        else None
    )
