# Generated from tests/behaviour/_async/odd_verbs.py by unasync.py – do not edit.
"""Every verb, as the tests with odd replies call it."""

from typing import Any

from dibs import Dibs
from dibs._internal_api import inspector


def options(name: str) -> dict[str, Any]:
    """How the client of a verb is made."""
    policy = "open" if name.endswith("open") else "closed"
    return {"budget": 0.05, "connect": 0.2, "on_outage": policy}


def load(x: str) -> dict[str, int]:
    """Something to keep."""
    return {x: 1}


def work() -> int:
    """Something to do once."""
    return 1


def load_many(keys: list[str]) -> dict[str, int]:
    """Something for each."""
    return dict.fromkeys(keys, 1)


def hold(dibs: Dibs, **how: Any) -> None:
    """Take a key, extend it, release it."""
    with dibs.hold("k", ttl=5, **how) as lease:
        lease.extend(6)


def hand_over(dibs: Dibs) -> None:
    """Detach a lease and continue it."""
    with dibs.hold("k", ttl=5) as lease:
        token = lease.detach(ttl=5)
    with dibs.hold("k", ttl=5, token=token):
        pass


def claim(dibs: Dibs) -> None:
    """Claim a key, note something, complete it."""
    with dibs.claim("k", window=5, after="replay", payload={"a": 1}, wait=0.1) as claim:
        claim.set_note("n")
        if not claim.replayed:
            claim.complete(1)


def cached(dibs: Dibs, **how: Any) -> None:
    """Read, look, refresh, set and delete a value."""
    value = dibs.cached("k:{x}", ttl=5, wait=0.1, **how)(load)
    value("a")
    value.peek("a")
    value.refresh("a")
    value.set("a", value={"a": 2})
    value.invalidate("a")


def cached_many(dibs: Dibs) -> None:
    """Read many values."""
    dibs.cached_many("k:{x}", ttl=5, wait=0.1)(load_many)(["a", "b"])


def load_one() -> int:
    """Something to keep under a key."""
    return 1


def fail(x: str) -> int:
    """A load that fails."""
    raise LookupError(x)


def failing(dibs: Dibs) -> None:
    """Remember a failure."""
    try:
        dibs.cached("k:{x}", ttl=5, wait=0.1, negative_ttl=5)(fail)("a")
    except LookupError:
        pass


def lead(dibs: Dibs) -> None:
    """Be the leader, if there is none."""
    with dibs.leader("k", ttl=5, wait=0.1) as leadership:
        leadership.check()


def look(dibs: Dibs) -> None:
    """Read what the server has, and free something."""
    inspecting = inspector(dibs)
    for _ in inspecting.pages():
        pass
    inspecting.entry("k")
    inspecting.anywhere("k*")
    inspecting.server()
    inspecting.release("k", "5a1f00112233445566778899aabbccdd-2c")


VERBS: dict[str, Any] = {
    "hold": hold,
    "hold, open": hold,
    "hold, fence": lambda dibs: hold(dibs, fence=True),
    "hold, limit": lambda dibs: hold(dibs, limit=2),
    "hold, fenced limit": lambda dibs: hold(dibs, limit=2, fence=True),
    "hold, wait": lambda dibs: hold(dibs, wait=0.1),
    "hold, renew": lambda dibs: hold(dibs, renew=True),
    "hold, at least": lambda dibs: hold(dibs, at_least=1),
    "hand over": hand_over,
    "claim": claim,
    "claim, open": claim,
    "once": lambda dibs: dibs.once("k", window=5, after="replay")(work)(),
    "once, hold": lambda dibs: dibs.once("k", window=5, after="hold")(work)(),
    "cached": cached,
    "cached, open": cached,
    "cached, stale": lambda dibs: cached(dibs, stale=5),
    "cached, tags": lambda dibs: cached(dibs, tags=["t"]),
    "cached, local": lambda dibs: cached(dibs, local=1),
    "cached, zlib": lambda dibs: cached(dibs, codec="json+zlib"),
    "cached many": cached_many,
    "invalidate tag": lambda dibs: dibs.invalidate_tag("t"),
    "throttle": lambda dibs: dibs.throttle("k", limit=1, per=5),
    "throttle, exact": lambda dibs: dibs.throttle("k", limit=1, per=5, exact=True),
    "throttle, rates": lambda dibs: dibs.throttle("k", limit=1, per=5, also=[(2, 60)]),
    "throttle, wait": lambda dibs: dibs.throttle("k", limit=1, per=5, wait=0.1),
    "quota": lambda dibs: dibs.quota("k", limit=1, per="day"),
    "exclusive": lambda dibs: dibs.exclusive("k", ttl=5)(work)(),
    "get or load": lambda dibs: dibs.get_or_load("k", load_one, ttl=5),
    "cached, early": lambda dibs: cached(dibs, early=1.0),
    "cached, failing": failing,
    "invalidate": lambda dibs: dibs.invalidate("k"),
    "leader": lead,
    "peek": lambda dibs: dibs.peek("k"),
    "look": look,
}
"""By what is asked."""
