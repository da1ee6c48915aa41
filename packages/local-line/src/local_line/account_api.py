"""Who is who, and where the bot is.

GET /v2/bot/info · GET /v2/bot/profile/{userId} · GET /v2/bot/followers/ids
GET /v2/bot/{group|room}/{id}/member/{userId} · GET /v2/bot/group/{groupId}/summary · POST …/leave
GET, PUT /v2/bot/channel/webhook/endpoint · POST /v2/bot/channel/webhook/test
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.responses import Response

from .calls import Asked, Entrance, done
from .journal import Delivery
from .refusals import Detail, not_found, wrong_body, wrong_parameter
from .sources import is_id

if TYPE_CHECKING:
    from .platform import Platform

_LONGEST_URL = 500


def entrances(platform: "Platform") -> list[Entrance]:
    """The routes."""
    api = AccountApi(platform)
    endpoint = "/v2/bot/channel/webhook/endpoint"
    shared = [
        entrance
        for kind in ("group", "room")
        for entrance in (
            Entrance("GET", f"/v2/bot/{kind}/{{chatId}}/member/{{userId}}", api.member),
            Entrance("POST", f"/v2/bot/{kind}/{{chatId}}/leave", api.leave),
        )
    ]
    return [
        Entrance("GET", "/v2/bot/info", api.info),
        Entrance("GET", "/v2/bot/profile/{userId}", api.profile),
        Entrance("GET", "/v2/bot/followers/ids", api.followers),
        Entrance("GET", "/v2/bot/group/{chatId}/summary", api.summary),
        *shared,
        Entrance("GET", endpoint, api.get_endpoint),
        Entrance("PUT", endpoint, api.set_endpoint),
        Entrance("POST", "/v2/bot/channel/webhook/test", api.test_endpoint),
    ]


class AccountApi:
    """People, groups, and the bot itself."""

    def __init__(self, platform: "Platform") -> None:
        self._platform = platform

    async def info(self, asked: Asked) -> Response:
        """The bot."""
        channel = self._platform.channel
        facts = {"userId": channel.bot_id, "basicId": channel.basic_id}
        facts |= {"displayName": channel.name, "chatMode": "bot", "markAsReadMode": "auto"}
        return done(facts)

    async def profile(self, asked: Asked) -> Response:
        """A friend of the bot. Refusal: 404, nobody whom it may know."""
        person = self._platform.accounts.find(_user(asked))
        if person is None or not person.is_friend:
            raise not_found()
        return done({"userId": person.user_id, "displayName": person.name, "language": "zh-TW"})

    async def followers(self, asked: Asked) -> Response:
        """All friends of the bot."""
        return done({"userIds": self._platform.accounts.friends()})

    # ---- groups and rooms

    async def summary(self, asked: Asked) -> Response:
        """A group that the bot is in."""
        self._members(asked)
        return done({"groupId": asked.part("chatId"), "groupName": "群組"})

    async def member(self, asked: Asked) -> Response:
        """Somebody in a group or room that the bot is in, a friend or not."""
        user_id = _user(asked)
        if user_id not in self._members(asked):
            raise not_found()
        person = self._platform.accounts.person(user_id)
        return done({"userId": user_id, "displayName": person.name})

    async def leave(self, asked: Asked) -> Response:
        """The bot is not in there any more."""
        self._members(asked)
        self._platform.accounts.leave(asked.part("chatId"))
        return done()

    def _members(self, asked: Asked) -> set[str]:
        members = self._platform.accounts.members(asked.part("chatId"))
        if members is None:
            raise not_found()
        return members

    # ---- where the bot is

    async def get_endpoint(self, asked: Asked) -> Response:
        """Where webhooks are sent. Refusal: 404, nowhere."""
        if not self._platform.webhook_url:
            raise not_found()
        return done({"endpoint": self._platform.webhook_url, "active": True})

    async def set_endpoint(self, asked: Asked) -> Response:
        """Webhooks are sent there from now on."""
        self._platform.webhook_url = _endpoint(await asked.json())
        return done()

    async def test_endpoint(self, asked: Asked) -> Response:
        """What the bot says to a webhook without events, there or where it is."""
        body = await asked.json() if await asked.request.body() else {}
        url = _endpoint(body) if "endpoint" in body else self._platform.webhook_url
        if not url:
            raise not_found()
        return done(_result(await self._platform.verify(url)))


def _user(asked: Asked) -> str:
    user_id = asked.part("userId")
    if not is_id(user_id, "U"):
        raise wrong_parameter("userId")
    return user_id


def _endpoint(body: dict[str, Any]) -> str:
    """LINE takes https only; a bot on this machine has no certificate."""
    url = body.get("endpoint")
    if not isinstance(url, str) or len(url) > _LONGEST_URL or not _is_address(url):
        raise wrong_body([Detail("endpoint", "Invalid webhook endpoint URL")])
    return url


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _result(delivery: Delivery) -> dict[str, Any]:
    at = datetime.fromtimestamp(delivery.at, UTC).isoformat(timespec="milliseconds")
    status = delivery.status or 0
    facts = {"success": delivery.is_ok, "timestamp": at.replace("+00:00", "Z")}
    facts |= {"statusCode": status, "reason": delivery.reason.upper()}
    return facts | {"detail": str(status) if status else delivery.reason}
