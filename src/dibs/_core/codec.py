"""Values ↔ framed bytes: one line that says what follows, then the value itself.

    dibs1 json 4f2a91c0 1731640000.123 0.205
    {"menuVersionId": …}

Version, codec, fingerprint of the schema, when it was made (seconds since the epoch), how long the
load took (seconds), and the versions of its tags, if it has any. Readable in redis-cli. Whatever
does not fit – another version, another codec, another schema, foreign bytes – is a miss, never an
exception. Never pickle unless asked by name.
"""

import json
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from ..errors import UsageError
from .converters import ANYTHING, Misfit
from .shapes import shape_of

MAGIC = b"dibs1"
MARK = b"dibs1 ~"
"""A load is under way; what follows is whose."""
FAILURE = "!"
"""The codec of a failed load that is remembered; the value is the name of its error."""


class Codec(Protocol):
    """How values become bytes. `name` is in every frame, `fingerprint` changes with the schema."""

    name: str
    fingerprint: str

    def encode(self, value: Any) -> bytes:
        """The value as bytes. UsageError: it cannot be."""
        ...

    def decode(self, data: bytes) -> Any:
        """The value. Any exception means that the bytes cannot be read."""
        ...


class Entry(NamedTuple):
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
    """One line about the value, and the value. *versions*: those of its tags."""
    head = f"dibs1 {codec} {fingerprint} {made_at:.3f} {took:.6f}".encode()
    tagged = b"".join([b" " + version for version in versions if version is not None])
    return b"%b%b\n%b" % (head, tagged, payload)


def head_of(codec: Codec) -> bytes:
    """How every frame of *codec* begins, as long as its schema is the same."""
    return f"dibs1 {codec.name} {codec.fingerprint} ".encode()


def mark(token: bytes) -> bytes:
    """What stands in a value's place while it is loaded for the first time."""
    return MARK + b" " + token


def unframe(data: bytes) -> Entry | None:
    """What the frame holds; None: these bytes are not ours, or of another version."""
    head, newline, payload = data.partition(b"\n")
    words = head.split(b" ")
    if not newline or len(words) < 5 or words[0] != MAGIC:
        return None
    try:
        codec, fingerprint = words[1].decode(), words[2].decode()
        made_at, took = float(words[3]), float(words[4])
        return Entry(codec, fingerprint, made_at, took, payload, list(words[5:]))
    except ValueError:
        return None


_read_json = json.JSONDecoder().decode
"""`json.loads`, without guessing each time in which encoding the bytes are."""


class JsonCodec:
    """Readable in redis-cli and by other languages; types through *of*."""

    name = "json"

    def __init__(self, of: Any = None) -> None:
        shape = None if of is None else shape_of(of)
        self.fingerprint = "-" if shape is None else shape.fingerprint
        self._to_plain = ANYTHING.write if shape is None else shape.to_plain
        self._from_plain = None if shape is None else shape.from_plain

    def encode(self, value: Any) -> bytes:
        try:
            plain = self._to_plain(value)
            return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
        except (UsageError, Misfit, TypeError, ValueError, RecursionError) as error:
            raise _cannot_hold(error) from None

    def decode(self, data: bytes) -> Any:
        plain = _read_json(data.decode())
        return plain if self._from_plain is None else self._from_plain(plain)


def _cannot_hold(error: Exception) -> UsageError:
    """What is the matter, without the value: an error of Unicode would print it."""
    if isinstance(error, UsageError):
        return error
    said = type(error).__name__ if isinstance(error, UnicodeError | RecursionError) else error
    return UsageError(f"JSON cannot encode this value ({said}); pass type= or codec=")


class PickleCodec:
    """Any Python object – and any code that whoever can write to the store wants to run here."""

    name = "pickle"
    fingerprint = "-"

    def encode(self, value: Any) -> bytes:
        import pickle

        return pickle.dumps(value, protocol=5)

    def decode(self, data: bytes) -> Any:
        import pickle

        return pickle.loads(data)


class Compressed:
    """Another codec, through zlib."""

    def __init__(self, inner: Codec) -> None:
        self._inner = inner
        self.name = f"{inner.name}+zlib"
        self.fingerprint = inner.fingerprint

    def encode(self, value: Any) -> bytes:
        return zlib.compress(self._inner.encode(value), level=1)

    def decode(self, data: bytes) -> Any:
        return self._inner.decode(zlib.decompress(data))


def packed(codec: Codec, value: Any) -> tuple[bytes, Any]:
    """*value* as bytes, and as everybody gets it back. UsageError: it cannot be kept."""
    try:
        data = codec.encode(value)
        return data, codec.decode(data)
    except UsageError:
        raise
    except Exception as error:  # pickle, and whatever callers bring, raise what they like
        said = f"{codec.name} cannot encode this value ({type(error).__name__})"
        raise UsageError(f"{said}; pass type= or codec=") from error


def make_codec(codec: object, of: Any) -> Codec:
    """The codec that the caller named or brought. UsageError: there is no such one."""
    if not isinstance(codec, str):
        return _checked(codec)
    name, plus, compression = codec.partition("+")
    if plus and compression != "zlib":
        raise UsageError(f"unknown compression {compression!r}; known: zlib")
    if name == "json":
        inner: Codec = JsonCodec(of)
    elif name == "pickle":
        inner = PickleCodec()
    else:
        raise UsageError(
            f"unknown codec {name!r}; known: json, pickle, or an object with encode and decode"
        )
    return Compressed(inner) if plus else inner


def _checked(codec: Any) -> Codec:
    for part in ("name", "fingerprint", "encode", "decode"):
        if not hasattr(codec, part):
            raise UsageError(
                f"a codec needs name, fingerprint, encode and decode; {part} is missing"
            )
    if " " in codec.name or "\n" in codec.name or codec.name == FAILURE:
        raise UsageError(f"the name of a codec must be one word, not {codec.name!r}")
    return codec
