"""The six buttons: what they say, what they send, and where they are."""

from dataclasses import dataclass
from typing import NamedTuple

from ..line.postbacks import postback_data

WIDTH, HEIGHT = 2500, 1686
_COLUMNS = ((0, 833), (833, 834), (1667, 833))
_ROWS = ((0, 843), (843, 843))


class Bounds(NamedTuple):
    """A part of the picture, in pixels."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Button:
    """One button."""

    label: str
    data: str
    icon: str
    """The name by which `icons.py` draws it."""
    bounds: Bounds


def _cell(number: int) -> Bounds:
    (x, width), (y, height) = _COLUMNS[number % 3], _ROWS[number // 3]
    return Bounds(x, y, width, height)


BUTTONS = tuple(
    Button(label, data, icon, _cell(number))
    for number, (label, data, icon) in enumerate(
        (
            ("住家", postback_data("weather", type="home"), "house"),
            ("公司", postback_data("weather", type="office"), "office"),
            ("最近查詢", postback_data("recent_queries"), "clock"),
            ("設定", postback_data("settings"), "gear"),
            ("目前位置", postback_data("weather", type="current"), "pin"),
            ("其他", postback_data("other", type="menu"), "dots"),
        )
    )
)
