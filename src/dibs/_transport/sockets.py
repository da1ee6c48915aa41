"""What the operating system knows about a socket."""

import select
import signal
import struct
import sys
from typing import Any

_SIOCOUTQ = 0x5411
"""Linux: bytes in the send queue that the peer has not acknowledged."""


def undelivered(sock: Any) -> int:
    """Bytes written that the peer has not acknowledged; 0 if the system does not say."""
    if sys.platform != "linux" or sock is None:
        return 0
    import fcntl

    try:
        return struct.unpack("i", fcntl.ioctl(sock.fileno(), _SIOCOUTQ, b"\0\0\0\0"))[0]
    except (OSError, ValueError):  # closed meanwhile, or not a TCP socket
        return 0


def is_readable(sock: Any) -> bool:
    """True: there are bytes to read, the peer has closed it, or it is broken."""
    try:
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([sock], [], [], 0)[0])
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        return bool(poller.poll(0))
    except (OSError, ValueError):  # it is closed here
        return True


_TIMERS = [
    getattr(signal, name)
    for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")
    if hasattr(signal, name)
]


def is_interrupted_within(seconds: float) -> bool:
    """True: a timer of this process, such as a profiler's, sends signals more often than that.

    The kernel begins its wait for a socket anew after each of them.
    """
    return any(0.0 < signal.getitimer(timer)[1] <= seconds for timer in _TIMERS)
