"""How values are written in keys."""

import datetime
import decimal
import enum
import operator
import pathlib
import uuid
from typing import Any, cast

from ..errors import UsageError

LONGEST_KEY = 1024
PLAIN = "text, numbers, booleans, dates, UUIDs, enums and bytes"
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
    """How a plain value is written in a key; None: it is not plain.

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
