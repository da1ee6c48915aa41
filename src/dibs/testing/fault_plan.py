"""What is wrong on the line at this moment, and what is about to go wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Moment = Literal["request", "reply"]
Kind = Literal["mute", "cut", "drop"]


@dataclass(slots=True)
class Fault:
    """A fault that waits for its moment: the next `count` chunks that contain `match`."""

    moment: Moment
    kind: Kind
    count: int
    match: bytes
    keep: int = 0


@dataclass(slots=True)
class FaultPlan:
    """All faults of one proxy, and what they met; each connection looks here for each chunk."""

    hole: bool = False
    request_delay: float = 0.0
    reply_delay: float = 0.0
    request_rate: float = 0.0
    reply_rate: float = 0.0
    requests_stalled: bool = False
    replies_stalled: bool = False
    piece: int = 0
    faults: list[Fault] = field(default_factory=list[Fault])
    requests: int = 0
    met: int = 0

    def lengthen(self, request_delay: float, reply_delay: float) -> None:
        """Make the way longer, in seconds."""
        self.request_delay, self.reply_delay = request_delay, reply_delay

    def throttle(self, request_rate: float, reply_rate: float) -> None:
        """Limit the bytes per second of each direction; 0 is no limit."""
        self.request_rate, self.reply_rate = request_rate, reply_rate

    def stall(self, *, requests: bool, replies: bool) -> None:
        """Keep everything back that goes in these directions."""
        self.requests_stalled, self.replies_stalled = requests, replies

    def end_all(self) -> None:
        """End all faults and forget those to come."""
        self.hole, self.piece = False, 0
        self.lengthen(0.0, 0.0)
        self.throttle(0.0, 0.0)
        self.stall(requests=False, replies=False)
        self.faults.clear()

    def next_fault(self, moment: Moment, seen: bytes, fresh: int) -> Fault | None:
        """The first fault for this moment whose match ends in the `fresh` last bytes seen."""
        for fault in self.faults:
            reach = fresh + max(len(fault.match) - 1, 0)
            if fault.moment == moment and fault.match in seen[-reach:]:
                return self._used(fault)
        return None

    def _used(self, fault: Fault) -> Fault:
        self.met += 1
        fault.count -= 1
        if fault.count <= 0:
            self.faults.remove(fault)
        return fault
