"""Statistics: friends, deliveries, and what people did with messages and menus.

GET /v2/bot/insight/followers, …/demographic, …/message/delivery, …/message/event[/aggregation]
GET /v2/bot/insight/richmenu/{richMenuId}/summary, …/daily

Clicks and views are not counted here: they are null, as LINE returns them for fewer than 20 people.
"""

from typing import Any

from starlette.responses import Response

from .calls import ApiRoute, Asked, done
from .messaging_api import is_unit
from .platform import Platform
from .refusals import not_found, wrong_parameter
from .sendings import day_of, is_day

Json = dict[str, Any]
_FIRST_DAY = "20161101"
"""LINE counts friends since then."""
_FIRST_COUNT = "20170301"
_API = {"apiBroadcast": "broadcast", "apiPush": "push", "apiMulticast": "multicast"}
_API |= {"apiNarrowcast": "narrowcast", "apiReply": "reply"}
_NOTHING = ("uniqueImpression", "uniqueClick", "uniqueMediaPlayed", "uniqueMediaPlayed100Percent")


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes."""
    api = InsightApi(platform)
    insight = "/v2/bot/insight"
    return [
        ApiRoute("GET", f"{insight}/followers", api.followers),
        ApiRoute("GET", f"{insight}/demographic", api.demographic),
        ApiRoute("GET", f"{insight}/message/delivery", api.deliveries),
        ApiRoute("GET", f"{insight}/message/event", api.event),
        ApiRoute("GET", f"{insight}/message/event/aggregation", api.unit),
        ApiRoute("GET", f"{insight}/richmenu/{{richMenuId}}/summary", api.menu),
        ApiRoute("GET", f"{insight}/richmenu/{{richMenuId}}/daily", api.menu),
    ]


class InsightApi:
    """What LINE has counted: always up to yesterday."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def _status(self, asked: Asked, first: str, *, is_needed: bool) -> str:
        today = day_of(self._platform.clock())
        day = asked.query("date")
        if day is None and not is_needed:
            return "ready"
        if day is None or not is_day(day):
            raise wrong_parameter("date")
        return "out_of_service" if day < first else "unready" if day >= today else "ready"

    async def followers(self, asked: Asked) -> Response:
        """Return how many users have added and how many have blocked the bot, as of now."""
        status = self._status(asked, _FIRST_DAY, is_needed=False)
        if status != "ready":
            return done({"status": status})
        accounts = self._platform.accounts
        friends, blocks = len(accounts.friends()), accounts.blockers()
        reach = {"followers": friends + blocks, "targetedReaches": friends, "blocks": blocks}
        return done({"status": status} | reach)

    async def demographic(self, asked: Asked) -> Response:
        """Return no figures, as for fewer than 20 friends."""
        return done({"available": False})

    async def deliveries(self, asked: Asked) -> Response:
        """Return how many messages of each kind were sent on a day."""
        status = self._status(asked, _FIRST_COUNT, is_needed=True)
        if status != "ready":
            return done({"status": status})
        count, day = self._platform.sendings.count, asked.query("date") or ""
        return done({"status": status} | {name: count(kind, day) for name, kind in _API.items()})

    async def event(self, asked: Asked) -> Response:
        """Return the statistics of one call. A call unknown to LINE has no numbers."""
        request_id = asked.query("requestId")
        if not request_id:
            raise wrong_parameter("requestId")
        sending = self._platform.sendings.find(request_id)
        overview: Json = {"requestId": request_id} | dict.fromkeys(_NOTHING)
        if sending is not None:
            overview |= {"timestamp": int(sending.at), "delivered": len(sending.recipients)}
        return done({"overview": overview, "messages": [], "clicks": []})

    async def unit(self, asked: Asked) -> Response:
        """Return the statistics of all calls of an aggregation unit."""
        if not is_unit(asked.query("customAggregationUnit")):
            raise wrong_parameter("customAggregationUnit")
        _period(asked)
        return done({"overview": dict.fromkeys(_NOTHING), "messages": [], "clicks": []})

    async def menu(self, asked: Asked) -> Response:
        """Return views and taps of a rich menu: no figures for fewer than 20 people."""
        _period(asked)
        menu_id = asked.part("richMenuId")
        if menu_id not in [menu["richMenuId"] for menu in self._platform.menus.all()]:
            raise not_found()
        return done({"richMenuId": menu_id})


def _period(asked: Asked) -> None:
    """The first and the last day. Refusal: 400, they are not valid days in order."""
    for name in ("from", "to"):
        if not is_day(asked.query(name)):
            raise wrong_parameter(name)
    if (asked.query("from") or "") > (asked.query("to") or ""):
        raise wrong_parameter("from")
