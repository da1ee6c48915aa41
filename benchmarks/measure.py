"""Rounds, medians and spreads: how a noisy machine is asked the same question more than once."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Spread:
    """Several measurements of one thing: the median is the figure, the ends show the noise."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None where nothing was measured."""
        return cls(tuple(values)) if values else None

    @property
    def middle(self) -> float:
        return median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def most(self) -> float:
        return max(self.values)


@dataclass(frozen=True)
class Plan:
    """What to measure (labels that match ``only``), how often, and for how long each time."""

    rounds: int = 5
    seconds: float = 0.6
    only: str = ""
    quick: bool = False
    note: Callable[[str], None] = print

    def wants(self, label: str) -> bool:
        return re.search(self.only, label) is not None

    def in_rounds(
        self,
        items: Sequence[Item],
        *,
        rounds: int | None = None,
        together: Callable[[Item], object] = lambda _: None,
    ) -> Iterator[Item]:
        """Every item once a round, in a new order each time: a quiet minute favours none of them.

        Items of which ``together`` says the same follow each other, because they are compared.
        """
        rounds = rounds or self.rounds
        for number in range(1, rounds + 1):
            self.note(f"round {number} of {rounds}")
            groups: dict[object, list[Item]] = {}
            for item in shuffled(items):
                groups.setdefault(together(item), []).append(item)
            for group in groups.values():
                yield from group


def shuffled(items: Sequence[Item]) -> list[Item]:
    return random.sample(items, len(items))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median of the ratios, round by round: within a round the machine is equally busy."""
    pairs = [(mine, other) for mine, other in zip(ours, theirs, strict=False) if other]
    return median(mine / other for mine, other in pairs) if pairs else None
