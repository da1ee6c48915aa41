"""Which day and which hours a text is about: 今晚, 週末, 下週一, 後天早上, 明天下午三點.

Nothing here reads a clock: the time is an argument.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_WEEKDAYS = "一二三四五六日"
_SOON = timedelta(hours=3)
_FEW_DAYS = 4
_MOST_DAYS = 14
_HOURS = 24


@dataclass(frozen=True, slots=True)
class When:
    """From when to when, and how people call it. `is_now`: this very moment."""

    label: str
    start: datetime
    end: datetime
    is_now: bool = False

    @property
    def is_hours(self) -> bool:
        """True: a part of a day, not whole days."""
        return self.end - self.start < _DAY

    def is_over(self, now: datetime) -> bool:
        """True: it lies in the past."""
        return self.end <= now

    @property
    def is_one_day(self) -> bool:
        """True: it is a day, or hours of one, and not this very moment."""
        return not self.is_now and self.end - self.start <= _DAY

    def both_days(self, now: datetime) -> "list[When]":
        """Each of two days that have names of their own, such as 明天 and 後天; else nothing."""
        first = (self.start.date() - now.date()).days
        if self.label not in _TWO_DAYS:
            return []
        return [_days(_NAMES[each], each, 1)(now) for each in (first, first + 1)]


_TWO_DAYS = ("今明兩天", "明後天", "後天和大後天")


# ---- words


_DAYS = {
    "前天": -2, "昨天": -1, "昨日": -1, "昨晚": -1, "今天": 0, "今日": 0, "今晚": 0, "今早": 0,
    "今夜": 0, "明天": 1, "明日": 1, "明早": 1, "明晚": 1, "明仔載": 1, "明仔日": 1, "明兒": 1,
    "今仔日": 0, "明仔": 1,     "後天": 2, "后天": 2, "大後天": 3,
    "yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1, "tmr": 1,
}  # fmt: skip
_NAMES = {-2: "前天", -1: "昨天", 0: "今天", 1: "明天", 2: "後天", 3: "大後天"}
_PARTS = {
    "凌晨": (0, 6), "清晨": (5, 8), "早上": (6, 12), "上午": (8, 12), "中午": (11, 14),
    "下午": (12, 18), "傍晚": (16, 19), "晚上": (18, 24), "半夜": (22, 30),
}  # fmt: skip
"""From which hour to which, of the day on which it begins."""
_ALSO = {
    "清早": "清晨", "透早": "清晨", "天光": "清晨", "中晝": "中午", "下晡": "下午", "暗時": "晚上",
    "暗暝": "晚上", "暝時": "晚上", "下昏": "晚上", "早起": "早上",
    "一早": "早上", "早晨": "早上", "早": "早上", "morning": "早上", "午後": "下午",
    "afternoon": "下午", "黃昏": "傍晚", "晚間": "晚上", "夜晚": "晚上", "夜裡": "晚上",
    "晚": "晚上", "夜": "晚上", "tonight": "晚上", "evening": "晚上", "night": "晚上",
    "深夜": "半夜", "午夜": "半夜",
}  # fmt: skip
_FEASTS = {
    "跨年夜": "12/31晚上", "跨年": "12/31晚上", "元旦": "1/1", "平安夜": "12/24晚上",
    "聖誕節": "12/25", "耶誕節": "12/25", "雙十節": "10/10", "國慶日": "10/10",
}  # fmt: skip
"""Days that have the same date each year."""
_FEAST = re.compile("|".join(_FEASTS))
_NOW = re.compile(r"現在|目前|此刻|當下|這時候|(?<![a-z])(?:right )?now(?![a-z])")
_SOON_WORDS = re.compile(
    r"等一下下?|等一會兒?|等會兒?|待會兒?|等等|等下|晚點|一會兒|接下來\s*[幾3三]?\s*個?小時"
)
_FEW_WORDS = re.compile(
    r"(?:這|未來|接下來|最近|接著)(?:的)?(?:這)?[幾三四五兩]?\s*天|最近|近期|(?:這|"
    r"本)個?週(?![一二三四五六日末]|天(?!氣))"
    r"|(?:未來)?(?<![週月/\d])[三五35]\s*(?:天|日內)(?:內|的)?"
)
_WEEK_WORDS = re.compile(
    r"(?:未來|接下來)?(?:這|的)?(?:整|一)個?週(?![一二三四五六日末]|天(?!氣))"
    r"|(?:未來|接下來)?(?:這|的)?(?<![週月/\d])[七7]\s*(?:天|日內)(?:內|的)?"
    r"|(?<![a-z])(?:7|seven)[ -]?days?|whole week"
)
_LAST_WEEK = re.compile(r"上個?週(?![一二三四五六日末\d]|天(?!氣))|last week")
_NEXT_WEEK = re.compile(r"下個?週(?![一二三四五六日末\d]|天(?!氣))|next week")
_NEXT_MONTH = re.compile(r"下下?個?月(?:初|底)?|next month")
_NEXT_YEAR = re.compile(r"明年(?!\s*\d)|next year")
_MONTHS_LATER = re.compile(
    r"(?:\d{1,2}|[一二兩三四五六七八九十幾])個?月[之以]?[後后]|半年[之以]?[後后]"
)
_WEEKEND = re.compile(r"(下個?|這個?|本|上個?)?(?:週末|假日)|(next |this )?weekend")
_BOTH = re.compile(r"明後(?:天|兩天)|明天[和跟與、到,\s]*後天")
_THEN_BOTH = re.compile(r"後天[和跟與、到,\s]*大後天")
_TODAY_AND_TOMORROW = re.compile(
    r"今明(?:兩?[天日])?|今天[和跟與、到,\s]*明天|這兩天|today and tomorrow"
)
_WEEKDAY = re.compile(r"(下下個?|下個?|這個?|本|上個?)?週([一二三四五六日1-7]|天(?!氣))(?!\d)")
_SATURDAY = re.compile(r"(?<![a-z])(?:next |this |on )?(mon|tues|wednes|thurs|fri|satur|sun)day")
_NO_WEEKDAY = (
    "二[林水崙重仁]|三[峽重芝灣義星民地仙貂鶯]|四[湖草重四]|五[股結權分峰堵]|"
    "六[龜甲腳福合張十堵]|日[月出落本]|[二三四五六][點個]"
)
_MORE_WEEKDAYS = re.compile(rf"(?:[、和跟及]?週?(?!{_NO_WEEKDAY})[二三四五六日])+")
"""五六日 after 週; 六 of 六龜 is none."""
_DATE = re.compile(r"(?<!\d)(1[0-2]|0?[1-9])(?:/|月)(3[01]|[12]\d|0?[1-9])(?!\d)[日號号]?")
_LAST_DAY = re.compile(r"(3[01]|[12]\d|[1-9])(?![\d點:/月個小天人])[日號号]?")
"""After a date and a dash."""
_TO = re.compile(r"\s*(?:一?直?到|至|[-~–—])\s*")
_DAY_OF_MONTH = re.compile(
    r"(?<![\d月/一二三四五六七八九十])"
    r"(3[01]|[12]\d|[1-9]|三十一?|二?十[一二三四五六七八九]?|[一二三四五六七八九])[號号]"
    r"(?!\s*(?:公路|線|橋|之\d|\d*樓|出口|登機門|月台|碼頭|公園|隧道|倉庫|門市))"
)
_ADDRESS = re.compile(r"(?:[路巷弄段道]|(?<!老)街)(?:[\d一二三四五六七八九十之~-]++[巷弄]?)*\s*$")
"""Before a number: it is that of a house, or of a motorway."""
_RELATIVE = re.compile(
    "("
    + "|".join(sorted(_DAYS, key=len, reverse=True))
    + r")(?:[的之]?([早晚夜])(?![上晨間安點起]))?"
)
_PART = re.compile(
    "|".join(sorted([*_PARTS, *(each for each in _ALSO if len(each) > 1)], key=len, reverse=True))
)
_CLOCK = re.compile(r"(\d{1,2}|[一二兩三四五六七八九]|十[一二]?)\s*點(半|鐘|整)?|(\d{1,2}):(\d{2})")
_HOURS_LATER = re.compile(
    r"(?:再過|過)?\s*(?:(\d{1,2}|[一二兩三四五六七八九十])\s*個?(半)?\s*(?:小時|鐘頭)|半個?(?:小時|鐘頭)"
    r"|(\d{1,2})\s*分鐘)\s*(?:之|以)?[後后]|in (an|\d{1,2}) hours?"
)
_UNTIL = re.compile(rf"{_TO.pattern}({_PART.pattern})?\s*(?=\S)")
_SHORT_RANGE = re.compile(
    r"(?<![\d/月])(\d{1,2}|[一二兩三四五六七八九]|十[一二]?)\s*[到至~-]"
    r"(?=\s*(?:\d{1,2}|[一二兩三四五六七八九]|十[一二]?)\s*點)"
)
"""The first hour of 三到五點."""
_DIGITS = {name: number for number, name in enumerate("零一二三四五六七八九")} | {"兩": 2}
_FROM_JAPANESE = {
    "明後日": "後天", "来週": "下週", "來週": "下週", "今週": "這週", "先週": "上週",
    "午前": "上午",
    **{f"{name}曜日": f"週{day}" for name, day in zip("月火水木金土日", _WEEKDAYS, strict=True)},
}  # fmt: skip
_JAPANESE = re.compile("|".join(_FROM_JAPANESE))


def find_when(text: str, now: datetime) -> tuple[When | None, str]:
    """What *text* says about the time, and the text without it. None: nothing."""
    text = re.sub("周|禮拜|礼拜|星期", "週", text)
    text = _FEAST.sub(lambda match: _FEASTS[match[0]], text)
    text = _SATURDAY.sub(lambda match: _weekday_of(match[0], match[1]), text)
    text = _SHORT_RANGE.sub(r"\1點到", text)
    text = _JAPANESE.sub(lambda match: _FROM_JAPANESE[match[0]], text)
    if match := _HOURS_LATER.search(text):
        return _in_hours(match, now), _without(text, match)
    for pattern, make in _WHOLE:
        if match := pattern.search(text):
            return make(now), _without(text, match)
    days, rest = _find_days(text, now)
    hours, rest = _find_hours(rest, days, now)
    if hours is not None:
        return hours, rest
    return (None if days is None else _whole_days(days, now)), rest


# ---- what stands alone


def _now(now: datetime) -> When:
    return When("現在", now, now + _HOUR, is_now=True)


def _soon(now: datetime) -> When:
    return When("接下來 3 小時", now, now + _SOON)


def _in_hours(match: re.Match[str], now: datetime) -> When:
    """The hour in which that is, by its name: what is remembered stays true."""
    word = match[1] or match[4]
    hours = 0.5 if word is None else 1 if word == "an" else _number(word)
    if match[3]:
        hours = int(match[3]) / 60
    at = now + (hours + 0.5 * bool(match[2])) * _HOUR
    days = (at.date() - now.date()).days
    label = f"{_NAMES.get(days, f'{at.month}/{at.day} ')}{_part_at(at.hour)}{_of_twelve(at.hour)}點"
    start = at.replace(minute=0, second=0, microsecond=0)
    return When(label, start, start + _HOUR)


def _days(label: str, first: int, count: int) -> Callable[[datetime], When]:
    """*count* days, of which the first is *first* days from today."""
    return lambda now: When(
        label, _midnight(now.date(), now, first), _midnight(now.date(), now, first + count)
    )


def _last_week(now: datetime) -> When:
    monday = now.date() - timedelta(days=7 + now.weekday())
    return When("上週", _midnight(monday, now), _midnight(monday, now, 7))


def _next_week(now: datetime) -> When:
    monday = now.date() + timedelta(days=7 - now.weekday())
    return When("下週", _midnight(monday, now), _midnight(monday, now, 7))


def _next_month(now: datetime) -> When:
    first = (now.date().replace(day=1) + timedelta(days=32)).replace(day=1)
    return When("下個月", _midnight(first, now), _midnight(first, now, 28))


def _next_year(now: datetime) -> When:
    first = date(now.year + 1, 1, 1)
    return When("明年", _midnight(first, now), _midnight(first, now, 28))


_WHOLE = (
    (_SOON_WORDS, _soon), (_NOW, _now), (_THEN_BOTH, _days("後天和大後天", 2, 2)),
    (_BOTH, _days("明後天", 1, 2)),
    (_TODAY_AND_TOMORROW, _days("今明兩天", 0, 2)), (_NEXT_WEEK, _next_week),
    (_LAST_WEEK, _last_week),
    (_NEXT_MONTH, _next_month), (_NEXT_YEAR, _next_year),
    (_MONTHS_LATER, _days("幾個月後", 30, 28)), (_WEEK_WORDS, _days("未來一週", 0, 7)),
    (_FEW_WORDS, _days("接下來幾天", 0, _FEW_DAYS)),
)  # fmt: skip


# ---- days


@dataclass(frozen=True, slots=True)
class _Days:
    label: str
    first: date
    count: int = 1
    part: str | None = None


def _find_days(text: str, now: datetime) -> tuple[_Days | None, str]:
    """The day that is named first, up to the one that it leads to."""
    today = now.date()
    found = [(match, make) for pattern, make in _DAY_WORDS for match in pattern.finditer(text)]
    for match, make in sorted(found, key=lambda each: each[0].start()):
        if first := make(match, today):
            days, end = _until(text, match.end(), first, today)
            return days, f"{text[: match.start()]} {text[end:]}"
    return None, text


def _until(text: str, at: int, first: _Days, today: date) -> tuple[_Days, int]:
    """From *first* to the day that is named after it: 週五到週日, 11/18-20, 週六日."""
    if "週" in first.label and (match := _MORE_WEEKDAYS.match(text, at)):
        return _to(first, _weekday_after(first, match[0][-1])), match.end()
    if (to := _TO.match(text, at)) is None:
        return first, at
    words = _DAY_WORDS + _AFTER_A_DATE if "/" in first.label else _DAY_WORDS
    for pattern, make in words:
        if match := pattern.match(text, to.end()):
            found = (make(match, since) for since in (today, first.first))
            later = [each for each in found if each and each.first > first.first]
            return (_to(first, later[0]) if later else first), match.end()
    return first, at


def _to(first: _Days, last: _Days) -> _Days:
    """Both, and what is between them; a part of the day is that of the first."""
    count = (last.first - first.first).days + last.count
    label = f"{first.label.strip()}到{last.label.strip()}"
    return _Days(label, first.first, count) if count <= _MOST_DAYS else first


def _weekday_after(first: _Days, name: str) -> _Days:
    days = (_WEEKDAYS.index(name) - first.first.weekday()) % 7
    return _Days(f"週{name}", first.first + timedelta(days=days))


def _weekday_of(said: str, name: str) -> str:
    """下週六, from next Saturday."""
    number = ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun").index(name)
    return f" {'下' if said.startswith('next') else ''}週{_WEEKDAYS[number]} "


def _weekend(match: re.Match[str], today: date) -> _Days:
    prefix = match[1] or match[2] or ""
    if prefix.startswith("上"):
        return _Days("上週末", today - timedelta(days=today.weekday() + 2), 2)
    is_next = prefix.startswith(("下", "next"))
    saturday = today + timedelta(days=5 - today.weekday() + 7 * is_next)
    label = "下週末" if is_next else "這個週末"
    return _Days(label, max(saturday, today), 2 if saturday >= today else 1)


def _weekday(match: re.Match[str], today: date) -> _Days:
    prefix, name = match[1] or "", match[2].replace("天", "日")
    number = int(name) - 1 if name.isdecimal() else _WEEKDAYS.index(name)
    weeks = prefix.count("下") - prefix.count("上")
    day = today + timedelta(days=number - today.weekday() + 7 * weeks)
    if not prefix and day < today:
        day += 7 * _DAY
    shown = {"上": "上", "下": "下", "這": "這", "本": "這"}.get(prefix[:1], "") + "下" * (
        weeks - 1
    )
    return _Days(f"{shown}週{_WEEKDAYS[number]}", day)


def _relative(match: re.Match[str], today: date) -> _Days:
    word, after = match[1], match[2]
    part = _part_in(word) or (after and _ALSO[after])
    number = _DAYS[word]
    return _Days(_NAMES[number], today + timedelta(days=number), part=part or None)


def _part_in(word: str) -> str | None:
    """今晚 is also a part of a day."""
    return _ALSO.get(word) or _ALSO.get(word[-1])


def _date(match: re.Match[str], today: date) -> _Days | None:
    month, day = int(match[1]), int(match[2])
    return _next(day, [(year, month) for year in (today.year, today.year + 1)], today)


def _day_of_month(match: re.Match[str], today: date) -> _Days | None:
    if _ADDRESS.search(match.string[: match.start()]):
        return None
    following = (today.year + today.month // 12, today.month % 12 + 1)
    return _next(_number(match[1]), [(today.year, today.month), following], today)


def _next(day: int, months: list[tuple[int, int]], today: date) -> _Days | None:
    """That day in the first of *months* (year, month) that has it and is not past."""
    for year, month in months:
        try:
            found = date(year, month, day)
        except ValueError:
            continue
        if found >= today:
            return _Days(f"{month}/{day} ", found)
    return None


_DAY_WORDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], _Days | None]], ...] = (
    (_WEEKEND, _weekend), (_WEEKDAY, _weekday), (_RELATIVE, _relative), (_DATE, _date),
    (_DAY_OF_MONTH, _day_of_month),
)  # fmt: skip
_AFTER_A_DATE = ((_LAST_DAY, _day_of_month),)


def _whole_days(days: _Days, now: datetime) -> When:
    start, end = _midnight(days.first, now), _midnight(days.first, now, days.count)
    return When(days.label, start, end)


# ---- hours


def _find_hours(text: str, days: _Days | None, now: datetime) -> tuple[When | None, str]:
    part, rest = days.part if days else None, text
    clock = _CLOCK.search(rest)
    if (match := _PART.search(rest)) and not (clock and clock.start() < match.start()):
        part, rest = _ALSO.get(match[0], match[0]), _without(rest, match)
        clock = _CLOCK.search(rest)
    if clock and _is_hour(clock, has_context=bool(part or days)):
        until, end = _find_end(rest, clock.end())
        found = _at(clock, until, part, days, now)
        return found, f"{rest[: clock.start()]} {rest[end:]}"
    return (None if part is None else _part_of(part, days, now)), rest


def _is_hour(clock: re.Match[str], *, has_context: bool) -> bool:
    """一點 alone may mean "a little"."""
    return _said(clock) <= _HOURS and (has_context or clock[1] != "一" or bool(clock[2]))


def _number(word: str) -> int:
    """15, or 十五."""
    if word.isdecimal():
        return int(word)
    tens, ten, ones = word.rpartition("十")
    return 10 * _DIGITS.get(tens, 1) * bool(ten) + _DIGITS.get(ones, 0)


def _part_of(part: str, days: _Days | None, now: datetime) -> When:
    first, last = _PARTS[part]
    on = days or _Days("今天", now.date())
    end = _midnight(on.first, now) + last * _HOUR
    if days is None and end <= now:  # in the evening, 早上 is tomorrow's
        on, end = _Days("明天", now.date() + _DAY), end + _DAY
    label = "今晚" if (on.label, part) == ("今天", "晚上") else f"{on.label}{part}"
    end += (on.count - 1) * _DAY
    return When(label, _midnight(on.first, now) + first * _HOUR, end)


_End = tuple[str | None, int]
"""The part of the day, if it is named, and the hour, as they are said: 到下午五點."""


def _find_end(text: str, at: int) -> tuple[_End | None, int]:
    """Until when, and where that ends in *text*."""
    to = _UNTIL.match(text, at)
    clock = _CLOCK.match(text, to.end()) if to else None
    if to is None or clock is None or _said(clock) > _HOURS:
        return None, at
    return (_ALSO.get(to[1], to[1]), _said(clock)), clock.end()


def _said(clock: re.Match[str]) -> int:
    return int(clock[3]) if clock[3] else _number(clock[1])


def _at(
    clock: re.Match[str], until: _End | None, part: str | None, days: _Days | None, now: datetime
) -> When:
    hour = _hour_of_day(_said(clock), part, is_exact=bool(clock[3]))
    last = hour + 1 if until is None else _hour_after(hour, *until)
    on = days or _Days("今天", now.date())
    if days is None and _midnight(on.first, now) + last * _HOUR <= now:
        on = _Days("明天", now.date() + _DAY)
    midnight, shown = _midnight(on.first, now), part or _part_at(hour)
    end = "" if until is None else f"到{_shown_after(shown, last)}"
    return When(
        f"{on.label}{shown}{_of_twelve(hour)}點{end}",
        midnight + hour * _HOUR,
        midnight + last * _HOUR,
    )


def _hour_after(hour: int, part: str | None, said: int) -> int:
    """三點到五點, 晚上10點到2點: without a part of the day, the next one that it can be."""
    if part is None and said <= _HOURS // 2:
        return hour + ((said - hour) % 12 or 12)
    last = _hour_of_day(said, part, is_exact=part is None)
    return hour + 1 if last == hour else last if last > hour else last + _HOURS


def _shown_after(part: str, hour: int) -> str:
    named = _part_at(hour if hour == _HOURS else hour % _HOURS)
    return f"{'' if named == part else named}{_of_twelve(hour)}點"


def _of_twelve(hour: int) -> int:
    return (hour - 1) % 12 + 1


def _hour_of_day(said: int, part: str | None, *, is_exact: bool) -> int:
    if part in ("晚上", "半夜") and said == 12:
        return _HOURS
    if part in ("下午", "傍晚", "晚上") or (part == "中午" and said < 11):
        return said + 12 if said < 12 else said
    if part == "凌晨" and said == 12:
        return 0
    if part is None and not is_exact and 1 <= said <= 5:  # 三點 is in the afternoon
        return said + 12
    return said


def _part_at(hour: int) -> str:
    names = ((6, "凌晨"), (12, "早上"), (13, "中午"), (18, "下午"))
    return next((name for until, name in names if hour < until), "晚上")


def _midnight(day: date, now: datetime, later: int = 0) -> datetime:
    return datetime.combine(day + later * _DAY, time(0), now.tzinfo)


def _without(text: str, match: re.Match[str]) -> str:
    return f"{text[: match.start()]} {text[match.end() :]}"
