"""The few parts of LINE's Flex messages that the cards are made of."""

from typing import Any

Part = dict[str, Any]

INK, SOFT, RAIN = "#111827", "#4B5563", "#1D4ED8"
PAPER, TINT, RULE = "#FFFFFF", "#EFF6FF", "#E5E7EB"
NOTE_INK, NOTE_PAPER = "#78350F", "#FEF3C7"
ALERT_INK, ALERT_PAPER = "#7F1D1D", "#FEE2E2"


def text(
    content: str,
    *,
    size: str = "sm",
    color: str = INK,
    bold: bool = False,
    align: str | None = None,
    flex: int | None = None,
    wrap: bool = False,
    shrink: bool = False,
    action: Part | None = None,
) -> Part:
    """Some words. *shrink*: rather smaller than cut off, on a narrow phone."""
    return _without_nothing(
        type="text",
        text=content,
        size=size,
        color=color,
        weight="bold" if bold else None,
        align=align,
        flex=flex,
        wrap=True if wrap else None,
        adjustMode="shrink-to-fit" if shrink else None,
        action=action,
        decoration="underline" if action else None,
    )


def row(*contents: Part, **options: Any) -> Part:
    """Parts side by side."""
    return _box("horizontal", contents, options)


def column(*contents: Part, **options: Any) -> Part:
    """Parts below each other."""
    return _box("vertical", contents, options)


def line() -> Part:
    """A thin line between what is above and below."""
    return {"type": "separator", "margin": "md", "color": RULE}


def button(label: str, action: Part) -> Part:
    """A quiet button."""
    return {
        "type": "button",
        "style": "secondary",
        "height": "sm",
        "action": action | {"label": label},
    }


def postback(data: str, said: str) -> Part:
    """What the bot is sent when it is tapped, and what the person seems to have said."""
    return {"type": "postback", "data": data, "displayText": said}


def link(uri: str, label: str) -> Part:
    """Opens a page."""
    return {"type": "uri", "label": label[:20], "uri": uri}


def _box(layout: str, contents: tuple[Part, ...], options: dict[str, Any]) -> Part:
    return {"type": "box", "layout": layout, "contents": list(contents), **options}


def _without_nothing(**options: Any) -> Part:
    return {name: value for name, value in options.items() if value is not None}
