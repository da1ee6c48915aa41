"""One visitor's key: who has asked for it, with what result, and the open pages that show it."""

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

PEOPLE = ("ann", "ben")
_BACKLOG = 200
"""How many messages a slow page may lag behind before it misses some."""
_REPORT_WAIT = 1.0
"""Seconds at most until both processes have reported the same moment; usually milliseconds."""

Message = dict[str, Any]


class Freed(NamedTuple):
    """The end of a lease."""

    at: float
    """By the monotonic clock."""
    ran_out: bool
    """False: it was released."""


class Visit:
    """One person's request for the key, as reported by their process."""

    def __init__(self, *, ttl: float, wait: float) -> None:
        self._wanted: Message = {"ttl": ttl, "wait": wait}
        self._facts: Message = {"is": "waiting", "asked_at": monotonic()}
        self.freed: Freed | None = None
        """The end of the lease that it waited for."""
        self.answered = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def is_in(self) -> bool:
        """True: this person has the key, as far as they know."""
        return self._facts["is"] == "in"

    @property
    def over(self) -> bool:
        """True: this person neither has the key nor waits for it."""
        return self.ended.is_set()

    @property
    def refusal(self) -> str | None:
        """Why they did not get it; None: they did, or have stopped waiting."""
        return self._facts.get("error")

    @property
    def retry_after(self) -> float:
        """The Retry-After of a refusal."""
        return self._facts["retry_after"]

    @property
    def has_had_it(self) -> bool:
        """True: there was a lease."""
        return "ends_at" in self._facts

    def update(self, facts: Message) -> Freed | None:
        """Record a report of their process. Returns a lease that has ended."""
        self._facts |= facts
        if facts["is"] != "waiting":
            self.answered.set()
        if facts["is"] in ("refused", "left"):
            self.ended.set()
        how = facts.get("how")
        is_freed = how in ("released", "late")
        return Freed(facts["left_at"], ran_out=how == "late") if is_freed else None

    def follow(self, freed: Freed | None) -> None:
        """Record the end of the last lease: perhaps this person waited for it."""
        if self._wanted["wait"] and self.is_in and self.freed is None and freed is not None:
            waited = self._facts["asked_at"] <= freed.at <= self._facts["answered_at"]
            self.freed = freed if waited else None

    def killed(self) -> None:
        """Record that their process was killed."""
        if not self.over:
            self.update({"is": "left", "how": "killed", "left_at": monotonic()})

    def report(self) -> Message:
        """The current state of this person."""
        facts, now = self._facts, monotonic()
        report: Message = {"is": facts["is"], **self._wanted}
        if facts["is"] == "waiting":
            return report | {"left": self._wanted["wait"] - (now - facts["asked_at"])}
        if "answered_at" in facts:
            report |= {"took": facts["answered_at"] - facts["asked_at"]}
        if facts["is"] == "refused":
            left = facts["retry_after"] - (now - facts["answered_at"])
            report |= {"retry_after": facts["retry_after"], "holder": facts["holder"]}
            return report | {"left": max(left, 0.0)}
        return report | (self._report_lease(now) if self.has_had_it else {"how": facts["how"]})

    def _report_lease(self, now: float) -> Message:
        facts, freed = self._facts, self.freed
        report: Message = {"guarded": facts["guarded"]}
        if self.is_in:
            report |= {"remaining": max(facts["ends_at"] - now, 0.0)}
            report |= {"after_release": freed and facts["answered_at"] - freed.at}
            return report | {"ran_out": freed and freed.ran_out}
        return report | {"how": facts["how"], "held": facts["left_at"] - facts["answered_at"]}


class KeyState:
    """One visitor's key, with at most one visit of each person, and any number of open pages."""

    def __init__(self, visitor: str) -> None:
        self.visitor = visitor
        self.key = f"playground:{visitor}:lease"
        self.visits: dict[str, Visit] = {}
        self.last: str | None = None
        """Who asked last."""
        self._freed: Freed | None = None
        """The end of the last lease."""
        self._subscribers: set[asyncio.Queue[Message | None]] = set()

    def enter(self, person: str, *, ttl: float, wait: float) -> Visit | None:
        """Begin a visit. None: this person still has the key, or still waits."""
        visit = self.visits.get(person)
        if visit is not None and not visit.over:
            return None
        self.last = person
        self.visits[person] = Visit(ttl=ttl, wait=wait)
        self.changed()
        return self.visits[person]

    async def settled(self) -> None:
        """Wait until releases of the last milliseconds are reported."""
        for visit in list(self.visits.values()):  # a request may arrive meanwhile
            if visit.is_in and visit.freed is None:
                others = [each.ended.wait() for each in self.visits.values() if each is not visit]
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.gather(*others), _REPORT_WAIT)

    def holder(self) -> str | None:
        """The person who has the key."""
        return next((name for name, visit in self.visits.items() if visit.is_in), None)

    @property
    def idle(self) -> bool:
        """True: there is no holder, waiter or subscriber; the object may be dropped."""
        return not self._subscribers and all(visit.over for visit in self.visits.values())

    def report(self) -> Message:
        """The current state of all people."""
        away = {"is": "away"}
        people = {
            person: self.visits[person].report() if person in self.visits else away
            for person in PEOPLE
        }
        return {"key": self.key, "people": people, "last": self.last}

    # ---- reports of the processes

    def update(self, person: str, facts: Message) -> None:
        """Record that the visit of *person* has changed."""
        self._freed = self.visits[person].update(facts) or self._freed
        # The processes are two: the acquire of one may arrive before the release of the other.
        for visit in self.visits.values():
            visit.follow(self._freed)
        self.changed()

    def kill(self, person: str) -> None:
        """Record that the process of *person* was killed."""
        if person in self.visits:
            self.visits[person].killed()
            self.changed()

    def show_event(self, person: str, event: Message) -> None:
        """Show an event of dibs in the process of *person*."""
        self._show({"who": person} | event)

    # ---- watching

    def subscribe(self) -> "asyncio.Queue[Message | None]":
        """A queue for events, and None when something has changed."""
        queue: asyncio.Queue[Message | None] = asyncio.Queue(_BACKLOG)
        self._subscribers.add(queue)
        return queue

    def unsubscribe(self, queue: "asyncio.Queue[Message | None]") -> None:
        """Send nothing more to this queue."""
        self._subscribers.discard(queue)

    def changed(self) -> None:
        """Tell all subscribers that the state has changed."""
        self._show(None)

    def _show(self, message: Message | None) -> None:
        for queue in self._subscribers:
            if not queue.full():
                queue.put_nowait(message)
