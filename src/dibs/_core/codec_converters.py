"""One type ↔ what JSON knows: a writer and a reader, composed once from those of its parts.

A writer takes exactly the values that its reader makes again, with their type; everything else is
a ConversionError. Nothing is guessed when reading.
"""

import base64
import datetime
import decimal
import enum
import json
import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

Write = Callable[[Any], Any]
Read = Callable[[Any], Any]

NOTHING: Any = type(None)
A_LIST: Any = list  # of Any: a type checker would not know its items
A_DICT: Any = dict
A_TUPLE: Any = tuple
NULL: frozenset[type] = frozenset({NOTHING})
TEXT: frozenset[type] = frozenset({str})
LIST: frozenset[type] = frozenset({list})
DICT: frozenset[type] = frozenset({dict})
_ATOMS: frozenset[type] = frozenset({NOTHING, bool, int, float, str})
EVERY_KIND: frozenset[type] = frozenset({NOTHING, bool, int, float, str, list, dict})

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_load = json.JSONDecoder().decode


class ConversionError(TypeError):
    """A value is not of its type. Says which types and where, never the value."""


class Unsupported(TypeError):
    """Values of this type cannot be kept as JSON."""


class Converter(NamedTuple):
    """How values of one type are written and read."""

    name: str
    """For people, and for the member of a union."""
    text: str
    """The type in full: another text is another stored form."""
    write: Write
    """What JSON can hold. ConversionError: the value would not come back as it is."""
    read: Read
    """The value. Any exception: this was not written by `write`."""
    kinds: frozenset[type]
    """The JSON types that `write` may return."""
    types: frozenset[type] | None
    """The types, exactly, that `write` may accept; None: any."""
    is_plain: bool = False
    """True: what is written is the value itself."""
    scalars: frozenset[type] = frozenset()
    """For a plain text, number, boolean or None: its types. A type is all there is to check."""


def _type_of(value: object) -> type:
    return type(value)


def conversion_error(value: object, name: str) -> ConversionError:
    """*value* is not a *name*."""
    return ConversionError(f"{type(value).__name__} is not {name}")


# ---- text, numbers, booleans, None, and whatever JSON holds


def _scalar_converter(name: str, *types: type) -> Converter:
    kinds = frozenset(types)

    def check(value: Any) -> Any:
        if type(value) in kinds:
            return value
        raise conversion_error(value, name)

    return Converter(name, name, check, check, kinds, kinds, is_plain=True, scalars=kinds)


def _json_with_text_keys(value: Any) -> Any:
    """Return *value*, where every key in it is text: JSON would make text of others, for good."""
    if type(value) not in _ATOMS:
        _check_keys(value)
    return value


def _check_keys(value: object) -> None:
    if isinstance(value, dict):
        mapping = cast("dict[object, object]", value)
        if not TEXT.issuperset(map(type, mapping)):
            _check_text(mapping)
        parts: Iterable[object] = mapping.values()
    else:
        parts = cast("Iterable[object]", value) if isinstance(value, list | tuple) else ()
    if _ATOMS.issuperset(map(type, parts)):
        return
    for part in parts:
        if type(part) not in _ATOMS:
            _check_keys(part)


def _check_text(keys: Iterable[object]) -> None:
    for key in keys:
        if not isinstance(key, str):
            name = type(key).__name__
            message = f"a key of type {name} is read back as text"
            raise ConversionError(f"{message}; annotate the type, such as dict[{name}, …]")


def _same_value(plain: Any) -> Any:
    return plain


class JsonValue:
    """Stands for an annotation that cannot be resolved: what JSON alone gives back as it was."""


def _exact_json(value: Any) -> Any:
    """Return *value*, where every part of it is of a type that JSON has."""
    kind = _type_of(value)
    if kind in _ATOMS:
        return value
    parts: Iterable[Any] = ()
    if kind is A_LIST:
        parts = value
    elif kind is A_DICT and TEXT.issuperset(map(type, value)):
        parts = value.values()
    else:
        message = f"{kind.__name__} is read back as another type"
        raise ConversionError(
            f"{message}, and the return annotation cannot be resolved; pass type="
        )
    for part in parts:
        _exact_json(part)
    return value


ANYTHING = Converter(
    "Any", "Any", _json_with_text_keys, _same_value, EVERY_KIND, None, is_plain=True
)
SCALARS: dict[Any, Converter] = {
    str: _scalar_converter("str", str),
    int: _scalar_converter("int", int, bool),
    float: _scalar_converter("float", float, int),
    bool: _scalar_converter("bool", bool),
    None: _scalar_converter("None", NOTHING),
    NOTHING: _scalar_converter("None", NOTHING),
}


# ---- dates, numbers, ids, bytes: text


def _leaf_converter(cls: Any, write: Write, read: Read, kinds: frozenset[type] = TEXT) -> Converter:
    name = cls.__name__

    def checked_write(value: Any) -> Any:
        if type(value) is cls:
            return write(value)
        raise conversion_error(value, name)

    def checked_read(plain: Any) -> Any:
        if type(plain) in kinds:
            return read(plain)
        raise conversion_error(plain, name)

    return Converter(name, name, checked_write, checked_read, kinds, frozenset({cls}))


_FOLD = " fold=1"


def _moment_text(value: Any) -> str:
    """ISO 8601. An offset that is not known without a date would be lost."""
    if value.tzinfo is not None and value.utcoffset() is None:
        raise ConversionError(
            f"a {type(value).__name__} whose offset is not known would lose its zone"
        )
    return value.isoformat() + _FOLD if value.fold else value.isoformat()


def _reading_moment(cls: Any) -> Read:
    """ISO 8601 has no word for the second pass through an hour when clocks are set back."""

    def read(plain: str) -> Any:
        if plain.endswith(_FOLD):
            return cls.fromisoformat(plain.removesuffix(_FOLD)).replace(fold=1)
        return cls.fromisoformat(plain)

    return read


def _duration_value(value: datetime.timedelta) -> Any:
    """Return seconds; days, seconds and microseconds where a float would not be exact."""
    total = value.total_seconds()
    if abs(value.days) < 999_999_999 and datetime.timedelta(seconds=total) == value:
        return total
    return [value.days, value.seconds, value.microseconds]


def _read_duration(plain: Any) -> datetime.timedelta:
    days, seconds, microseconds = plain if type(plain) is A_LIST else (0, plain, 0)
    return datetime.timedelta(days, seconds, microseconds)


def _base64_text(value: Any) -> str:
    return base64.b64encode(value).decode()


def _read_base64(plain: str) -> bytes:
    return base64.b64decode(plain, validate=True)


LEAVES: dict[Any, Converter] = {
    datetime.datetime: _leaf_converter(
        datetime.datetime, _moment_text, _reading_moment(datetime.datetime)
    ),
    datetime.date: _leaf_converter(
        datetime.date, lambda value: value.isoformat(), datetime.date.fromisoformat
    ),
    datetime.time: _leaf_converter(datetime.time, _moment_text, _reading_moment(datetime.time)),
    datetime.timedelta: _leaf_converter(
        datetime.timedelta, _duration_value, _read_duration, frozenset({int, float, list})
    ),
    decimal.Decimal: _leaf_converter(decimal.Decimal, str, decimal.Decimal),
    uuid.UUID: _leaf_converter(uuid.UUID, str, uuid.UUID),
    bytes: _leaf_converter(bytes, _base64_text, _read_base64),
    bytearray: _leaf_converter(
        bytearray, _base64_text, lambda plain: bytearray(_read_base64(plain))
    ),
    JsonValue: Converter("JsonValue", "JsonValue", _exact_json, _same_value, EVERY_KIND, None),
}


# ---- enums and literals


def enumeration(cls: Any) -> Converter:
    """By value, where all values are text or whole numbers; else by name."""
    name, members = cls.__qualname__, cast("dict[str, Any]", dict(cls.__members__))
    if all(type(member.value) in (str, int) for member in members.values()):
        plain = [(member.value, member) for member in members.values()]
        write: Write = lambda member: member.value  # noqa: E731
    else:
        plain = [(word, member) for word, member in members.items()]
        write = lambda member: member.name  # noqa: E731
    kinds = frozenset(_type_of(word) for word, _ in plain)
    known = dict(plain)
    # Of flags there are more than have a name; what is not known is refused by the class.
    read = cls if issubclass(cls, enum.Flag) and kinds == frozenset({int}) else known.__getitem__
    text = f"{name}[{','.join(f'{member.name}={word!r}' for word, member in plain)}]"
    return _leaf_converter(cls, write, read, kinds)._replace(name=name, text=text)


def literal(values: tuple[Any, ...]) -> Converter:
    """Return the value itself, where JSON has words for all of them; else which one it is."""
    name = f"Literal[{', '.join(map(repr, values))}]"
    types = frozenset(map(_type_of, values))
    known = {(_type_of(value), value): number for number, value in enumerate(values)}

    def place(value: Any) -> int:
        number = known.get((_type_of(value), value)) if type(value) in types else None
        if number is None:
            raise conversion_error(value, name)
        return number

    if types <= SCALARS.keys():
        check: Write = lambda value: values[place(value)]  # noqa: E731
        return Converter(name, name, check, check, types, types, is_plain=True)
    return Converter(name, name, place, _nth_reader(values), frozenset({int}), types)


def _nth_reader(values: tuple[Any, ...]) -> Read:
    return dict(enumerate(values)).__getitem__


# ---- containers


def sequence(cls: type, item: Converter) -> Converter:
    """Return a list, tuple, set, frozenset or deque of one type of item; in JSON a list."""
    name, make = cls.__name__, cast(Any, cls)
    is_list = cls is list

    def write(value: Any) -> Any:
        if type(value) is not cls:
            raise conversion_error(value, name)
        if getattr(value, "maxlen", None) is not None:
            raise ConversionError("a deque would lose its maxlen")
        return write_items(value)

    def read(plain: Any) -> Any:
        if type(plain) is not A_LIST:
            raise conversion_error(plain, name)
        return read_items(plain) if is_list else make(read_items(plain))

    write_items, read_items = _each_item(item.write, item), _each_item(item.read, item)
    is_plain = is_list and item.is_plain
    named = (f"{name}[{item.name}]", f"{name}[{item.text}]")
    return Converter(*named, write, read, LIST, frozenset({cls}), is_plain)


def _each_item(convert: Callable[[Any], Any], item: Converter) -> Callable[[Any], list[Any]]:
    """Convert all items; of plain ones that are their own type, checking the types is enough."""

    def all_of(values: Any) -> list[Any]:
        if item.scalars and item.scalars.issuperset(map(type, values)):
            return values if type(values) is A_LIST else list(values)
        return [convert(value) for value in values]

    return all_of


def fixed_tuple(items: Sequence[Converter]) -> Converter:
    """`tuple[int, str]`: a list, each item by its own type."""
    name = f"tuple[{', '.join(item.name for item in items)}]"
    writers, readers = [item.write for item in items], [item.read for item in items]

    def write(value: Any) -> Any:
        if type(value) is not A_TUPLE or len(value) != len(writers):
            raise conversion_error(value, name)
        return [convert(part) for convert, part in zip(writers, value, strict=True)]

    def read(plain: Any) -> Any:
        if type(plain) is not A_LIST:
            raise conversion_error(plain, name)
        return tuple([convert(part) for convert, part in zip(readers, plain, strict=True)])

    text = f"tuple({', '.join(item.text for item in items)})"
    return Converter(name, text, write, read, LIST, frozenset({tuple}))


def mapping(cls: type, key: Converter, item: Converter) -> Converter:
    """Return a dict, OrderedDict or Counter; a key that is not text is written as JSON."""
    name, make = cls.__name__, cast(Any, cls)
    key = SCALARS[str] if key is ANYTHING else key
    write_key, read_key = _key_converters(key)
    is_plain = cls is dict and key.is_plain and key.kinds == TEXT and item.is_plain

    def write(value: Any) -> Any:
        if type(value) is not cls:
            raise conversion_error(value, name)
        plain = {write_key(each): item.write(part) for each, part in value.items()}
        if len(plain) != len(value):
            raise ConversionError(f"two keys of a {name} are the same in JSON")
        return plain

    def read(plain: Any) -> Any:
        if type(plain) is not A_DICT:
            raise conversion_error(plain, name)
        result = {read_key(each): item.read(part) for each, part in plain.items()}
        return result if cls is dict else make(result)

    named = (f"{name}[{key.name}, {item.name}]", f"{name}[{key.text}, {item.text}]")
    return Converter(*named, write, read, DICT, frozenset({cls}), is_plain)


def _key_converters(key: Converter) -> tuple[Write, Read]:
    if key.kinds == TEXT:
        return key.write, key.read
    return (lambda each: _dump(key.write(each))), (lambda text: key.read(_load(text)))


SEQUENCES: dict[Any, type] = {cls: cls for cls in (list, tuple, set, frozenset, deque)}
MAPPINGS: dict[Any, type] = {cls: cls for cls in (dict, OrderedDict, Counter)}
