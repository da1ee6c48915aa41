"""What the behaviour tests need of threads. `_tasks.py` has the same names."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from time import sleep
from typing import Any

import redis

from dibs.testing import eventually

__all__ = ["Background", "Interrupt", "eventually", "redis", "sleep"]

Interrupt = SystemExit
"""What a function may raise that is no Exception, because of something else that it called."""


class Background:
    """A call that runs in the background of a test."""

    def __init__(self, work: Callable[..., Any], *args: Any) -> None:
        self._future: Future[Any] = Future()
        Thread(target=self._run, args=(work, args), daemon=True).start()

    def _run(self, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            self._future.set_result(work(*args))
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> Any:
        """What it returned, or raises what it raised."""
        return self._future.result(timeout=20)
