"""The body of a request: the fields of a form, and the hash of a body too long for memory.

The boundary between the parts of a multipart form differs each time the form is sent, so the bytes
of two equal forms differ. Nothing here depends on how a server cut the body into pieces.
"""

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .._locks import Guard

SHORT = 1 << 20
"""Bytes of a body that are held in memory, and parsed as JSON or as a form."""
BODY_LIMIT = 8 << 20
"""Bytes of a body that a guarded route accepts by default."""
BODY_TIMEOUT = 60.0
"""Seconds in which a body has to arrive, by default."""
SPOOL_LIMIT = 256 << 20
"""Bytes of long bodies that a process holds at a time, by default."""
LONG_TO_PARSE = 64 * 1024
"""Bytes of a body that is parsed beside the event loop: a megabyte of numbers takes 0.3 s."""
MOST_FIELDS = 10_000
"""A form with more fields is compared by its bytes."""
PIECE = 256 * 1024
"""Bytes that are written to a file, or read from it, at a time."""

Field = list[str]
"""Name and value; of a file, name, file name and hash."""

_BOUNDARY = re.compile(r'boundary="?([^";,]{1,200})"?', re.IGNORECASE)
# Not the email package: it takes minutes for a long line of parameters, and recurses on brackets.
_DISPOSITION = re.compile(
    rb"^content-disposition[ \t]*:([^\r\n]{,8000})", re.IGNORECASE | re.MULTILINE
)
_PARAMETER = re.compile(
    rb';[ \t]*(name|filename[*0-9]*)[ \t]*=[ \t]*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^;]*))',
    re.IGNORECASE,
)
_PLAIN_TYPE = re.compile(
    r'multipart/form-data; ?boundary=(?:"[^"\\,;]{1,200}"|[^\s"\\,;=]{1,200})(?:; ?charset=utf-8)?',
    re.IGNORECASE,
)
_PLAIN_NAME = rb'(?:"[^"\\\x00-\x1f]*"|[\w.\[\]-]+)'
_PLAIN_HEADERS = {
    b"content-disposition": re.compile(
        rb" ?form-data; ?name=%b(?:; ?filename=%b)?(?:; ?filename\*=utf-8''[\w.~%%-]*)?"
        % (_PLAIN_NAME, _PLAIN_NAME),
        re.IGNORECASE,
    ),
    b"content-type": re.compile(
        rb" ?(?!multipart/)[^\s;,/]+/[^\s;,/]+(?:; ?charset=(?:utf-8|us-ascii))?", re.IGNORECASE
    ),
    b"content-transfer-encoding": re.compile(rb" ?(?:7bit|8bit|binary)", re.IGNORECASE),
}
"""Headers of a part that parsers read, in the form in which all of them read the same."""
_HEADER_NAME = re.compile(rb"[\w-]+")
_LINE_END = re.compile(rb"[\r\n]")
_LONGEST_HEAD = 16 * 1024
_LONGEST_VALUE = 64 * 1024
"""Bytes of a text field that are kept as text; a longer one is hashed."""
_MOST_TEXT = 1 << 20
"""Bytes of text that are kept of one form; further values are hashed."""
_MOST_PARTS = 10_000
"""All further parts are hashed as one."""


def boundary_of(content_type: str) -> bytes | None:
    """Return the boundary between the parts; None: the header has none."""
    match = _BOUNDARY.search(content_type)
    return None if match is None else match[1].strip().encode("utf-8", "surrogateescape")


class Form(NamedTuple):
    """A multipart form."""

    fields: list[Field]
    """The fields and files, sorted by name."""
    is_plain: bool
    """True: written as clients do, so that no two parsers read it differently."""


def read_multipart(content_type: str, body: bytes) -> Form | None:
    """Read a whole form. None: this is not a form."""
    boundary = boundary_of(content_type)
    if boundary is None:
        return None
    reader = FormReader(boundary, content_type)
    reader.add(body)
    return reader.form()


def form_fields(
    values: Iterable[tuple[str | None, str]],
    files: Iterable[tuple[str | None, str | None, str]] = (),
) -> list[Field]:
    """The fields (name, value) and files (name, file name, hash) of a form that is parsed already.

    Sorted by name; the values of one name stay in the order in which they were sent. Werkzeug knows
    parts without a name.
    """
    named = [[name or "", value] for name, value in values]
    return _by_name([*named, *[[name or "", file or "", digest] for name, file, digest in files]])


def _by_name(fields: list[Field]) -> list[Field]:
    return sorted(fields, key=lambda field: field[0])


class FormReader:
    """Parses a multipart form as its bytes arrive."""

    def __init__(self, boundary: bytes, content_type: str) -> None:
        self._mark = b"\r\n--" + boundary
        self._is_plain = _PLAIN_TYPE.fullmatch(content_type) is not None
        self._held = b"\r\n"  # the first boundary has no line before it
        self._parts: list[_Part] = [_Part(0)]  # what comes before the first boundary
        self._text = _MOST_TEXT

    def add(self, piece: bytes) -> None:
        """Read the next bytes of the body."""
        data, start = self._held + piece, 0
        while (index := data.find(self._mark, start)) >= 0 and len(self._parts) < _MOST_PARTS:
            self._parts[-1].add(data[start:index])
            self._text -= self._parts[-1].end()
            self._parts.append(_Part(min(self._text, _LONGEST_VALUE)))
            start = index + len(self._mark)
        rest = max(start, len(data) - len(self._mark) + 1)  # a boundary may begin in here
        self._parts[-1].add(data[start:rest])
        self._held = data[rest:]

    def form(self) -> Form | None:
        """After the last byte: what was read. None: it is not a form."""
        self._parts[-1].add(self._held)
        self._held = b""
        self._parts[-1].end()
        before, *parts = self._parts
        if not parts:
            return None
        is_whole = before.is_empty and parts[-1].is_end and len(parts) < _MOST_PARTS - 1
        is_plain = self._is_plain and is_whole and all(part.is_plain for part in parts[:-1])
        fields = [part.field() for part in parts]
        return Form(_by_name([field for field in fields if field is not None]), is_plain)


class _Part:
    """What is between two boundaries. A part that cannot be parsed is compared by its bytes."""

    __slots__ = (
        "_hash", "_head", "_is_last", "_most", "_names", "_size", "_value", "is_end", "is_plain",
    )  # fmt: skip

    def __init__(self, most: int) -> None:
        self.is_plain = False
        """True: all parsers read it as it is read here."""
        self.is_end = False
        """True: it is what a form ends with, and nothing more."""
        self._head: bytes | None = b""
        """The bytes of the head so far; None: the head has ended."""
        self._is_last = False
        self._names: list[str] = []
        self._most = most
        self._value: list[bytes] = []
        self._size = 0
        self._hash = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Read the next bytes of the body."""
        if self._head is None:
            self._content(data)
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n", 0, _LONGEST_HEAD)
        if end >= 0 or len(self._head) >= _LONGEST_HEAD:
            self._begin(end)

    def _begin(self, end: int) -> None:
        data, self._head = self._head or b"", None
        if end >= 0 and data.lstrip(b" \t").startswith(b"\r\n"):
            self._names = _names(data[:end])
            self.is_plain = bool(self._names) and _is_plain(data[:end])
        self._content(data[end + 4 :] if self._names else data)

    def _content(self, data: bytes) -> None:
        self._size += len(data)
        self._hash.update(data)
        if self._size <= self._most and len(self._names) == 1:
            self._value.append(data)
        else:
            self._value.clear()

    def end(self) -> int:
        """End the part. Returns the number of bytes that it keeps as text."""
        if self._head is not None:
            self._is_last = self._head.strip() == b"--"
            self.is_end = self._head in (b"--", b"--\r\n")
            self._begin(-1)
        return sum(map(len, self._value))

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing between the boundaries."""
        return not self._size

    def field(self) -> Field | None:
        """Return the field or file; None: this is the end of the form."""
        if self._is_last:
            return None
        if len(self._names) == 1 and self._size <= self._most:
            return [*self._names, _text(b"".join(self._value))]
        name, file = [*self._names, "", ""][:2]
        return [name, file, self._hash.hexdigest()]


def _names(head: bytes) -> list[str]:
    """Return the name of a field; of a file, its name and file name.

    Empty: the part has no name.
    """
    about = _DISPOSITION.search(head)
    if about is None:
        return []
    names = {kind.lower(): quoted or bare for kind, quoted, bare in _PARAMETER.findall(about[1])}
    name = names.pop(b"name", None)
    if name is None:
        return []
    files = [_text(value.strip()) for _, value in sorted(names.items())]
    return [_text(name.strip()), *files[:1]]


def _is_plain(head: bytes) -> bool:
    """True: each header that parsers read comes once, in a line of its own, as clients write it."""
    first, *lines = head.split(b"\r\n")
    seen: set[bytes] = set()
    for line in lines:
        name, colon, value = line.partition(b":")
        name, form = name.lower(), _PLAIN_HEADERS.get(name.lower())
        is_header = colon and _HEADER_NAME.fullmatch(name) and not _LINE_END.search(value)
        if not is_header or name in seen or (form and not form.fullmatch(value)):
            return False
        seen.add(name)
    return not first and b'name="_charset_"' not in head


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# ---- long bodies


class LongBody(NamedTuple):
    """What is known of a body that is longer than SHORT."""

    digest: str
    form: Form | None
    """The fields and files, if it is a multipart form."""


class BodyHash:
    """Hashes a long body as its bytes arrive."""

    __slots__ = ("_form", "_hash")

    def __init__(self, content_type: str) -> None:
        self._hash = hashlib.sha256()
        is_form = content_type.lstrip().lower().startswith("multipart/form-data")
        boundary = boundary_of(content_type) if is_form else None
        self._form = None if boundary is None else FormReader(boundary, content_type)

    def add(self, piece: bytes) -> None:
        """Read the next bytes of the body."""
        self._hash.update(piece)
        if self._form is not None:
            self._form.add(piece)

    def result(self) -> LongBody:
        """After the last byte."""
        form = None if self._form is None else self._form.form()
        return LongBody(self._hash.hexdigest(), form)


def declared_length(headers: Mapping[str, str]) -> int | None:
    """Return the Content-Length; None: it is missing or malformed."""
    text = headers.get("content-length", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


class Spool:
    """How many bytes of long bodies this process holds at a time.

    They arrive before it is known who submits, so without a limit anybody could fill the disk.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Guard()
        self._pid = os.getpid()
        self.used = 0

    def take(self, size: int) -> bool:
        """Count *size* more bytes. False: there is no room for them."""
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the bodies belong to the parent
                self._pid, self.used = os.getpid(), 0
            if self.used + size > self._limit:
                return False
            self.used += size
            return True

    def give_back(self, size: int) -> None:
        """These bytes are no longer held."""
        with self._lock:
            self.used = max(self.used - size, 0)


spool_of = functools.cache(Spool)
"""The spool with a limit: all guards of a process that have the same limit share it."""


class SpooledSize:
    """The bytes of one body beyond those that are held in memory."""

    __slots__ = ("_spool", "_taken")

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._taken = 0

    def grow(self, size: int) -> bool:
        """The body has *size* bytes so far. False: there is no room for it."""
        more = size - SHORT - self._taken
        if more <= 0:
            return True
        if not self._spool.take(more):
            return False
        self._taken += more
        return True

    def close(self) -> None:
        """The body is no longer held."""
        taken, self._taken = self._taken, 0
        if taken:
            self._spool.give_back(taken)


# ---- a body that the framework has parsed, or that is not wanted


def drain(read: Callable[[int], bytes], most: int) -> None:
    """Read and drop up to *most* bytes.

    A client that is still sending would lose its connection, and the response with it.
    """
    while most > 0 and (piece := read(min(most, 65536))):
        most -= len(piece)


def file_hash(file: Any) -> str:
    """Return the hash of an uploaded file; its position is restored for the application."""
    position, hashing = file.tell(), hashlib.sha256()
    file.seek(0)
    while piece := file.read(PIECE):
        hashing.update(piece)
    file.seek(position)
    return hashing.hexdigest()
