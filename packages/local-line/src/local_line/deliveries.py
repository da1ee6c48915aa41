"""Webhooks on their way to the bot: signed, timed, and each on its own connection.

Without a client library, because hundreds are sent at once and would wait for each other in one.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from functools import cache
from time import monotonic
from urllib.parse import SplitResult, quote, urlsplit

from .accounts import Channel
from .events import Json, body_of, redelivered, signature
from .journal import Delivery

WEBHOOK_TIMEOUT = 2.0
"""The time within which a bot must answer, in seconds."""
_PORTS = {"http": 80, "https": 443}

_certificates = cache(ssl.create_default_context)
"""Read when the first bot with https is called: most are on this machine."""


class WebhookSender:
    """Sends webhooks to the bot, any number at a time."""

    def __init__(
        self,
        channel: Channel,
        *,
        timeout: float,
        clock: Callable[[], float],
        begin: Callable[[], int] = lambda: 0,
    ) -> None:
        self._channel = channel
        self._timeout = timeout
        self._clock = clock
        self._begin = begin

    async def deliver(self, url: str, events: Sequence[Json], *, again: bool = False) -> Delivery:
        """Send a webhook and return the result; no answer is not an exception.

        *again*: flagged as a redelivery.
        """
        carried = tuple(redelivered(event) for event in events) if again else tuple(events)
        at, since, number = self._clock(), monotonic(), self._begin()
        body = body_of(self._channel.bot_id, carried)
        sign = signature(self._channel.secret, body)
        status, reason = await self._post(url, body, sign)
        return Delivery(
            at, carried, status, reason, monotonic() - since, is_redelivery=again, number=number,
            url=url, body=body, signature=sign,
        )  # fmt: skip

    async def _post(self, url: str, body: bytes, sign: str) -> tuple[int | None, str]:
        target = urlsplit(url)
        request = _head(target, body, sign) + body
        try:
            async with asyncio.timeout(self._timeout):
                status = await _exchange(target, request)
        except TimeoutError:
            return None, "request_timeout"
        except OSError:
            return None, "could_not_connect"
        except (EOFError, ValueError, asyncio.LimitOverrunError):
            return None, "unclassified"  # the connection was closed, or what came is not HTTP
        return status, "ok" if 200 <= status < 300 else "error_status_code"


def _head(target: SplitResult, body: bytes, sign: str) -> bytes:
    path = quote(target.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = f"?{quote(target.query, safe='/%:@!$&*+,;=~-._?')}" if target.query else ""
    lines = [
        f"POST {path}{query} HTTP/1.1",
        f"Host: {target.netloc.rpartition('@')[2]}",
        "User-Agent: LineBotWebhook/2.0",
        "Content-Type: application/json; charset=utf-8",
        f"Content-Length: {len(body)}",
        f"x-line-signature: {sign}",
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _exchange(target: SplitResult, request: bytes) -> int:
    """Send a request and return the status.

    OSError: no connection. EOFError, ValueError: no valid answer.
    """
    tls = _certificates() if target.scheme == "https" else None
    port = target.port or _PORTS[target.scheme]
    reader, writer = await asyncio.open_connection(target.hostname, port, ssl=tls)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
    except ConnectionError:  # after it was open: the bot was reachable
        raise EOFError("the connection was reset") from None
    finally:
        writer.close()
    return int(head.split(b" ", 2)[1])
