"""Sending to LINE: one reply for each token, a push where that is allowed, the loading dots.

A reply cannot be repeated safely: LINE takes no retry key for it. So one that may have arrived is
never sent again; a push, which takes a key, may be.
"""

import asyncio
import functools
import logging
import uuid
from collections.abc import Sequence
from typing import Any, Literal

import httpx2 as httpx

from dibs import AsyncDibs
from dibs.integrations.linebot import reply_key, to_its_end

from ..core.metrics import Metrics
from .outcomes import Outcome, outcome_of_push, outcome_of_reply

Message = dict[str, Any]
Mark = Literal["ours", "spent", "unknown"]

LONGEST = 6.0
"""Seconds that one call may take, connecting included."""
LOADING_LONGEST = 1.5
"""… to show the dots: the answer waits for it, because dots must not come after it."""
MARK_NAME = "line:reply:{replyToken}"
_MARK_TTL = 1800.0
"""A reply token is valid for a minute, and after a redelivery up to 20 minutes after the event."""
_PUSH_TRIES = 3
_LINES = 16
_TIMEOUT = httpx.Timeout(5.0)
_trusted = functools.cache(httpx.create_ssl_context)
"""The certificates for LINE's hosts; read from the disk once."""
_log = logging.getLogger(__name__)


class Sender:
    """LINE's Messaging API, over one long-lived pool of connections."""

    def __init__(
        self,
        api_base: str,
        access_token: str,
        *,
        dibs: AsyncDibs,
        push: bool,
        counted_in: Metrics,
        longest: float = LONGEST,
    ) -> None:
        """*push*: whether to push a reply whose token had expired."""
        self._longest = longest
        self._dibs = dibs
        self._push_allowed = push
        self._metrics = counted_in
        self._http = httpx.AsyncClient(
            base_url=api_base,
            headers={"Authorization": f"Bearer {access_token}"},
            timeout=_TIMEOUT,
            verify=_trusted(),
            # Who finds all of them in use waits for one: opening one costs more than a reply.
            limits=httpx.Limits(max_connections=_LINES, max_keepalive_connections=_LINES),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    # ---- replies

    async def reply(
        self, token: str | None, messages: Sequence[Message], *, to: str | None = None
    ) -> Outcome:
        """Reply with *messages*. *token* is used up in all processes, whatever the outcome.

        Never raises: errors are counted and logged. A caller that is cancelled meanwhile waits for
        the end: half a reply would waste the token. *to*: whom to push to instead, if the token
        turns out to have expired and pushing is allowed.
        """
        if token is None:
            return self._counted("no_token", None)
        return await to_its_end(self._reply_once(token, messages, to))

    async def _reply_once(self, token: str, messages: Sequence[Message], to: str | None) -> Outcome:
        mark = await self._mark(token)
        if mark == "spent":
            return self._counted("spent", None)
        outcome = await self._reply(token, messages)
        if outcome == "invalid_token" and mark == "ours" and to and self._push_allowed:
            await self._push(to, messages)
        return outcome

    async def _mark(self, token: str) -> Mark:
        """Whether the token is unused.

        It is marked before it is sent: in doubt, it counts as used.
        """
        lease = await self._dibs.try_hold(reply_key(token), ttl=_MARK_TTL, name=MARK_NAME)
        if lease is None:
            return "spent"
        return "ours" if lease.guarded else "unknown"

    async def _reply(self, token: str, messages: Sequence[Message]) -> Outcome:
        body = {"replyToken": token, "messages": list(messages)}
        answer = await self._post("/v2/bot/message/reply", body)
        return self._counted(outcome_of_reply(answer), answer)

    def _counted(self, outcome: Outcome, answer: httpx.Response | Exception | None) -> Outcome:
        self._metrics.replies.labels(outcome).inc()
        if outcome != "sent":
            _log.warning("a reply was not sent: %s%s", outcome, _request_id(answer))
        return outcome

    # ---- pushes

    async def _push(self, to: str, messages: Sequence[Message]) -> None:
        key = {"X-Line-Retry-Key": str(uuid.uuid4())}
        body = {"to": to, "messages": list(messages)}
        outcome, answer = "unreachable", None
        for pause in range(_PUSH_TRIES):
            await asyncio.sleep(pause)
            answer = await self._post("/v2/bot/message/push", body, key)
            outcome = outcome_of_push(answer)
            if outcome not in ("timeout", "unreachable", "server_error"):
                break
        self._metrics.pushes.labels(outcome).inc()
        if outcome != "sent":
            _log.warning("a push was not sent: %s%s", outcome, _request_id(answer))

    # ---- the loading dots

    async def show_loading(self, user_id: str, loading_seconds: int = 20) -> None:
        """Show dots in the chat with *user_id* until the next message; never raises."""
        body = {"chatId": user_id, "loadingSeconds": loading_seconds}
        answer = await self._post("/v2/bot/chat/loading/start", body, longest=LOADING_LONGEST)
        self._metrics.loading.labels(outcome_of_push(answer)).inc()

    # ---- the wire

    async def _post(
        self,
        path: str,
        body: Message,
        headers: dict[str, str] | None = None,
        *,
        longest: float | None = None,
    ) -> httpx.Response | Exception:
        """LINE's answer, or why there is none."""
        try:
            async with asyncio.timeout(longest or self._longest):
                try:
                    return await self._http.post(path, json=body, headers=headers)
                except httpx.ConnectError:  # it never reached LINE: the one thing to try again
                    return await self._http.post(path, json=body, headers=headers)
        except (httpx.HTTPError, TimeoutError) as error:
            return error


def _request_id(answer: httpx.Response | Exception | None) -> str:
    """The id by which LINE's support finds the call; it contains no personal data."""
    if not isinstance(answer, httpx.Response):
        return "" if answer is None else f" ({type(answer).__name__})"
    return f" ({answer.status_code}, request {answer.headers.get('X-Line-Request-Id', '?')[:64]})"
