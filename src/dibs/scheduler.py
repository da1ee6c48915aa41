"""Runs the scheduled functions of a program: `python -m dibs.scheduler package.module:dibs`.

The module is imported, which decorates its functions, and the named `Dibs` or `AsyncDibs` runs them
until SIGTERM or SIGINT. Functions that are running then have `--drain` seconds to finish. A second
signal ends the process at once.
"""

import argparse
import asyncio
import importlib
import logging
import queue
import signal
import sys
from collections.abc import Callable
from typing import Any

from . import AsyncDibs, Dibs
from .errors import UsageError

__all__ = ["main"]

_log = logging.getLogger("dibs")


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal comes. Returns the exit status; SystemExit: the arguments are wrong."""
    parser = argparse.ArgumentParser("python -m dibs.scheduler", description=__doc__)
    parser.add_argument("target", help="where the Dibs is: package.module:name")
    parser.add_argument("--drain", type=float, default=10.0, help="seconds, default: 10")
    args = parser.parse_args(arguments)
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        return _run_until_signal(load(args.target), args.drain)
    except UsageError as error:
        parser.error(str(error))


def load(target: str) -> Dibs | AsyncDibs:
    """Return the object that *target* names. Raises UsageError if there is none."""
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"{target!r} is not of the form package.module:name")
    try:
        value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists, and lacks something itself
        raise UsageError(f"there is no module {module!r} here") from None
    for part in name.split("."):
        if not hasattr(value, part):
            raise UsageError(f"the module {module!r} has no {name!r}")
        value = getattr(value, part)
    if not isinstance(value, Dibs | AsyncDibs):
        raise UsageError(f"{target} is not a Dibs or an AsyncDibs, but {type(value).__name__}")
    return value


def _run_until_signal(dibs: Dibs | AsyncDibs, drain: float) -> int:
    if isinstance(dibs, AsyncDibs):
        asyncio.run(_run_tasks(dibs, drain))
    else:
        _run_threads(dibs, drain)
    _log.info("the scheduler has ended")
    return 0


async def _run_tasks(dibs: AsyncDibs, drain: float) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    _on_signals(lambda: loop.call_soon_threadsafe(stopped.set))  # first: a run may be due now
    async with dibs, dibs.scheduler(drain=drain):
        await stopped.wait()


def _run_threads(dibs: Dibs, drain: float) -> None:
    # Its `put` may be called by a signal handler, in the middle of `get`.
    stopped: queue.SimpleQueue[bool] = queue.SimpleQueue()
    _on_signals(lambda: stopped.put(True))  # first: a run may be due now
    with dibs, dibs.scheduler(drain=drain):
        stopped.get()


def _on_signals(stop: Callable[[], object]) -> None:
    """Have *stop* called by the first signal; the second one ends the process."""

    def handle(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


if __name__ == "__main__":
    sys.exit(main())
