"""What is wrong on the line at this moment, and what is about to go wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Moment = Literal["request", "reply"]
Fault = Literal["mute", "cut", "drop"]


@dataclass(slots=True)
class Trap:
    """A fault that waits for its moment: the next `count` chunks that contain `match`."""

    moment: Moment
    fault: Fault
    count: int
    match: bytes
    keep: int = 0


@dataclass(slots=True)
class Weather:
    """All faults of one proxy, and what they met; each connection looks here for each chunk."""

    hole: bool = False
    request_delay: float = 0.0
    reply_delay: float = 0.0
    request_rate: float = 0.0
    reply_rate: float = 0.0
    requests_stalled: bool = False
    replies_stalled: bool = False
    piece: int = 0
    traps: list[Trap] = field(default_factory=list[Trap])
    requests: int = 0
    sprung: int = 0

    def lengthen(self, request_delay: float, reply_delay: float) -> None:
        """Make the way longer, in seconds."""
        self.request_delay, self.reply_delay = request_delay, reply_delay

    def throttle(self, request_rate: float, reply_rate: float) -> None:
        """Limit the bytes per second of each direction; 0 is no limit."""
        self.request_rate, self.reply_rate = request_rate, reply_rate

    def stall(self, *, requests: bool, replies: bool) -> None:
        """Keep everything back that goes in these directions."""
        self.requests_stalled, self.replies_stalled = requests, replies

    def clear_up(self) -> None:
        """End all faults and forget all traps."""
        self.hole, self.piece = False, 0
        self.lengthen(0.0, 0.0)
        self.throttle(0.0, 0.0)
        self.stall(requests=False, replies=False)
        self.traps.clear()

    def springs(self, moment: Moment, seen: bytes, fresh: int) -> Trap | None:
        """Return the first trap for this moment whose match ends in the `fresh` last bytes seen."""
        for trap in self.traps:
            reach = fresh + max(len(trap.match) - 1, 0)
            if trap.moment == moment and trap.match in seen[-reach:]:
                return self._used(trap)
        return None

    def _used(self, trap: Trap) -> Trap:
        self.sprung += 1
        trap.count -= 1
        if trap.count <= 0:
            self.traps.remove(trap)
        return trap
