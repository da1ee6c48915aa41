"""Keys: names, namespaces, templates filled from the arguments of a call; fingerprints of data."""

import base64
import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import hmac
import inspect
import itertools
import json
import math
import operator
import pathlib
import re
import string
import uuid
from binascii import crc_hqx
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Concatenate, NamedTuple, cast

from ..errors import Busy, Duplicate, UsageError
from .signatures import signature_of

canonical_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode
"""JSON text that does not depend on the order of keys. RecursionError: nested too deeply."""

_TEXT = (decimal.Decimal, uuid.UUID, pathlib.PurePath)
_TIMES = (datetime.datetime, datetime.date, datetime.time)


def fingerprint(payload: object, secret: bytes = b"") -> bytes:
    """32 hex digits that are the same for equal payloads, whatever the order of their keys.

    With a *secret*, the payload cannot be guessed without it. UsageError: a part of the
    payload is not data (a connection, a request, an open file …).
    """
    # No JSON begins with a ~, so bytes never equal the text, the number or the form they look like.
    is_raw = isinstance(payload, bytes | bytearray)
    return digest(secret, b"~" + payload if is_raw else _canonical_bytes(payload)).encode()


def digest(secret: bytes, data: bytes) -> str:
    """Return a hash of *data* that is keyed with *secret*: 32 hex digits."""
    return hmac.digest(secret, data, hashlib.sha256)[:16].hex()


def _canonical_bytes(payload: object) -> bytes:
    try:
        text = canonical_json(_plain_json(payload))
    except RecursionError:
        raise UsageError("the payload is nested too deeply") from None
    except UsageError:
        raise
    except ValueError:  # Python writes no number of more than 4300 digits
        raise UsageError("the payload contains a number with too many digits") from None
    return text.encode(errors="surrogatepass")


def _plain_json(value: Any) -> Any:
    """Return *value* in types that JSON has.

    What is serialized as text, as a number or as an object equals that: a UUID equals its text, a
    model its dict. What JSON cannot express (bytes, sets, keys that are not text) gets a key that
    begins with ~; keys of the caller that do so are escaped.
    """
    if isinstance(value, enum.Enum):
        return _plain_json(value.value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_member_name(key): _plain_json(item) for key, item in _all_items(cast(Any, value))}
    if isinstance(value, list | tuple):
        return [_plain_json(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, set | frozenset):
        return {"~set": sorted(_canonical_text(item) for item in cast("Iterable[Any]", value))}
    return _leaf_value(value)


def _all_items(mapping: Any) -> Iterable[tuple[Any, Any]]:
    """Every pair: a form may have several values for one name, of which `items()` has only one."""
    if hasattr(mapping, "lists"):  # Django, Werkzeug
        return mapping.lists()
    if not hasattr(mapping, "multi_items"):
        return mapping.items()
    named: dict[Any, list[Any]] = {}
    for name, item in mapping.multi_items():  # Starlette, httpx
        named.setdefault(name, []).append(item)
    return named.items()


def _canonical_text(value: Any) -> str:
    return _canonical_bytes(value).decode(errors="surrogatepass")


def _member_name(key: Any) -> str:
    if isinstance(key, str) and not isinstance(key, enum.Enum):
        return f"~{key}" if key.startswith("~") else key
    return f"~{type(key).__name__}:{_canonical_text(key)}"


def _leaf_value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"~bytes": base64.b64encode(value).decode()}
    if isinstance(value, _TIMES):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, _TEXT):
        return str(value)
    return _model_fields(value)


def _model_fields(value: Any) -> Any:
    kind = cast(Any, type(value))
    if hasattr(kind, "model_dump"):
        return _plain_json(value.model_dump())
    if dataclasses.is_dataclass(kind):
        return {
            each.name: _plain_json(getattr(value, each.name)) for each in dataclasses.fields(kind)
        }
    if hasattr(kind, "__struct_fields__"):  # msgspec
        return {name: _plain_json(getattr(value, name)) for name in kind.__struct_fields__}
    raise UsageError(f"a payload must be data; {kind.__name__} is not")


LONGEST_KEY = 1024
PLAIN_TYPES = "text, numbers, booleans, dates, UUIDs, enums and bytes"
_WRITTEN_BY_STR = (
    bool,
    datetime.date,  # and datetime
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
    pathlib.PurePath,
)


def plain_text(value: object) -> str | None:
    """Return how a plain value is written in a key; None: it is not plain.

    An enum is its value, bytes are hexadecimal digits, everything else is what `str` makes of it.
    """
    if isinstance(value, enum.Enum):
        return plain_text(value.value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, _WRITTEN_BY_STR):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value)).hex()
    return _whole_number(value) if hasattr(type(value), "__index__") else None


def _whole_number(value: Any) -> str:
    number = operator.index(value)
    if number.bit_length() > 8 * LONGEST_KEY:
        raise UsageError(
            f"a key may have at most {LONGEST_KEY} bytes, and this number has more digits"
        )
    return str(number)


LONGEST_TTL = 10 * 365 * 86400.0
SHORTEST_TTL = 0.001
SLOTS = 16384
"""Of a cluster: a key lives in the slot that is the CRC16 of its hash tag, or of the whole key."""

Seconds = float | timedelta


LONGEST_NAME = 64
_LETTERS = re.compile(r"[^\W\d]([^\W\d]|[./-])*")
_FIRST_WORD = re.compile(r"(?!.*\d{3})[^\s@]{1,64}")


def seconds(value: object, what: str, *, zero: bool = False) -> float:
    """Return *value* as seconds.

    Raises UsageError if not a number, not finite, negative, or an unwanted zero.
    """
    if (type(value) is float or type(value) is int) and SHORTEST_TTL <= value <= LONGEST_TTL:
        return value
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{what} must be seconds (a number or a timedelta), not {value!r}")
    if value != value or value == math.inf:
        raise UsageError(f"{what} must be a finite number of seconds, not {value!r}")
    if value > LONGEST_TTL:
        limit = f"the limit is {LONGEST_TTL:.0f} s, ten years"
        raise UsageError(f"{what} must not be {value!r} s: {limit}")
    if zero and value == 0:
        return 0.0
    if value < SHORTEST_TTL:
        floor = "0 or at least" if zero else "at least"
        raise UsageError(f"{what} must be {floor} {SHORTEST_TTL} s, not {value!r}")
    return float(value)


def patience(wait: object) -> float:
    """*wait* as seconds; inf: as good as for ever. UsageError: None, which other libraries take."""
    if wait == 0:
        return 0.0
    if wait is None:
        raise UsageError("wait must be seconds, not None: 0 does not wait, math.inf waits for ever")
    return LONGEST_TTL if wait == math.inf else seconds(wait, "wait", zero=True)


def milliseconds(seconds: float) -> int:
    """As the server wants it."""
    # Up: the server must not end it before the holder does.
    return math.ceil(seconds * 1000)


def expand(namespace: str, key: object) -> bytes:
    """Return the key as the server sees it.

    Raises UsageError if empty, too long, or not a string.
    """
    if not isinstance(key, str):
        raise UsageError(f"a key must be a string, not {type(key).__name__}")
    if not key:
        raise UsageError("a key must not be empty")
    try:
        data = (namespace + key).encode()
    except UnicodeEncodeError:
        raise UsageError("a key must be valid Unicode; this one has a lone surrogate") from None
    if len(data) > LONGEST_KEY:
        message = f"a key may have at most {LONGEST_KEY} bytes; this one has {len(data)}"
        raise UsageError(f"{message}; {{field:hash}} in a template shortens a field")
    return data


def checked_namespace(namespace: object) -> str:
    """Return *namespace*.

    Raises UsageError if not a string, or a brace that opens no cluster hash tag.
    """
    if not isinstance(namespace, str):
        raise UsageError(f"a namespace must be a string, not {type(namespace).__name__}")
    if not is_text(namespace):
        raise UsageError("a namespace must be valid Unicode; this one has a lone surrogate")
    if "{" in namespace and hash_tag(namespace.encode()) is None:
        raise UsageError("a namespace with '{' must contain a complete {tag}")
    return namespace


def is_text(text: str) -> bool:
    """Return False if it has a lone surrogate, as Python makes them of bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def public_name(key: str) -> str:
    """Return what events and sentences may call a key that came without a template: its first word.

    `processing:user:42` → `processing:*`. Everything after the first colon may be personal. A key
    without one is shown whole if it can be a name in the code: `nightly-report`; one with digits
    or an @ may be an id, and is `*`. A first word with an @ or three digits may be one, too, and
    one with signs that are not printed comes from elsewhere: in a log it would begin a line.
    """
    head, colon, _ = key.partition(":")
    if colon:
        return _with_star(head)
    is_word = len(key) <= LONGEST_NAME and _LETTERS.fullmatch(key)
    return key if is_word else "*"


@functools.lru_cache(maxsize=256)
def _with_star(word: str) -> str:
    is_name = word.isprintable() and _FIRST_WORD.fullmatch(word)
    return f"{word}:*" if is_name else "*"


def printable(text: str) -> str:
    """Return *text* without characters that a terminal would obey.

    A key, or a server, may have any.
    """
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else repr(each)[1:-1] for each in text])


def hash_tag(key: bytes) -> bytes | None:
    """Return the part of *key* that a cluster hashes, where the key names one.

    `a{tag}b` → `tag`.
    """
    _, opened, rest = key.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return tag if opened and closed and tag else None


def companion_key(prefix: bytes, key: bytes) -> bytes:
    """Return a second key in the same cluster slot: `fence:{key}`.

    *prefix* has no `{` or a whole tag.
    """
    if hash_tag(key) is not None:
        return prefix + key
    if b"}" not in key:
        return b"%b{%b}" % (prefix, key)
    # A tag ends at the first brace, so the key cannot be its own tag: another one hashes like it.
    return b"%b{%b}%b" % (prefix, _hash_tag(_slot_of(key)), key)


def _hash_tag(slot: int) -> bytes:
    """Return the first of 000, 001 … ZZZ (digits, lower, upper case) that hashes to *slot*."""
    # A CRC is linear: that of three letters is that of the first two, XOR that of the third.
    pairs, thirds = _tag_codes()
    return next(pair + thirds[slot ^ code] for code, pair in pairs if slot ^ code in thirds)


@functools.cache
def _tag_codes() -> tuple[list[tuple[int, bytes]], dict[int, bytes]]:
    letters = [letter.encode() for letter in string.digits + string.ascii_letters]
    pairs = [one + two for one, two in itertools.product(letters, repeat=2)]
    return [(_slot_of(pair + b"\0"), pair) for pair in pairs], {
        _slot_of(one): one for one in letters
    }


def _slot_of(data: bytes) -> int:
    return crc_hqx(data, 0) % SLOTS


# ---- templates


class Template:
    """`sync:{account.id}`: a key made from a call's arguments. Its text is the public name.

    Different values of the fields make different keys: in every field but the last, the character
    that follows the field is percent-encoded, so that no value runs into the next one. Braces are
    percent-encoded everywhere: what a user types must not choose the cluster slot.
    """

    def __init__(self, text: str, function: Callable[..., Any] | None = None) -> None:
        """Without *function*, the values of the fields are passed by their names."""
        self.text = text
        pieces = _parse_template(text)
        self._roots = roots_of(text)
        function = function or _function_taking(self._roots)
        check_parameters(text, self._roots, function)
        self._pick = _argument_picker(function, self._roots)
        self._parts = [
            (
                piece.literal,
                self._roots.index(piece.path[0]),
                *_field_writer(text, piece, next_literal),
            )
            for piece, next_literal in zip(pieces, _following_texts(pieces), strict=True)
            if piece.path
        ]
        self._end = "" if pieces[-1].path else pieces[-1].literal

    @property
    def fields(self) -> tuple[str, ...]:
        """The parameters that it needs."""
        return tuple(self._roots)

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        """Return the key of this call.

        Raises UsageError if a field is missing, None, empty or not plain.
        """
        values = self._pick(*args, **kwargs)
        words: list[str] = []
        for literal, place, separator, write in self._parts:
            value = values[place]
            words.append(literal)
            # Most text needs no quoting, and four searches here are quicker than two calls.
            is_direct = (
                type(value) is str and value and separator not in value
                and "%" not in value and "{" not in value and "}" not in value
            )  # fmt: skip
            words.append(value if is_direct else write(value))
        words.append(self._end)
        return "".join(words)


def fields_of(text: str) -> list[str]:
    """Return the fields of a template, as dotted paths. Raises UsageError if it is no template."""
    return list(
        dict.fromkeys(".".join(piece.path) for piece in _parse_template(text) if piece.path)
    )


def roots_of(text: str) -> list[str]:
    """Return the parameters that the fields of a template begin with.

    Raises UsageError if it is no template.
    """
    return list(dict.fromkeys(field.partition(".")[0] for field in fields_of(text)))


class _Piece(NamedTuple):
    """A text, and the field that follows it; without a path it is the end of the template."""

    literal: str
    path: tuple[str, ...] = ()
    is_hashed: bool = False


def _parse_template(text: str) -> list[_Piece]:
    """Return what the template consists of.

    Raises UsageError if broken braces, `{}`, `{0}`, `{x!r}`, `{x:>4}`.
    """
    if not isinstance(text, str) or not text:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("a key template must be a non-empty string")
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a key template: {error}") from None
    pieces: list[_Piece] = []
    before = ""
    for literal, field, spec, conversion in parts:
        before += literal
        if field is None:
            continue
        path = tuple(field.split("."))
        if spec not in ("", "hash") or conversion or not all(word.isidentifier() for word in path):
            message = "a field must be a parameter or a dotted path from one"
            raise UsageError(f"{text!r}: {message}, optionally with :hash")
        pieces.append(_Piece(before, path, spec == "hash"))
        before = ""
    return [*pieces, _Piece(before)] if before else pieces


def _following_texts(pieces: list[_Piece]) -> list[str | None]:
    """For each piece the text between its field and the next one; None: there is no next field."""
    following = [piece.literal for piece in pieces if piece.path][1:]
    return [*following, *[None] * (len(pieces) - len(following))]


def _field_writer(
    text: str, piece: _Piece, following: str | None
) -> tuple[str, Callable[[Any], str]]:
    """The character that text must not contain to be taken as it is, and how others are written.

    An empty one: none is taken as it is. UsageError: nothing separates the field from the next one.
    """
    separator = "" if following is None else following[:1]
    if following is not None and (not separator or separator.isdecimal() or separator == "%"):
        raise UsageError(f"{text!r}: put a separator such as ':' between two fields")
    quote = _quoting_function("{}" + separator)
    field = ".".join(piece.path)
    is_direct = len(piece.path) == 1 and not piece.is_hashed

    rest = piece.path[1:]

    def write(value: Any) -> str:
        try:
            value = _follow_path(value, rest) if rest else value
        except (AttributeError, KeyError, TypeError):
            raise UsageError(f"{text!r}: this call has no value for {field!r}") from None
        if piece.is_hashed:
            return _hashed_value(text, field, value)
        return quote(value if type(value) is str and value else _checked_text(text, field, value))

    return (separator or "{") if is_direct else "", write


def _quoting_function(characters: str) -> Callable[[str], str]:
    """Percent-encode *characters*, and a `%` that would be read as one of their codes.

    Every `%` where one of *characters* is a letter of a code itself: `%7` and a B would be a `{`.
    """
    codes = {character: _percent_code(character) for character in characters}
    written = [*codes.values(), "%25"]
    is_digit = any(character in code for character in characters for code in written)
    readings = "" if is_digit else "|".join(code[1:] for code in written)
    pattern = re.compile(f"[{re.escape(characters)}]|%(?={readings})")
    search, replace = pattern.search, pattern.sub

    def quote(value: str) -> str:
        if search(value) is None:  # nearly always, and ten times quicker than to replace nothing
            return value
        return replace(lambda found: codes.get(found[0], "%25"), value)

    return quote


def _percent_code(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))


def _hashed_value(template: str, field: str, value: object) -> str:
    """32 hex digits that are the same for equal data. Raises UsageError if it is no data."""
    try:
        return fingerprint(value).decode()
    except UsageError as error:
        raise UsageError(f"{template!r}: {field!r} cannot be hashed: {error}") from None


def _checked_text(template: str, field: str, value: object) -> str:
    """Return *value* as text. Raises UsageError if it is None or empty, or no plain value."""
    if type(value) is int and -(10**18) < value < 10**18:
        return str(value)
    text = None if value is None else plain_text(value)
    if value is None or text == "":
        message = f"{template!r}: {field!r} is None or empty in this call"
        raise UsageError(f"{message}; {{{field}:hash}} accepts every value")
    if text is None:
        message = f"a field must be {PLAIN_TYPES}, not {type(value).__name__}"
        raise UsageError(f"{template!r}: {message}: write {{{field}.id}} or {{{field}:hash}}")
    return text


# ---- arguments


class Fields:
    """Parts of a call's arguments, by dotted paths: what is submitted, besides the key."""

    def __init__(self, paths: tuple[str, ...], function: Callable[..., Any]) -> None:
        self._paths = [(path, tuple(path.split("."))) for path in paths]
        self._roots = list(dict.fromkeys(words[0] for _, words in self._paths))
        check_parameters(", ".join(paths), self._roots, function)
        self._pick = _argument_picker(function, self._roots)

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """Return the value of each path. Raises UsageError if this call lacks one."""
        values = dict(zip(self._roots, self._pick(*args, **kwargs), strict=True))
        try:
            return {path: _follow_path(values[words[0]], words[1:]) for path, words in self._paths}
        except (AttributeError, KeyError, TypeError) as error:
            raise UsageError(f"payload: this call has no value for {error}") from None


def checked_paths(given: object, option: str = "payload") -> tuple[str, ...]:
    """Return one path or several, as a tuple. Raises UsageError if they are not strings."""
    if isinstance(given, str):
        return (given,)
    paths = tuple(cast("Iterable[Any]", given)) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(path, str) for path in paths):
        raise UsageError(
            f"{option} must name arguments, by strings such as 'cart.id', not {given!r}"
        )
    return cast("tuple[str, ...]", paths)


_GENERATOR = (
    "a generator runs item by item, when the call has long returned: to share what it yields and "
    "keep it, use streamed; to guard it, hold or claim the key in its body"
)


def function_error(function: object, otherwise: str) -> str:
    """Return what is wrong with a *function* that a decorator cannot wrap."""
    if isinstance(function, classmethod | staticmethod):
        kind = type(cast("object", function)).__name__
        return f"put @{kind} above the decorator of dibs: it wraps the function itself"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return _GENERATOR
    return otherwise


def check_parameters(text: str, roots: list[str], function: Callable[..., Any]) -> None:
    """Raise UsageError if *function* has no parameter of one of these names."""
    parameters = signature_of(function).parameters
    for root in roots:
        if root not in parameters:
            where = getattr(function, "__qualname__", repr(function))
            raise UsageError(f"{text!r}: {where}() has no parameter {root!r}")


def check_ignored(text: str, function: Callable[..., Any], ignore: object) -> tuple[str, ...]:
    """Return the parameters that are left out of the key on purpose.

    UsageError: *function* has no such parameter, or the template has it as a field.
    """
    names = checked_paths(ignore, "ignore")
    check_parameters(text, list(names), function)
    fields = set(roots_of(text)).intersection(names)
    if fields:
        raise UsageError(f"{text!r}: {min(fields)!r} is a field; it cannot be ignored")
    return names


def check_fields(text: str, function: Callable[..., Any], ignore: tuple[str, ...]) -> None:
    """UsageError: the template has no field, so all calls of *function* would share one value.

    `self` and `cls` are no fields; *ignore* names others.
    """
    parameters = signature_of(function).parameters
    first = next(iter(parameters), None)
    args = [name for name in parameters if name not in ignore]
    if first in ("self", "cls") and first in args:
        args.remove(first)
    if not args or roots_of(text):
        return
    where = getattr(function, "__qualname__", repr(function))
    named = "".join(f"{name!r}, " for name in (*ignore, *args)).strip()
    raise UsageError(
        f"{text!r} has no field: callers of {where}() with different arguments would get the same "
        f"result. Name arguments in braces, as in '{text}:{{{args[0]}}}', and not in an f-string; "
        f"or pass ignore=({named}) if they make no difference"
    )


def _function_taking(names: list[str]) -> Callable[..., Any]:
    """Return a function whose parameters are *names*."""
    return eval(f"lambda *, {', '.join(names)}: None" if names else "lambda: None")


def _argument_picker(
    function: Callable[..., Any], names: list[str]
) -> Callable[..., tuple[Any, ...]]:
    """Return a function with the same parameters that returns those named.

    Made once, so that Python itself matches arguments to parameters at every call: ten times
    quicker than `Signature.bind`. Calling it wrongly is the same TypeError as for the function.
    """
    signature = signature_of(function)
    known: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for number, parameter in enumerate(signature.parameters.values()):
        default = parameter.default
        if default is not inspect.Parameter.empty:
            known[f"_default_{number}"] = default
            default = _Verbatim(f"_default_{number}")
        parameters.append(parameter.replace(default=default, annotation=inspect.Parameter.empty))
    listed = str(inspect.Signature(parameters))[1:-1]
    picker = eval(f"lambda {listed}: ({''.join(f'{name}, ' for name in names)})", known)
    picker.__qualname__ = getattr(function, "__qualname__", picker.__qualname__)
    return picker


OnBusy = Callable[[Busy], Any] | Callable[Concatenate[Busy, ...], Any]
OnDuplicate = Callable[[Duplicate], Any] | Callable[Concatenate[Duplicate, ...], Any]
"""What answers in place of a refused call; both forms, because mypy infers no lambda from one."""
RefusalAnswer = Callable[[Any, tuple[object, ...], dict[str, object]], Any]
"""Called with the error, and the arguments of the call that was refused."""


def answering(answer: Callable[..., Any], function: Callable[..., Any], what: str) -> RefusalAnswer:
    """*answer*, which gets the error and, by their names, the arguments of *function* it takes.

    UsageError: it needs one that *function* does not have. *what*: the option.
    """
    try:
        first, *more = signature_of(answer).parameters.values()
    except ValueError:  # some built-in functions do not say what they take
        return lambda error, args, kwargs: answer(error)
    known = list(signature_of(function).parameters)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [each for each in more if each.kind in named and each.default is each.empty]
    for each in needed:
        if each.name not in known:
            raise UsageError(f"{what}= takes {each.name!r}, which the function does not have")
    names = [each.name for each in more if each.kind in named and each.name in known]
    if any(each.kind is each.VAR_KEYWORD for each in (first, *more)):
        names = [name for name in known if name != first.name]
    if not names:
        return lambda error, args, kwargs: answer(error)
    pick = _argument_picker(function, names)
    return lambda error, args, kwargs: answer(
        error, **dict(zip(names, pick(*args, **kwargs), strict=True))
    )


class _Verbatim(str):
    """Stands for itself in a printed signature."""

    def __repr__(self) -> str:
        return str(self)


def _follow_path(value: Any, path: tuple[str, ...]) -> Any:
    """Follow a dotted path through attributes and mappings."""
    for word in path:
        value = cast(Any, value)[word] if isinstance(value, dict) else getattr(value, word)
    return value
