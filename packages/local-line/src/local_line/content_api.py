"""What people have sent, whether it was read, and the loading dots.

GET  /v2/bot/message/{messageId}/content   200: the bytes · 202: not ready · 404, 410
GET  /v2/bot/message/{messageId}/content/preview, …/content/transcoding
POST /v2/bot/message/markAsRead, /v2/bot/chat/markAsRead
POST /v2/bot/chat/loading/start            202 · 400
GET  /v2/bot/message/quota, /quota/consumption, /delivery/{kind}, /aggregation/{info|list}
"""

from typing import Any

from starlette.responses import Response

from .calls import ApiRoute, Asked, done
from .contents import Content, preview
from .journal import News
from .pages import page_of
from .platform import Platform
from .refusals import Detail, Refusal, not_found, wrong_body, wrong_parameter
from .sendings import day_of, is_day
from .sources import is_id

Json = dict[str, Any]
_ONLY_USERS = (
    "Only user id is acceptable, please confirm if there are any group/room ids or illegal ids."
)
_FIRST_DAY = "20180331"
"""LINE counts since then."""
_NOT_YOURS = "Access to this API is not available for your account"


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes."""
    api = ContentApi(platform)
    sent = "/v2/bot/message"
    content = f"{sent}/{{messageId}}/content"
    counted = ("reply", "push", "multicast", "broadcast", "pnp")
    return [
        ApiRoute("GET", content, api.download),
        ApiRoute("GET", f"{content}/preview", api.preview),
        ApiRoute("GET", f"{content}/transcoding", api.transcoding),
        ApiRoute("POST", f"{sent}/markAsRead", api.mark_as_read),
        ApiRoute("POST", "/v2/bot/chat/markAsRead", api.mark_as_read_by_token),
        ApiRoute("POST", "/v2/bot/chat/loading/start", api.show_loading),
        ApiRoute("GET", f"{sent}/quota", api.quota),
        ApiRoute("GET", f"{sent}/quota/consumption", api.consumption),
        *(ApiRoute("GET", f"{sent}/delivery/{kind}", api.count) for kind in counted),
        ApiRoute("GET", f"{sent}/delivery/pnp/templated", api.count),
        ApiRoute("GET", f"{sent}/aggregation/info", api.aggregation_usage),
        ApiRoute("GET", f"{sent}/aggregation/list", api.aggregation_units),
        ApiRoute("POST", "/bot/pnp/push", api.by_phone),
        ApiRoute("POST", f"{sent}/pnp/templated/push", api.by_phone),
    ]


class ContentApi:
    """Contents of messages, read marks, and counts."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    # ---- what people have sent

    async def download(self, asked: Asked) -> Response:
        """Return the picture, video, sound or file."""
        content = self._content(asked)
        return Response(content.data, media_type=content.media_type)

    async def preview(self, asked: Asked) -> Response:
        """Return a smaller version of a picture or video."""
        small = preview(self._content(asked))
        if small is None:
            raise not_found()
        return Response(small.data, media_type=small.media_type)

    async def transcoding(self, asked: Asked) -> Response:
        """Tell whether a video or sound can be downloaded: it always can."""
        self._content(asked)
        return done({"status": "succeeded"})

    def _content(self, asked: Asked) -> Content:
        """The content of a message. Refusal: 404, it has none; 410, it was unsent."""
        message_id = asked.part("messageId")
        if self._platform.contents.is_gone(message_id):
            raise Refusal(410, "The message was deleted")
        content = self._platform.contents.find(message_id)
        if content is None:
            raise not_found()
        return content

    # ---- read, and the dots

    async def mark_as_read(self, asked: Asked) -> Response:
        """Mark all messages of this user as read."""
        chat = (await asked.json()).get("chat")
        user_id = chat.get("userId") if isinstance(chat, dict) else None
        if not isinstance(user_id, str) or not is_id(user_id, "U"):
            raise wrong_body([Detail("chat.userId", "invalid userId")])
        self._read(asked, user_id)
        return done()

    async def mark_as_read_by_token(self, asked: Asked) -> Response:
        """Mark all messages up to that one as read. Refusal: 400, the token is unknown."""
        token = (await asked.json()).get("markAsReadToken")
        chat_id = self._platform.read_tokens.get(token) if isinstance(token, str) else None
        if chat_id is None:
            raise Refusal(400, "Invalid markAsReadToken")
        self._read(asked, chat_id)
        return done()

    def _read(self, asked: Asked, chat_id: str) -> None:
        asked.chat_id = chat_id
        self._platform.journal.tell(News("read", {}, chat_id))

    async def show_loading(self, asked: Asked) -> Response:
        """Show the loading animation, until the bot sends a message or the time is over."""
        body = await asked.json()
        platform = self._platform
        chat_id, seconds = _loading(body.get("chatId"), body.get("loadingSeconds", 20))
        asked.chat_id = chat_id
        person = platform.accounts.find(chat_id)
        if person is not None and not person.has_blocked:
            platform.chats.open(chat_id).load(platform.clock() + seconds)
            platform.journal.tell(News("loading", {"seconds": seconds}, chat_id))
        return done(status=202)

    # ---- how much

    async def quota(self, asked: Asked) -> Response:
        """Return the monthly quota."""
        if self._platform.quota is None:
            return done({"type": "none"})
        return done({"type": "limited", "value": self._platform.quota})

    async def consumption(self, asked: Asked) -> Response:
        """Return how much of the quota was used."""
        return done({"totalUsage": self._platform.used})

    async def count(self, asked: Asked) -> Response:
        """Return how many messages were sent on a day; today and later days are not counted yet."""
        day, today = asked.query("date"), day_of(self._platform.clock())
        if not is_day(day) or day is None:
            raise wrong_parameter("date")
        if day < _FIRST_DAY:
            return done({"status": "out_of_service"})
        if day >= today:
            return done({"status": "unready"})
        kind = asked.request.url.path.rpartition("/")[2]
        return done({"status": "ready", "success": self._platform.sendings.count(kind, day)})

    async def aggregation_usage(self, asked: Asked) -> Response:
        """Return how many aggregation units were named this month."""
        return done({"numOfCustomAggregationUnits": len(self._units())})

    async def aggregation_units(self, asked: Asked) -> Response:
        """List their names."""
        units, more = page_of(self._units(), asked, most=100)
        return done({"customAggregationUnits": units} | more)

    def _units(self) -> list[str]:
        return self._platform.sendings.units(day_of(self._platform.clock())[:6])

    async def by_phone(self, asked: Asked) -> Response:
        """Send messages to phone numbers: only for companies that LINE has approved."""
        await asked.json()
        raise Refusal(403, _NOT_YOURS)


def _loading(chat_id: Any, seconds: Any) -> tuple[str, int]:
    """The user and the seconds, if both are valid."""
    mistakes: list[Detail] = []
    if not is_id(chat_id, "U"):
        mistakes.append(Detail("chatId", _ONLY_USERS))
    if type(seconds) is not int or not 5 <= seconds <= 60:
        mistakes.append(Detail("loadingSeconds", "Must be between 5 and 60"))
    if type(seconds) is not int or seconds % 5:
        mistakes.append(Detail("loadingSeconds", "must be a multiple of five"))
    if mistakes:
        raise wrong_body(mistakes)
    return chat_id, seconds
