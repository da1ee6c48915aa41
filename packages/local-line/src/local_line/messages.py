"""Messages that a bot wants to send, checked by the limits that LINE documents."""

from collections.abc import Iterator
from typing import Any

from .actions import (
    imagemap_video,
    in_image_carousel,
    in_imagemap,
    in_quick_reply,
    in_template,
    on_tap,
)
from .findings import (
    Check,
    Finding,
    Findings,
    Path,
    anything,
    by_type,
    colour,
    fields,
    listed,
    number,
    one_of,
    text,
    url,
    values,
    whole,
)
from .flex import check_container
from .lengths import utf16
from .refusals import Detail, Refusal, wrong_body

_https = url("https")
_alt_text = text(1500)


def _long_text(value: Any, path: Path) -> Findings:
    if not isinstance(value, str) or not value:
        yield Finding(path, "May not be empty")
    elif utf16(value) > 5000:
        yield Finding(path, "Length must be between 0 and 5000")


_EMOJI: dict[str, Check] = {"productId": text(100), "emojiId": text(100)}
_mentionees: dict[str, Check] = {"all": fields({}, {}), "user": fields({"userId": text(33)}, {})}
_substitutes: dict[str, Check] = {
    "mention": fields({"mentionee": by_type(_mentionees)}, {}),
    "emoji": fields(_EMOJI, {}),
}
_emojis = listed(fields({"index": whole(0)} | _EMOJI, {}), least=0, most=20)


def _words(**optional: Check) -> Check:
    known = fields({}, {"quoteToken": text(300)} | optional)

    def check(value: Any, path: Path) -> Findings:
        yield from known(value, path)
        yield from _long_text(value.get("text"), (*path, "text"))

    return check


def _text(value: Any, path: Path) -> Findings:
    yield from _words(emojis=_emojis)(value, path)
    words, emojis = value.get("text"), value.get("emojis")
    if isinstance(words, str) and isinstance(emojis, list):
        yield from _placeholders(words, emojis, (*path, "emojis"))


def _placeholders(words: str, emojis: list[Any], path: Path) -> Findings:
    """Each emoji replaces a `$`; LINE counts positions in UTF-16 units."""
    units = words.encode("utf-16-le", "surrogatepass")
    for place, emoji in enumerate(emojis):
        index = emoji.get("index") if isinstance(emoji, dict) else None
        if type(index) is int and units[2 * index : 2 * index + 2] != b"$\0":
            yield Finding((*path, place, "index"), "must be the place of a $ in the text")


# ---- templates


def _buttons_text(template: Any, path: Path, *, plain: int, with_picture: int) -> Findings:
    """With a picture or a title, the text must be shorter."""
    adorned = template.get("thumbnailImageUrl") or template.get("title")
    yield from text(with_picture if adorned else plain)(template.get("text"), (*path, "text"))


_CARD: dict[str, Check] = {
    "thumbnailImageUrl": _https,
    "imageBackgroundColor": colour,
    "title": text(40),
    "defaultAction": on_tap,
}
_LOOK: dict[str, Check] = {
    "imageAspectRatio": one_of("rectangle", "square"),
    "imageSize": one_of("cover", "contain"),
}


def _buttons(value: Any, path: Path) -> Findings:
    actions = listed(in_template, least=1, most=4)
    yield from fields({"text": anything, "actions": actions}, _CARD | _LOOK)(value, path)
    yield from _buttons_text(value, path, plain=160, with_picture=60)


def _column(value: Any, path: Path) -> Findings:
    actions = listed(in_template, least=1, most=3)
    yield from fields({"text": anything, "actions": actions}, _CARD)(value, path)
    if isinstance(value, dict):
        yield from _buttons_text(value, path, plain=120, with_picture=60)


def _carousel(value: Any, path: Path) -> Findings:
    yield from fields({"columns": listed(_column, least=1, most=10)}, _LOOK)(value, path)
    columns = value.get("columns")
    cards = columns if isinstance(columns, list) else []
    actions = [card.get("actions") for card in cards if isinstance(card, dict)]
    if len({len(each) for each in actions if isinstance(each, list)}) > 1:
        yield Finding((*path, "columns"), "the number of actions must be the same for all columns")


_picture = fields({"imageUrl": _https, "action": in_image_carousel}, {})
_TEMPLATES: dict[str, Check] = {
    "buttons": _buttons,
    "confirm": fields(
        {"text": text(240), "actions": listed(in_template, least=2, most=2)},
        {},
    ),
    "carousel": _carousel,
    "image_carousel": fields({"columns": listed(_picture, least=1, most=10)}, {}),
}


# ---- messages

_media = {"originalContentUrl": _https}
_KINDS: dict[str, Check] = {
    "text": _text,
    "textV2": _words(substitution=values(by_type(_substitutes))),
    "sticker": fields({"packageId": text(20), "stickerId": text(20)}, {"quoteToken": text(300)}),
    "image": fields(_media | {"previewImageUrl": _https}, {}),
    "video": fields(_media | {"previewImageUrl": _https}, {"trackingId": text(100)}),
    "audio": fields(_media | {"duration": whole(1)}, {}),
    "location": fields(
        {"title": text(100), "address": text(100)}
        | {"latitude": number(-90, 90), "longitude": number(-180, 180)},
        {},
    ),
    "imagemap": fields(
        {"baseUrl": _https, "altText": _alt_text}
        | {"baseSize": fields({"width": whole(1), "height": whole(1)}, {})}
        | {"actions": listed(in_imagemap, least=1, most=50)},
        {"video": imagemap_video},
    ),
    "template": fields({"altText": _alt_text, "template": by_type(_TEMPLATES)}, {}),
    "flex": fields({"altText": _alt_text, "contents": anything}, {}),
    "coupon": fields({"couponId": text(100)}, {"deliveryTag": text(30)}),
}
_known = by_type(_KINDS)
_quick_item = fields({"action": in_quick_reply}, {"type": one_of("action"), "imageUrl": _https})
_common = fields(
    {},
    {
        "quickReply": fields({"items": listed(_quick_item, least=1, most=13)}, {}),
        "sender": fields({}, {"name": text(20), "iconUrl": _https}),
    },
)


def _message(value: Any, path: Path) -> Findings:
    yield from _known(value, path)
    if isinstance(value, dict):
        yield from _common(value, path)


_messages = listed(_message, least=1, most=5)


def check_messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Check the messages of a request. Refusal: 400, and what is wrong."""
    messages = body.get("messages")
    mistakes = list(_messages(messages, ("messages",)))
    if mistakes:
        raise wrong_body([Detail(each.dotted, each.message) for each in mistakes])
    assert isinstance(messages, list)
    for refusal in _flex_refusals(messages):
        raise refusal
    return messages


def mistakes_in(messages: Any) -> Iterator[tuple[Path, Detail]]:
    """All errors in the messages of a request: where, and as LINE names them."""
    for each in _messages(messages, ("messages",)):
        yield each.path, Detail(each.dotted, each.message)
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict) and message.get("type") == "flex" and "contents" in message:
            for each in check_container(message["contents"]):
                path = ("messages", index, "contents", *each.path)
                yield path, Detail(each.pointer, each.message)


def _flex_refusals(messages: list[dict[str, Any]]) -> Iterator[Refusal]:
    for index, message in enumerate(messages):
        if message["type"] != "flex":
            continue
        if mistakes := list(check_container(message["contents"])):
            words = f"A message (messages[{index}]) in the request body is invalid"
            details = [Detail(each.pointer, each.message) for each in mistakes]
            yield Refusal(400, words, details)
