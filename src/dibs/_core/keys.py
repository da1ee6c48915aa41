"""From what the caller says to what the server sees: keys, names, templates, times."""

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from string import Formatter
from typing import Any, cast

from ..errors import UsageError

LONGEST_KEY = 1024
LONGEST_TTL = 10 * 365 * 86400.0
SHORTEST_TTL = 0.001

Seconds = float | timedelta


def seconds(value: object, what: str, *, zero: bool = False) -> float:
    """*value* as seconds. UsageError: not a number, not finite, negative, or an unwanted zero."""
    if (type(value) is float or type(value) is int) and SHORTEST_TTL <= value <= LONGEST_TTL:
        return value
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{what} must be seconds (a number or a timedelta), not {value!r}")
    if value > LONGEST_TTL or value != value:
        raise UsageError(f"{what} must be a finite number of seconds, not {value!r}")
    if zero and value == 0:
        return 0.0
    if value < SHORTEST_TTL:
        floor = "0 or at least" if zero else "at least"
        raise UsageError(f"{what} must be {floor} {SHORTEST_TTL} s, not {value!r}")
    return float(value)


def expand(namespace: str, key: object) -> bytes:
    """The key as the server sees it. UsageError: empty, too long, or not a string."""
    if not isinstance(key, str):
        raise UsageError(f"a key must be a string, not {type(key).__name__}")
    if not key:
        raise UsageError("a key must not be empty")
    try:
        data = (namespace + key).encode()
    except UnicodeEncodeError:
        raise UsageError("a key must be valid Unicode; this one has a lone surrogate") from None
    if len(data) > LONGEST_KEY:
        raise UsageError(f"a key may have {LONGEST_KEY} bytes, this one has {len(data)}")
    return data


def public_name(key: str) -> str:
    """What events and sentences may call a key that came without a template: its first word.

    `processing:user:42` → `processing:*`. Everything behind the first colon may be personal.
    """
    head, colon, _ = key.partition(":")
    return f"{head}:*" if colon else "*"


def hash_tag(key: bytes) -> bytes | None:
    """The part of *key* that a cluster hashes, where the key names one: `a{tag}b` → `tag`."""
    _, opened, rest = key.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return tag if opened and closed and tag else None


def beside(prefix: bytes, key: bytes) -> bytes:
    """A second key in the same slot: `fence:{key}`. UsageError: *key* cannot be tagged."""
    if hash_tag(key) is not None:
        return prefix + key
    if b"}" in key:
        raise UsageError("a key with '}' but no {tag} cannot have a companion key; add a {tag}")
    return b"%b{%b}" % (prefix, key)


class Template:
    """`sync:{account.id}`: a key made from a call's arguments. Its text is the public name."""

    def __init__(self, text: str, function: Callable[..., Any]) -> None:
        self.text = text
        parts = _parse(text)
        self._roots = list(dict.fromkeys(path[0] for _, path in parts if path))
        self._parts = [
            (literal, path, self._roots.index(path[0]) if path else 0) for literal, path in parts
        ]
        check_parameters(text, self._roots, function)
        self._pick = _picker(function, self._roots)

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        """The key of this call. UsageError: a field is missing, None or empty."""
        found = self._pick(*args, **kwargs)
        words: list[str] = []
        for literal, path, place in self._parts:
            words.append(literal)
            if path:
                value = found[place]
                words.append(value if type(value) is str and value and len(path) == 1
                             else self._look_up(path, value))  # fmt: skip
        return "".join(words)

    def _look_up(self, path: tuple[str, ...], value: Any) -> str:
        try:
            value = _walk(value, path[1:])
        except (AttributeError, KeyError, TypeError):
            raise UsageError(f"{self.text!r}: this call has no {'.'.join(path)!r}") from None
        if value is None or value == "":
            raise UsageError(f"{self.text!r}: {'.'.join(path)!r} is empty in this call")
        return str(value)


class Fields:
    """Parts of a call's arguments, by dotted paths: what is submitted, besides the key."""

    def __init__(self, paths: tuple[str, ...], function: Callable[..., Any]) -> None:
        self._paths = [(path, tuple(path.split("."))) for path in paths]
        self._roots = list(dict.fromkeys(words[0] for _, words in self._paths))
        check_parameters(", ".join(paths), self._roots, function)
        self._pick = _picker(function, self._roots)

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """The value of each path. UsageError: this call lacks one."""
        found = dict(zip(self._roots, self._pick(*args, **kwargs), strict=True))
        try:
            return {path: _walk(found[words[0]], words[1:]) for path, words in self._paths}
        except (AttributeError, KeyError, TypeError) as error:
            raise UsageError(f"payload: this call lacks {error}") from None


def checked_paths(payload: object) -> tuple[str, ...]:
    """One path or several, as a tuple. UsageError: they are not strings."""
    if isinstance(payload, str):
        return (payload,)
    paths = tuple(cast("Iterable[Any]", payload)) if isinstance(payload, Iterable) else (payload,)
    if not all(isinstance(path, str) for path in paths):
        raise UsageError(f"payload names arguments, by strings such as 'cart.id', not {payload!r}")
    return cast("tuple[str, ...]", paths)


def check_parameters(text: str, roots: list[str], function: Callable[..., Any]) -> None:
    """UsageError: *function* has no parameter of one of these names."""
    parameters = inspect.signature(function).parameters
    for root in roots:
        if root not in parameters:
            where = getattr(function, "__qualname__", repr(function))
            raise UsageError(f"{text!r}: {where}() has no parameter {root!r}")


def _picker(function: Callable[..., Any], names: list[str]) -> Callable[..., tuple[Any, ...]]:
    """A function with the same parameters that returns those named.

    Made once, so that Python itself matches arguments to parameters at every call: ten times
    quicker than `Signature.bind`. Calling it wrongly is the same TypeError as for the function.
    """
    signature = inspect.signature(function)
    known: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for number, parameter in enumerate(signature.parameters.values()):
        default = parameter.default
        if default is not inspect.Parameter.empty:
            known[f"_default_{number}"] = default
            default = _Verbatim(f"_default_{number}")
        parameters.append(parameter.replace(default=default, annotation=inspect.Parameter.empty))
    listed = str(inspect.Signature(parameters))[1:-1]
    return eval(f"lambda {listed}: ({''.join(f'{name}, ' for name in names)})", known)


class _Verbatim(str):
    """Stands for itself in a printed signature."""

    def __repr__(self) -> str:
        return str(self)


def _parse(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Literal and path, in turn. UsageError: broken braces, `{}`, `{0}`, `{x!r}`, `{x:>4}`."""
    if not isinstance(text, str) or not text:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("a key template must be a non-empty string")
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a key template: {error}") from None
    parts: list[tuple[str, tuple[str, ...]]] = []
    for literal, field, spec, conversion in pieces:
        path = tuple(field.split(".")) if field is not None else ()
        if spec or conversion or not all(word.isidentifier() for word in path):
            raise UsageError(f"{text!r}: a field is a parameter, or a dotted path from one")
        parts.append((literal, path))
    return parts


def _walk(value: Any, path: tuple[str, ...]) -> Any:
    """Follow a dotted path through attributes and mappings."""
    for word in path:
        value = cast(Any, value)[word] if isinstance(value, dict) else getattr(value, word)
    return value
