"""Groups and rooms that the bot is in.

GET  /v2/bot/{group|room}/{id}/member/{userId}, …/members/ids, …/members/count
GET  /v2/bot/group/{groupId}/summary · POST /v2/bot/{group|room}/{id}/leave
"""

from starlette.responses import Response

from .calls import ApiRoute, Asked, done
from .pages import page_of
from .platform import Platform
from .refusals import not_found

_MOST_IDS = 100


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes."""
    api = GroupApi(platform)
    found = [ApiRoute("GET", "/v2/bot/group/{chatId}/summary", api.summary)]
    for kind in ("group", "room"):
        chat = f"/v2/bot/{kind}/{{chatId}}"
        found += [
            ApiRoute("GET", f"{chat}/member/{{userId}}", api.member),
            ApiRoute("GET", f"{chat}/members/ids", api.member_ids),
            ApiRoute("GET", f"{chat}/members/count", api.member_count),
            ApiRoute("POST", f"{chat}/leave", api.leave),
        ]
    return found


class GroupApi:
    """The members of the bot's groups and rooms."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def summary(self, asked: Asked) -> Response:
        """Return the summary of a group that the bot is in."""
        self._members(asked)
        chat_id = asked.part("chatId")
        return done({"groupId": chat_id, "groupName": self._platform.accounts.group_name(chat_id)})

    async def member(self, asked: Asked) -> Response:
        """Return the profile of a member of the bot's group or room, whether a friend or not."""
        user_id = asked.user()
        if user_id not in self._members(asked):
            raise not_found()
        person = self._platform.accounts.person(user_id)
        picture = {"pictureUrl": person.picture_url} if person.picture_url else {}
        return done({"userId": user_id, "displayName": person.name} | picture)

    async def member_ids(self, asked: Asked) -> Response:
        """List the members, a hundred at a time."""
        ids, more = page_of(sorted(self._members(asked)), asked, most=_MOST_IDS)
        return done({"memberIds": ids} | more)

    async def member_count(self, asked: Asked) -> Response:
        """Return the number of members, without the bot."""
        return done({"count": len(self._members(asked))})

    async def leave(self, asked: Asked) -> Response:
        """Leave the group or room."""
        self._members(asked)
        self._platform.accounts.leave(asked.part("chatId"))
        return done()

    def _members(self, asked: Asked) -> set[str]:
        members = self._platform.accounts.members(asked.part("chatId"))
        if members is None:
            raise not_found()
        return members
