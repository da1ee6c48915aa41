"""The shape of a type: what of it has to be written beside a value, to read the value back."""

import collections.abc as abc
import enum
import functools
import hashlib
import itertools
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, cast, get_args, get_origin

from ..errors import UsageError
from . import codec_classes
from .codec_converters import (
    A_LIST,
    ANYTHING,
    DICT,
    EVERY_KIND,
    LEAVES,
    LIST,
    MAPPINGS,
    NOTHING,
    NULL,
    SCALARS,
    SEQUENCES,
    ConversionError,
    Converter,
    JsonValue,
    Read,
    Unsupported,
    Write,
    conversion_error,
    enumeration,
    fixed_tuple,
    literal,
    mapping,
    sequence,
)
from .signatures import annotations_of, return_annotation

FORMAT = "2"
"""Goes into every fingerprint; another number makes a miss of everything that is stored."""

LONGEST_TEXT = 500

_SEQUENCES: dict[Any, type] = {
    **SEQUENCES,
    **dict.fromkeys((abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((abc.Set, abc.MutableSet), set),
}
_MAPPINGS: dict[Any, type] = {**MAPPINGS, **dict.fromkeys((abc.Mapping, abc.MutableMapping), dict)}
_TRANSPARENT = (Annotated, typing.Final, typing.Required, typing.NotRequired)
_SELF: Any = typing.Self  # pyright: ignore[reportUnknownMemberType]
_Bindings = Mapping[Any, Any]


class Shape:
    """How values of one type become plain JSON and back."""

    def __init__(self, of: Any) -> None:
        self._of = of
        try:
            converter = _Composer().of(of)
        except Exception as error:  # no form in JSON, or a name that only type checkers know
            reason = str(error) if isinstance(error, Unsupported) else type(error).__name__
            reason = f"{_short_name(of)} is not supported ({reason})"
            raise UsageError(f"{reason}; pass another type= or codec=") from error
        self._write_late, self.from_plain = converter.write, converter.read
        """`from_plain`: the value. Any exception means that what is given is not of this shape."""
        self.is_plain = converter.is_plain
        """True: it says no more than JSON does."""
        self.text = converter.text
        self.fingerprint = _hash_text(f"{FORMAT} {self.text}")[:8]

    def to_plain(self, value: Any) -> Any:
        """Return *value* as dicts, lists, strings and numbers.

        Raises UsageError if it would not come back.
        """
        try:
            return self._write_late(value)
        except ConversionError as error:
            message = f"the loaded value is not a {_short_name(self._of)}: {error}"
        except Exception as error:  # of a class of the caller's; its text may hold the value
            message = f"the loaded value is not a {_short_name(self._of)} ({type(error).__name__})"
        raise UsageError(message) from None


@functools.lru_cache(maxsize=1000)
def _shape_of(of: Any) -> Shape:
    return Shape(of)


def shape_of(of: Any) -> Shape:
    """Return the shape of *of*, composed once in this process.

    Raises UsageError if it cannot be kept as JSON.
    """
    try:
        return _shape_of(of)
    except TypeError:  # it cannot be hashed
        return Shape(of)


def describe(of: Any) -> str:
    """Return the type as text that changes when its stored form does."""
    return shape_of(of).text


class LaterType:
    """What *find* finds, when it is first needed: until then not every name exists."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def found(self) -> Any:
        """Return the type.

        JsonValue: a name in it still does not exist, or only for type checkers.
        """
        try:
            return self._find()
        except Exception:
            return JsonValue


def _now_or_later(find: Callable[[], Any]) -> Any:
    try:
        return find()
    except Exception:  # a name that is defined below, inside a function, or for type checkers only
        return LaterType(find)


def returned_type(function: Callable[..., Any]) -> Any:
    """Return what *function* says it returns, where that says more than JSON; else None.

    LaterType: it says something that cannot be resolved yet.
    """
    return _now_or_later(functools.partial(_returned_type, function))


def returned_values_type(function: Callable[..., Any]) -> Any:
    """Return the type of the values in the dict that *function* says it returns.

    As `returned_type`.
    """
    return _now_or_later(functools.partial(_returned_values_type, function))


def _returned_type(function: Callable[..., Any]) -> Any:
    of = return_annotation(function)
    try:
        return None if of is None or shape_of(of).is_plain else of
    except UsageError:  # a codec may know it; if not, it says so
        return of


def _returned_values_type(function: Callable[..., Any]) -> Any:
    of = return_annotation(function)
    parts = get_args(of)
    if get_origin(of) not in (dict, abc.Mapping, abc.MutableMapping) or len(parts) != 2:
        return None
    try:
        return None if shape_of(parts[1]).is_plain else parts[1]
    except UsageError:
        return parts[1]


_ITERATORS = (
    *(abc.AsyncIterator, abc.AsyncIterable, abc.AsyncGenerator),
    *(abc.Iterator, abc.Iterable, abc.Generator),
)


def yielded_type(function: Callable[..., Any]) -> Any:
    """Return the type of what a generator says it yields; as `returned_type`."""
    try:
        of = typing.get_type_hints(function).get("return")
    except Exception:
        return JsonValue
    parts = get_args(of)
    if get_origin(of) not in _ITERATORS or not parts:
        return None
    try:
        return None if shape_of(parts[0]).is_plain else parts[0]
    except UsageError:
        return parts[0]


def _name_of(of: Any) -> str:
    return getattr(of, "__qualname__", None) or repr(of)


class _Late:
    """Stands for a converter that is being composed, in a type that names itself."""

    def __init__(self, name: str) -> None:
        self.made: Converter | None = None
        self.name = name

    def converter(self) -> Converter:
        name, text = self.name, f"^{self.name}"
        write, read = self._write_late, self._read_late
        return Converter(name, text, write, read, EVERY_KIND, None)

    def _write_late(self, value: Any) -> Any:
        assert self.made is not None
        return self.made.write(value)

    def _read_late(self, plain: Any) -> Any:
        assert self.made is not None
        return self.made.read(plain)


class _Composer:
    """Composes the converter of one type and of all that it is made of."""

    def __init__(self) -> None:
        self._known: dict[Any, Converter] = {}

    def of(self, of: Any, owner: Any = None) -> Converter:
        """Return the converter of *of*; *owner* is what `Self` means.

        Raises Unsupported if there is none.
        """
        of = _bare_type(of, owner)
        if getattr(of, "__unpacked__", False):
            raise Unsupported(
                "a tuple with another one unpacked in it has no representation in JSON"
            )
        if of in (Any, object, typing.NoReturn, typing.Never):
            return ANYTHING
        converter = SCALARS.get(of) or LEAVES.get(of)
        if converter is not None:
            return converter
        if isinstance(of, enum.EnumMeta):
            return enumeration(of)
        origin = get_origin(of)
        if origin is Literal:
            return literal(get_args(of))
        if origin in (Union, types.UnionType):
            return union([self.of(member, owner) for member in _union_members(of, owner)])
        return self._container_converter(of, owner) or self._named_converter(of)

    def _container_converter(self, of: Any, owner: Any) -> Converter | None:
        origin, args = get_origin(of) or of, get_args(of)
        if (origin is tuple and args and args[-1] is not Ellipsis) or of == tuple[()]:
            return fixed_tuple([self.of(part, owner) for part in args])
        if origin in _SEQUENCES:
            return sequence(_SEQUENCES[origin], self.of(args[0] if args else Any, owner))
        if origin in _MAPPINGS:
            key, *item = args or (Any, Any)
            # A Counter names its keys only.
            parts = (self.of(key, owner), self.of(item[0] if item else int, owner))
            return mapping(_MAPPINGS[origin], *parts)
        return None

    def _named_converter(self, of: Any) -> Converter:
        """Return a class with fields, or an alias: what may name itself."""
        if of in self._known:
            return self._known[of]
        late = _Late(_short_name(of))
        self._known[of] = self._expected_converter(of, late)
        late.made = self._known[of] = _shortened_text(self._class_converter(of))
        return late.made

    def _expected_converter(self, of: Any, late: _Late) -> Converter:
        """Return what is known of a class before it is composed: how its values look."""
        origin, converter = get_origin(of) or of, late.converter()
        if typing.is_typeddict(origin):
            return converter._replace(kinds=DICT, types=DICT)
        if codec_classes.is_dataclass(origin):
            return converter._replace(kinds=DICT, types=frozenset({origin}))
        if codec_classes.is_named_tuple(origin):
            return converter._replace(kinds=LIST, types=frozenset({origin}))
        return converter

    def _class_converter(self, of: Any) -> Converter:
        if hasattr(of, "__value__") or hasattr(get_origin(of), "__value__"):
            return self.of(_alias_value(of))
        if codec_classes.is_pydantic(of):
            return codec_classes.pydantic(of)
        origin, name = get_origin(of) or of, _short_name(of)
        if codec_classes.is_struct(origin):
            return codec_classes.struct(of, origin, name)
        if codec_classes.is_dataclass(origin):
            return codec_classes.dataclass(
                origin, name, self._fields(of, codec_classes.field_names(origin))
            )
        if codec_classes.is_named_tuple(origin):
            return codec_classes.named_tuple(origin, name, self._fields(of, origin._fields))
        if typing.is_typeddict(origin):
            fields = self._fields(of, list(typing.get_type_hints(origin)))
            return codec_classes.typed_dict(name, fields, _required_keys(origin))
        raise Unsupported(f"a {_short_name(of)} has no representation in JSON")

    def _fields(self, of: Any, names: Any) -> dict[str, Converter]:
        hints = dict(_field_hints(of))
        fields: dict[str, Converter] = {}
        for name in names:
            try:
                fields[name] = self.of(hints.get(name, Any), of)
            except Unsupported as error:
                raise Unsupported(f"{_short_name(of)}.{name}: {error}") from None
        return fields


def _shortened_text(converter: Converter) -> Converter:
    """Return a long text as its hash.

    Types that name each other many times would grow without end.
    """
    if len(converter.text) < LONGEST_TEXT:
        return converter
    return converter._replace(text=f"{converter.name}#{_hash_text(converter.text)}")


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# ---- looking at types


def _bare_type(of: Any, owner: Any) -> Any:
    """Without what says nothing about the form: Annotated, NewType, Final, type variables."""
    while True:
        if of is _SELF and owner is not None:
            return owner
        if of is typing.LiteralString:
            return str
        if get_origin(of) in _TRANSPARENT:
            of = get_args(of)[0]
        elif isinstance(of, typing.NewType):
            of = of.__supertype__
        elif isinstance(of, TypeVar):
            of = _meaning_of(of)
        else:
            return of


def _meaning_of(variable: TypeVar) -> Any:
    """Return what an unbound type variable stands for."""
    if variable.__constraints__:
        return cast(Any, Union)[variable.__constraints__]
    bound = variable.__bound__
    return Any if bound is None or isinstance(bound, ForwardRef) else bound


def _union_members(of: Any, owner: Any) -> Iterator[Any]:
    """Yield the members of a union, and of unions in it under another name."""
    for member in get_args(of):
        bare = _bare_type(member, owner)
        if get_origin(bare) in (Union, types.UnionType):
            yield from _union_members(bare, owner)
        else:
            yield bare


def _short_name(of: Any) -> str:
    """Return a name without modules: `Page[Dish]`."""
    origin, args = get_origin(of), get_args(of)
    if origin in (Union, types.UnionType):
        return " | ".join(map(_short_name, args))
    name = "None" if of is type(None) else _name_of(origin or of)
    return f"{name}[{', '.join(map(_short_name, args))}]" if args else name


def _alias_value(of: Any) -> Any:
    """Return what `type Pair[T] = tuple[T, T]` stands for."""
    alias = get_origin(of) or of
    return _bound_type(
        alias.__value__, dict(zip(alias.__type_params__, get_args(of), strict=False))
    )


def _required_keys(cls: Any) -> frozenset[str]:
    """Return the keys that must be there; what is written in quotes is understood as well."""
    hints = typing.get_type_hints(cls, include_extras=True)
    requirements = {name: _requirement_of(hint) for name, hint in hints.items()}
    by_default = cls.__required_keys__
    return frozenset(
        name
        for name, must in requirements.items()
        if (name in by_default if must is None else must)
    )


def _requirement_of(hint: Any) -> bool | None:
    while (origin := get_origin(hint)) is not None:
        if origin in (typing.Required, typing.NotRequired):
            return origin is typing.Required
        if origin is not Annotated and origin is not getattr(typing, "ReadOnly", None):
            return None
        hint = get_args(hint)[0]
    return None


def _field_hints(of: Any) -> Iterator[tuple[str, Any]]:
    """Name and type of each field, with the type variables of its class bound."""
    cls = get_origin(of) or of
    bindings = _type_bindings(of)
    for name, hint in _resolved_hints(cls).items():
        home = next((base for base in cls.__mro__ if name in annotations_of(base)), cls)
        yield name, _bound_type(hint, bindings.get(home, {}))


def _resolved_hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError:  # a class inside a function that names itself, or `class Page[T]` in 3.12
        names = {cls.__name__: cls}
        for each in itertools.chain(*map(_type_parameters, cls.__mro__)):
            if names.setdefault(each.__name__, each) is not each:
                raise  # a variable of another class with the same name: not to be guessed
        return typing.get_type_hints(cls, localns=names)


def _type_parameters(cls: Any) -> tuple[Any, ...]:
    """Return the type variables in `class Page[T]`.

    Text that names one is not understood before 3.13.
    """
    return getattr(cls, "__type_params__", ())


def _type_bindings(of: Any) -> dict[Any, _Bindings]:
    """For each class what its type variables stand for; `Page[Dish]` binds those of its bases."""
    cls = get_origin(of) or of
    own = dict(zip(getattr(cls, "__parameters__", ()), get_args(of), strict=False))
    bindings: dict[Any, _Bindings] = {cls: own}
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type) and origin not in (typing.Generic, typing.Protocol):
            bindings |= _type_bindings(_bound_type(base, own))
    return bindings


def _bound_type(of: Any, bindings: _Bindings) -> Any:
    if isinstance(of, TypeVar):
        return bindings.get(of, of)
    parameters = cast("tuple[Any, ...]", getattr(of, "__parameters__", ()))
    if not parameters or get_origin(of) is None:
        return of
    return of[tuple(bindings.get(each, each) for each in parameters)]


def union(members: Sequence[Converter]) -> Converter:
    """Untagged, where the JSON type decides; members of the same JSON type are tagged."""
    rest = sorted((each for each in members if not each.is_plain), key=lambda each: each.text)
    plain = [each for each in members if each.is_plain and each.kinds != NULL]
    nothing = [each for each in members if each.kinds == NULL][:1]
    if not rest:
        return _any_of([*plain, *nothing])
    if len({each.text for each in rest}) < len(rest):
        raise Unsupported("two members of a union have the same name and the same fields")
    choices = [*rest, *([_any_of(plain)] if plain else []), *nothing]
    if len(choices) == 2 and nothing and NOTHING not in choices[0].kinds:
        return _optional_converter(choices[0])
    return _union_of(choices)


def _any_of(members: Sequence[Converter]) -> Converter:
    """Return the members that are written as they are: which of them it was does not matter."""
    if len(members) == 1:
        return members[0]
    name = " | ".join(sorted(each.name for each in members))
    text = "|".join(sorted(each.text for each in members))
    check = _first_that_fits([each.write for each in members], name)
    read = _first_that_fits([each.read for each in members], name)
    kinds = frozenset[type]().union(*[each.kinds for each in members])
    scalars = kinds if all(each.scalars for each in members) else frozenset[type]()
    return Converter(name, text, check, read, kinds, _types_of_all(members), True, scalars)


def _first_that_fits(convert: Sequence[Callable[[Any], Any]], name: str) -> Callable[[Any], Any]:
    def first(value: Any) -> Any:
        for each in convert:
            try:
                return each(value)
            except ConversionError:
                continue
        raise conversion_error(value, name)

    return first


def _types_of_all(members: Sequence[Converter]) -> frozenset[type] | None:
    union: set[type] = set()
    for each in members:
        if each.types is None:
            return None
        union |= each.types
    return frozenset(union)


def _optional_converter(member: Converter) -> Converter:
    write_one, read_one = member.write, member.read

    def write(value: Any) -> Any:
        return None if value is None else write_one(value)

    def read(plain: Any) -> Any:
        return None if plain is None else read_one(plain)

    return member._replace(
        name=f"{member.name} | None",
        text=f"{member.text}|None",
        write=write,
        read=read,
        kinds=member.kinds | {NOTHING},
        types=None if member.types is None else member.types | {NOTHING},
    )


def _union_of(choices: Sequence[Converter]) -> Converter:
    untagged = [each for each in choices if _is_clear(each, choices)]
    if len(untagged) < len(choices):  # a tagged one is a list
        untagged = [each for each in untagged if list not in each.kinds]
    tagged = {_label_of(each, choices): each for each in choices if each not in untagged}
    by_kind = {kind: each.read for each in untagged for kind in each.kinds}
    labelled = [(_tagging_writer(label, each.write), each.types) for label, each in tagged.items()]
    writers = labelled + [(each.write, each.types) for each in untagged]
    name = " | ".join(each.name for each in choices)
    kinds = frozenset(by_kind) | (LIST if tagged else frozenset[type]())
    text = f"union({'|'.join(each.text for each in choices)})"
    write = _writing_by_type(writers, name)
    read = _union_reader(by_kind, {label: each.read for label, each in tagged.items()}, name)
    return Converter(name, text, write, read, kinds, _types_of_all(choices))


def _is_clear(choice: Converter, choices: Sequence[Converter]) -> bool:
    return all(each is choice or choice.kinds.isdisjoint(each.kinds) for each in choices)


def _label_of(choice: Converter, choices: Sequence[Converter]) -> str:
    same = [each for each in choices if each.name == choice.name]
    return choice.name if len(same) == 1 else f"{choice.name}#{same.index(choice)}"


def _tagging_writer(label: str, write: Write) -> Write:
    return lambda value: [label, write(value)]


def _writing_by_type(writers: Sequence[tuple[Write, frozenset[type] | None]], name: str) -> Write:
    every = frozenset[type]().union(*[types for _, types in writers if types])
    for_any = [write for write, types in writers if types is None]
    table: dict[type, Write] = {}
    for kind in every:
        candidates = [write for write, types in writers if types is None or kind in types]
        table[kind] = candidates[0] if len(candidates) == 1 else _first_that_fits(candidates, name)
    other = _first_that_fits(for_any, name)

    def write(value: object) -> Any:
        return table.get(type(value), other)(value)

    return write


def _union_reader(by_kind: dict[type, Read], tagged: dict[str, Read], name: str) -> Read:
    def read(plain: object) -> Any:
        reader = by_kind.get(type(plain))
        if reader is not None:
            return reader(plain)
        if not tagged or type(plain) is not A_LIST:
            raise conversion_error(plain, name)
        label, inner = cast("list[Any]", plain)
        return tagged[label](inner)

    return read
