"""A finding: what was seen, why it matters for dibs, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
"""error: calls fail or are not guarded. warning: they may be, or something is lost. note."""
ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One finding. Its code is listed in docs/doctor.md."""

    code: str
    severity: Severity
    seen: str
    why: str
    fix: str
    commands: tuple[str, ...] = ()
    """Server commands that are the fix, for redis-cli or valkey-cli."""
    details: tuple[str, ...] = ()
    """What was seen, item by item."""
    where: tuple[str, ...] = ()
    """The servers it concerns."""


def amount(size: int) -> str:
    """A number of bytes, for people."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def milliseconds(seconds: float) -> str:
    """A duration, for people."""
    return f"{seconds * 1000:.2g} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"
