"""What only few accounts may do: module channels, and stickers for missions.

LINE answers everybody else 403, and so does this. Chat control is a module channel's, too.
"""

from starlette.responses import Response

from .calls import Asked, Entrance
from .platform import Platform
from .refusals import Refusal

_NOT_YOURS = "Access to this API is not available for your account"


def entrances(platform: Platform) -> list[Entrance]:
    """The routes."""
    return [
        Entrance("POST", "/v2/bot/chat/{chatId}/control/acquire", _refuse),
        Entrance("POST", "/v2/bot/chat/{chatId}/control/release", _refuse),
        Entrance("POST", "/v2/bot/channel/detach", _refuse),
        Entrance("GET", "/v2/bot/list", _refuse),
        Entrance("POST", "/module/auth/v1/token", _refuse, is_open=True),
        Entrance("POST", "/shop/v3/mission", _refuse),
    ]


async def _refuse(asked: Asked) -> Response:
    await asked.data()
    raise Refusal(403, _NOT_YOURS)
