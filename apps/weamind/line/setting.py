"""Settings by writing: 住家設為板橋, 把公司改成內湖, 設定住家 淡水."""

import re
from collections.abc import Iterator

from ..user.database import Kind

_KIND = (
    r"(?P<kind>住家|家裡|我家|家|住址|公司|辦公室|上班(?:的)?(?:地點|地方)|home|office|work)"
    r"(?:的?(?:位置|地點|地址))?"
)
_PLEASE = r"^(?:請|幫我|麻煩|我要|我想)*"
_CHANGE = r"(?:設定|設置|設|改|換|變更|更改)"
_PATTERNS = (
    re.compile(
        rf"{_PLEASE}(?:把|將|set )?(?:我的?|my )?{_KIND}\s*(?:{_CHANGE}|is|to)"
        r"(?:成|為|到|在|定|去|一下)*:?\s*(?P<place>.+)$"
    ),
    re.compile(
        rf"{_PLEASE}(?:{_CHANGE}|修改|set)(?:我的?|my| )*{_KIND}"
        r"\s*(?:設?為|成|到|在|是|to|:)?\s*(?P<place>.+)$"
    ),
    re.compile(
        rf"{_PLEASE}(?:把|將)?\s*(?P<place>.+?)\s*{_CHANGE}(?:成|為|做|作)*(?:我的?)?{_KIND}$"
    ),
    re.compile(rf"^{_KIND}\s*(?:[:=是]|就是)\s*(?P<place>.+)$"),
    re.compile(rf"^{_KIND}\s+(?P<place>\S+)$"),
)
_ENDING = re.compile(r"(?:好了|吧|了|囉|喔|啦|謝謝|感謝|please)+$")
_OFFICES = ("公司", "辦公室", "上班", "office", "work")


def read_settings(text: str) -> Iterator[tuple[Kind, str]]:
    """The ways to read *text*, in small narrow letters, as a setting: which, and the place's name.

    Whether there is such a place is for others to say.
    """
    for pattern in _PATTERNS:
        if match := pattern.match(text):
            kind: Kind = "office" if match["kind"].startswith(_OFFICES) else "home"
            yield kind, _ENDING.sub("", match["place"])
