"""Rich menus: the JSON, the pictures, who sees which one, and their aliases."""

import io
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from PIL import Image, UnidentifiedImageError

from .actions import in_rich_menu
from .findings import (
    Check,
    Finding,
    Findings,
    Path,
    boolean,
    by_type,
    fields,
    listed,
    text,
    whole,
)
from .refusals import Detail, Refusal, not_found, wrong_body

Json = dict[str, Any]
MOST_MENUS = 1000
LARGEST_IMAGE = 1024 * 1024
_FLATTEST = 1.45
"""The smallest ratio of width to height."""
FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}


# ---- the JSON

_bounds = fields({name: whole(0) for name in ("x", "y", "width", "height")}, {})
_area = fields({"bounds": _bounds, "action": in_rich_menu}, {})
_REQUIRED: dict[str, Check] = {
    "size": fields({"width": whole(800, 2500), "height": whole(250, 2500)}, {}),
    "selected": boolean,
    "name": text(300),
    "chatBarText": text(14),
    "areas": listed(_area, least=0, most=20),
}
_menu = fields(_REQUIRED, {})


def check_menu(body: Json) -> Json:
    """Check a rich menu. Refusal: 400, and what is wrong with it."""
    mistakes = list(_menu(body, ())) or list(_proportions(body))
    if mistakes:
        raise wrong_body([Detail(each.dotted, each.message) for each in mistakes])
    return {name: body[name] for name in _REQUIRED}


def _proportions(body: Json) -> Findings:
    size = body["size"]
    if size["width"] / size["height"] < _FLATTEST:
        yield Finding(("size",), f"the width must be at least {_FLATTEST} times the height")
    for index, area in enumerate(body["areas"]):
        yield from _inside(area["bounds"], size, ("areas", index, "bounds"))


def _inside(bounds: Json, size: Json, path: Path) -> Findings:
    """An area must begin inside the menu; it may extend beyond, as in LINE's example of tabs."""
    for start, length in (("x", "width"), ("y", "height")):
        if not bounds[length]:
            yield Finding((*path, length), "must be greater than or equal to 1")
        if bounds[start] >= size[length]:
            yield Finding(path, f"must be inside of the {length} of the rich menu")


# ---- changes for all users of a menu

_menu_id = text(100)
_OPERATIONS: dict[str, Check] = {
    "link": fields({"from": _menu_id, "to": _menu_id}, {}),
    "unlink": fields({"from": _menu_id}, {}),
    "unlinkAll": fields({}, {}),
}
_operations = listed(by_type(_OPERATIONS), least=1, most=1000)


def check_operations(body: Json) -> list[Json]:
    """Check the operations of a batch. Refusal: 400, and what is wrong with them."""
    mistakes = list(_operations(body.get("operations"), ("operations",)))
    if mistakes:
        raise wrong_body([Detail(each.dotted, each.message) for each in mistakes])
    return body["operations"]


# ---- the picture


@dataclass(frozen=True)
class Picture:
    """The picture of a rich menu."""

    data: bytes
    media_type: str


def check_picture(data: bytes, media_type: str) -> Picture:
    """Check a picture for a rich menu. Refusal: 400, 413 or 415."""
    if media_type not in FORMATS:
        raise Refusal(415, f"The content type, {media_type}, is not supported")
    if len(data) > LARGEST_IMAGE:
        raise Refusal(413, "Request Entity Too Large")
    width, height = _measured(data, FORMATS[media_type])
    if not 800 <= width <= 2500 or height < 250 or width / height < _FLATTEST:
        raise Refusal(400, "The image size is not allowed for richmenu")
    return Picture(data, media_type)


def _measured(data: bytes, format: str) -> tuple[int, int]:
    """Width and height, from its header; it is not unpacked."""
    try:
        with Image.open(io.BytesIO(data), formats=[format]) as image:
            return image.size
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
        raise Refusal(400, "The image format is not allowed for richmenu") from None


# ---- all of them


class RichMenus:
    """The menus of one bot: they never change once created."""

    def __init__(self) -> None:
        self._menus: dict[str, Json] = {}
        self._pictures: dict[str, Picture] = {}
        self._default: str | None = None
        self._linked: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._batches: dict[str, float] = {}

    def snapshot(self) -> Json:
        """All of them, as JSON, with their pictures."""
        pictures = {
            id: {"data": b64encode(picture.data).decode(), "media_type": picture.media_type}
            for id, picture in self._pictures.items()
        }
        facts = {"menus": self._menus, "default": self._default, "linked": self._linked}
        return facts | {"aliases": self._aliases, "pictures": pictures}

    def restore(self, facts: Json) -> None:
        """Restore what `snapshot` has returned."""
        self._menus, self._default = facts["menus"], facts["default"]
        self._linked, self._aliases = facts["linked"], facts["aliases"]
        self._pictures = {
            id: Picture(b64decode(each["data"]), each["media_type"])
            for id, each in facts["pictures"].items()
        }

    def create(self, menu: Json) -> str:
        """Create a menu and return its id. Refusal: there are too many."""
        if len(self._menus) >= MOST_MENUS:
            raise Refusal(400, "The maximum number of rich menus has been reached")
        menu_id = f"richmenu-{secrets.token_hex(16)}"
        self._menus[menu_id] = {"richMenuId": menu_id} | menu
        return menu_id

    def all(self) -> list[Json]:
        """All menus, the oldest first."""
        return list(self._menus.values())

    def get(self, menu_id: str) -> Json:
        """Return a menu. Refusal: there is none."""
        if menu_id not in self._menus:
            raise not_found("richmenu not found")
        return self._menus[menu_id]

    def delete(self, menu_id: str) -> None:
        """Delete a menu with its picture, links and aliases. Refusal: there is none."""
        self.get(menu_id)
        del self._menus[menu_id]
        self._pictures.pop(menu_id, None)
        self._default = None if self._default == menu_id else self._default
        self._linked = {user: id for user, id in self._linked.items() if id != menu_id}
        self._aliases = {alias: id for alias, id in self._aliases.items() if id != menu_id}

    # ---- its picture

    def upload(self, menu_id: str, picture: Picture) -> None:
        """Set its picture. Refusal: it already has one, which cannot be replaced."""
        self.get(menu_id)
        if menu_id in self._pictures:
            raise Refusal(400, "An image has already been uploaded to the richmenu")
        self._pictures[menu_id] = picture

    def picture(self, menu_id: str) -> Picture:
        """Return its picture. Refusal: there is no menu, or it has none."""
        if menu_id not in self._pictures:
            raise not_found()
        return self._pictures[menu_id]

    # ---- who sees it

    def _ready(self, menu_id: str) -> str:
        if menu_id not in self._menus:
            raise not_found()
        if menu_id not in self._pictures:
            raise Refusal(400, "must upload richmenu image before applying it to user", ())
        return menu_id

    @property
    def default(self) -> str:
        """The default menu. Refusal: there is none."""
        if self._default is None:
            raise not_found("no default richmenu")
        return self._default

    def set_default(self, menu_id: str) -> None:
        """Show it to all users without a linked menu. Refusal: it is unknown or has no picture."""
        self._default = self._ready(menu_id)

    def cancel_default(self) -> None:
        """Show no menu to users without a linked one."""
        self._default = None

    def link(self, user_id: str, menu_id: str) -> None:
        """Link a menu to this user."""
        self._linked[user_id] = self._ready(menu_id)

    def linked(self, user_id: str) -> str:
        """The menu that is linked to this user. Refusal: there is none."""
        if user_id not in self._linked:
            raise not_found("the user has no richmenu")
        return self._linked[user_id]

    def unlink(self, user_id: str) -> None:
        """Unlink the menu of this user, who then sees the default."""
        self._linked.pop(user_id, None)

    def seen_by(self, user_id: str) -> Json | None:
        """The menu on this person's phone, if any."""
        menu_id = self._linked.get(user_id, self._default)
        return self._menus.get(menu_id) if menu_id else None

    def replace(self, operation: Json) -> None:
        """Replace or unlink a menu for all its users. Refusal: the new one is not ready."""
        if operation["type"] == "unlinkAll":
            self._linked = {}
            return
        before = [user for user, menu_id in self._linked.items() if menu_id == operation["from"]]
        for user in before:
            if operation["type"] == "link":
                self.link(user, operation["to"])
            else:
                self.unlink(user)

    def note_batch(self, request_id: str, at: float) -> None:
        """Record that a batch was done."""
        self._batches[request_id] = at

    def batch(self, request_id: str) -> float:
        """When a batch was done. Refusal: 404, there was none."""
        if request_id not in self._batches:
            raise not_found()
        return self._batches[request_id]

    # ---- other names

    def name(self, alias: str, menu_id: str, *, is_new: bool) -> None:
        """Let *alias* refer to that menu. Refusal: new and taken, or not new and unknown."""
        if is_new and alias in self._aliases:
            raise Refusal(400, "conflict richmenu alias id", ())
        if not is_new:
            self.named(alias)
        if menu_id not in self._pictures:
            raise Refusal(400, "richmenu not found", ())
        self._aliases[alias] = menu_id

    def named(self, alias: str) -> str:
        """The menu of that alias. Refusal: there is none."""
        if alias not in self._aliases:
            raise not_found("richmenu alias not found")
        return self._aliases[alias]

    def forget_name(self, alias: str) -> None:
        """Delete an alias. Refusal: there is none."""
        self.named(alias)
        del self._aliases[alias]

    def names(self) -> dict[str, str]:
        """All aliases, and their menus."""
        return dict(self._aliases)
