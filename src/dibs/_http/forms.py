"""The text fields of a multipart form. Files are left out: they are no part of a submission's key.

The boundary between the parts is another one each time a form is sent, so the bytes of two equal
forms differ.
"""

import re
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import HTTP

_BOUNDARY = re.compile(r'boundary="?([^";,]{1,200})"?', re.IGNORECASE)


def fields_of_multipart(content_type: str, body: bytes) -> list[list[str]]:
    """Name and value of each field that is not a file, sorted. A broken form has none."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        return []
    mark = b"--" + found[1].strip().encode("utf-8", "surrogateescape")
    parts = (b"\r\n" + body).split(b"\r\n" + mark)[1:]
    fields = [_field(part[2:]) for part in parts if part.startswith(b"\r\n")]
    return sorted([field for field in fields if field is not None])


def _field(part: bytes) -> list[str] | None:
    head, blank, value = part.partition(b"\r\n\r\n")
    if not blank:
        return None
    headers: Message = BytesHeaderParser(policy=HTTP).parsebytes(head + b"\r\n\r\n")
    name = headers.get_param("name", header="content-disposition")
    if headers.get_filename() is not None or not isinstance(name, str):
        return None
    return [name, value.decode("utf-8", "surrogateescape")]
