"""Calls that only few accounts may make: module channels, and stickers for missions.

LINE answers all other accounts 403, and so does this. Chat control needs a module channel, too.
"""

from starlette.responses import Response

from .calls import ApiRoute, Asked
from .platform import Platform
from .refusals import Refusal

_NOT_YOURS = "Access to this API is not available for your account"


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes."""
    return [
        ApiRoute("POST", "/v2/bot/chat/{chatId}/control/acquire", _refuse),
        ApiRoute("POST", "/v2/bot/chat/{chatId}/control/release", _refuse),
        ApiRoute("POST", "/v2/bot/channel/detach", _refuse),
        ApiRoute("GET", "/v2/bot/list", _refuse),
        ApiRoute("POST", "/module/auth/v1/token", _refuse, is_open=True),
        ApiRoute("POST", "/shop/v3/mission", _refuse),
    ]


async def _refuse(asked: Asked) -> Response:
    await asked.data()
    raise Refusal(403, _NOT_YOURS)
