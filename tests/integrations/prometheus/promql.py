"""PromQL, as much of it as the alert rules and the page use, on two scrapes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]


class Samples(NamedTuple):
    """Two scrapes of one target."""

    before: dict[str, Vector]
    after: dict[str, Vector]


def scraped(registry: CollectorRegistry) -> dict[str, Vector]:
    """As Prometheus sees it: every series, with the labels of the target."""
    found: dict[str, Vector] = {}
    target = {"job": "orders", "instance": "a:1"}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = frozenset((target | sample.labels).items())
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


WORD = re.compile(
    r'\s*(?:(?P<comment>#[^\n]*)|(?P<number>\d+(?:\.\d+)?(?![\w]))|(?P<text>"[^"]*")'
    r"|(?P<name>[a-zA-Z_]\w*)|(?P<sign>!=|=~|>=|==|[-+*/(){}\[\],=>])|(?P<span>\d+[smh]))"
)
SECONDS = {"s": 1, "m": 60, "h": 3600}


class PromQL:
    """Just enough of it for our expressions; anything else in one is an error."""

    def __init__(self, text: str, samples: Samples) -> None:
        self._words = self._split(text)
        self._samples = samples
        self.metrics: set[tuple[str, frozenset[str]]] = set()
        """Each metric that was asked for, with the labels by which it was."""

    def _split(self, text: str) -> list[str]:
        words, place = [], 0
        while text[place:].strip():
            found = WORD.match(text, place)
            assert found, f"not understood: {text[place:]!r}"
            place = found.end()
            if found.lastgroup != "comment":
                words.append(found[found.lastgroup or 0])
        return words

    def result(self) -> Vector:
        value = self._and()
        assert not self._words, f"left over: {self._words}"
        return value

    def _next(self, *expected: str) -> str:
        word = self._words.pop(0)
        assert not expected or word in expected, f"{word!r} instead of {expected}"
        return word

    def _is(self, *words: str) -> bool:
        return bool(self._words) and self._words[0] in words

    # ---- from the loosest to the tightest

    def _and(self) -> Vector:
        left = self._compared()
        while self._is("and"):
            self._next()
            right = self._compared()
            left = {labels: value for labels, value in left.items() if labels in right}
        return left

    def _compared(self) -> Vector:
        left = self._divided()
        if not self._is(">", ">=", "=="):
            return left
        sign, limit = self._next(), float(self._next())
        holds = {">": float.__gt__, ">=": float.__ge__, "==": float.__eq__}[sign]
        return {labels: value for labels, value in left.items() if holds(value, limit)}

    def _divided(self) -> Vector:
        left = self._term()
        while self._is("/"):
            self._next()
            right = self._term()
            left = {
                labels: value / right[labels] if right[labels] else math.nan  # 0 / 0
                for labels, value in left.items()
                if labels in right
            }
        return left

    def _term(self) -> Vector:
        name = self._next()
        if name == "sum":
            return self._summed()
        if name in ("increase", "rate"):
            return self._grown(name)
        metric, matchers = self._selected(name)
        return self._series(self._samples.after, metric, matchers)

    def _summed(self) -> Vector:
        by = self._labels() if self._is("by") else []
        self._next("(")
        inner = self._and()
        self._next(")")
        found: Vector = {}
        for labels, value in inner.items():
            group = frozenset((name, text) for name, text in labels if name in by)
            found[group] = found.get(group, 0.0) + value
        self._need_labels(inner, by)
        return found

    def _labels(self) -> list[str]:
        self._next("by")
        self._next("(")
        names = [self._next()]
        while self._next(",", ")") == ",":
            names.append(self._next())
        return names

    def _need_labels(self, inner: Vector, by: Iterable[str]) -> None:
        for labels in inner:
            assert set(by) <= {name for name, _ in labels}, f"by {by}: there is only {labels}"

    def _grown(self, how: str) -> Vector:
        self._next("(")
        metric, matchers = self._selected(self._next())
        self._next("[")
        span = self._next()
        self._next("]")
        self._next(")")
        before = self._series(self._samples.before, metric, matchers)
        after = self._series(self._samples.after, metric, matchers)
        length = int(span[:-1]) * SECONDS[span[-1]] if how == "rate" else 1
        # A series that begins within the range has no increase before its second sample.
        return {key: (after[key] - before[key]) / length for key in after if key in before}

    def _selected(self, metric: str) -> tuple[str, list[tuple[str, str, str]]]:
        matchers: list[tuple[str, str, str]] = []
        if self._is("{"):
            self._next()
            while not matchers or self._next(",", "}") == ",":
                matchers.append((self._next(), self._next("=", "!=", "=~"), self._next()[1:-1]))
        self.metrics.add((metric, frozenset(label for label, _, _ in matchers)))
        return metric, matchers

    def _series(
        self, scrape: dict[str, Vector], metric: str, matchers: list[tuple[str, str, str]]
    ) -> Vector:
        assert metric in self._samples.after, f"there is no {metric}"
        return {
            labels: value
            for labels, value in scrape.get(metric, {}).items()
            if all(self._fits(dict(labels), *matcher) for matcher in matchers)
        }

    def _fits(self, labels: dict[str, str], label: str, sign: str, wanted: str) -> bool:
        assert label in labels, f"there is no label {label} in {labels}"
        if sign == "=~":
            return re.fullmatch(wanted, labels[label]) is not None
        return (labels[label] == wanted) == (sign == "=")
