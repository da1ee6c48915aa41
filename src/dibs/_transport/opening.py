"""Opening a connection beside the caller: name servers and handshakes know no time limits."""

import threading
from collections.abc import Callable

from .thread_connection import ThreadConnection


class Opening:
    """A connection that is being opened on a thread of its own."""

    def __init__(
        self, connect: Callable[[], ThreadConnection], on_end: Callable[["Opening"], None]
    ) -> None:
        self.error: BaseException | None = None
        """Why there is no connection."""
        self._connect = connect
        self._on_end = on_end
        self._done = threading.Event()
        self._guard = threading.RLock()
        self._given_up = False
        self._connection: ThreadConnection | None = None

    def start(self) -> None:
        """Begin. *on_end* is called when it has ended, well or not."""
        try:
            threading.Thread(target=self._run, name="dibs connect", daemon=True).start()
        except RuntimeError:  # no more threads: the caller has to do it
            self._run()

    def wait(self, seconds: float) -> bool:
        """True: it has ended, well or not."""
        return self._done.wait(seconds)

    def take(self) -> ThreadConnection | None:
        """The connection; None: there is none, and one that opens later is closed."""
        with self._guard:
            self._given_up = True
            connection, self._connection = self._connection, None
            return connection

    def give_up(self) -> None:
        """Nobody wants it any more."""
        connection = self.take()
        if connection is not None:
            connection.close()

    def _run(self) -> None:
        connection = None
        try:
            connection = self._connect()
        except BaseException as error:
            self.error = error
        with self._guard:
            if self._given_up and connection is not None:
                connection.close()
            else:
                self._connection = connection
        self._done.set()
        self._on_end(self)
