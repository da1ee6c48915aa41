"""One JSON document over HTTP: within a deadline, up to a size, and a code for every failure."""

import asyncio
import json
import ssl
import zlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx

from .provider import Reason, WeatherUnavailable

DEADLINE = 3.0
"""What one fetch may take, in seconds, all of it: less than the 5 that one user is locked for."""
LARGEST = 2 * 1024 * 1024
_IDLE = 15.0
_LONGEST_REST = 3600.0


class Downloads:
    """Documents of one provider, over connections that are kept."""

    def __init__(
        self,
        provider: str,
        base_url: str,
        *,
        deadline: float = DEADLINE,
        largest: int = LARGEST,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """ValueError: no address, or no time. Certificates are checked, by *tls* if it is given."""
        if not deadline > 0:
            raise ValueError("a deadline must be more than 0 seconds")
        self._provider = provider
        self._deadline = deadline
        self._largest = largest
        self._http = httpx.AsyncClient(
            base_url=_checked(base_url),
            timeout=httpx.Timeout(deadline),
            limits=httpx.Limits(keepalive_expiry=_IDLE),
            verify=tls or True,
            follow_redirects=False,  # a key must not travel to wherever an answer points
            trust_env=not _is_here(base_url),  # a proxy for other networks is not for this host
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
        )

    async def json(self, path: str, params: dict[str, str], *, key: str = "") -> Any:
        """The document. WeatherUnavailable: why there is none."""
        headers = {"Authorization": key} if key else {}
        try:
            async with (
                asyncio.timeout(self._deadline),
                self._http.stream("GET", path, params=params, headers=headers) as answer,
            ):
                self._check_status(answer, has_key=bool(key))
                body = await self._body(answer)
        except (TimeoutError, httpx.TimeoutException):
            raise self._failure(Reason.TIMEOUT) from None
        except (httpx.HTTPError, httpx.StreamError, OSError):
            raise self._failure(Reason.UNREACHABLE) from None
        return self._parsed(body)

    async def aclose(self) -> None:
        """No connection is left."""
        await self._http.aclose()

    def _check_status(self, answer: httpx.Response, *, has_key: bool) -> None:
        status = answer.status_code
        if status == 429:
            rest = _seconds_to_rest(answer.headers.get("Retry-After"), datetime.now(UTC))
            raise self._failure(Reason.RATE_LIMITED, status=status, retry_after=rest)
        if status in (401, 403) and has_key:
            raise self._failure(Reason.BAD_KEY, status=status)
        if status != 200:
            raise self._failure(Reason.STATUS, status=status)

    async def _body(self, answer: httpx.Response) -> bytes:
        body = bytearray()
        try:
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > self._largest:
                    # Not `break`: then httpx's generators would be left half-way, for the garbage
                    # collector to end. Closed, the next read fails and ends all of them.
                    await answer.aclose()
        except (httpx.HTTPError, httpx.StreamError):
            if len(body) <= self._largest:
                raise
        if len(body) > self._largest:
            raise self._failure(Reason.UNREADABLE)
        encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        return self._unpacked(bytes(body), encoding)

    def _unpacked(self, body: bytes, encoding: str) -> bytes:
        """Unpacked here and not by httpx, because a small bomb makes a large body."""
        if encoding in ("", "identity"):
            return body
        if encoding != "gzip":
            raise self._failure(Reason.UNREADABLE)
        unpacking = zlib.decompressobj(wbits=31)
        try:
            plain = unpacking.decompress(body, self._largest)
        except zlib.error:
            raise self._failure(Reason.UNREADABLE) from None
        if not unpacking.eof:  # cut short, or larger than we take
            raise self._failure(Reason.UNREADABLE)
        return plain

    def _parsed(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise self._failure(Reason.UNREADABLE) from None

    def _failure(self, reason: Reason, **facts: Any) -> WeatherUnavailable:
        return WeatherUnavailable(self._provider, reason, **facts)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address must begin with http:// or https://, and name a host")
    return url


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _seconds_to_rest(header: str | None, now: datetime) -> float | None:
    """What Retry-After asks for: a number of seconds, or a date. None: it asks for nothing."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        seconds = _seconds_until(header, now)
    return min(seconds, _LONGEST_REST) if seconds is not None and seconds >= 0 else None


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        return (parsedate_to_datetime(date) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
