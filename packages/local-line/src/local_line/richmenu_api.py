"""Rich menus over HTTP: create, check, upload pictures, link and name them.

/v2/bot/richmenu…, /v2/bot/user/all/richmenu…, /v2/bot/user/{userId}/richmenu…
"""

from typing import Any

from starlette.responses import Response

from .calls import ApiRoute, Asked, done
from .journal import News
from .platform import Platform
from .refusals import Detail, wrong_body, wrong_parameter
from .richmenus import RichMenus, check_menu, check_operations, check_picture
from .sendings import iso
from .sources import is_id


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes; fixed paths come before those with parameters."""
    api = RichMenuApi(platform)
    menu, alias = "/v2/bot/richmenu", "/v2/bot/richmenu/alias"
    everybody, one = "/v2/bot/user/all/richmenu", "/v2/bot/user/{userId}/richmenu"
    return [
        ApiRoute("POST", menu, api.create),
        ApiRoute("POST", f"{menu}/validate", api.validate),
        ApiRoute("GET", f"{menu}/list", api.list_all),
        ApiRoute("POST", alias, api.create_alias),
        ApiRoute("GET", f"{alias}/list", api.list_aliases),
        ApiRoute("GET", f"{alias}/{{aliasId}}", api.get_alias),
        ApiRoute("POST", f"{alias}/{{aliasId}}", api.update_alias),
        ApiRoute("DELETE", f"{alias}/{{aliasId}}", api.delete_alias),
        ApiRoute("POST", f"{menu}/batch", api.batch),
        ApiRoute("POST", f"{menu}/validate/batch", api.validate_batch),
        ApiRoute("GET", f"{menu}/progress/batch", api.batch_progress),
        ApiRoute("POST", f"{menu}/bulk/link", api.link_many),
        ApiRoute("POST", f"{menu}/bulk/unlink", api.unlink_many),
        ApiRoute("GET", f"{menu}/{{richMenuId}}", api.get),
        ApiRoute("DELETE", f"{menu}/{{richMenuId}}", api.delete),
        ApiRoute("POST", f"{menu}/{{richMenuId}}/content", api.upload),
        ApiRoute("GET", f"{menu}/{{richMenuId}}/content", api.download),
        ApiRoute("GET", everybody, api.get_default),
        ApiRoute("DELETE", everybody, api.cancel_default),
        ApiRoute("POST", f"{everybody}/{{richMenuId}}", api.set_default),
        ApiRoute("GET", one, api.get_linked),
        ApiRoute("DELETE", one, api.unlink),
        ApiRoute("POST", f"{one}/{{richMenuId}}", api.link),
    ]


class RichMenuApi:
    """The menus of the bot."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    @property
    def _menus(self) -> RichMenus:
        return self._platform.menus

    def _changed(self) -> Response:
        """Make all pages reload their menu."""
        self._platform.journal.tell(News("menu", {}, None))
        return done()

    # ---- the menus

    async def create(self, asked: Asked) -> Response:
        """Create a menu, without a picture yet."""
        return done({"richMenuId": self._menus.create(check_menu(await asked.json()))})

    async def validate(self, asked: Asked) -> Response:
        """Check a menu without creating it."""
        check_menu(await asked.json())
        return done()

    async def list_all(self, asked: Asked) -> Response:
        """List all menus."""
        return done({"richmenus": self._menus.all()})

    async def get(self, asked: Asked) -> Response:
        """Return a menu."""
        return done(self._menus.get(asked.part("richMenuId")))

    async def delete(self, asked: Asked) -> Response:
        """Delete a menu, also from every phone."""
        self._menus.delete(asked.part("richMenuId"))
        return self._changed()

    async def upload(self, asked: Asked) -> Response:
        """Upload its picture, which cannot be replaced."""
        menu_id = asked.part("richMenuId")
        self._menus.get(menu_id)
        picture = check_picture(await asked.data(), asked.media_type)
        self._menus.upload(menu_id, picture)
        return done()

    async def download(self, asked: Asked) -> Response:
        """Return its picture."""
        picture = self._menus.picture(asked.part("richMenuId"))
        return Response(picture.data, media_type=picture.media_type)

    # ---- who sees it

    async def get_default(self, asked: Asked) -> Response:
        """Return the default menu."""
        return done({"richMenuId": self._menus.default})

    async def set_default(self, asked: Asked) -> Response:
        """Make it the default menu."""
        self._menus.set_default(asked.part("richMenuId"))
        return self._changed()

    async def cancel_default(self, asked: Asked) -> Response:
        """Remove the default menu."""
        self._menus.cancel_default()
        return self._changed()

    async def get_linked(self, asked: Asked) -> Response:
        """Return the menu that is linked to this user."""
        return done({"richMenuId": self._menus.linked(asked.user())})

    async def link(self, asked: Asked) -> Response:
        """Link a menu to this user."""
        self._menus.link(asked.user(), asked.part("richMenuId"))
        return self._changed()

    async def unlink(self, asked: Asked) -> Response:
        """Unlink the menu of this user, who then sees the default."""
        self._menus.unlink(asked.user())
        return self._changed()

    async def link_many(self, asked: Asked) -> Response:
        """Link a menu to these users."""
        body = await asked.json()
        for user_id in _users(body):
            self._menus.link(user_id, _word(body, "richMenuId"))
        self._changed()
        return done(status=202)

    async def unlink_many(self, asked: Asked) -> Response:
        """Unlink the menus of these users."""
        for user_id in _users(await asked.json()):
            self._menus.unlink(user_id)
        self._changed()
        return done(status=202)

    # ---- all at once

    async def batch(self, asked: Asked) -> Response:
        """Replace or unlink a menu for all its users."""
        operations = check_operations(await asked.json())
        for operation in operations:
            self._menus.replace(operation)
        self._platform.menus.note_batch(asked.request_id, self._platform.clock())
        self._changed()
        return done(status=202)

    async def validate_batch(self, asked: Asked) -> Response:
        """Check a batch without executing it."""
        check_operations(await asked.json())
        return done()

    async def batch_progress(self, asked: Asked) -> Response:
        """Return the progress of a batch. Refusal: 404, there was none."""
        request_id = asked.query("requestId")
        if not request_id:
            raise wrong_parameter("requestId")
        at = iso(self._menus.batch(request_id))
        return done({"phase": "succeeded", "acceptedTime": at, "completedTime": at})

    # ---- other names

    async def create_alias(self, asked: Asked) -> Response:
        """Create an alias of a menu."""
        body = await asked.json()
        alias = _word(body, "richMenuAliasId", most=32)
        self._menus.name(alias, _word(body, "richMenuId"), is_new=True)
        return done()

    async def update_alias(self, asked: Asked) -> Response:
        """Let an alias refer to another menu."""
        menu_id = _word(await asked.json(), "richMenuId")
        self._menus.name(asked.part("aliasId"), menu_id, is_new=False)
        return done()

    async def get_alias(self, asked: Asked) -> Response:
        """Return the menu of an alias."""
        alias = asked.part("aliasId")
        return done({"richMenuAliasId": alias, "richMenuId": self._menus.named(alias)})

    async def list_aliases(self, asked: Asked) -> Response:
        """List all aliases."""
        names = self._menus.names().items()
        return done({"aliases": [{"richMenuAliasId": a, "richMenuId": m} for a, m in names]})

    async def delete_alias(self, asked: Asked) -> Response:
        """Delete an alias."""
        self._menus.forget_name(asked.part("aliasId"))
        return done()


def _users(body: dict[str, Any]) -> list[str]:
    users = body.get("userIds")
    if not isinstance(users, list) or not 1 <= len(users) <= 500:
        raise wrong_body([Detail("userIds", "Size must be between 1 and 500")])
    if not all(is_id(user, "U") for user in users):
        raise wrong_body([Detail("userIds", "invalid userId")])
    return users


def _word(body: dict[str, Any], name: str, *, most: int = 100) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise wrong_body([Detail(name, f"invalid {name}")])
    return value
