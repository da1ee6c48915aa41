"""The items of a call for many values, and the key of each."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, cast

from ..errors import UsageError
from .keys import Template, roots_of

_STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class ItemTemplate:
    """`menu:{branch_id}` for a function of many `branch_ids`: a key for each item of a list.

    The list is the first parameter of the function. The one field that is no parameter stands for
    an item of it; all others are filled from the call's arguments. UsageError: there is no such
    field, or more than one.
    """

    def __init__(self, text: str, function: Callable[..., Any]) -> None:
        self.text = text
        parameters = inspect.signature(function).parameters
        names = [name for name in parameters if name not in ("self", "cls")]
        self._where = getattr(function, "__qualname__", repr(function))
        if not names:
            raise UsageError(f"{text!r}: {self._where}() has no parameter for a list of items")
        self.parameter = names[0]
        stars = _STARS.get(parameters[self.parameter].kind)
        if stars is not None:
            said = "the first parameter must be the list of items"
            raise UsageError(f"{text!r}: {said}, not {stars}{self.parameter}")
        self._place = list(parameters).index(self.parameter)
        self._item = _field_of_items(text, self._where, list(parameters), self.parameter)
        self._of_one = _of_one(function, self.parameter, self._item)
        self._key_of = Template(text, self._of_one)

    def for_items(self, text: str) -> Template:
        """Another template for the same items; called with `of_item`."""
        return Template(text, self._of_one)

    def items(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The items of a call, each once. TypeError: none are given, or one cannot be hashed."""
        if self.parameter in kwargs:
            given = kwargs[self.parameter]
        elif len(args) > self._place:
            given = args[self._place]
        else:
            raise TypeError(f"{self._where}() missing its list of items, {self.parameter!r}")
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            kind = type(given).__name__
            raise UsageError(f"{self.text!r}: {self.parameter} must be a list of items, not {kind}")
        return list(dict.fromkeys(cast("Iterable[Any]", given)))

    def key(self, item: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The key of one item. UsageError: a field is missing, None, empty or not plain."""
        return self._key_of(*self.of_item(item, args, kwargs))

    def of_item(
        self, item: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call for one item."""
        return self._with(self._item, item, args, kwargs)

    def arguments(
        self, items: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call for other items."""
        return self._with(self.parameter, items, args, kwargs)

    def _with(
        self, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if len(args) > self._place:
            return (*args[: self._place], value, *args[self._place + 1 :]), kwargs
        rest = {each: given for each, given in kwargs.items() if each != self.parameter}
        return args, {**rest, name: value}


def _field_of_items(text: str, where: str, parameters: list[str], listed: str) -> str:
    unknown = [root for root in roots_of(text) if root not in parameters]
    if listed in roots_of(text):
        raise UsageError(f"{text!r}: name one item of {listed!r}, not the list: {{item}}")
    if len(unknown) != 1:
        said = f"exactly one field must stand for an item of {listed!r}"
        raise UsageError(f"{text!r}: {said} of {where}(), and be no parameter; found {unknown}")
    return unknown[0]


def _of_one(function: Callable[..., Any], listed: str, item: str) -> Callable[..., Any]:
    """A function like *function*, of one item in place of the list."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(name=item) if parameter.name == listed else parameter
        for parameter in signature.parameters.values()
    ]

    def of_one() -> None: ...

    of_one.__qualname__ = getattr(function, "__qualname__", "function")
    setattr(of_one, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
    return of_one
