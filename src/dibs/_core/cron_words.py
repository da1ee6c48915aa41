"""What a cron expression says, in words: for people, never for a decision."""

from collections.abc import Callable

from .schedule import fields_of

_NAMES = {
    **dict(zip("0123456", ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"), strict=True)),
    "7": "Sun",
}
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def cron_words(expression: str) -> str:
    """Return `every 15 minutes, from 9 to 17 h, Mon–Fri`.

    Raises UsageError if it has other fields.
    """
    second, minute, hour, day, month, weekday = fields_of(expression)
    parts = [_time_words(second, minute, hour)]
    if day != "*":
        parts.append(_day_words(day))
    if weekday != "*":
        parts.append(_listed_terms(weekday, _weekday_name))
    if month != "*":
        parts.append(f"in {_listed_terms(month, _month_name)}")
    # As in cron: if both are given, one of them is enough.
    if day[0] != "*" and weekday[0] != "*":
        parts[1:3] = [f"{parts[1]} or {parts[2]}"]
    return ", ".join(parts)


def _time_words(second: str, minute: str, hour: str) -> str:
    if minute.isdigit() and second.isdigit():
        seconds = "" if second == "0" else f":{int(second):02}"
        if all(each.isdigit() for each in hour.split(",")):
            times = [f"{int(each):02}:{int(minute):02}{seconds}" for each in hour.split(",")]
            return f"at {' and '.join(times)}"
        if hour == "*":
            return f"every hour at :{int(minute):02}{seconds}"
        return f"at :{int(minute):02}{seconds}{_hour_words(hour)}"
    often = _every_unit(minute, "minute") if second == "0" else _every_unit(second, "second")
    if second != "0" and minute != "*":
        often += f" of minute {minute}"
    return often + _hour_words(hour)


def _every_unit(field: str, unit: str) -> str:
    first, slash, step = field.partition("/")
    if field == "*":
        return f"every {unit}"
    if slash and first == "*":
        return f"every {step} {unit}s"
    return f"every {step} {unit}s of {first}" if slash else f"at {unit} {field}"


def _hour_words(hour: str) -> str:
    first, slash, step = hour.partition("/")
    begin, dash, end = first.partition("-")
    if hour == "*":
        return ""
    if slash:
        return f", every {step} hours" + (f" from {begin} to {end} h" if dash else "")
    return f", from {begin} to {end} h" if dash and "," not in hour else f", at {hour} h"


def _day_words(day: str) -> str:
    if day == "L":
        return "on the last day of the month"
    if day == "LW":
        return "on the last workday of the month"
    first, slash, step = day.partition("/")
    if slash and first == "*":
        return f"every {step} days of the month"
    return f"on day {day} of the month"


def _listed_terms(field: str, name: Callable[[str], str]) -> str:
    return ", ".join("–".join(name(each) for each in term.split("-")) for term in field.split(","))


def _weekday_name(text: str) -> str:
    if "#" in text:
        day, _, number = text.partition("#")
        return f"{_weekday_name(day)} number {number} of the month"
    if text.endswith("L") and text[:-1] in _NAMES:
        return f"the last {_NAMES[text[:-1]]} of the month"
    return _NAMES.get(text, text.capitalize())


def _month_name(text: str) -> str:
    return _MONTHS[int(text) - 1] if text.isdigit() else text.capitalize()
