"""Of what `by=` selects: the values that an endpoint of FastAPI gets.

FastAPI converts what was sent: to the endpoint `07` and `7` are one user, and of two values of one
name it gets the last.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from starlette.requests import Request

from .._http.content import given_text
from ..errors import UsageError
from ._starlette_routes import all_of, dependant_of, effective_route, is_around

_UNKNOWN: Any = object()


def given_values(
    by: Iterable[str], request: Request, function: object, arguments: Mapping[str, Any]
) -> dict[str, str | None]:
    """Return the values at the paths of *by*, as text, where FastAPI has a declaration of them.

    *arguments*: with which FastAPI calls *function*, the endpoint or a dependency.
    """
    dependants = [*all_of(dependant_of(request.scope))]
    own = [each for each in dependants if is_around(each.call, function)][-1:]
    given: dict[str, str | None] = {}
    for path in by:
        root, *words = path.split(".")
        if root not in ("query", "header", "body") or not words:
            continue
        if root == "header":
            words = [_as_header(".".join(words))]
        values = [_argument_value(root, words, each, arguments, request) for each in own]
        values += [_of_dependency(root, words, dependants, request)]
        for value in values:
            if value is not _UNKNOWN:
                with contextlib.suppress(UsageError):  # it is not data: a file, a secret
                    given[path] = given_text(value)
                break
    return given


def _argument_value(
    root: str, words: list[str], own: Any, arguments: Mapping[str, Any], request: Request
) -> Any:
    """Return the value in the arguments of the function."""
    fields = _fields_of(own, root)
    if root == "body" and len(fields) == 1 and not _is_embedded(request):
        return _value_at(words, arguments.get(fields[0].name, _UNKNOWN))
    for field in fields:
        if words[0] in _names_of(field, root):
            return _value_at(words[1:], arguments.get(field.name, _UNKNOWN))
    for field in fields:  # a model of several parameters
        value = _value_at(words, arguments.get(field.name, _UNKNOWN), root)
        if value is not _UNKNOWN:
            return value
    return _UNKNOWN


def _of_dependency(root: str, words: list[str], dependants: list[Any], request: Request) -> Any:
    """Return the value of a parameter of a dependency, if one was sent."""
    sent = request.headers if root == "header" else request.query_params
    texts = sent.getlist(words[0]) if root != "body" else []
    if len(texts) == 1 and len(words) == 1:
        for field in [each for one in dependants for each in _fields_of(one, root)]:
            if words[0] in _names_of(field, root):
                value, errors = field.validate(texts[0], {}, loc=(root, words[0]))
                return _UNKNOWN if errors else value
    return _UNKNOWN


def _fields_of(dependant: Any, root: str) -> list[Any]:
    return getattr(dependant, f"{root}_params")


def _is_embedded(request: Request) -> bool:
    """Return True if the body has a member for each parameter; False: it is the parameter."""
    return getattr(effective_route(request.scope), "_embed_body_fields", False)


def _names_of(field: Any, root: str = "") -> list[str]:
    """By which names a parameter may be sent."""
    names = [*_sent_names(field.name, field.field_info)]
    return [*map(_as_header, names)] if root == "header" else names


def _sent_names(name: str, info: Any, *, by_name: bool = False) -> Iterator[str]:
    """Yield the names of a parameter, or of a field of a model."""
    alias = getattr(info, "validation_alias", None) or info.alias or name
    for each in getattr(alias, "choices", [alias]):
        if isinstance(each, str):
            yield each
    if by_name:
        yield name


def _as_header(name: str) -> str:
    return name.replace("_", "-").lower()


# ---- steps into a value


def _value_at(words: Iterable[str], value: Any, root: str = "") -> Any:
    for word in words:
        value = _member_of(value, word, root)
    return value


def _member_of(value: Any, word: str, root: str) -> Any:
    if isinstance(value, Mapping):
        return _known_member(cast("Mapping[str, Any]", value), word)
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        if word == "*":
            return items
        return items[int(word)] if word.isdecimal() and int(word) < len(items) else _UNKNOWN
    for name, names in _member_names(value, root):
        if word in names:
            return getattr(value, name)
    return _known_member(getattr(value, "model_extra", None) or {}, word)


def _known_member(members: Mapping[str, Any], name: str) -> Any:
    return members.get(name, _UNKNOWN)


def _member_names(value: Any, root: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the attributes of a model or dataclass, with the names under which they may be sent."""
    kind = cast(Any, type(value))
    config = getattr(kind, "model_config", {})
    by_name = config.get("populate_by_name") or config.get("validate_by_name") or False
    for name, info in getattr(kind, "model_fields", {}).items():
        names = [*_sent_names(name, info, by_name=by_name)]
        yield name, [*map(_as_header, names)] if root == "header" else names
    if dataclasses.is_dataclass(kind):
        for each in dataclasses.fields(kind):
            yield each.name, [each.name]
