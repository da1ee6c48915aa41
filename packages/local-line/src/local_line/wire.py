"""A row of the wire view, in full: request and answer, as curl, and a button to repeat it."""

import json
import shlex
from typing import Any

from starlette.types import ASGIApp, Message

from .journal import Call, Delivery, Journal

Json = dict[str, Any]
REFERENCE = "https://developers.line.biz/en/reference/messaging-api/"
_TOKEN = "$LINE_CHANNEL_ACCESS_TOKEN"
"""What a command shows instead of the token, so that it is not pasted somewhere."""


def find(journal: Journal, number: int) -> Call | Delivery | None:
    """Return a row. None: it is unknown, or too long ago."""
    for rows in (journal.deliveries, journal.calls):
        for row in rows:
            if row.number == number:
                return row
    return None


def details(row: Call | Delivery, api_base: str) -> Json:
    """The JSON for the page."""
    if isinstance(row, Delivery):
        return {"request": _read(row.body), "answer": None, "curl": _webhook_curl(row)}
    request = "(too long to be kept)" if row.is_cut else _read(row.sent)
    facts = {"request": request, "answer": row.answer, "requestId": row.request_id}
    known = {} if row.is_known else {"reference": REFERENCE}
    return facts | {"curl": _call_curl(row, api_base)} | known


def _read(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return f"({len(data)} bytes)" if data else None


def _webhook_curl(row: Delivery) -> str:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    headers |= {"x-line-signature": row.signature}
    return _curl("POST", row.url, headers, row.body)


def _call_curl(row: Call, api_base: str) -> str:
    text = _curl(row.method, api_base + row.path, row.headers, row.sent)
    return f'{text} \\\n  -H "Authorization: Bearer {_TOKEN}"'


def _curl(method: str, url: str, headers: Json, body: bytes) -> str:
    parts = [f"curl -X {method} {shlex.quote(url)}"]
    parts += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    if body:
        parts.append(f"--data-binary {_shell(body)}")
    return " \\\n  ".join(parts)


def _shell(body: bytes) -> str:
    try:
        return shlex.quote(body.decode())
    except UnicodeDecodeError:
        return "@FILE"


async def call_again(api: ASGIApp, access_token: str, row: Call) -> None:
    """Repeat the call with the bot's own token; it is answered and logged like any other.

    ValueError: its body was too long to be stored.
    """
    if row.is_cut:
        raise ValueError("The body of that call was too long to be kept.")
    path, _, query = row.path.partition("?")
    headers = {"authorization": f"Bearer {access_token}"} | row.headers
    scope = {
        "type": "http", "http_version": "1.1", "method": row.method, "path": path, "root_path": "",
        "raw_path": path.encode(), "query_string": query.encode(), "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 80), "client": None,
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request", "body": row.sent, "more_body": False}

    async def send(message: Message) -> None:
        """Drop the answer: only the journal needs it."""

    await api(scope, receive, send)
