"""Opening a connection beside the caller: name servers and handshakes know nothing of budgets."""

import threading
from collections.abc import Callable

from .wire import Wire


class Opening:
    """A connection being opened on a thread of its own; too late, it is closed again."""

    def __init__(
        self, connect: Callable[[], Wire], on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._connect = connect
        self._on_end = on_end
        self._done = threading.Event()
        self._guard = threading.Lock()
        self._given_up = False
        self._wire: Wire | None = None
        self._error: BaseException | None = None
        try:
            threading.Thread(target=self._run, name="dibs connect", daemon=True).start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            self._error = OSError(str(error))
            self._done.set()
            on_end()

    def wait(self, seconds: float) -> tuple[Wire | None, BaseException | None]:
        """The connection, or why there is none; neither: it takes too long."""
        self._done.wait(seconds)
        with self._guard:
            self._given_up = True
            return self._wire, self._error

    def _run(self) -> None:
        wire = None
        try:
            wire = self._connect()
        except BaseException as error:
            self._error = error
        with self._guard:
            if self._given_up and wire is not None:
                wire.close()
            else:
                self._wire = wire
        self._done.set()
        self._on_end()
