"""Each event once: LINE delivers some again, and their reply token is good for one answer only.

A redelivery that is answered, be it with "please wait", takes the answer away from the first
delivery. So this comes before anything else, the processing lock included.
"""

from dibs import AsyncDibs
from dibs.integrations import linebot
from dibs.integrations.linebot import EventMemory as Memory

from ..core.metrics import Metrics

__all__ = ["Deduplication", "Memory"]


class Deduplication(linebot.Deduplication):
    """Which events are new: by a claim that all processes share. Duplicates are counted."""

    def __init__(self, dibs: AsyncDibs, *, counted_in: Metrics) -> None:
        super().__init__(dibs, skipped=lambda state: counted_in.deduplicated.labels(state).inc())
