"""What happens on a tap: LINE's action objects, by where they may be used."""

from typing import Any

from .findings import Check, Finding, Findings, Path, by_type, fields, one_of, text, url, whole

_COMMON = ("postback", "message", "uri", "datetimepicker", "clipboard")
_link = url("http", "https", "line", "tel", most=1000)
_KINDS: dict[str, Check] = {
    "postback": fields(
        {"data": text(300)},
        {"displayText": text(300), "text": text(300), "fillInText": text(300)}
        | {"inputOption": one_of("closeRichMenu", "openRichMenu", "openKeyboard", "openVoice")},
    ),
    "message": fields({"text": text(300)}, {}),
    "uri": fields({"uri": _link}, {"altUri": fields({}, {"desktop": _link})}),
    "datetimepicker": fields(
        {"data": text(300), "mode": one_of("date", "time", "datetime")},
        {"initial": text(20), "max": text(20), "min": text(20)},
    ),
    "clipboard": fields({"clipboardText": text(1000)}, {}),
    "camera": fields({}, {}),
    "cameraRoll": fields({}, {}),
    "location": fields({}, {}),
    "richmenuswitch": fields({"richMenuAliasId": text(32), "data": text(300, least=0)}, {}),
}

_area = fields({"x": whole(0), "y": whole(0), "width": whole(1), "height": whole(1)}, {})
_on_area: dict[str, Check] = {"area": _area}
_label: dict[str, Check] = {"label": text(100)}

in_imagemap = by_type(
    {
        "uri": fields(_on_area | {"linkUri": _link}, _label),
        "message": fields(_on_area | {"text": text(400)}, _label),
        "clipboard": fields(_on_area | {"clipboardText": text(1000)}, _label),
    }
)
imagemap_video = fields(
    _on_area | {"originalContentUrl": url("https"), "previewImageUrl": url("https")},
    {"externalLink": fields({"linkUri": _link, "label": text(30)}, {})},
)


def _in_place(*kinds: str, label: int, needs_label: bool) -> Check:
    known = by_type(_KINDS, allowed=kinds)

    def check(value: Any, path: Path) -> Findings:
        yield from known(value, path)
        if not isinstance(value, dict):
            return
        if "label" in value:
            yield from text(label)(value["label"], (*path, "label"))
        elif needs_label:
            yield Finding((*path, "label"), "must be specified")

    return check


_PHONE = ("camera", "cameraRoll", "location")

in_quick_reply = _in_place(*_COMMON, *_PHONE, label=20, needs_label=True)
in_template = _in_place(*_COMMON, label=20, needs_label=True)
in_image_carousel = _in_place(*_COMMON, label=12, needs_label=False)
in_rich_menu = _in_place(*_COMMON, "richmenuswitch", label=20, needs_label=False)
in_flex_button = _in_place(*_COMMON, label=40, needs_label=True)
in_flex = _in_place(*_COMMON, label=40, needs_label=False)
on_tap = _in_place(*_COMMON, label=20, needs_label=False)
"""For a picture or a whole card, which has no label."""
