"""Opening a connection in a background thread: name resolution has no timeout."""

import threading
from collections.abc import Callable

from .thread_connection import ThreadConnection


class Opening:
    """A connection that is being opened in a thread of its own."""

    def __init__(
        self, connect: Callable[[], ThreadConnection], on_end: Callable[["Opening"], None]
    ) -> None:
        self.error: BaseException | None = None
        """Why there is no connection."""
        self._connect = connect
        self._on_end = on_end
        self._done = threading.Event()
        self._guard = threading.RLock()
        self._is_taken = False
        self._connection: ThreadConnection | None = None

    def start(self) -> None:
        """Start the thread. *on_end* is called when the attempt has succeeded or failed."""
        try:
            threading.Thread(target=self._run, name="dibs connect", daemon=True).start()
        except RuntimeError:  # no more threads: open it in this one
            self._run()

    def wait(self, seconds: float) -> bool:
        """True: it has succeeded or failed."""
        return self._done.wait(seconds)

    def take(self) -> ThreadConnection | None:
        """Return the connection, or None: then one that is opened later is closed at once."""
        with self._guard:
            self._is_taken = True
            connection, self._connection = self._connection, None
            return connection

    def cancel(self) -> None:
        """Close the connection, now or when it is open."""
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
            if self._is_taken and connection is not None:
                connection.close()
            else:
                self._connection = connection
        self._done.set()
        self._on_end(self)
