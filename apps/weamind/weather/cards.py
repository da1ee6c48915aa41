"""A forecast as a LINE message: one card to be read at a glance, and words for where there is none.

From top to bottom: where, the weather now, what people must know before they believe it, the next
24 hours, the next days, two buttons, and whom it comes from.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from . import flex
from .flex import Part, column, line, row, text
from .forecast import Day, Forecast, Moment, Step, days_ahead, moment_of, steps_ahead
from .wording import (
    DAYS,
    SAMPLE,
    UNKNOWN,
    chance,
    day_date,
    day_name,
    degrees,
    details,
    forecast_text,
    hours,
    is_stale,
    stale_note,
    step_name,
    steps_name,
    summary,
    temperature_range,
    updated,
)

__all__ = ["forecast_message", "forecast_text"]

_LONGEST_ALT_TEXT = 400
_MOST_QUICK_REPLIES = 13
_CELLS_IN_A_ROW = 4


def forecast_message(
    forecast: Forecast, *, now: datetime, quick_reply: Sequence[Part] | None = None
) -> dict[str, Any]:
    """A Flex message. *quick_reply*: the items below it. ValueError: too many, or a naive *now*."""
    if now.tzinfo is None:
        raise ValueError("now must be a time with a zone")
    message: dict[str, Any] = {
        "type": "flex",
        "altText": _shortened(summary(forecast, now=now)),
        "contents": _bubble(forecast, now),
    }
    if quick_reply:
        if len(quick_reply) > _MOST_QUICK_REPLIES:
            raise ValueError(f"LINE shows at most {_MOST_QUICK_REPLIES} quick replies")
        message["quickReply"] = {"items": list(quick_reply)}
    return message


def _bubble(forecast: Forecast, now: datetime) -> Part:
    block = {"backgroundColor": flex.PAPER}
    return {
        "type": "bubble",
        "size": "mega",
        "styles": {"body": block, "footer": block},
        "body": column(*_body(forecast, now), paddingAll="lg"),
        "footer": column(*_footer(forecast, now), paddingAll="lg", spacing="md"),
    }


def _body(forecast: Forecast, now: datetime) -> list[Part]:
    parts = [_top(forecast, now), *_warnings(forecast, now)]
    if steps := steps_ahead(forecast, now):
        parts += [line(), _heading(steps_name(steps)), *_cells(steps)]
    if days := days_ahead(forecast, now):
        parts += [line(), _heading(DAYS), *(_day(day, now) for day in days)]
    return parts


def _heading(words: str) -> Part:
    return column(text(words, size="xs", color=flex.SOFT, bold=True), margin="lg")


# ---- the top


def _top(forecast: Forecast, now: datetime) -> Part:
    name = text(forecast.place_name, size="lg", bold=True, wrap=True, flex=1)
    return column(
        row(name, *([_badge()] if forecast.sample else [])),
        _headline(forecast, now),
        backgroundColor=flex.TINT,
        cornerRadius="lg",
        paddingAll="lg",
    )


def _badge() -> Part:
    words = text(SAMPLE, size="xxs", color=flex.NOTE_INK, bold=True, align="center")
    style = {"backgroundColor": flex.NOTE_PAPER, "cornerRadius": "md", "paddingAll": "xs"}
    return column(words, flex=0, justifyContent="center", **style)


def _headline(forecast: Forecast, now: datetime) -> Part:
    moment = moment_of(forecast, now)
    if moment is not None:
        words = [_word(moment), *details(moment)]
        return _big(moment, "現在", degrees(moment.temperature), words)
    step = next(iter(steps_ahead(forecast, now)), None)
    if step is not None:
        return _big(
            step, hours(step), temperature_range(step), [_word(step), f"💧 {chance(step.rain)}"]
        )
    return text(UNKNOWN, size="3xl", bold=True)


def _big(part: Moment | Step, when: str, temperature: str, words: list[str]) -> Part:
    figures = column(
        text(when, size="xs", color=flex.SOFT),
        text(temperature, size="4xl" if len(temperature) <= 4 else "xxl", bold=True, shrink=True),
        flex=5,
    )
    emoji = text(part.sky.emoji if part.sky else UNKNOWN, size="4xl", align="center", flex=3)
    first, *more = words
    beside = column(
        text(first, size="md", bold=True, wrap=True),
        *(text(word, size="xs", color=flex.SOFT, wrap=True) for word in more),
        flex=5,
        justifyContent="center",
    )
    return row(figures, emoji | {"gravity": "center"}, beside, margin="md", spacing="sm")


def _word(part: Moment | Step | Day) -> str:
    return part.sky.text if part.sky else UNKNOWN


def _warnings(forecast: Forecast, now: datetime) -> list[Part]:
    if not is_stale(forecast, now):
        return []
    words = text(f"⚠️ {stale_note(forecast, now)}", size="xs", color=flex.NOTE_INK, wrap=True)
    style = {"backgroundColor": flex.NOTE_PAPER, "cornerRadius": "md", "paddingAll": "md"}
    return [column(words, margin="md", **style)]


# ---- hours and days


def _cells(steps: tuple[Step, ...]) -> list[Part]:
    """Four beside each other; a last row of fewer leaves room, so that columns stay columns."""
    wide = len(steps) < _CELLS_IN_A_ROW
    rows: list[Part] = []
    for first in range(0, len(steps), _CELLS_IN_A_ROW):
        some = steps[first : first + _CELLS_IN_A_ROW]
        room = [] if wide else [column(flex=1)] * (_CELLS_IN_A_ROW - len(some))
        rows.append(row(*map(_cell, some), *room, margin="md"))
    return rows


def _cell(step: Step) -> Part:
    middle = {"align": "center", "shrink": True}
    return column(
        text(step_name(step), size="xs", color=flex.SOFT, **middle),
        text(step.sky.emoji if step.sky else UNKNOWN, size="xl", align="center"),
        text(temperature_range(step), size="md", bold=True, **middle),
        text(f"💧{chance(step.rain)}", size="xs", color=flex.RAIN, **middle),
        flex=1,
        spacing="xs",
    )


def _day(day: Day, now: datetime) -> Part:
    name = column(
        text(day_name(day, now), size="sm", bold=True),
        text(day_date(day.on), size="xxs", color=flex.SOFT),
        flex=3,
    )
    emoji = text(day.sky.emoji if day.sky else UNKNOWN, size="xl", flex=2)
    words = text(_word(day), size="xs", color=flex.SOFT, wrap=True, flex=5)
    figures = column(
        text(temperature_range(day), size="sm", bold=True, align="end", shrink=True),
        text(f"💧{chance(day.rain)}", size="xs", color=flex.RAIN, align="end"),
        flex=4,
    )
    middle = {"gravity": "center"}
    return row(name, emoji | middle, words | middle, figures, margin="md", spacing="sm")


# ---- the bottom


def _footer(forecast: Forecast, now: datetime) -> list[Part]:
    small = text(updated(forecast, now), size="xxs", color=flex.SOFT)
    return [
        row(
            *(_save(forecast, *kind) for kind in (("home", "住家"), ("office", "公司"))),
            spacing="sm",
        ),
        column(small, *_credits(forecast), spacing="xs"),
    ]


def _save(forecast: Forecast, kind: str, name: str) -> Part:
    data = f"action=set&type={kind}&place={forecast.place_code}"
    said = f"把{forecast.place_name}設為{name}"
    return flex.button(f"設為{name}", flex.postback(data, said))


def _credits(forecast: Forecast) -> list[Part]:
    """Whom it comes from; linked where the licence wants it."""
    credit = forecast.attribution
    named = [(credit.text, credit.url), (credit.licence, credit.licence_url)]
    return [_credit(words, url) for words, url in named if words]


def _credit(words: str, url: str | None) -> Part:
    action = flex.link(url, words) if url else None
    return text(words, size="xxs", color=flex.SOFT, wrap=True, action=action)


def _shortened(words: str) -> str:
    """At most as long as LINE takes, which counts an emoji as two."""
    if _units(words) <= _LONGEST_ALT_TEXT:
        return words
    while _units(words) > _LONGEST_ALT_TEXT - 1:
        words = words[:-1]
    return words + "…"


def _units(words: str) -> int:
    return len(words.encode("utf-16-le")) // 2
