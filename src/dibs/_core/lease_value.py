"""What the value of a key says: whose it is, whether it was released, and a note."""

import re
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from .request import Reply


def token_maker(prefix: bytes, holder: bytes, first: int = 1) -> Callable[[], bytes]:
    """Return what makes proofs of ownership.

    Unique by prefix and number; after the @ the holder.
    """
    template = b"%b-%%x@%b" % (prefix, holder.replace(b"%", b"%%"))
    return map(template.__mod__, count(first)).__next__  # no Python code runs for each


_SECRET = re.compile(rb"[^ @]*")


def secret_of(value: bytes) -> bytes:
    """Return the unique part of a value: a token up to the @, or a record's first word."""
    match = _SECRET.match(value)
    return b"" if match is None else match[0]


class ValueParts(NamedTuple):
    """What the value of a key says: `5a1f…-2c 9b1e… 193310c1a40@web-1:4711`, and a note."""

    words: bytes
    """The secret; of a claim, its fingerprint and its time as well."""
    holder: bytes | None
    """None: it was not written by dibs."""
    note: bytes | None

    @property
    def is_claim(self) -> bool:
        """A lease has one word, the lock of a load up to two, a claim three."""
        return b" " in self.words


def parts_of(value: bytes) -> ValueParts:
    """Return the one place that knows how a value is put together; `running_record` makes it."""
    words, mark, rest = value.partition(b"@")
    holder, line, note = rest.partition(b"\n")
    return ValueParts(words, holder if mark else None, note if line else None)


def holder_in(value: Reply) -> str | None:
    """Return who, from the value. None: the key was written by something that is not dibs."""
    if not isinstance(value, bytes) or value.startswith(b"dibs1 "):  # or not a lease: a result
        return None
    holder = parts_of(value).holder
    if holder is None:
        return None
    return holder.removesuffix(_COOLING).partition(FETCHED)[0].decode(errors="replace")


_COOLING = b" cooling"
"""Behind the holder of a lease that was released, while its `at_least` keeps the key."""


def cooled(token: bytes) -> bytes:
    """Return the value of a key after its release, while `at_least` keeps it."""
    return token + _COOLING


def is_cooling(value: bytes) -> bool:
    """Return whether *value* says that the key was released."""
    return value.endswith(_COOLING) and (parts_of(value).holder or b"").endswith(_COOLING)


FETCHED = b" fetched:"
"""Between the holder of a job's claim and the id of the worker that has fetched its message."""


def worker_in(value: bytes) -> str | None:
    """Return the id of the worker that has fetched the message of a job; None: none has."""
    _, mark, worker = (parts_of(value).holder or b"").partition(FETCHED)
    return worker.decode(errors="replace") if mark else None


def note_in(value: Reply) -> str | None:
    """Return the note of a running claim, from the value of its key."""
    if not isinstance(value, bytes) or value.startswith(b"dibs1 "):
        return None
    note = parts_of(value).note
    return None if note is None else note.decode(errors="replace")
