"""The content of a request: as a whole, and the values in it that `by=` selects.

A selected value says for whom an endpoint works. It has to be the one that the application reads,
else one user could be written in many ways, and each would be another submission. So a request is
refused if a name has two values, of which readers take different ones, or if its body is not what
it seems: some applications read JSON whatever a body calls itself, none looks at its coding.
"""

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, cast
from urllib.parse import parse_qsl

from .._core.keys import canonical_json, fingerprint, plain_text
from .bodies import MOST_FIELDS, Field, Form, form_fields, read_multipart
from .facts import URLENCODED, InvalidRequest, RequestFacts, ambiguous, value_text

_MISSING: Any = None
_FORMS = (URLENCODED, "multipart/form-data")
_CHARSET = re.compile(r'charset\s*=\s*"?([^\s;",]*)', re.IGNORECASE)
_CHARSETS = ("", "utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "latin1")
"""In which ASCII is written as in UTF-8. Django and Starlette decode by what is declared."""
_UNREADABLE = InvalidRequest("unreadable", "The fields of the request body cannot be read.")
_TOO_LONG = InvalidRequest("too-large", "The request body is too long to read its fields.", 413)


def content_of(facts: RequestFacts) -> tuple[str, str | bytes]:
    """The format of the body, and its content independent of layout and order, if it is known how.

    Formats are apart: a form and a list of pairs in JSON are not the same.
    """
    form = _form(facts)
    if form is not None:
        return "form", canonical_json(form.fields)
    if facts.long is not None:
        return "long", facts.long.digest
    is_readable = facts.is_json and not facts.is_compressed
    text = _canonical(_json_data(facts.body, _DECODER)) if is_readable else None
    return ("raw", facts.body) if text is None else ("json", text)


# ---- JSON


def _json_data(body: bytes, decoder: json.JSONDecoder) -> Any:
    """Return the data of a JSON body; None: it is not JSON, or nested too deeply."""
    try:
        return decoder.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except _RepeatedNameError:
        raise
    except (ValueError, RecursionError):
        return None


def _float(text: str) -> float | dict[str, str]:
    """Return a float, or the digits where a float has too few.

    Two amounts may differ in the last one.
    """
    number = float(text)
    try:
        is_exact = repr(number) == text or Decimal(repr(number)) == Decimal(text)
    except ArithmeticError:  # an exponent that not even a Decimal can hold
        is_exact = False
    return number if is_exact else {"~number": text}


class _RepeatedNameError(ValueError):
    """An object has two members of one name, of which parsers take different ones."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _RepeatedNameError
    return members


_DECODER = json.JSONDecoder(parse_float=_float)
_STRICT_DECODER = json.JSONDecoder(parse_float=_float, object_pairs_hook=_unique)


def _canonical(data: Any) -> str | None:
    """As JSON with sorted keys; None: there is no data, or it is nested too deeply."""
    try:
        return None if data is None else canonical_json(data)
    except RecursionError:
        return None


# ---- forms


def _form(facts: RequestFacts) -> Form | None:
    """Return the fields and files of a form; None: not a form, or too long to parse."""
    if facts.fields is not None:
        return Form(facts.fields, is_plain=True)
    media_type = facts.media_type
    if media_type not in _FORMS or facts.is_compressed:
        return None
    if facts.long is not None:
        return facts.long.form
    if media_type == URLENCODED:
        if facts.body.count(b"&") >= MOST_FIELDS:
            return None
        return Form(_pairs(facts.body.decode("utf-8", "surrogateescape")), is_plain=True)
    return read_multipart(facts.headers["content-type"], facts.body)


def _pairs(text: str) -> list[Field]:
    return form_fields(parse_qsl(text, keep_blank_values=True, errors="surrogateescape"))


# ---- what `by=` selects

Words = tuple[str | bytes | None, ...]


def selected(
    by: Iterable[str], user: str | None, place: str, facts: RequestFacts
) -> list[str | bytes | None] | InvalidRequest:
    """Return the values at the paths of *by*, each after its path; or what is wrong with them."""
    words: list[str | bytes | None] = []
    for path in by:
        values = _values(path, user, place, facts)
        if isinstance(values, InvalidRequest):
            return values
        words += (path, *values)
    return words


def given_text(value: object) -> str | None:
    """Return a value that an endpoint gets, for `RequestFacts.given`.

    Raises UsageError if it is not data.
    """
    if value is None:
        return None
    is_plain = plain_text(value) is not None
    return value_text(_one_number(value)) if is_plain else fingerprint(value).decode()


def _one_number(value: object) -> object:
    """Return a whole number as an int: 7.0 is the user 7."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return value


def _values(path: str, user: str | None, place: str, facts: RequestFacts) -> Words | InvalidRequest:
    root, *words = path.split(".")
    if path in facts.given:
        return "given", facts.given[path]
    if path == "body":
        return content_of(facts)
    value: Any
    if root == "user":
        value = user
    elif root == "header":
        value = facts.headers.get(".".join(words).lower())
    elif root == "path":
        value = _at(words, facts.path_texts) if words else place
    elif root == "query":
        fields = _pairs(facts.query)
        value = _of_fields(path, words, fields) if words else fields
    else:
        value = _of_body(path, words, facts)
    if isinstance(value, InvalidRequest):
        return value
    return (_canonical(_one_number(value)),)


def _of_fields(path: str, words: list[str], fields: Iterable[Field]) -> Any:
    """Return the value of a field; ambiguous: it has two."""
    name, *rest = words
    values: list[Any] = [
        each[0] if len(each) == 1 else each for named, *each in fields if named == name
    ]
    if rest:
        return _at(rest, values)
    if any(each != values[0] for each in values):
        return ambiguous(path)
    return values[0] if values else _MISSING


def _of_body(path: str, words: list[str], facts: RequestFacts) -> Any:
    """Return the value of a field of the body; or why it is not known."""
    if facts.fields is not None:
        return _of_fields(path, words, facts.fields)
    if not facts.body and facts.long is None:
        return _MISSING
    if facts.is_compressed or not _has_usual_charset(facts):
        return _UNREADABLE
    form = _form(facts)
    if form is None and (facts.long is not None or facts.is_urlencoded):
        return _TOO_LONG
    if facts.media_type == "multipart/form-data":
        is_plain = form is not None and form.is_plain
        return _of_fields(path, words, form.fields) if form and is_plain else _UNREADABLE
    return _of_json(path, words, facts, None if form is None else form.fields)


def _of_json(path: str, words: list[str], facts: RequestFacts, fields: list[Field] | None) -> Any:
    """Return the value of a member; or of a field of the same body as a form, if it is no JSON."""
    try:
        data = _json_data(facts.body, _STRICT_DECODER)
    except _RepeatedNameError:
        return ambiguous("A name in the body")
    if fields is not None and not isinstance(data, dict | list):
        return _of_fields(path, words, fields)
    is_also_form = any(name == words[0] for name, *_ in fields or ())
    if is_also_form or data is None or _canonical(data) is None:
        return _UNREADABLE
    return _at(words, cast(Any, data))


def _has_usual_charset(facts: RequestFacts) -> bool:
    declared = _CHARSET.findall(facts.headers.get("content-type", ""))
    return all(each.lower().replace("_", "-") in _CHARSETS for each in declared)


def _at(words: Iterable[str], value: Any) -> Any:
    for word in words:
        value = _step(value, word)
    return value


def _step(value: Any, word: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(word)
    if isinstance(value, list) and word == "*":
        return cast("list[Any]", value)
    if isinstance(value, list) and word.isdecimal() and int(word) < len(cast("list[Any]", value)):
        return cast("list[Any]", value)[int(word)]
    return _MISSING
