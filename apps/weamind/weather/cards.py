"""A forecast as a LINE message: a carousel to be read at a glance, and words for where there is no
card.

First the warnings in force, where, the weather now and the next 24 hours; then seven days; then the
air, the UV index, the wind and the sun, with two buttons. What the provider did not tell is left
out.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from . import flex
from .flex import Part, column, row, text
from .forecast import Day, Forecast, Moment, Step, days_ahead, is_stale, moment_of, steps_ahead
from .wording import (
    SAMPLE,
    UNKNOWN,
    area_note,
    chance,
    conditions,
    day_date,
    day_name,
    days_name,
    degrees,
    details,
    forecast_text,
    hours,
    stale_note,
    step_name,
    summary,
    temperature_range,
    updated,
    warning,
    whereabouts,
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
        "contents": {"type": "carousel", "contents": _bubbles(forecast, now)},
    }
    if quick_reply:
        if len(quick_reply) > _MOST_QUICK_REPLIES:
            raise ValueError(f"LINE shows at most {_MOST_QUICK_REPLIES} quick replies")
        message["quickReply"] = {"items": list(quick_reply)}
    return message


def _bubbles(forecast: Forecast, now: datetime) -> list[Part]:
    days = days_ahead(forecast, now)
    return [
        _bubble(_now_and_next(forecast, now), []),
        *([_bubble(_week(forecast, days, now), [])] if days else []),
        _bubble(_conditions(forecast, now), [_buttons(forecast)]),
    ]


def _bubble(body: list[Part], footer: list[Part]) -> Part:
    block = {"backgroundColor": flex.PAPER}
    bubble: Part = {
        "type": "bubble",
        "size": "mega",
        "styles": {"body": block, "footer": block},
        "body": column(*body, paddingAll="lg"),
    }
    return bubble | ({"footer": column(*footer, paddingAll="lg")} if footer else {})


def _heading(forecast: Forecast, words: str) -> Part:
    return row(
        text(words, size="md", bold=True, flex=0),
        text(forecast.place_name, size="xs", color=flex.SOFT, align="end", shrink=True, flex=1)
        | {"gravity": "bottom"},
        spacing="md",
    )


# ---- now and the next hours


def _now_and_next(forecast: Forecast, now: datetime) -> list[Part]:
    return [
        *_warnings(forecast, now),
        _top(forecast, now),
        *_cells(steps_ahead(forecast, now)),
        *_source(forecast),
    ]


def _warnings(forecast: Forecast, now: datetime) -> list[Part]:
    """The official ones, above everything else."""
    words = warning(forecast, now)
    style = {"backgroundColor": flex.ALERT_PAPER, "cornerRadius": "md", "paddingAll": "sm"}
    said = text(f"⚠️ {words}", size="xs", color=flex.ALERT_INK, bold=True, wrap=True)
    return [column(said, **style)] if words else []


def _top(forecast: Forecast, now: datetime) -> Part:
    name = text(forecast.place_name, size="lg", bold=True, wrap=True, flex=1)
    area = whereabouts(forecast)
    return column(
        row(name, *_corner(forecast, now), spacing="sm"),
        *([text(area, size="xs", color=flex.SOFT, shrink=True)] if area else []),
        *_notes(forecast, now),
        _headline(forecast, now),
        backgroundColor=flex.TINT,
        cornerRadius="lg",
        paddingAll="md",
        margin="md" if warning(forecast, now) else "none",
    )


def _corner(forecast: Forecast, now: datetime) -> list[Part]:
    """That it is a sample, or when it was asked for; if that is long ago, a note says so."""
    if forecast.sample:
        return [_badge()]
    when = text(updated(forecast, now), size="xxs", color=flex.SOFT, flex=0)
    return [] if is_stale(forecast, now) else [when | {"gravity": "center"}]


def _notes(forecast: Forecast, now: datetime) -> list[Part]:
    """What people must know before they believe it."""
    old = f"⚠️ {stale_note(forecast, now)}" if is_stale(forecast, now) else ""
    notes = [words for words in (old, area_note(forecast)) if words]
    return [text(words, size="xs", color=flex.NOTE_INK, bold=True, wrap=True) for words in notes]


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
        text(temperature, size="3xl" if len(temperature) <= 4 else "xl", bold=True, shrink=True),
        flex=5,
    )
    emoji = text(part.sky.emoji if part.sky else UNKNOWN, size="3xl", align="center", flex=3)
    first, *more = words
    beside = column(
        text(first, size="md", bold=True, wrap=True),
        *(text(word, size="xs", color=flex.SOFT, wrap=True) for word in more),
        flex=5,
        justifyContent="center",
    )
    return row(figures, emoji | {"gravity": "center"}, beside, margin="sm", spacing="sm")


def _word(part: Moment | Step | Day) -> str:
    return part.sky.text if part.sky else UNKNOWN


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
        text(step.sky.emoji if step.sky else UNKNOWN, size="lg", align="center"),
        text(temperature_range(step), size="md", bold=True, **middle),
        text(f"💧{chance(step.rain)}", size="xs", color=flex.RAIN, **middle),
        flex=1,
    )


def _source(forecast: Forecast) -> list[Part]:
    """Whom it comes from."""
    credit = forecast.attribution
    return [] if forecast.sample else [_credit(credit.text, credit.url) | {"margin": "md"}]


def _credit(words: str, url: str | None) -> Part:
    action = flex.link(url, words) if url else None
    return text(words, size="xxs", color=flex.SOFT, shrink=True, action=action)


# ---- the days


def _week(forecast: Forecast, days: tuple[Day, ...], now: datetime) -> list[Part]:
    return [
        _heading(forecast, days_name(days)),
        flex.line(),
        *(_day(day, now) for day in days),
    ]


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


# ---- air, sun and buttons


def _conditions(forecast: Forecast, now: datetime) -> list[Part]:
    return [
        _heading(forecast, "空氣、風與日照"),
        flex.line(),
        *(_condition(*each) for each in conditions(forecast, now)),
        *_licence(forecast),
    ]


def _licence(forecast: Forecast) -> list[Part]:
    """Linked, where it wants a link."""
    credit = forecast.attribution
    words = [_credit(credit.licence, credit.licence_url)] if credit.licence else []
    return [each | {"margin": "lg"} for each in words]


def _condition(sign: str, name: str, value: str) -> Part:
    middle = {"gravity": "center"}
    words = column(
        text(name, size="xs", color=flex.SOFT),
        text(value, size="sm", bold=True, wrap=True),
        flex=8,
    )
    return row(text(sign, size="xl", flex=2) | middle, words, margin="lg", spacing="sm")


def _buttons(forecast: Forecast) -> Part:
    kinds = (("home", "住家"), ("office", "公司"))
    return row(*(_save(forecast, *kind) for kind in kinds), spacing="sm")


def _save(forecast: Forecast, kind: str, name: str) -> Part:
    data = f"action=set&type={kind}&place={forecast.place_code}"
    said = f"把{forecast.place_name}設為{name}"
    return flex.button(f"設為{name}", flex.postback(data, said))


# ---- the words for where there is no card


def _shortened(words: str) -> str:
    """At most as long as LINE takes, which counts an emoji as two."""
    if _units(words) <= _LONGEST_ALT_TEXT:
        return words
    while _units(words) > _LONGEST_ALT_TEXT - 1:
        words = words[:-1]
    return words + "…"


def _units(words: str) -> int:
    return len(words.encode("utf-16-le")) // 2
