"""A value of one of several types ↔ what JSON knows, so that it comes back as the type it was.

Where the members have different JSON types, a value is written as it would be alone: `X | None`,
`int | str`, `Dish | list[Dish]`. Where it does not, with the member's name: `["Rejected", {…}]`.
The order in which the members are named makes no difference.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from .converters import (
    A_LIST,
    LIST,
    NOTHING,
    NULL,
    ConversionError,
    Converter,
    Read,
    Unsupported,
    Write,
    conversion_error,
)


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
        return _optional(choices[0])
    return _union_of(choices)


def _any_of(members: Sequence[Converter]) -> Converter:
    """Members that are written as they are: which of them it was does not matter."""
    if len(members) == 1:
        return members[0]
    name = " | ".join(sorted(each.name for each in members))
    text = "|".join(sorted(each.text for each in members))
    check = _first_that_fits([each.write for each in members], name)
    read = _first_that_fits([each.read for each in members], name)
    kinds = frozenset[type]().union(*[each.kinds for each in members])
    scalars = kinds if all(each.scalars for each in members) else frozenset[type]()
    return Converter(name, text, check, read, kinds, _types(members), True, scalars)


def _first_that_fits(convert: Sequence[Callable[[Any], Any]], name: str) -> Callable[[Any], Any]:
    def first(value: Any) -> Any:
        for each in convert:
            try:
                return each(value)
            except ConversionError:
                continue
        raise conversion_error(value, name)

    return first


def _types(members: Sequence[Converter]) -> frozenset[type] | None:
    found: set[type] = set()
    for each in members:
        if each.types is None:
            return None
        found |= each.types
    return frozenset(found)


def _optional(member: Converter) -> Converter:
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
    tagged = {_label(each, choices): each for each in choices if each not in untagged}
    by_kind = {kind: each.read for each in untagged for kind in each.kinds}
    labelled = [(_tagging(label, each.write), each.types) for label, each in tagged.items()]
    writers = labelled + [(each.write, each.types) for each in untagged]
    name = " | ".join(each.name for each in choices)
    kinds = frozenset(by_kind) | (LIST if tagged else frozenset[type]())
    text = f"union({'|'.join(each.text for each in choices)})"
    write = _writing_by_type(writers, name)
    read = _reading(by_kind, {label: each.read for label, each in tagged.items()}, name)
    return Converter(name, text, write, read, kinds, _types(choices))


def _is_clear(choice: Converter, choices: Sequence[Converter]) -> bool:
    return all(each is choice or choice.kinds.isdisjoint(each.kinds) for each in choices)


def _label(choice: Converter, choices: Sequence[Converter]) -> str:
    same = [each for each in choices if each.name == choice.name]
    return choice.name if len(same) == 1 else f"{choice.name}#{same.index(choice)}"


def _tagging(label: str, write: Write) -> Write:
    return lambda value: [label, write(value)]


def _writing_by_type(writers: Sequence[tuple[Write, frozenset[type] | None]], name: str) -> Write:
    every = frozenset[type]().union(*[types for _, types in writers if types])
    for_any = [write for write, types in writers if types is None]
    table: dict[type, Write] = {}
    for kind in every:
        found = [write for write, types in writers if types is None or kind in types]
        table[kind] = found[0] if len(found) == 1 else _first_that_fits(found, name)
    other = _first_that_fits(for_any, name)

    def write(value: object) -> Any:
        return table.get(type(value), other)(value)

    return write


def _reading(by_kind: dict[type, Read], tagged: dict[str, Read], name: str) -> Read:
    def read(plain: object) -> Any:
        found = by_kind.get(type(plain))
        if found is not None:
            return found(plain)
        if not tagged or type(plain) is not A_LIST:
            raise conversion_error(plain, name)
        label, inner = cast("list[Any]", plain)
        return tagged[label](inner)

    return read
