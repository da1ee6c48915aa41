"""Flex messages: which component may stand where, and what each may say.

As at LINE, their errors differ from other messages': `unknown field`, `invalid property`, `must be
specified`.
"""

import json
import re
from typing import Any

from .actions import in_flex, in_flex_button
from .findings import Check, Finding, Findings, Path

BUBBLE_BYTES = 30 * 1024
CAROUSEL_BYTES = 50 * 1024
_DEEPEST = 30
_SPACES = "none|xs|sm|md|lg|xl|xxl"
_SIZES = "xxs|xs|sm|md|lg|xl|xxl|3xl|4xl|5xl"
_PIXELS = r"\d+(?:\.\d+)?px"
_PERCENT = r"\d+(?:\.\d+)?%"


def _matching(pattern: str) -> Check:
    compiled = re.compile(pattern)

    def check(value: Any, path: Path) -> Findings:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            yield Finding(path, "invalid property")

    return check


def _typed(*types: type) -> Check:
    def check(value: Any, path: Path) -> Findings:
        if type(value) not in types or (type(value) is int and value < 0):
            yield Finding(path, "invalid property")

    return check


def _https(value: Any, path: Path) -> Findings:
    if not isinstance(value, str) or not value or len(value) > 2000:
        yield Finding(path, "invalid property")
    elif not value.startswith("https://"):
        yield Finding(path, "invalid uri scheme")


def _ratio(value: Any, path: Path) -> Findings:
    width, _, height = value.partition(":") if isinstance(value, str) else ("", "", "")
    try:
        is_right = 1 <= float(width) <= 100_000 and 1 <= float(height) <= 3 * float(width)
    except ValueError:
        is_right = False
    if not is_right:
        yield Finding(path, "invalid property")


def _words(value: Any, path: Path) -> Findings:
    if not isinstance(value, str) or not value:
        yield Finding(path, "must be non-empty text")


def _object(known: dict[str, Check], *required: str) -> Check:
    """An object with all required and no unknown fields, each of which passes."""

    def check(value: Any, path: Path) -> Findings:
        if not isinstance(value, dict):
            yield Finding(path, "invalid property")
            return
        for name in required:
            if value.get(name) is None:
                yield Finding((*path, name), "must be specified")
        for name, part in value.items():
            if name not in known:
                yield Finding((*path, name), "unknown field")
            elif part is not None:
                yield from known[name](part, (*path, name))

    return check


# ---- properties

_flag = _typed(bool)
_count = _typed(int)
_colour = _matching("#[0-9a-fA-F]{6}(?:[0-9a-fA-F]{2})?")
_space = _matching(f"{_SPACES}|{_PIXELS}")
_length = _matching(f"{_PIXELS}|{_PERCENT}")
_offset = _matching(f"{_SPACES}|-?{_PIXELS}|-?{_PERCENT}")
_padding = _matching(f"{_SPACES}|{_PIXELS}|{_PERCENT}")
_font_size = _matching(f"{_SIZES}|{_PIXELS}")
_gravity = _matching("top|bottom|center")
_align = _matching("start|end|center")
_shrink = _matching("shrink-to-fit")

_PLACED: dict[str, Check] = {
    "type": _words,
    "position": _matching("relative|absolute"),
    "margin": _space,
} | {f"offset{side}": _offset for side in ("Top", "Bottom", "Start", "End")}
_LETTERS: dict[str, Check] = {
    "size": _font_size,
    "color": _colour,
    "weight": _matching("regular|bold"),
    "style": _matching("normal|italic"),
    "decoration": _matching("none|underline|line-through"),
}
_background = _object(
    {
        "type": _matching("linearGradient"),
        "angle": _matching(r"\d{1,3}(?:\.\d+)?deg"),
        "startColor": _colour,
        "endColor": _colour,
        "centerColor": _colour,
        "centerPosition": _matching(_PERCENT),
    },
    *("type", "angle", "startColor", "endColor"),
)


def _children(kinds: str) -> Check:
    allowed = kinds.split()

    def check(value: Any, path: Path) -> Findings:
        if not isinstance(value, list):
            yield Finding(path, "invalid property")
            return
        for index, child in enumerate(value):
            yield from _component(child, (*path, index), allowed)

    return check


_in_box = _children("box button image text separator filler spacer")
_in_line = _children("icon text filler spacer")


def _contents(value: Any, path: Path, layout: object) -> Findings:
    yield from (_in_line if layout == "baseline" else _in_box)(value, path)


# ---- components

_box_frame = _object(
    _PLACED
    | {f"padding{side}": _padding for side in ("All", "Top", "Bottom", "Start", "End")}
    | dict.fromkeys(("width", "maxWidth", "height", "maxHeight"), _length)
    | {
        "layout": _matching("horizontal|vertical|baseline"),
        "contents": lambda value, path: iter(()),  # looked at with its layout
        "backgroundColor": _colour,
        "borderColor": _colour,
        "borderWidth": _matching(f"none|light|normal|medium|semi-bold|bold|{_PIXELS}"),
        "cornerRadius": _space,
        "flex": _count,
        "spacing": _space,
        "justifyContent": _matching(
            "center|flex-start|flex-end|space-between|space-around|space-evenly"
        ),
        "alignItems": _matching("center|flex-start|flex-end"),
        "background": _background,
        "action": in_flex,
    },
    *("layout", "contents"),
)


def _box(value: Any, path: Path) -> Findings:
    yield from _box_frame(value, path)
    if value.get("contents") is not None:
        yield from _contents(value["contents"], (*path, "contents"), value.get("layout"))


_text_frame = _object(
    _PLACED
    | _LETTERS
    | {
        "text": _words,
        "contents": _children("span"),
        "flex": _count,
        "align": _align,
        "gravity": _gravity,
        "wrap": _flag,
        "lineSpacing": _matching(_PIXELS),
        "maxLines": _count,
        "adjustMode": _shrink,
        "scaling": _flag,
        "action": in_flex,
    }
)


def _text(value: Any, path: Path) -> Findings:
    yield from _text_frame(value, path)
    if not value.get("contents") and value.get("text") is None:
        yield Finding((*path, "text"), "must be specified")


_PICTURE: dict[str, Check] = {"url": _https, "aspectRatio": _ratio}
_image = _object(
    _PLACED
    | _PICTURE
    | {
        "flex": _count,
        "align": _align,
        "gravity": _gravity,
        "size": _matching(f"{_SIZES}|full|{_PIXELS}|{_PERCENT}"),
        "aspectMode": _matching("fit|cover"),
        "backgroundColor": _colour,
        "animated": _flag,
        "action": in_flex,
    },
    "url",
)
_COMPONENTS: dict[str, Check] = {
    "box": _box,
    "text": _text,
    "image": _image,
    "button": _object(
        _PLACED
        | {
            "action": in_flex_button,
            "flex": _count,
            "height": _matching("sm|md"),
            "style": _matching("primary|secondary|link"),
            "color": _colour,
            "gravity": _gravity,
            "adjustMode": _shrink,
            "scaling": _flag,
        },
        "action",
    ),
    "icon": _object(_PLACED | _PICTURE | {"size": _font_size, "scaling": _flag}, "url"),
    "span": _object({"type": _words, "text": _words} | _LETTERS),
    "separator": _object({"type": _words, "margin": _space, "color": _colour}),
    "filler": _object({"type": _words, "flex": _count}),
    "spacer": _object({"type": _words, "size": _matching(_SPACES)}),
    "video": _object(
        {"type": _words, "url": _https, "previewUrl": _https, "aspectRatio": _ratio}
        | {"altContent": lambda value, path: _component(value, path, ["box", "image"])}
        | {"action": in_flex},
        *("url", "previewUrl", "altContent"),
    ),
}


def _component(value: Any, path: Path, allowed: list[str]) -> Findings:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in allowed or len(path) > 2 * _DEEPEST:
        yield Finding(path, "invalid property")
    else:
        yield from _COMPONENTS[kind](value, path)


# ---- containers


def _block(*kinds: str) -> Check:
    return lambda value, path: _component(value, path, list(kinds))


_BLOCKS = ("header", "hero", "body", "footer")
_block_style = _object({"backgroundColor": _colour, "separator": _flag, "separatorColor": _colour})
_styles = _object(dict.fromkeys(_BLOCKS, _block_style))
_bubble_frame = _object(
    {
        "type": _words,
        "size": _matching("nano|micro|deca|hecto|kilo|mega|giga"),
        "direction": _matching("ltr|rtl"),
        "header": _block("box"),
        "hero": _block("box", "image", "video"),
        "body": _block("box"),
        "footer": _block("box"),
        "styles": _styles,
        "action": in_flex,
    }
)


def _bubble(value: Any, path: Path) -> Findings:
    yield from _bubble_frame(value, path)
    if not any(value.get(block) for block in _BLOCKS):
        yield Finding(path, "at least one block must be specified")
    yield from _not_larger(value, path, BUBBLE_BYTES)


def _carousel(value: Any, path: Path) -> Findings:
    bubbles = value.get("contents")
    if not isinstance(bubbles, list) or not 1 <= len(bubbles) <= 12:
        yield Finding((*path, "contents"), "size must be between 1 and 12")
        return
    for index, bubble in enumerate(bubbles):
        yield from _container(bubble, (*path, "contents", index), _BUBBLE_ONLY)
    sizes = [bubble.get("size", "mega") for bubble in bubbles if isinstance(bubble, dict)]
    if any(size != sizes[0] for size in sizes):
        yield Finding((*path, "contents"), "all bubbles must have the same size")
    yield from _not_larger(value, path, CAROUSEL_BYTES)


def _not_larger(value: Any, path: Path, most: int) -> Findings:
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > most:
        yield Finding(path, f"must not be larger than {most // 1024} KB")


_BUBBLE_ONLY: dict[str, Check] = {"bubble": _bubble}
_CONTAINERS: dict[str, Check] = {"bubble": _bubble, "carousel": _carousel}


def _container(value: Any, path: Path, kinds: dict[str, Check]) -> Findings:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        yield Finding((*path, "type"), "invalid property")
    else:
        yield from kinds[kind](value, path)


def check_container(value: Any) -> Findings:
    """All errors in the `contents` of a Flex message."""
    yield from _container(value, (), _CONTAINERS)
