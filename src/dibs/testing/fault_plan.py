"""The faults of a proxy: those in force, and those that wait for a matching request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Trigger = Literal["request", "reply"]
Kind = Literal["mute", "cut", "drop", "hold requests", "hold replies"]


@dataclass(slots=True)
class Fault:
    """A fault that is triggered by the next `count` chunks that contain `match`."""

    trigger: Trigger
    kind: Kind
    count: int
    match: bytes
    keep: int = 0


@dataclass(slots=True)
class FaultPlan:
    """All faults of one proxy, and how often they were triggered; read for every chunk."""

    black_hole: bool = False
    request_delay: float = 0.0
    reply_delay: float = 0.0
    request_rate: float = 0.0
    reply_rate: float = 0.0
    requests_stalled: bool = False
    replies_stalled: bool = False
    piece: int = 0
    faults: list[Fault] = field(default_factory=list[Fault])
    requests: int = 0
    triggered: int = 0

    def delay(self, request_delay: float, reply_delay: float) -> None:
        """Delay each direction by that many seconds."""
        self.request_delay, self.reply_delay = request_delay, reply_delay

    def throttle(self, request_rate: float, reply_rate: float) -> None:
        """Limit the bytes per second of each direction; 0 is no limit."""
        self.request_rate, self.reply_rate = request_rate, reply_rate

    def stall(self, *, requests: bool, replies: bool) -> None:
        """Hold back all bytes in these directions."""
        self.requests_stalled, self.replies_stalled = requests, replies

    def clear(self) -> None:
        """Remove all faults."""
        self.black_hole, self.piece = False, 0
        self.delay(0.0, 0.0)
        self.throttle(0.0, 0.0)
        self.stall(requests=False, replies=False)
        self.faults.clear()

    def next_fault(self, trigger: Trigger, seen: bytes, fresh: int) -> Fault | None:
        """The first fault whose match ends within the last `fresh` bytes of `seen`."""
        for fault in self.faults:
            reach = fresh + max(len(fault.match) - 1, 0)
            if fault.trigger == trigger and fault.match in seen[-reach:]:
                return self._trigger(fault)
        return None

    def _trigger(self, fault: Fault) -> Fault:
        self.triggered += 1
        fault.count -= 1
        if fault.count <= 0:
            self.faults.remove(fault)
        return fault
