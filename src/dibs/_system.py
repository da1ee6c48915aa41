"""What the library asks of the system it runs on: clocks, randomness, the names of this process.

Clients and transports import these from here and nowhere else, so that a simulation can put its
own in their place before it imports the rest (`tests/simulation`). They are the functions
themselves, not wrappers: a call costs what it costs without this module.
"""

from os import getpid, urandom
from random import random
from socket import gethostname
from time import monotonic, time

__all__ = ["gethostname", "getpid", "monotonic", "random", "time", "urandom"]
