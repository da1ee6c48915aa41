"""A workload and its checker for each verb."""

from .base import Workload
from .cached import Cached, CachedMany
from .claims import Claims
from .handover import HandOver
from .hold import All, AllOfSlots, Hold, Late, Limit, MovingSlots, SwitchedMaster
from .jobs import AgainJobs, AloneJobs, FetchedJobs, Jobs, SendingJobs, TurnJobs
from .leader import Leader
from .mistaken import Mistaken
from .scheduled import Scheduled
from .streamed import Streamed
from .throttle import Throttle
from .units import FAULTS, Units, faulty

VERBS: tuple[type[Workload], ...] = (
    Hold, Late, Limit, All, AllOfSlots, SwitchedMaster, MovingSlots, Leader, HandOver, Claims,
    Cached, CachedMany, Scheduled, Jobs, FetchedJobs, SendingJobs, AloneJobs, AgainJobs, TurnJobs,
    Throttle, Units, Streamed,
)  # fmt: skip
WORKLOADS: dict[str, type[Workload]] = {
    each.name: each for each in (*VERBS, Mistaken, *map(faulty, FAULTS))
}
