"""Bodies that are too long to be held in memory: hashed as they arrive, to the last byte."""

import hashlib
from typing import NamedTuple

from .forms import Field, FormReader, boundary_of

SHORT = 1 << 20
"""Bytes of a body that are held in memory, and read as JSON or as a form."""
LIMIT = 32 << 20
"""Bytes of a body that a guarded route takes, if the policy does not say otherwise."""


class LongBody(NamedTuple):
    """What is known of a body that is longer than SHORT."""

    digest: str
    fields: list[Field] | None
    """Of a multipart form, its fields and files."""


class BodyHash:
    """A long body, as its bytes arrive. The result does not depend on how they were cut."""

    __slots__ = ("_form", "_hash")

    def __init__(self, content_type: str) -> None:
        self._hash = hashlib.sha256()
        is_form = content_type.lstrip().lower().startswith("multipart/form-data")
        boundary = boundary_of(content_type) if is_form else None
        self._form = None if boundary is None else FormReader(boundary)

    def add(self, piece: bytes) -> None:
        """The next bytes."""
        self._hash.update(piece)
        if self._form is not None:
            self._form.add(piece)

    def result(self) -> LongBody:
        """At the end."""
        fields = None if self._form is None else self._form.fields()
        return LongBody(self._hash.hexdigest(), fields)


def declared_length(headers: "dict[str, str]") -> int | None:
    """How many bytes the client has said it sends; None: it has not said, or not clearly."""
    text = headers.get("content-length", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
