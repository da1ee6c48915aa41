"""The text fields of a multipart form. Files are left out: they are no part of a submission's key.

The boundary between the parts is another one each time a form is sent, so the bytes of two equal
forms differ.
"""

import re

_BOUNDARY = re.compile(r'boundary="?([^";,]{1,200})"?', re.IGNORECASE)
# Not the email package: it takes minutes for a long line of parameters, and recurses on brackets.
_DISPOSITION = re.compile(
    rb"^content-disposition[ \t]*:([^\r\n]{,8000})", re.IGNORECASE | re.MULTILINE
)
_PARAMETER = re.compile(
    rb';[ \t]*(name|filename[*0-9]*)[ \t]*=[ \t]*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^;]*))',
    re.IGNORECASE,
)


def fields_of_multipart(
    content_type: str, body: bytes, *, is_whole: bool = True
) -> list[list[str]] | None:
    """Name and value of each field that is not a file, sorted by name. None: this is no form.

    Of a beginning (*is_whole* is False), the fields that are in it to their end.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        return None
    mark = b"--" + found[1].strip().encode("utf-8", "surrogateescape")
    parts = (b"\r\n" + body).split(b"\r\n" + mark)[1:]
    if not parts:
        return None
    there = parts if is_whole else parts[:-1]
    fields = [_field(part[2:]) for part in there if part.startswith(b"\r\n")]
    return by_name([field for field in fields if field is not None])


def by_name(fields: list[list[str]]) -> list[list[str]]:
    """Sorted; the values of one name stay in the order in which they were sent."""
    return sorted(fields, key=lambda field: field[0])


def _field(part: bytes) -> list[str] | None:
    head, blank, value = part.partition(b"\r\n\r\n")
    about = _DISPOSITION.search(head) if blank else None
    if about is None:
        return None
    names = {kind.lower(): quoted or bare for kind, quoted, bare in _PARAMETER.findall(about[1])}
    name = names.pop(b"name", None)
    if name is None or names:
        return None
    return [_text(name.strip()), _text(value)]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
