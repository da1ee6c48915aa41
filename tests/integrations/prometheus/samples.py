"""Metrics as they are scraped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from dibs import Event
from dibs.integrations.prometheus import PrometheusListener

ROOT = Path(__file__).parents[3]


class Counted:
    """A listener with its own registry, and what it shows."""

    def __init__(self, **options: Any) -> None:
        self.registry = CollectorRegistry()
        self.listener = PrometheusListener(self.registry, **options)

    def emit(self, kind: Any, name: str = "order:{id}", *, times: int = 1, **facts: Any) -> None:
        for _ in range(times):
            self.listener(Event(kind=kind, name=name, at=0.0, **facts))

    def get(self, metric: str, **labels: str) -> float | None:
        """The value of one series; None: there is no such series."""
        return self.registry.get_sample_value(metric, labels)

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()


def ends(counted: Counted, *, ok: int = 0, late: int = 0, leaked: int = 0) -> None:
    counted.emit("claimed", times=ok + late + leaked, guarded=True)
    counted.emit("completed", times=ok, held=1.0, guarded=True)
    counted.emit("late", times=late, held=1.0, guarded=True)
    counted.emit("leaked", times=leaked, held=1.0, cause="cleared")
