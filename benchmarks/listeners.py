"""What listeners cost: CPU of an acquire + release pair with each, beside one without any.

Fifty tasks, each with a key of its own, as in the part `hold`. Client and server are pinned to one
core, and what counts is the CPU time of the client: the same from run to run.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from . import hold, measure
from .systems import LISTENING, TASKS
from .worker import Bench

CALLERS = 50


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """A figure a round for every listener that is wanted."""
    systems = [system for system in LISTENING if plan.wants(system.label)]
    asked = [(hold.Cell(each.system.name, TASKS, CALLERS), each) for each in bench.of(systems)]
    for cell, worker in plan.in_rounds(asked):
        cell.measure(worker, plan.seconds)
    return {"core": bench.core, "cells": [asdict(cell) for cell, _ in asked]}
