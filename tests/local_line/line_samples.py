"""Requests that LINE accepts, with every field that its descriptions know; and spoilt ones.

`line_rules.json` has the rules of those descriptions; `python tools/line_rules.py` renews it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]
RULES: Json = json.loads(Path(__file__).with_name("line_rules.json").read_text())
URL = "https://example.com/p"
EMOJI = {"productId": "5ac1bfd5040ab15980c9b435", "emojiId": "001"}
WRITE = {"type": "message", "label": "yes", "text": "yes"}
VISIT = {"type": "uri", "label": "open", "uri": URL, "altUri": {"desktop": URL}}
ALONE = {"type": "text", "text": "words"}


def _area(x: int = 0, width: int = 1040) -> Json:
    return {"x": x, "y": 0, "width": width, "height": 585}


def _box(*contents: Json, layout: str = "vertical") -> Json:
    return {"type": "box", "layout": layout, "contents": list(contents)}


def _template(kind: str, **fields: Any) -> Json:
    return {"type": "template", "altText": "a template", "template": {"type": kind} | fields}


def _flex(contents: Json) -> Json:
    return {"type": "flex", "altText": "a card", "contents": contents}


PICK = {
    "type": "datetimepicker", "label": "when", "data": "d", "mode": "datetime",
    "initial": "2026-11-16t10:00", "min": "2026-11-01t00:00", "max": "2026-12-31t23:59",
}  # fmt: skip
ANSWER = {
    "type": "postback", "label": "tap", "data": "d", "displayText": "tapped",
    "inputOption": "openKeyboard", "fillInText": "Name: \nPhone: ",
}  # fmt: skip
COPY = {"type": "clipboard", "label": "copy", "clipboardText": "abc"}
ON_PHONE = [{"type": kind, "label": kind} for kind in ("camera", "cameraRoll", "location")]
QUICK = [
    {"type": "action", "imageUrl": URL, "action": action}
    for action in (WRITE, VISIT, PICK, ANSWER, COPY, *ON_PHONE)
]
IMAGE = {"type": "image", "url": URL, "size": "full", "aspectRatio": "20:13", "aspectMode": "cover"}
LONG_TEXT = ALONE | {
    "size": "xl", "weight": "bold", "wrap": True, "maxLines": 2, "flex": 1, "margin": "md",
    "align": "center", "gravity": "top", "color": "#112233", "decoration": "underline",
    "style": "italic", "lineSpacing": "4px", "adjustMode": "shrink-to-fit", "scaling": True,
    "contents": [{"type": "span", "text": "part", "color": "#ff0000", "size": "sm"}],
}  # fmt: skip
BUBBLE = {
    "type": "bubble", "size": "mega", "direction": "ltr", "hero": IMAGE,
    "header": _box(ALONE),
    "body": _box(
        LONG_TEXT, {"type": "separator", "margin": "md", "color": "#000000"}, {"type": "filler"},
        _box({"type": "icon", "url": URL, "size": "sm"}, ALONE, layout="baseline"),
    ) | {"spacing": "md", "background": {
        "type": "linearGradient", "angle": "90deg", "startColor": "#ff0000", "endColor": "#0000ff",
        "centerColor": "#00ff00", "centerPosition": "10%"}},
    "footer": _box(
        {"type": "button", "style": "primary", "height": "sm", "color": "#00aa00", "action": VISIT},
        layout="horizontal",
    ),
    "styles": {"header": {"backgroundColor": "#00ffff", "separator": True}},
    "action": VISIT,
}  # fmt: skip
CARD = {
    "thumbnailImageUrl": URL, "imageBackgroundColor": "#FFFFFF", "title": "title", "text": "words",
    "defaultAction": VISIT,
}  # fmt: skip

MESSAGES: dict[str, Json] = {
    "text": {
        "type": "text", "text": "hi $", "emojis": [{"index": 3} | EMOJI], "quoteToken": "q",
        "quickReply": {"items": QUICK}, "sender": {"name": "Cony", "iconUrl": URL},
    },
    "textV2": {
        "type": "textV2", "text": "hi {all} {her} {smile}", "quoteToken": "q",
        "substitution": {
            "all": {"type": "mention", "mentionee": {"type": "all"}},
            "her": {"type": "mention", "mentionee": {"type": "user", "userId": "U" + "1" * 32}},
            "smile": {"type": "emoji"} | EMOJI,
        },
    },
    "sticker": {"type": "sticker", "packageId": "446", "stickerId": "1988", "quoteToken": "q"},
    "image": {"type": "image", "originalContentUrl": URL, "previewImageUrl": URL},
    "video": {
        "type": "video", "originalContentUrl": URL, "previewImageUrl": URL, "trackingId": "t",
    },
    "audio": {"type": "audio", "originalContentUrl": URL, "duration": 1000},
    "location": {
        "type": "location", "title": "here", "address": "a street",
        "latitude": 25.03, "longitude": 121.56,
    },
    "imagemap": {
        "type": "imagemap", "baseUrl": URL, "altText": "a map",
        "baseSize": {"width": 1040, "height": 1040},
        "actions": [
            {"type": "uri", "label": "open", "linkUri": URL, "area": _area(0, 520)},
            {"type": "message", "label": "say", "text": "said", "area": _area(520, 520)},
            {"type": "clipboard", "label": "copy", "clipboardText": "abc", "area": _area(0, 5)},
        ],
        "video": {
            "originalContentUrl": URL, "previewImageUrl": URL, "area": _area(),
            "externalLink": {"linkUri": URL, "label": "more"},
        },
    },
    "buttons": _template(
        "buttons", imageAspectRatio="square", imageSize="contain", actions=[ANSWER, PICK, COPY],
        **CARD,
    ),
    "confirm": _template("confirm", text="sure?", actions=[WRITE, WRITE]),
    "carousel": _template(
        "carousel", imageAspectRatio="rectangle", imageSize="cover",
        columns=[CARD | {"actions": [VISIT]}],
    ),
    "image_carousel": _template("image_carousel", columns=[{"imageUrl": URL, "action": VISIT}]),
    "bubble": _flex(BUBBLE),
    "carousel of bubbles": _flex({"type": "carousel", "contents": [{
        "type": "bubble", "hero": {
            "type": "video", "url": URL, "previewUrl": URL, "altContent": IMAGE,
            "aspectRatio": "20:13", "action": VISIT,
        },
    }]}),
    "coupon": {"type": "coupon", "couponId": "c", "deliveryTag": "tag"},
}  # fmt: skip
SWITCH = {"type": "richmenuswitch", "richMenuAliasId": "a", "data": "d", "label": "tab"}
MENU: Json = {
    "size": {"width": 2500, "height": 1686}, "selected": False, "name": "n", "chatBarText": "bar",
    "areas": [
        {"bounds": {"x": 0, "y": 0, "width": 1250, "height": 1686}, "action": action}
        for action in (SWITCH, WRITE, VISIT, PICK, ANSWER, COPY)
    ],
}  # fmt: skip


class Spoilt(NamedTuple):
    """A request with one mistake."""

    path: tuple[str | int, ...]
    mistake: str
    body: Any


def rules_of(part: str, name: str, value: Any) -> Json:
    """The rules of an object; where several kinds are possible, of the kind that it is."""
    kinds = RULES[part]["kinds"].get(name)
    if kinds is not None and isinstance(value, dict):
        name = kinds["kinds"].get(value.get(kinds["by"]), name)
    return RULES[part]["objects"][name]


def spoil(rule: Json, value: Any, path: tuple[str | int, ...] = ()) -> Iterator[Spoilt]:
    """Every request that is one mistake away from *value*."""
    if "object" in rule:
        yield from _spoil_object(rules_of("messaging-api", rule["object"], value), value, path)
    elif "values" in rule:
        yield Spoilt(path, "not an object", "abc")
        for key, each in value.items():
            for found in spoil(rule["values"], each, (*path, key)):
                yield found._replace(body=value | {key: found.body})
    elif rule.get("type") == "array":
        yield from _spoil_list(rule, value, path)
    else:
        for mistake, wrong in _wrong_values(rule, value):
            yield Spoilt(path, mistake, wrong)


def _spoil_object(rules: Json, value: Json, path: tuple[str | int, ...]) -> Iterator[Spoilt]:
    if path:
        yield Spoilt(path, "not an object", "abc")
    for name in rules["required"]:
        rest = {key: each for key, each in value.items() if key != name}
        yield Spoilt((*path, name), "missing", rest)
    for name, each in value.items():
        for found in spoil(rules["fields"][name], each, (*path, name)):
            yield found._replace(body=value | {name: found.body})


def _spoil_list(rule: Json, value: list[Any], path: tuple[str | int, ...]) -> Iterator[Spoilt]:
    yield Spoilt(path, "not a list", {"x": 1})
    if "maxItems" in rule:
        yield Spoilt(path, f"more than {rule['maxItems']}", value[:1] * (rule["maxItems"] + 1))
    if rule.get("minItems"):
        yield Spoilt(path, "empty", [])
    for index, each in enumerate(value):
        for found in spoil(rule["items"], each, (*path, index)):
            yield found._replace(body=[*value[:index], found.body, *value[index + 1 :]])


def _wrong_values(rule: Json, value: Any) -> Iterator[tuple[str, Any]]:
    kind = rule.get("type")
    if kind == "string":
        yield from _wrong_texts(rule)
    elif kind in ("integer", "number"):
        yield "text for a number", "abc"
        yield from [("above", rule["maximum"] + 1)] if "maximum" in rule else []
        yield from [("below", rule["minimum"] - 1)] if "minimum" in rule else []
        yield from [("fraction", value + 0.5)] if kind == "integer" else []
    elif kind == "boolean":
        yield "text for a boolean", "abc"


def _wrong_texts(rule: Json) -> Iterator[tuple[str, Any]]:
    yield "number for a text", 12345
    start = "https://example.com/" if rule.get("format") == "uri" else ""
    if start:
        yield "not a URL", "not a url"
    if "enum" in rule:
        yield "not in the list", "zzz"
    if "maxLength" in rule:
        yield f"longer than {rule['maxLength']}", start + "h" * (rule["maxLength"] + 1)
    if rule.get("minLength"):
        yield "empty", ""
    if "pattern" in rule:
        yield f"not {rule['pattern']}", "!!~~"


def deviations(rule: Json, value: Any, path: str = "") -> Iterator[str]:
    """Where a webhook is not as LINE describes it."""
    if "object" in rule:
        rules = rules_of("webhook", rule["object"], value)
        yield from (f"{path}.{name} is missing" for name in rules["required"] if name not in value)
        for name, each in value.items():
            if name not in rules["fields"]:
                yield f"{path}.{name} is not described"
            else:
                yield from deviations(rules["fields"][name], each, f"{path}.{name}")
    elif rule.get("type") == "array":
        for index, each in enumerate(value):
            yield from deviations(rule["items"], each, f"{path}[{index}]")
    elif not _fits(rule, value):
        yield f"{path} is {value!r}, not {rule}"


_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


def _fits(rule: Json, value: Any) -> bool:
    if not isinstance(value, _TYPES.get(rule.get("type", ""), object)):
        return False
    if not isinstance(value, str):
        return True
    is_known = value in rule.get("enum", [value]) and len(value) >= rule.get("minLength", 0)
    is_short = len(value) <= rule.get("maxLength", len(value))
    return is_known and is_short and bool(re.search(rule.get("pattern", ""), value))
