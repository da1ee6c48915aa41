"""LIFF apps: pages that open inside of LINE.

POST, GET /liff/v1/apps · PUT, DELETE /liff/v1/apps/{liffId}
"""

import secrets
from typing import Any

from starlette.responses import Response

from .calls import ApiRoute, Asked, done
from .findings import anything, fields, one_of, url
from .platform import Platform
from .refusals import Detail, not_found, wrong_body

Json = dict[str, Any]
_type = one_of("compact", "tall", "full")
_address = url("https", "http")
_REST = {"description": anything, "features": anything, "permanentLinkPattern": anything}
_REST |= {"scope": anything, "botPrompt": one_of("normal", "aggressive", "none")}
_new = fields({"view": fields({"type": _type, "url": _address}, {"moduleMode": anything})}, _REST)
_changed = fields({}, {"view": fields({}, {"type": _type, "url": _address})} | _REST)


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes."""
    api = LiffApi(platform)
    return [
        ApiRoute("POST", "/liff/v1/apps", api.create),
        ApiRoute("GET", "/liff/v1/apps", api.list_all),
        ApiRoute("PUT", "/liff/v1/apps/{liffId}", api.update),
        ApiRoute("DELETE", "/liff/v1/apps/{liffId}", api.delete),
    ]


class LiffApi:
    """The LIFF apps of the channel."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._apps = platform.liff_apps

    async def create(self, asked: Asked) -> Response:
        """Create a LIFF app. LINE accepts https only; a page on this machine may have http."""
        body = await asked.json()
        _check(list(_new(body, ())))
        liff_id = f"{self._platform.channel.channel_id}-{secrets.token_hex(4)}"
        self._apps[liff_id] = {"liffId": liff_id} | body
        return done({"liffId": liff_id})

    async def list_all(self, asked: Asked) -> Response:
        """List all LIFF apps. Refusal: 404, there is none."""
        if not self._apps:
            raise not_found()
        return done({"apps": list(self._apps.values())})

    async def update(self, asked: Asked) -> Response:
        """Change the given fields."""
        body = await asked.json()
        app = self._find(asked)  # not before: it may be deleted while the body arrives
        _check(list(_changed(body, ())))
        view = app["view"] | body.get("view", {})
        app.update(body | {"view": view})
        return done()

    async def delete(self, asked: Asked) -> Response:
        """Delete a LIFF app."""
        del self._apps[self._find(asked)["liffId"]]
        return done()

    def _find(self, asked: Asked) -> Json:
        app = self._apps.get(asked.part("liffId"))
        if app is None:
            raise not_found()
        return app


def _check(mistakes: list[Any]) -> None:
    if mistakes:
        raise wrong_body([Detail(each.dotted, each.message) for each in mistakes])
