"""The menu as it is sent to LINE, under a name by which it is recognised again."""

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from .buttons import BUTTONS, HEIGHT, WIDTH, Button

CHAT_BAR = "天氣選單"
_PICTURE = Path(__file__).with_name("menu.png")
_OWN = re.compile(r"dibs\.weamind:[0-9a-f]{16}")


@cache
def picture() -> bytes:
    """The PNG; `drawing.py` has drawn it."""
    return _PICTURE.read_bytes()


def definition() -> dict[str, Any]:
    """What LINE is given. Its name changes with everything that people would see or tap."""
    return {"name": name(), **_content()}


@cache
def name() -> str:
    """The name of our current menu."""
    return name_of(_content(), picture())


def name_of(content: dict[str, Any], png: bytes) -> str:
    """The name of a menu of ours with that content and that picture."""
    said = json.dumps(content, sort_keys=True).encode()
    return f"dibs.weamind:{hashlib.sha256(said + bytes(1) + png).hexdigest()[:16]}"


def is_own(name: str) -> bool:
    """True: created by this app, now or earlier. All other menus are left alone."""
    return _OWN.fullmatch(name) is not None


def _content() -> dict[str, Any]:
    return {
        "size": {"width": WIDTH, "height": HEIGHT},
        "selected": True,
        "chatBarText": CHAT_BAR,
        "areas": [_area(button) for button in BUTTONS],
    }


def _area(button: Button) -> dict[str, Any]:
    action = {"type": "postback", "data": button.data}
    spoken = {"label": button.label, "displayText": button.label}
    return {"bounds": button.bounds._asdict(), "action": action | spoken}
