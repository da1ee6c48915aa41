"""Who is who, and where the bot is.

GET /v2/bot/info · GET /v2/bot/profile/{userId} · GET /v2/bot/followers/ids
POST /v2/bot/user/{userId}/linkToken · GET /v2/bot/membership/…
GET, PUT /v2/bot/channel/webhook/endpoint · POST /v2/bot/channel/webhook/test
"""

from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from .calls import ApiRoute, Asked, done
from .journal import Delivery
from .pages import page_of
from .platform import Platform
from .refusals import Detail, not_found, wrong_body
from .sendings import iso

_LONGEST_URL = 500
_MOST_FOLLOWERS, _USUAL_FOLLOWERS = 1000, 300


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes."""
    api = AccountApi(platform)
    endpoint, membership = "/v2/bot/channel/webhook/endpoint", "/v2/bot/membership"
    return [
        ApiRoute("GET", "/v2/bot/info", api.info),
        ApiRoute("GET", "/v2/bot/profile/{userId}", api.profile),
        ApiRoute("GET", "/v2/bot/followers/ids", api.followers),
        ApiRoute("POST", "/v2/bot/user/{userId}/linkToken", api.link_token),
        ApiRoute("GET", f"{membership}/list", api.no_membership),
        ApiRoute("GET", f"{membership}/subscription/{{userId}}", api.no_subscription),
        ApiRoute("GET", f"{membership}/{{membershipId}}/users/ids", api.no_membership),
        ApiRoute("GET", endpoint, api.get_endpoint),
        ApiRoute("PUT", endpoint, api.set_endpoint),
        ApiRoute("POST", "/v2/bot/channel/webhook/test", api.test_endpoint),
    ]


class AccountApi:
    """People, groups, and the bot itself."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def info(self, asked: Asked) -> Response:
        """Return the bot's profile."""
        channel = self._platform.channel
        facts = {"userId": channel.bot_id, "basicId": channel.basic_id}
        facts |= {"displayName": channel.name, "chatMode": "bot", "markAsReadMode": "auto"}
        picture = {"pictureUrl": channel.picture_url} if channel.picture_url else {}
        return done(facts | picture)

    async def profile(self, asked: Asked) -> Response:
        """Return the profile of a friend. Refusal: 404, the user is not a friend of the bot."""
        person = self._platform.accounts.find(asked.user())
        if person is None or not person.is_friend:
            raise not_found()
        return done(person.profile() | {"language": person.language})

    async def followers(self, asked: Asked) -> Response:
        """List the friends of the bot, 300 at a time by default."""
        friends = self._platform.accounts.friends()
        ids, more = page_of(friends, asked, most=_MOST_FOLLOWERS, usual=_USUAL_FOLLOWERS)
        return done({"userIds": ids} | more)

    async def link_token(self, asked: Asked) -> Response:
        """Issue a token for linking an account of the bot's site: valid once, for ten minutes."""
        user_id = asked.user()
        if self._platform.accounts.find(user_id) is None:
            raise not_found()
        token = self._platform.link_tokens.issue(user_id, self._platform.clock())
        return done({"linkToken": token})

    async def no_membership(self, asked: Asked) -> Response:
        """Refusal: 404, this account offers no membership."""
        raise not_found()

    async def no_subscription(self, asked: Asked) -> Response:
        """Return no subscriptions. Refusal: 404, the user is not a friend of the bot."""
        person = self._platform.accounts.find(asked.user())
        if person is None or not person.is_friend:
            raise not_found()
        return done({"subscriptions": []})

    # ---- where the bot is

    async def get_endpoint(self, asked: Asked) -> Response:
        """Return the webhook address. Refusal: 404, none is set."""
        if not self._platform.webhook_url:
            raise not_found()
        return done({"endpoint": self._platform.webhook_url, "active": True})

    async def set_endpoint(self, asked: Asked) -> Response:
        """Set the webhook address."""
        self._platform.webhook_url = _endpoint(await asked.json())
        return done()

    async def test_endpoint(self, asked: Asked) -> Response:
        """Send a webhook without events to the given or current address; return the answer."""
        body = await asked.json() if await asked.request.body() else {}
        url = _endpoint(body) if "endpoint" in body else self._platform.webhook_url
        if not url:
            raise not_found()
        return done(_result(await self._platform.verify(url)))


def _endpoint(body: dict[str, Any]) -> str:
    """LINE accepts https only; a bot on this machine has no certificate."""
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
    status = delivery.status or 0
    facts = {"success": delivery.is_ok, "timestamp": iso(delivery.at)}
    facts |= {"statusCode": status, "reason": delivery.reason.upper()}
    return facts | {"detail": str(status) if status else delivery.reason}
