"""`POST /line/webhook`: what LINE calls. Its 200 is sent before any work begins.

200: every event will be handled · 400: not from LINE, or not what LINE sends · 413: too long · 503:
the queue is full.
"""

import logging

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from dibs.integrations.linebot import signature_is_right

from ..core.metrics import Metrics
from .events import Malformed, parse_webhook
from .workers import WorkerPool

LONGEST_BODY = 1024 * 1024
_log = logging.getLogger(__name__)


class TooLong(Exception):
    """The body has more bytes than any of LINE's."""


class WebhookEndpoint:
    """Checks webhooks, and hands their events to the worker pool."""

    def __init__(self, workers: WorkerPool, *, secret: str, counted_in: Metrics) -> None:
        self._workers = workers
        self._secret = secret
        self._metrics = counted_in

    async def answer(self, request: Request) -> Response:
        """Check everything before the body is trusted."""
        try:
            status, why = await self._judge(request)
        except TooLong:
            status, why = 413, "the body is too long"
        except ClientDisconnect:
            status, why = 400, "the caller left"
        self._metrics.webhooks.labels(str(status)).inc()
        if status != 200:
            _log.warning("a webhook was refused with %d: %s", status, why)
        return PlainTextResponse(why, status)

    async def _judge(self, request: Request) -> tuple[int, str]:
        signature = request.headers.get("X-Line-Signature")
        if not signature:
            return 400, "there is no signature"
        body = await read_body(request)
        if not signature_is_right(body, signature, self._secret):
            return 400, "the signature is wrong"
        try:
            webhook = parse_webhook(body)
        except Malformed as error:
            return 400, str(error)
        if webhook.unreadable:
            self._metrics.events.labels("malformed").inc(webhook.unreadable)
            _log.warning("%d events of a webhook cannot be read", webhook.unreadable)
        return (200, "OK") if self._workers.accept(webhook.events) else (503, "the queue is full")


async def read_body(request: Request) -> bytes:
    """The whole body. TooLong: as soon as that is known, without reading the rest."""
    length = request.headers.get("Content-Length", "")
    if length.isdecimal() and int(length[:20]) > LONGEST_BODY:
        raise TooLong
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_BODY:
            raise TooLong
    return bytes(body)
