"""Signatures and types, as short as a reader needs them."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any, get_args, get_origin

import dibs

from . import docstrings

_SECONDS = re.compile(r"float \| (?:datetime\.)?timedelta")
_LITERAL = re.compile(r"Literal\[([^\]]*)\]")
_OPTIONAL = re.compile(r"^Optional\[(.*)\]$")
_MODULE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
RETURNED = {"bool", "str", "int", "float", "None", *dibs.__all__}
"""Types that a signature shows: those that a reader can look up."""
_NOTHING = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """What a caller may pass."""

    name: str
    type: str
    default: str
    """As it is written in a program; empty: it is required."""
    meaning: str


def short_type(annotation: object) -> str:
    """*annotation* without modules; times as `Seconds`, choices as the texts themselves."""
    if annotation is _NOTHING:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = _MODULE.sub("", _SECONDS.sub("Seconds", text).replace("~", ""))
    text = _OPTIONAL.sub(r"\1 | None", text).replace("Callable[['Event'], object]", "Listener")
    return _LITERAL.sub(lambda found: found[1].replace("', '", "' | '").replace("'", '"'), text)


def heading(name: str, function: Any) -> str:
    """*name* with its parameters and defaults, without their types, and what it returns."""
    signature = _signature(function)
    shown = [each.replace(annotation=_NOTHING) for each in _shown(signature)]
    returned = short_type(signature.return_annotation)
    is_known = returned and set(re.findall(r"\w+", returned)) <= RETURNED
    listed = str(signature.replace(parameters=shown, return_annotation=_NOTHING))
    head = name + listed.replace("'", '"')
    return f"{head} -> {returned}" if is_known and not isinstance(function, type) else head


def parameters(function: Any, text: docstrings.Text) -> list[Parameter]:
    """The parameters of *function*, each with its meaning."""
    return [
        Parameter(each.name, short_type(each.annotation), _default(each), meaning)
        for each, meaning in _with_meanings(function, text)
    ]


def _with_meanings(function: Any, text: docstrings.Text) -> Iterator[tuple[inspect.Parameter, str]]:
    keywords = _keywords(function)
    explained = keywords or (function if is_dataclass(function) else None)
    declared = docstrings.fields(explained) if explained else {}
    for each in _shown(_signature(function)):
        if each.kind is each.VAR_KEYWORD and keywords:
            for name, annotation in keywords.__annotations__.items():
                meaning = declared.get(name, ""), text.parameters.get(name, "")
                yield _option(name, annotation), " ".join(filter(None, meaning))
        else:
            yield each, text.parameters.get(each.name) or declared.get(each.name, "")


def _option(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=annotation
    )


def _keywords(function: Any) -> Any:
    """The TypedDict that declares the options of *function*, or None."""
    if isinstance(function, type):
        function = function.__init__
    unpacked = get_args(getattr(function, "__annotations__", {}).get("options"))
    return (get_origin(unpacked[0]) or unpacked[0]) if unpacked else None


def _signature(function: Any) -> inspect.Signature:
    """That of *function*; without parameters where Python knows none, as of a plain exception."""
    try:
        return inspect.signature(function)
    except ValueError:
        return inspect.Signature()


def _shown(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [each for each in signature.parameters.values() if each.name not in ("self", "cls")]


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is _NOTHING or parameter.default is ...:
        return ""
    return repr(parameter.default).replace("'", '"')
