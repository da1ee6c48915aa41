"""Audiences: named sets of users, to whom a narrowcast can go."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any


@dataclass
class Audience:
    """One audience."""

    id: int
    kind: str
    """`UPLOAD`, `CLICK` or `IMP`."""
    description: str
    created: int
    users: set[str] = field(default_factory=set)
    more: dict[str, Any] = field(default_factory=dict)
    """The fields that only some kinds have."""
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The JSON in the answer to its creation."""
        facts = {"audienceGroupId": self.id, "createRoute": "MESSAGING_API", "type": self.kind}
        facts |= {"description": self.description, "created": self.created}
        return facts | {"permission": "READ_WRITE", "isIfaAudience": False} | self.more

    def facts(self) -> dict[str, Any]:
        """The JSON in later answers."""
        return self.summary() | {"status": "READY", "audienceCount": len(self.users)}


class Audiences:
    """All audiences, by number."""

    def __init__(self) -> None:
        self._audiences: dict[int, Audience] = {}
        self._numbers = count(4_389_303_728_991)
        self._jobs = count(12_345_678)

    def create(
        self, kind: str, description: str, now: float, more: dict[str, Any] | None = None
    ) -> Audience:
        """Create an empty audience."""
        audience = Audience(next(self._numbers), kind, description, int(now), more=more or {})
        self._audiences[audience.id] = audience
        return audience

    def upload(self, audience: Audience, users: Iterable[str], words: str, now: float) -> None:
        """Add these users."""
        added = set(users)
        audience.users |= added
        job = {"audienceGroupJobId": next(self._jobs), "audienceGroupId": audience.id}
        job |= {"description": words, "type": "DIFF_ADD", "jobStatus": "FINISHED"}
        audience.jobs.append(job | {"audienceCount": len(added), "created": int(now)})

    def find(self, number: int) -> Audience | None:
        """Return an audience. None: the number is unknown."""
        return self._audiences.get(number)

    def members(self, number: int) -> set[str] | None:
        """The users of an audience. None: the number is unknown."""
        audience = self._audiences.get(number)
        return None if audience is None else audience.users

    def delete(self, audience: Audience) -> None:
        """Delete an audience."""
        del self._audiences[audience.id]

    def snapshot(self) -> list[dict[str, Any]]:
        """All audiences, as JSON."""
        return [asdict(each) | {"users": sorted(each.users)} for each in self._audiences.values()]

    def restore(self, facts: list[dict[str, Any]]) -> None:
        """Restore what `snapshot` has returned; new numbers follow the last one."""
        found = [Audience(**each) for each in facts]
        for each in found:
            each.users = set(each.users)  # a list in JSON
        self._audiences = {each.id: each for each in found}
        jobs = [job["audienceGroupJobId"] for each in found for job in each.jobs]
        self._numbers = count(max([next(self._numbers) - 1, *self._audiences]) + 1)
        self._jobs = count(max([next(self._jobs) - 1, *jobs]) + 1)

    def all(self) -> list[Audience]:
        """All audiences, the newest first."""
        return list(self._audiences.values())[::-1]
