"""The folder of an embedded server: its sockets, its log, and the lock of its supervisor."""

import os


class ServerFolder:
    """A directory for one server and its supervisor, which only our user may enter.

    `is_private`: it was made for one `Dibs` object. Otherwise it is shared by all processes that
    name it.
    """

    def __init__(self, path: str, *, is_private: bool) -> None:
        self.path = path
        self.is_private = is_private
        self.server_socket = os.path.join(path, "valkey.sock")
        self.supervisor_socket = os.path.join(path, "supervisor.sock")
        self.lock_file = os.path.join(path, "supervisor.lock")
        """Whoever has locked it may start or end the supervisor."""
        self.log = os.path.join(path, "valkey.log")
        """What supervisor and server print; overwritten at every start."""
