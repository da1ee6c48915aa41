"""The seed's `Result` envelope for refusals, for clients that read it: ORDERS_REFUSALS=result.

    {"code": 429, "msg": "…", "data": null, "retryAfter": 10, "lockManagement": "自动释放机制"}

RFC 9457 problem+json is the default: clients, gateways and generated code know it, its `type` is
a code for programs, and the guard sends it in every framework.
"""

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PROBLEM = b"application/problem+json"
_MANAGED = {
    "running": "自动释放机制",  # released when the first one ends
    "done": "到期释放机制",  # kept until the window ends
}


def result_of(problem: dict[str, Any]) -> dict[str, Any]:
    """The same as the seed's `Result.error(…).put(…)`."""
    result: dict[str, Any] = {
        "code": problem["status"], "msg": problem.get("detail") or problem["title"], "data": None,
    }  # fmt: skip
    if "retryAfter" in problem:
        result["retryAfter"] = problem["retryAfter"]
    if managed := _MANAGED.get(problem.get("state", "")):
        result["lockManagement"] = managed
    return result


class ResultEnvelope:
    """Turns every problem+json of the app into a `Result`, with the same status and headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        return await self._app(scope, receive, _Rewriting(send).send)


class _Rewriting:
    """Holds the head of a problem back until its body has arrived."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        """Pass on messages that are not part of a problem."""
        if message["type"] == "http.response.start" and _is_problem(message):
            self._head = message
        elif self._head is None or message["type"] != "http.response.body":
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._flush(self._head)

    async def _flush(self, head: Message) -> None:
        body = json.dumps(result_of(json.loads(self._body)), ensure_ascii=False).encode()
        kept = [
            (name, value)
            for name, value in head["headers"]
            if name not in (b"content-type", b"content-length")
        ]
        sizes = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self._send({**head, "headers": [*kept, *sizes]})
        await self._send({"type": "http.response.body", "body": body})


def _is_problem(head: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(_PROBLEM) for name, value in head["headers"]
    )
