"""Verdicts, and the table that people read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "not applicable"]
SHOWN: dict[Outcome, str] = {"passed": "passed", "failed": "FAILED", "not applicable": "-"}


@dataclass(frozen=True)
class Verdict:
    """What came of one case: the outcome, and what was seen (or why it does not apply)."""

    case: str
    promise: str
    outcome: Outcome
    seen: str = ""

    @property
    def failed(self) -> bool:
        """Whether the promise was broken."""
        return self.outcome == "failed"

    def __str__(self) -> str:
        return f"{self.case} {self.outcome}: {self.promise}" + (self.seen and f" - {self.seen}")


@dataclass(frozen=True)
class Report:
    """The verdicts about one middleware, in the order of the cases; as text, a table."""

    name: str
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> tuple[Verdict, ...]:
        """The promises that were kept."""
        return self._with("passed")

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The promises that were broken."""
        return self._with("failed")

    @property
    def not_applicable(self) -> tuple[Verdict, ...]:
        """The cases that make no sense here."""
        return self._with("not applicable")

    def __str__(self) -> str:
        return table([self])

    def _with(self, outcome: Outcome) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.outcome == outcome)


def table(reports: Sequence[Report]) -> str:
    """Return one table for all reports side by side, then what was seen in each."""
    rows = [["case", *(report.name for report in reports)], *_verdict_rows(reports)]
    rows += [[outcome, *_counts(reports, outcome)] for outcome in SHOWN]
    parts = ["\n".join(_aligned(rows)), *(_findings(report) for report in reports)]
    return "\n\n".join(filter(None, parts))


def _verdict_rows(reports: Sequence[Report]) -> list[list[str]]:
    beside = zip(*(report.verdicts for report in reports), strict=True)
    return [[row[0].case, *(SHOWN[each.outcome] for each in row)] for row in beside]


def _counts(reports: Sequence[Report], outcome: Outcome) -> list[str]:
    return [str(sum(each.outcome == outcome for each in report.verdicts)) for report in reports]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _findings(report: Report) -> str:
    noted = [verdict for verdict in report.verdicts if verdict.seen]
    lines = [f"  {SHOWN[each.outcome]:7} {each.case}: {each.seen}" for each in noted]
    return "\n".join([f"{report.name}, what was seen:", *lines]) if noted else ""
