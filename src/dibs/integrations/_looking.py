"""A thread of a worker that looks after jobs which wait for their turn."""

import logging
from collections.abc import Callable, Iterable

from .._internal_api import Signal, start_thread

_log = logging.getLogger("dibs")


class Looking:
    """Calls functions again and again, until it is stopped."""

    def __init__(self) -> None:
        self._stopped = Signal()

    def start(self, looks: Iterable[tuple[Callable[[], None], float]]) -> None:
        """Call each function of *looks* about once in so many seconds."""
        if not (calls := list(looks)):
            return
        self._stopped = stopped = Signal()
        every = min(seconds for _, seconds in calls)

        def run() -> None:
            while not stopped.wait(every):
                for look, _ in calls:
                    try:
                        look()
                    except Exception:  # the next one may succeed
                        _log.exception("dibs cannot look after jobs that wait")

        start_thread(run, "dibs-waiting-jobs")

    def stop(self) -> None:
        """Stop soon."""
        self._stopped.set()
