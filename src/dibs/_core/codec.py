"""Values ↔ framed bytes: one line that says what follows, then the value itself.

    dibs1 json 4f2a91c0 1731640000.123 0.205
    {"menuVersionId": …}

Version, codec, fingerprint of the schema, when it was made (seconds since the epoch), how long the
load took (seconds), and the versions of its tags, if it has any. Readable in redis-cli. Whatever
does not fit – another version, another codec, another schema, foreign bytes – is a miss, never an
exception. Never pickle unless asked by name.
"""

import contextlib
import functools
import json
import math
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, cast

from ..errors import UsageError
from .codec_converters import ANYTHING, JsonValue
from .codec_types import shape_of

MAGIC = b"dibs1"
MARK = b"dibs1 ~"
"""A load is under way; what follows is whose."""
FAILURE = "!"
"""The codec of a failed load that is remembered; the value is the name of its error."""
NO_VALUE = "no value"
"""… or this: a load of many returned none. No class is called so."""


class Codec(Protocol):
    """How values become bytes. `name` is in every frame, `fingerprint` changes with the schema."""

    name: str
    fingerprint: str

    def encode(self, value: Any) -> bytes:
        """Return the value as bytes. Raises UsageError if it cannot be."""
        ...

    def decode(self, data: bytes) -> Any:
        """Return the value. Any exception means that the bytes cannot be read."""
        ...


class Frame(NamedTuple):
    """What a frame holds."""

    codec: str
    fingerprint: str
    made_at: float
    took: float
    payload: bytes
    versions: list[bytes | None]


def frame(
    codec: str,
    fingerprint: str,
    made_at: float,
    took: float,
    payload: bytes,
    versions: Iterable[bytes | None] = (),
) -> bytes:
    """Return one line about the value, and the value. *versions*: those of its tags."""
    head = f"dibs1 {codec} {fingerprint} {made_at:.3f} {took:.6f}".encode()
    tagged = b"".join([b" " + version for version in versions if version is not None])
    return b"%b%b\n%b" % (head, tagged, payload)


def head_of(codec: Codec) -> bytes:
    """Return how every frame of *codec* begins, as long as its schema is the same."""
    return f"dibs1 {codec.name} {codec.fingerprint} ".encode()


def loading_mark(token: bytes) -> bytes:
    """Return what stands in a value's place while it is loaded for the first time."""
    return MARK + b" " + token


def unframe(data: bytes) -> Frame | None:
    """Return what the frame holds; None: these bytes are not ours, or of another version."""
    head, newline, payload = data.partition(b"\n")
    words = head.split(b" ")
    if not newline or len(words) < 5 or words[0] != MAGIC:
        return None
    try:
        codec, fingerprint = words[1].decode(), words[2].decode()
        made_at, took = float(words[3]), float(words[4])
        return Frame(codec, fingerprint, made_at, took, payload, list(words[5:]))
    except ValueError:
        return None


_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_read = json.JSONDecoder().decode
"""`json.loads`, without guessing each time in which encoding the bytes are."""


def _write_json(value: Any) -> bytes:
    return _write(value).encode()


def _read_json(data: bytes) -> Any:
    return _read(data.decode())


class JsonCodec:
    """Readable in redis-cli and by other languages; types through *of*."""

    name = "json"

    def __init__(self, of: Any = None) -> None:
        shape = None if of is None else shape_of(of)
        self.fingerprint = "-" if shape is None else shape.fingerprint
        self._to_plain = ANYTHING.write if shape is None else shape.to_plain
        self._from_plain = None if shape is None else shape.from_plain
        self._is_untyped = of is None or of is Any
        self._dumps, self._loads = _write_json, _read_json

    def pack(self, value: Any) -> tuple[bytes, Any]:
        """Return *value* as bytes, and as it is read back."""
        if self._is_untyped:
            # What is read back equal has lost nothing: no need to walk through it in Python.
            with contextlib.suppress(Exception):
                data = self._dumps(value)
                plain = self._loads(data)
                if plain == value and type(plain) is type(value):
                    return data, plain
        data = self._encode_plain(value)
        return data, self.decode(data)

    def encode(self, value: Any) -> bytes:
        """Return *value* as bytes. Raises UsageError if it cannot be."""
        return self._encode_plain(value)

    def _encode_plain(self, value: Any) -> bytes:
        try:
            plain = self._to_plain(value)
            return _write_json(plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise _cannot_hold(error) from None

    def decode(self, data: bytes) -> Any:
        plain = self._loads(data)
        return plain if self._from_plain is None else self._from_plain(plain)


def _cannot_hold(error: Exception) -> UsageError:
    """Return what is wrong, without the value: an error of Unicode would print it."""
    if isinstance(error, UsageError):
        return error
    reason = type(error).__name__ if isinstance(error, UnicodeError | RecursionError) else error
    return UsageError(f"JSON cannot encode this value ({reason}); pass type= or codec=")


class BytesCodec:
    """Bytes as they are."""

    name = "bytes"
    fingerprint = "-"

    def __init__(self, of: Any = None) -> None:
        if of not in (None, bytes, Any, JsonValue):
            raise UsageError(f"codec='bytes' keeps bytes, not {getattr(of, '__name__', of)}")

    def encode(self, value: Any) -> bytes:
        if type(value) is not bytes:
            raise UsageError(f"codec='bytes' keeps bytes, not {type(value).__name__}")
        return value

    def decode(self, data: bytes) -> bytes:
        return data


class FastJsonCodec(JsonCodec):
    """JSON by another library: the same types, quicker. Not the same bytes: its own name."""

    def __init__(self, library: str, of: Any) -> None:
        super().__init__(of)
        self.name = library
        self._dumps, self._loads = _fast_json(library)

    def encode(self, value: Any) -> bytes:
        """Return *value* as bytes; to read them back is quicker than to walk through it."""
        return self.pack(value)[0] if self._is_untyped else self._encode_plain(value)

    def _encode_plain(self, value: Any) -> bytes:
        try:
            plain = self._to_plain(value)
            _check_json(plain)
            return self._dumps(plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise _cannot_hold(error) from None


def _fast_json(library: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return how it writes and reads. Raises UsageError if it is not installed."""
    try:
        if library == "orjson":
            import orjson

            return orjson.dumps, orjson.loads
        import msgspec

        return msgspec.json.encode, msgspec.json.decode
    except ImportError:
        raise UsageError(f"codec={library!r} needs the package: pip install {library}") from None


def _check_json(plain: Any) -> None:
    """Raise TypeError if these libraries would write it as something else.

    A set as a list, NaN as null.
    """
    if isinstance(plain, dict):
        for each in cast("dict[str, Any]", plain).values():
            _check_json(each)
    elif isinstance(plain, list | tuple):
        for each in cast("list[Any]", plain):
            _check_json(each)
    elif isinstance(plain, float) and not math.isfinite(plain):
        raise TypeError("NaN and infinity are no JSON")
    elif plain is not None and not isinstance(plain, str | int | float):
        raise TypeError(f"{type(plain).__name__} is no JSON")


class PickleCodec:
    """Any Python object – and any code of anyone who can write to the store."""

    name = "pickle"
    fingerprint = "-"

    def encode(self, value: Any) -> bytes:
        import pickle

        return pickle.dumps(value, protocol=5)

    def decode(self, data: bytes) -> Any:
        import pickle

        return pickle.loads(data)


MOST_DECOMPRESSED = 64
"""Megabytes that a compressed value may have, if its codec does not say: `json+zlib:256`."""


def decompressed(data: bytes, most: int, member: Any = None) -> bytes:
    """Return what zlib has compressed, with all bytes that follow it unread in *member*.

    ValueError: it is longer than *most*, or does not end. zlib.error: it is no such data.
    """
    member = zlib.decompressobj() if member is None else member
    plain = member.decompress(data, most + 1)
    if len(plain) > most or not member.eof:
        raise ValueError("the decompressed data is too long, or not whole")
    return plain


class Compressed:
    """Another codec, through zlib."""

    def __init__(self, inner: Codec, most: int = MOST_DECOMPRESSED) -> None:
        """*most*: how many megabytes a value may have before it is compressed."""
        self._inner = inner
        self._most = most * 1024 * 1024
        self.name = f"{inner.name}+zlib"
        self.fingerprint = inner.fingerprint

    def pack(self, value: Any) -> tuple[bytes, Any]:
        data, plain = _packed_with(self._inner, value)
        return self._compressed_body(data), plain

    def encode(self, value: Any) -> bytes:
        return self._compressed_body(self._inner.encode(value))

    def decode(self, data: bytes) -> Any:
        return self._inner.decode(decompressed(data, self._most))

    def _compressed_body(self, data: bytes) -> bytes:
        if len(data) > self._most:
            megabytes = math.ceil(len(data) / 1024 / 1024)
            raise UsageError(
                f"this value has {megabytes} MB before it is compressed, and would not be read"
                f" again; pass codec='{self.name}:{megabytes}' or more"
            )
        return zlib.compress(data, level=1)


ITERATOR = (
    "a generator or another iterator is used up by its first reader, and cannot be kept: return a "
    "list or a text, or put streamed on a generator function"
)


def packed(codec: Codec, value: Any, name: str) -> tuple[bytes, Any]:
    """Return *value* as bytes, and as callers get it back. UsageError: it cannot be kept.

    *name*: what the error calls the key.
    """
    try:
        return _packed_with(codec, value)
    except Exception as error:  # pickle, and whatever callers bring, raise what they like
        if isinstance(value, Iterator | AsyncIterator):
            raise UsageError(f"{name}: {ITERATOR}") from None
        if isinstance(error, UsageError):
            raise UsageError(f"{name}: {error}") from None
        message = f"{name}: {codec.name} cannot encode this value ({type(error).__name__})"
        raise UsageError(f"{message}; pass type= or codec=") from error


def _packed_with(codec: Codec, value: Any) -> tuple[bytes, Any]:
    if isinstance(codec, JsonCodec | Compressed):
        return codec.pack(value)
    data = codec.encode(value)
    return data, codec.decode(data)


CODECS: dict[str, Callable[[Any], Codec]] = {
    "json": JsonCodec,
    "orjson": functools.partial(FastJsonCodec, "orjson"),
    "msgspec": functools.partial(FastJsonCodec, "msgspec"),
    "bytes": BytesCodec,
    "pickle": lambda of: PickleCodec(),
}
"""By the names that options have. docs/caching/types.md has a row for each."""


def make_codec(codec: object, of: Any) -> Codec:
    """Return the codec that the caller named or brought.

    Raises UsageError if there is no such one.
    """
    if not isinstance(codec, str):
        return _checked_codec(codec)
    name, plus, compression = codec.partition("+")
    compression, colon, most = compression.partition(":")
    if plus and compression != "zlib":
        raise UsageError(f"unknown compression {compression!r}; known: zlib")
    if colon and not re.fullmatch("[1-9][0-9]{0,5}", most):
        raise UsageError(f"codec={codec!r}: after the colon comes a number of megabytes")
    if name not in CODECS:
        known = ", ".join((*CODECS, "or an object with encode and decode"))
        raise UsageError(f"unknown codec {name!r}; known: {known}")
    inner = CODECS[name](of)
    return Compressed(inner, int(most or MOST_DECOMPRESSED)) if plus else inner


def _checked_codec(codec: Any) -> Codec:
    for part in ("name", "fingerprint", "encode", "decode"):
        if not hasattr(codec, part):
            raise UsageError(
                f"a codec needs name, fingerprint, encode and decode; {part} is missing"
            )
    if " " in codec.name or "\n" in codec.name or codec.name == FAILURE:
        raise UsageError(f"the name of a codec must be one word, not {codec.name!r}")
    return codec
