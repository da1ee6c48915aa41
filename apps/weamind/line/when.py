"""Which day and which hours a text is about: 今晚, 週末, 下週一, 後天早上, 明天下午三點.

Nothing here reads a clock: the time is an argument.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_WEEKDAYS = "一二三四五六日"
_SOON = timedelta(hours=3)
_FEW_DAYS = 4


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


# ---- words


_DAYS = {
    "前天": -2, "昨天": -1, "昨日": -1, "昨晚": -1, "今天": 0, "今日": 0, "今晚": 0, "今早": 0,
    "今夜": 0, "明天": 1, "明日": 1, "明早": 1, "明晚": 1, "明仔載": 1, "明仔日": 1, "明兒": 1,
    "後天": 2, "后天": 2, "大後天": 3,
    "yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1, "tmr": 1,
}  # fmt: skip
_NAMES = {-2: "前天", -1: "昨天", 0: "今天", 1: "明天", 2: "後天", 3: "大後天"}
_PARTS = {
    "凌晨": (0, 6), "清晨": (5, 8), "早上": (6, 12), "上午": (8, 12), "中午": (11, 14),
    "下午": (12, 18), "傍晚": (16, 19), "晚上": (18, 24), "半夜": (22, 30),
}  # fmt: skip
"""From which hour to which, of the day on which it begins."""
_ALSO = {
    "清早": "清晨", "一早": "早上", "早晨": "早上", "早": "早上", "morning": "早上", "午後": "下午",
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
_NEXT_WEEK = re.compile(r"下個?週(?![一二三四五六日末\d]|天(?!氣))|next week")
_NEXT_MONTH = re.compile(r"下下?個?月(?:初|底)?|next month")
_WEEKEND = re.compile(r"(下個?|這個?|本)?(?:週末|假日)|(next |this )?weekend")
_BOTH = re.compile(r"明後(?:天|兩天)|明天[和跟與、到]後天")
_TODAY_AND_TOMORROW = re.compile(
    r"今明(?:兩?[天日])?|今天[和跟與、到]明天|這兩天|today and tomorrow"
)
_WEEKDAY = re.compile(r"(下下個?|下個?|這個?|本)?週([一二三四五六日1-7]|天(?!氣))(?!\d)")
_DATE = re.compile(r"(?<!\d)(1[0-2]|0?[1-9])(?:/|月)(3[01]|[12]\d|0?[1-9])(?!\d)[日號号]?")
_DAY_OF_MONTH = re.compile(r"(?<![\d月/])(3[01]|[12]\d|[1-9])[號号](?!\S*[路線橋])")
_RELATIVE = re.compile(
    "("
    + "|".join(sorted(_DAYS, key=len, reverse=True))
    + r")(?:[的之]?([早晚夜])(?![上晨間安點]))?"
)
_PART = re.compile(
    "|".join(sorted([*_PARTS, *(each for each in _ALSO if len(each) > 1)], key=len, reverse=True))
)
_CLOCK = re.compile(r"(\d{1,2}|[一二兩三四五六七八九]|十[一二]?)\s*點(半|鐘|整)?|(\d{1,2}):(\d{2})")
_DIGITS = {name: number for number, name in enumerate("零一二三四五六七八九十")} | {
    "兩": 2, "十一": 11, "十二": 12,
}  # fmt: skip


def find_when(text: str, now: datetime) -> tuple[When | None, str]:
    """What *text* says about the time, and the text without it. None: nothing."""
    text = re.sub("周|禮拜|礼拜|星期", "週", text)
    text = _FEAST.sub(lambda match: _FEASTS[match[0]], text)
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


def _few_days(now: datetime) -> When:
    return When("接下來幾天", _midnight(now.date(), now), _midnight(now.date(), now, _FEW_DAYS))


def _week(now: datetime) -> When:
    return When("未來一週", _midnight(now.date(), now), _midnight(now.date(), now, 7))


def _both(now: datetime) -> When:
    return When("明後天", _midnight(now.date(), now, 1), _midnight(now.date(), now, 3))


def _today_and_tomorrow(now: datetime) -> When:
    return When("今明兩天", _midnight(now.date(), now), _midnight(now.date(), now, 2))


def _next_week(now: datetime) -> When:
    monday = now.date() + timedelta(days=7 - now.weekday())
    return When("下週", _midnight(monday, now), _midnight(monday, now, 7))


def _next_month(now: datetime) -> When:
    first = (now.date().replace(day=1) + timedelta(days=32)).replace(day=1)
    return When("下個月", _midnight(first, now), _midnight(first, now, 28))


_WHOLE = (
    (_SOON_WORDS, _soon), (_NOW, _now), (_BOTH, _both),
    (_TODAY_AND_TOMORROW, _today_and_tomorrow), (_NEXT_WEEK, _next_week),
    (_NEXT_MONTH, _next_month), (_WEEK_WORDS, _week), (_FEW_WORDS, _few_days),
)  # fmt: skip


# ---- days


@dataclass(frozen=True, slots=True)
class _Days:
    label: str
    first: date
    count: int = 1
    part: str | None = None


def _find_days(text: str, now: datetime) -> tuple[_Days | None, str]:
    today = now.date()
    if match := _WEEKEND.search(text):
        return _weekend(match, today), _without(text, match)
    if match := _WEEKDAY.search(text):
        return _weekday(match, today), _without(text, match)
    if match := _RELATIVE.search(text):
        return _relative(match, today), _without(text, match)
    if (match := _DATE.search(text)) and (found := _date(match, today)):
        return found, _without(text, match)
    if (match := _DAY_OF_MONTH.search(text)) and (found := _day_of_month(match, today)):
        return found, _without(text, match)
    return None, text


def _weekend(match: re.Match[str], today: date) -> _Days:
    is_next = (match[1] or match[2] or "").startswith(("下", "next"))
    saturday = today + timedelta(days=5 - today.weekday() + 7 * is_next)
    label = "下週末" if is_next else "這個週末"
    return _Days(label, max(saturday, today), 2 if saturday >= today else 1)


def _weekday(match: re.Match[str], today: date) -> _Days:
    prefix, name = match[1] or "", match[2].replace("天", "日")
    number = int(name) - 1 if name.isdecimal() else _WEEKDAYS.index(name)
    weeks = prefix.count("下")
    day = today + timedelta(days=number - today.weekday() + 7 * weeks)
    if not prefix and day < today:
        day += 7 * _DAY
    shown = {"下": "下", "這": "這", "本": "這"}.get(prefix[:1], "") + "下" * (weeks - 1)
    return _Days(f"{shown}週{_WEEKDAYS[number]}", day)


def _relative(match: re.Match[str], today: date) -> _Days:
    word, after = match[1], match[2]
    part = _part_in(word) or (after and _ALSO[after])
    number = _DAYS[word]
    return _Days(_NAMES[number], today + timedelta(days=number), part=part or None)


def _part_in(word: str) -> str | None:
    """今晚 is a part of a day as well."""
    return _ALSO.get(word) or _ALSO.get(word[-1])


def _date(match: re.Match[str], today: date) -> _Days | None:
    month, day = int(match[1]), int(match[2])
    return _next(day, [(year, month) for year in (today.year, today.year + 1)], today)


def _day_of_month(match: re.Match[str], today: date) -> _Days | None:
    following = (today.year + today.month // 12, today.month % 12 + 1)
    return _next(int(match[1]), [(today.year, today.month), following], today)


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


def _whole_days(days: _Days, now: datetime) -> When:
    start, end = _midnight(days.first, now), _midnight(days.first, now, days.count)
    return When(days.label, start, end)


# ---- hours


def _find_hours(text: str, days: _Days | None, now: datetime) -> tuple[When | None, str]:
    part, rest = days.part if days else None, text
    if match := _PART.search(rest):
        part, rest = _ALSO.get(match[0], match[0]), _without(rest, match)
    clock = _CLOCK.search(rest)
    if clock and _is_hour(clock, has_context=bool(part or days)):
        return _at(clock, part, days, now), _without(rest, clock)
    return (None if part is None else _part_of(part, days, now)), rest


def _is_hour(clock: re.Match[str], *, has_context: bool) -> bool:
    """一點 alone may mean "a little"."""
    hour = int(clock[3] or 0) if clock[3] else _number(clock[1])
    return 0 <= hour <= 24 and (has_context or clock[1] != "一" or bool(clock[2]))


def _number(word: str) -> int:
    return int(word) if word.isdecimal() else _DIGITS[word]


def _part_of(part: str, days: _Days | None, now: datetime) -> When:
    first, last = _PARTS[part]
    on = days or _Days("今天", now.date())
    end = _midnight(on.first, now) + last * _HOUR
    if days is None and end <= now:  # in the evening, 早上 is tomorrow's
        on, end = _Days("明天", now.date() + _DAY), end + _DAY
    label = "今晚" if (on.label, part) == ("今天", "晚上") else f"{on.label}{part}"
    end += (on.count - 1) * _DAY
    return When(label, _midnight(on.first, now) + first * _HOUR, end)


def _at(clock: re.Match[str], part: str | None, days: _Days | None, now: datetime) -> When:
    said = int(clock[3]) if clock[3] else _number(clock[1])
    hour = _hour_of_day(said, part, is_exact=bool(clock[3]))
    on = days or _Days("今天", now.date())
    start = _midnight(on.first, now) + hour * _HOUR
    if days is None and start + _HOUR <= now:
        on, start = _Days("明天", now.date() + _DAY), start + _DAY
    shown = part or _part_at(hour)
    return When(f"{on.label}{shown}{(hour - 1) % 12 + 1}點", start, start + _HOUR)


def _hour_of_day(said: int, part: str | None, *, is_exact: bool) -> int:
    if part in ("下午", "傍晚", "晚上") or (part == "中午" and said < 11):
        return said + 12 if said < 12 else said
    if part in ("半夜", "凌晨") and said == 12:
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
