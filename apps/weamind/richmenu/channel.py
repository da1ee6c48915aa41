"""The bot's account at LINE, as an operator sees it: who it is, where it is, which menus it has."""

import asyncio
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2 as httpx

from .plan import Menu, State

LONGEST = 10.0
"""Seconds that one call may take in all."""
_LONGEST_WORDS = 200
_LINE, _LINE_DATA = "api.line.me", "https://api-data.line.me"
_NOT_LINES = "what came is not an answer of LINE's"
_MENU, _DEFAULT = "/v2/bot/richmenu", "/v2/bot/user/all/richmenu"


class LineError(Exception):
    """LINE did not do what it was asked to; the message has neither token nor id."""


class Refused(LineError):
    """LINE refused the call."""

    def __init__(self, status: int, words: str, request_id: str) -> None:
        super().__init__(status, words, request_id)
        self.status = status
        self.words = words
        self.request_id = request_id
        """The id by which LINE's support finds the call."""

    def __str__(self) -> str:
        return f"LINE answered {self.status}: {self.words} (request {self.request_id})"


class Unreachable(LineError):
    """LINE did not answer."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"LINE did not answer: {self.why}"


class Webhook(NamedTuple):
    """Where LINE sends events, and whether it does."""

    url: str
    is_active: bool


class Quota(NamedTuple):
    """How many messages may be pushed in a month, and how many were. None: no limit."""

    limit: int | None
    used: int


class Channel:
    """The account. LineError, from every call: there is no answer, and why."""

    def __init__(self, api_base: str, access_token: str, *, longest: float = LONGEST) -> None:
        """Nothing connects yet."""
        self._longest = longest
        self._base = api_base
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {access_token}"}, timeout=httpx.Timeout(longest)
        )

    async def __aenter__(self) -> "Channel":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._http.aclose()

    # ---- the account

    async def info(self) -> dict[str, Any]:
        """The bot: `displayName`, `basicId` and so on."""
        return await self._call("GET", "/v2/bot/info")

    async def webhook(self) -> Webhook | None:
        """The webhook. None: there is no URL."""
        try:
            answer = await self._call("GET", "/v2/bot/channel/webhook/endpoint")
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return Webhook(str(answer.get("endpoint", "")), bool(answer.get("active")))

    async def test_webhook(self) -> dict[str, Any]:
        """Let LINE call the bot now, and return the result: `success`, `statusCode`, `reason`."""
        return await self._call("POST", "/v2/bot/channel/webhook/test", json={})

    async def quota(self) -> Quota:
        """The quota of this month."""
        limit = await self._call("GET", "/v2/bot/message/quota")
        used = await self._call("GET", "/v2/bot/message/quota/consumption")
        value = limit.get("value") if limit.get("type") == "limited" else None
        return Quota(value, int(used.get("totalUsage", 0)))

    # ---- its menus

    async def menus(self) -> State:
        """All menus that were created by the API, and which of them is the default."""
        listed = (await self._call("GET", f"{_MENU}/list")).get("richmenus", [])
        menus = tuple(Menu(_id(each), str(each.get("name"))) for each in listed)
        return State(menus, await self.default_menu())

    async def default_menu(self) -> str | None:
        """The default menu. None: the API has set none."""
        try:
            return _id(await self._call("GET", _DEFAULT))
        except Refused as error:
            if error.status in (403, 404):
                return None
            raise

    async def make_menu(self, definition: dict[str, Any]) -> str:
        """Create a menu, which is not shown yet, and return its id."""
        return _id(await self._call("POST", _MENU, json=definition))

    async def upload(self, menu_id: str, png: bytes) -> None:
        """Upload the picture of the menu, which cannot be changed afterwards."""
        path, kind = f"{_MENU}/{menu_id}/content", {"Content-Type": "image/png"}
        await self._call("POST", path, content=png, headers=kind, base=data_base(self._base))

    async def set_default(self, menu_id: str) -> None:
        """Make it the default menu."""
        await self._call("POST", f"{_DEFAULT}/{menu_id}")

    async def cancel_default(self) -> None:
        """Remove the default menu."""
        await self._call("DELETE", _DEFAULT)

    async def delete_menu(self, menu_id: str) -> None:
        """Delete a menu, if it exists."""
        try:
            await self._call("DELETE", f"{_MENU}/{menu_id}")
        except Refused as error:
            if error.status != 404:
                raise

    # ---- the wire

    async def _call(
        self, method: str, path: str, *, base: str | None = None, **parts: Any
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._longest):
                answer = await self._http.request(method, f"{base or self._base}{path}", **parts)
        except (TimeoutError, httpx.TimeoutException):
            raise Unreachable(f"not within {self._longest:g} s") from None
        except httpx.HTTPError as error:
            raise Unreachable(type(error).__name__) from None
        if not answer.is_success:
            raise Refused(answer.status_code, _words(answer), _request_id(answer))
        return _document(answer)


def data_base(api_base: str) -> str:
    """The host of pictures: LINE has another one for them, a copy of LINE has not."""
    return _LINE_DATA if urlsplit(api_base).hostname == _LINE else api_base


def _id(menu: dict[str, Any]) -> str:
    menu_id = menu.get("richMenuId")
    if not isinstance(menu_id, str) or not menu_id:
        raise Unreachable(_NOT_LINES)
    return menu_id


def _document(answer: httpx.Response) -> dict[str, Any]:
    """The object in the answer; empty if it is not one."""
    try:
        document = answer.json() if answer.content else {}
    except ValueError:
        raise Unreachable(_NOT_LINES) from None
    return document if isinstance(document, dict) else {}


def _words(answer: httpx.Response) -> str:
    try:
        words = answer.json().get("message", "")
    except (ValueError, AttributeError):
        words = ""
    return " ".join(str(words).split())[:_LONGEST_WORDS] or "no reason given"


def _request_id(answer: httpx.Response) -> str:
    return answer.headers.get("X-Line-Request-Id", "unknown")[:64]
