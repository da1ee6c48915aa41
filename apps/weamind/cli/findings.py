"""What a check found, and how it is said: to a person, to a program, to the shell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .problems import FAILED

Status = Literal["ok", "degraded", "failed", "skipped"]
SIGNS: dict[Status, str] = {"ok": "✓", "failed": "✗", "degraded": "–", "skipped": "–"}
_WIDTH = 17
"""One more than the longest name has, at least."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. What is broken has exactly one fix, everything else none."""

    name: str
    status: Status
    found: str
    fix: str = ""
    answers: bool = True
    """False: it is not there at all, so that nothing that depends on it can be looked at."""

    def __post_init__(self) -> None:
        if bool(self.fix) != (self.status in ("failed", "degraded")):
            raise ValueError("a fix is for what failed or is degraded, and for nothing else")

    @property
    def holds(self) -> bool:
        """True: what depends on it can be looked at."""
        return self.answers and self.status in ("ok", "degraded")

    def text(self) -> str:
        """A line, and one with the fix."""
        lines = [f"{SIGNS[self.status]} {self.name:<{_WIDTH}}{self.found}"]
        if self.fix:
            lines.append(" " * (_WIDTH + 2) + f"→ {self.fix}")
        return "\n".join(lines)


def ok(name: str, found: str) -> Finding:
    """It works."""
    return Finding(name, "ok", found)


def failed(name: str, found: str, fix: str) -> Finding:
    """It must work, and does not."""
    return Finding(name, "failed", found, fix)


def degraded(name: str, found: str, fix: str, *, answers: bool = True) -> Finding:
    """It does not work as it should, and the bot works nevertheless."""
    return Finding(name, "degraded", found, fix, answers)


def skipped(name: str, why: str) -> Finding:
    """It could not be looked at."""
    return Finding(name, "skipped", f"not checked: {why}")


def verdict(findings: Sequence[Finding]) -> Status:
    """The worst of all; something skipped alone is not bad."""
    statuses = {finding.status for finding in findings}
    if "failed" in statuses:
        return "failed"
    return "degraded" if "degraded" in statuses else "ok"


def exit_code(findings: Sequence[Finding]) -> int:
    """0 if the bot can work."""
    return FAILED if verdict(findings) == "failed" else 0


def summary(findings: Sequence[Finding]) -> str:
    """One line for the end."""
    count = {status: sum(f.status == status for f in findings) for status in SIGNS}
    if count["failed"]:
        return f"{count['failed']} to be fixed before the bot works."
    if count["degraded"]:
        return f"The bot works; {count['degraded']} could be better."
    return "All is well."


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """The same for programs."""
    names = ("name", "status", "found", "fix")
    checks = [{name: getattr(finding, name) for name in names} for finding in findings]
    return {"status": verdict(findings), "checks": checks}
