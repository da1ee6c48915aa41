"""The user of a LIFF access token: LINE is asked, never the caller."""

import asyncio
import logging
import time
from typing import Any

import httpx2 as httpx

from .answers import BadToken, NoAnswer, seconds_left, user_id
from .memory import TokenMemory

LONGEST = 5.0
"""Seconds that LINE may take for both calls, connecting included."""
LONGEST_TOKEN = 2000
_LINES = 8
_VERIFY, _PROFILE = "/oauth2/v2.1/verify", "/v2/profile"
_log = logging.getLogger(__name__)


class Tokens:
    """Asks LINE for the user of a token; the answers are cached for a while."""

    def __init__(
        self, api_base: str, *, channel_id: str, longest: float = LONGEST, memory: TokenMemory
    ) -> None:
        """Only tokens that were made for *channel_id* are accepted. Nothing connects yet."""
        self._channel_id = channel_id
        self._longest = longest
        self._memory = memory
        self._http = httpx.AsyncClient(
            base_url=api_base,
            timeout=httpx.Timeout(longest),
            limits=httpx.Limits(max_connections=_LINES, max_keepalive_connections=_LINES),
        )
        logging.getLogger("httpx2").addFilter(without_token)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def user_of(self, token: str) -> str:
        """The id of the person who opened the page.

        BadToken: it is invalid. NoAnswer: LINE does not say.
        """
        if not is_plausible(token):
            raise BadToken("LINE makes no such tokens")
        known = self._memory.user_of(token, time.monotonic())
        if known is not None:
            return known
        try:
            return await self._ask(token)
        except (BadToken, NoAnswer) as error:
            _log.warning("a token was not accepted: %s", error)
            raise

    async def _ask(self, token: str) -> str:
        asked = time.monotonic()
        try:
            async with asyncio.timeout(self._longest):
                verified = await self._get(_VERIFY, params={"access_token": token})
                left = seconds_left(*verified, self._channel_id)
                bearer = {"Authorization": f"Bearer {token}"}
                found = user_id(*await self._get(_PROFILE, headers=bearer))
        except (TimeoutError, httpx.TimeoutException):
            raise NoAnswer(f"not within {self._longest:g} s") from None
        except httpx.HTTPError as error:  # its words may quote the address, with the token in it
            raise NoAnswer(type(error).__name__) from None
        self._memory.keep(token, found, left, asked)
        return found

    async def _get(self, path: str, **parts: Any) -> tuple[int, object]:
        answer = await self._http.get(path, **parts)
        try:
            return answer.status_code, answer.json()
        except ValueError:
            return answer.status_code, None


def is_plausible(token: str) -> bool:
    """Whether it may be one at all: what is not, must reach neither a header nor LINE."""
    is_short = 0 < len(token) <= LONGEST_TOKEN
    return is_short and token.isascii() and token.isprintable() and " " not in token


def without_token(record: logging.LogRecord) -> bool:
    """A filter for httpx2, which tells every address at INFO: LINE wants tokens in this one."""
    if isinstance(record.args, tuple):
        record.args = tuple(_without_query(each) for each in record.args)
    return True


def _without_query(each: object) -> object:
    if isinstance(each, httpx.URL) and each.path.endswith(_VERIFY):
        return each.copy_with(query=None)
    return each
