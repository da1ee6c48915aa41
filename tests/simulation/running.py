"""Running one seed of a workload, and finding the shortest plan that still fails."""

import functools
import gc
import importlib.metadata
import logging
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from dibs._core.unit_of_work import use
from dibs._transport.multiplexed import AsyncConnection

from .faults import Plan, draw_plan
from .fixed_seeds import FIRST_WITH_MORE, ON_REDIS8
from .system import BEGIN, CLOCK
from .workloads import WORKLOADS
from .world import World

_MOST_TRIES = 200
"""Runs to shorten a plan."""

logging.getLogger("dibs").setLevel(logging.CRITICAL + 1)
warnings.simplefilter("ignore")
# redis-py asks for its own version at each connection, which takes longer than all the rest.
importlib.metadata.version = functools.cache(importlib.metadata.version)
# As tasks and futures in loop.py: there are sets of connections.
AsyncConnection.__hash__ = lambda self: self._asyncio_transport.number
gc.freeze()


class Outcome(NamedTuple):
    """The outcome of one run."""

    workload: str
    seed: int
    violations: list[str]
    violated_at: float | None
    digest: str
    counts: "Counter[str]"
    commands: int
    simulated: float
    cpu: float
    trace: list[tuple[float, tuple[Any, ...]]]


def plan_of(name: str, seed: int) -> Plan:
    """What goes wrong in a run."""
    workload = WORKLOADS[name]
    # Seeds below were run before there were more kinds, and stay what they are.
    more = workload.more_kinds if seed >= FIRST_WITH_MORE else ()
    kinds = (*workload.kinds, *more)
    return draw_plan(f"{name}/{seed}", kinds, workload.topology, redis8=seed in ON_REDIS8)


def run(name: str, seed: int, plan: Plan | None = None, *, is_traced: bool = False) -> Outcome:
    """Run *seed* of the workload *name*. The same arguments, the same outcome."""
    since = time.process_time()
    gc.disable()  # what is collected, and when, must not depend on the runs before
    use.open()  # nor whether one of them had a transaction
    world = World(f"{name}/{seed}", plan or plan_of(name, seed), is_traced=is_traced)
    try:
        world.run(WORKLOADS[name](world).main())
    except Exception as error:  # of a last look: this seed has failed, the others go on
        world.violate(f"{type(error).__name__}: {error}")
    world.note("end", sorted(world.counts.items()))
    executed = sum(host.server.executed for host in world.topology.hosts)
    outcome = Outcome(
        name, seed, world.violations, world.violated_at, world.digest, world.counts,
        executed, CLOCK.now - BEGIN, time.process_time() - since, world.trace or [],
    )  # fmt: skip
    _dispose(world)
    return outcome


def _dispose(world: World) -> None:
    """Drop the tasks of killed processes: their coroutines end here, unnoticed."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    world.loop.set_exception_handler(lambda *_: None)
    try:
        world.loop.close()
        for process in world.processes:
            for task in process.tasks:
                task._log_destroy_pending = False
            process.tasks.clear()
        del world
        gc.collect()
    finally:
        sys.unraisablehook = hook


def shortest(name: str, seed: int) -> Plan:
    """A plan of as few faults and actors as possible that still violates something."""
    plan, tries = plan_of(name, seed), 0
    first = run(name, seed, plan)
    wanted = _form(first.violations[0]) if first.violations else ""

    def fails(plan: Plan) -> bool:
        nonlocal tries
        tries += 1
        return tries <= _MOST_TRIES and wanted in map(_form, run(name, seed, plan).violations)

    end = first.violated_at or 0.0
    earlier = plan.without_faults(sum(fault.at <= end for fault in plan.faults), len(plan.faults))
    plan = earlier if fails(earlier) else plan
    plan = _without_actors(name, plan, fails)
    return _without_actors(name, _without_faults(plan, fails), fails)


def _form(violation: str) -> str:
    """What is wrong, without times, keys and processes: another violation is another trace."""
    return re.sub(r"\w*\d[\w.]*", "#", violation.partition(" ")[2])


def _without_faults(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    size = max(len(plan.faults) // 2, 1)
    while size:
        at = 0
        while at < len(plan.faults):
            shorter = plan.without_faults(at, at + size)
            if fails(shorter):
                plan = shorter
            else:
                at += size
        size //= 2
    return plan


def _without_actors(name: str, plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    kind = WORKLOADS[name]
    for number in range(kind.processes * kind.actors):
        if number not in plan.absent and fails(fewer := plan.without_actor(number)):
            plan = fewer
    return plan
