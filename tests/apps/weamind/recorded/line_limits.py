"""What LINE accepts as a message: from its reference, so that no test needs an account.

A message that passes has only documented parts and properties, is not too long anywhere, and can be
read: every text stands out against what is behind it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from local_line.flex import check_container

LARGEST_BUBBLE = 30 * 1024
LARGEST_CAROUSEL = 50 * 1024
MOST_BUBBLES = 12
LONGEST_ALT_TEXT = 400
LONGEST_LABEL = 20
LONGEST_DATA = LONGEST_SAID = 300
LONGEST_URI = 1000
LONGEST_TEXT = 2000
MOST_QUICK_REPLIES = 13
LEAST_CONTRAST = 4.5
"""WCAG 2 AA, for small print."""

_PIXELS = r"\d+(\.\d+)?px"
_SPACES = re.compile(rf"none|xs|sm|md|lg|xl|xxl|{_PIXELS}")
_PADDINGS = re.compile(rf"none|xs|sm|md|lg|xl|xxl|{_PIXELS}|\d+(\.\d+)?%")
_TEXT_SIZES = re.compile(rf"xxs|xs|sm|md|lg|xl|xxl|3xl|4xl|5xl|{_PIXELS}")
_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}([0-9A-Fa-f]{2})?")
_FLEX = range(100)


def _one_of(*values: Any) -> set[Any]:
    return set(values)


_BOX: dict[str, Any] = {
    "layout": _one_of("horizontal", "vertical", "baseline"),
    "contents": list,
    "flex": _FLEX,
    "spacing": _SPACES,
    "margin": _SPACES,
    "backgroundColor": _COLOUR,
    "cornerRadius": _SPACES,
    "justifyContent": _one_of(
        "center", "flex-start", "flex-end", "space-between", "space-around", "space-evenly"
    ),
    "alignItems": _one_of("center", "flex-start", "flex-end"),
    "action": dict,
} | {f"padding{side}": _PADDINGS for side in ("All", "Top", "Bottom", "Start", "End")}
_COMPONENTS: dict[str, dict[str, Any]] = {
    "box": _BOX,
    "text": {
        "text": str,
        "flex": _FLEX,
        "size": _TEXT_SIZES,
        "color": _COLOUR,
        "weight": _one_of("regular", "bold"),
        "align": _one_of("start", "end", "center"),
        "gravity": _one_of("top", "bottom", "center"),
        "decoration": _one_of("none", "underline", "line-through"),
        "wrap": bool,
        "maxLines": range(1000),
        "margin": _SPACES,
        "adjustMode": _one_of("shrink-to-fit"),
        "action": dict,
    },
    "button": {
        "action": dict,
        "flex": _FLEX,
        "margin": _SPACES,
        "height": _one_of("sm", "md"),
        "style": _one_of("primary", "secondary", "link"),
        "color": _COLOUR,
        "gravity": _one_of("top", "bottom", "center"),
        "adjustMode": _one_of("shrink-to-fit"),
    },
    "separator": {"margin": _SPACES, "color": _COLOUR},
}
_REQUIRED = {
    "box": {"layout", "contents"},
    "text": {"text"},
    "button": {"action"},
    "separator": set[str](),
}
_BUBBLE = {"type", "size", "direction", "styles", "header", "hero", "body", "footer", "action"}
_SIZES = {"nano", "micro", "deca", "hecto", "kilo", "mega", "giga"}
_ACTIONS = {
    "postback": {"type", "label", "data", "displayText", "inputOption", "fillInText"},
    "uri": {"type", "label", "uri"},
    "message": {"type", "label", "text"},
    "location": {"type", "label"},
}


def assert_line_message(message: dict[str, Any]) -> None:
    """AssertionError: LINE would refuse it, or a person could not read it."""
    assert message["type"] in ("flex", "text"), message["type"]
    assert set(message) <= {"type", "altText", "contents", "text", "quickReply"}
    if message["type"] == "flex":
        assert 0 < units(message["altText"]) <= LONGEST_ALT_TEXT
        assert_container(message["contents"])
        assert not list(check_container(message["contents"])), "the local LINE would refuse it"
    else:
        assert 0 < units(message["text"]) <= 5000
    if "quickReply" in message:
        assert_quick_reply(message["quickReply"])


def assert_quick_reply(quick_reply: dict[str, Any]) -> None:
    assert set(quick_reply) == {"items"}
    assert 1 <= len(quick_reply["items"]) <= MOST_QUICK_REPLIES
    for item in quick_reply["items"]:
        assert item["type"] == "action" and set(item) <= {"type", "action", "imageUrl"}
        assert "label" in item["action"]
        assert_action(item["action"])


def assert_container(container: dict[str, Any]) -> None:
    if container["type"] == "bubble":
        assert_bubble(container)
        return
    assert container.keys() == {"type", "contents"} and container["type"] == "carousel"
    assert 1 <= len(container["contents"]) <= MOST_BUBBLES
    assert len(json.dumps(container, ensure_ascii=False).encode()) <= LARGEST_CAROUSEL
    assert len({bubble.get("size", "mega") for bubble in container["contents"]}) == 1
    for bubble in container["contents"]:
        assert_bubble(bubble)


def assert_bubble(bubble: dict[str, Any]) -> None:
    assert bubble["type"] == "bubble" and set(bubble) <= _BUBBLE
    assert bubble.get("size", "mega") in _SIZES
    assert len(json.dumps(bubble, ensure_ascii=False).encode()) <= LARGEST_BUBBLE
    for block in ("header", "body", "footer"):
        if block in bubble:
            assert bubble[block]["type"] == "box"
            style = bubble.get("styles", {}).get(block, {})
            assert_component(bubble[block], behind=style.get("backgroundColor", "#FFFFFF"))


def assert_component(part: dict[str, Any], *, behind: str) -> None:
    kind = part["type"]
    allowed = _COMPONENTS[kind]
    assert part.keys() - {"type"} <= allowed.keys(), part.keys() - allowed.keys()
    assert _REQUIRED[kind] <= part.keys(), (kind, part)
    for name in part.keys() - {"type"}:
        assert _fits(part[name], allowed[name]), (kind, name, part[name])
    if "action" in part:
        assert_action(part["action"], labelled=kind == "button")
    if kind == "text":
        assert_legible(part, behind=behind)
    for child in part.get("contents", []):
        if part["layout"] == "baseline":
            assert child["type"] == "text" and "gravity" not in child
        assert_component(child, behind=part.get("backgroundColor", behind))


def assert_legible(part: dict[str, Any], *, behind: str) -> None:
    assert part["text"].strip(), "LINE refuses a text without a letter"
    assert units(part["text"]) <= LONGEST_TEXT
    assert contrast(part.get("color", "#000000"), behind) >= LEAST_CONTRAST, part


def assert_action(action: dict[str, Any], *, labelled: bool = False) -> None:
    kind = action["type"]
    assert action.keys() <= _ACTIONS[kind], action
    assert "label" in action or not labelled
    assert 0 < len(action.get("label", "x")) <= LONGEST_LABEL, action
    if kind == "postback":
        assert 0 < len(action["data"]) <= LONGEST_DATA
        assert 0 < len(action.get("displayText", "x")) <= LONGEST_SAID
    if kind == "uri":
        assert re.fullmatch(r"(https|tel|line)://\S+", action["uri"])
        assert len(action["uri"]) <= LONGEST_URI
    if kind == "message":
        assert 0 < len(action["text"]) <= LONGEST_SAID


def texts(part: Any) -> list[str]:
    """All words that a person sees in it, in order."""
    if isinstance(part, list):
        return [words for item in part for words in texts(item)]
    if not isinstance(part, dict):
        return []
    if part.get("type") == "text":
        return [part["text"]]
    label = [part["action"]["label"]] if part.get("type") == "button" else []
    return label + [words for item in part.values() for words in texts(item)]


def actions(part: Any) -> list[dict[str, Any]]:
    """All that can be tapped."""
    if isinstance(part, list):
        return [action for item in part for action in actions(item)]
    if not isinstance(part, dict):
        return []
    own = [part["action"]] if "action" in part else []
    return own + [action for item in part.values() for action in actions(item)]


def units(text: str) -> int:
    """How long LINE takes a text to be: in UTF-16, so most emoji are two."""
    return len(text.encode("utf-16-le")) // 2


def contrast(one: str, other: str) -> float:
    """Of two colours, from 1 to 21, as WCAG reckons it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _fits(value: Any, rule: Any) -> bool:
    if isinstance(rule, re.Pattern):
        return isinstance(value, str) and rule.fullmatch(value) is not None
    if isinstance(rule, set | range):
        return type(value) is not bool and value in rule
    return isinstance(value, rule)
