"""Options that do not exist, are missing, or have another type."""

from datetime import UTC, datetime
from typing import Any

from dibs import AsyncDibs, Dibs

shop = Dibs("redis://localhost")
kitchen = AsyncDibs("redis://localhost")


class Gone(Exception):
    """The source has no such thing."""


def leases() -> None:
    shop.hold("seat")  # wrong: how long?
    shop.hold("seat", 5)  # wrong: options have names
    shop.hold(ttl=5)  # wrong: no key
    shop.hold(7, ttl=5)  # wrong: a key is text
    shop.hold(b"seat", ttl=5)  # wrong: not bytes
    shop.hold("seat", ttl="5 s")  # wrong: seconds are a number
    shop.hold("seat", ttl=None)  # wrong: there is no lease for ever
    shop.hold("seat", ttl=datetime(2026, 1, 1, tzinfo=UTC))  # wrong: a moment is no duration
    shop.hold("seat", ttl=5, timeout=3)  # wrong: `wait`
    shop.hold("seat", ttl=5, blocking=False)  # wrong: `try_hold`
    shop.hold("seat", tll=5)  # wrong: misspelt
    shop.hold("seat", ttl=5, wait=None)  # wrong: `math.inf` waits for ever
    shop.hold("seat", ttl=5, renew="yes")  # wrong: True
    shop.hold("seat", ttl=5, fence=7)  # wrong: the server counts them
    shop.hold("seat", ttl=5, limit=2.5)  # wrong: a whole number
    shop.hold("seat", ttl=5, on_outage="ignore")  # wrong: "open" or "closed"
    shop.hold("seat", ttl=5, on_late="log")  # wrong: "raise" or "ignore"
    shop.hold("seat", ttl=5, token=b"x")  # wrong: a token is text
    shop.try_hold("seat", ttl=5, renew=True)  # wrong: nothing renews it
    shop.try_hold("seat", ttl=5, on_late="raise")  # wrong: it has no block
    shop.peek(7)  # wrong: a key is text
    shop.leader("indexer", ttl=5, renew=True)  # wrong: it always is
    shop.leader("indexer", wait="1 s")  # wrong: a number


def submissions() -> None:
    shop.claim("order")  # wrong: for how long?
    shop.claim("order", ttl=5)  # wrong: `window`
    shop.claim("order", 60)  # wrong: options have names
    shop.claim("order", window="60")  # wrong: a number
    shop.claim("order", window=60, after="keep")  # wrong: "hold" or "replay"
    shop.claim("order", window=60, on_error="retry")  # wrong: "release" or "hold"
    shop.claim("order", window=60, message=3)  # wrong: text
    shop.claim("order", window=60, note=17)  # wrong: text
    shop.once("order:{key}", window=60, payload=[3])  # wrong: names of parameters
    shop.once("order:{key}", window=60, on_cancel="finish")  # wrong: "continue" or "stop"
    shop.once("order:{key}", window=60, retry="twice")  # wrong: how often
    shop.once("order:{key}", after="hold")  # wrong: no window


def values() -> None:
    shop.cached("menu")  # wrong: no ttl
    shop.cached("menu", 60)  # wrong: options have names
    shop.cached("menu", ttl=60, jitter="10 %")  # wrong: a fraction
    shop.cached("menu", ttl=60, stale="1 h")  # wrong: a number
    shop.cached("menu", ttl=60, expire=3)  # wrong: misspelt `ttl`
    shop.cached("menu", ttl=60, negative_ttl={"Gone": 3})  # wrong: classes, not their names
    shop.cached("menu", ttl=60, negative_ttl={Gone: "3"})  # wrong: a number
    shop.cached("menu", ttl=60, keep=True)  # wrong: a function
    shop.cached("menu", ttl=60, tags=[1, 2])  # wrong: text
    shop.cached("menu", ttl=60, load_timeout=None)  # wrong: every load ends
    shop.get_or_load("menu", ttl=60)  # wrong: no loader
    shop.get_or_load("menu", {"tea": 3}, ttl=60)  # wrong: a function
    shop.invalidate(3)  # wrong: a key is text
    shop.invalidate_tag(["menus"])  # wrong: one tag


def limits() -> None:
    shop.throttle("sms", limit=5)  # wrong: in which time?
    shop.throttle("sms", limit="5", per=1)  # wrong: a number
    shop.throttle("sms", limit=5, per=1, cost=0.5)  # wrong: whole units
    shop.throttle("sms", limit=5, per=1, also=[100, 3600])  # wrong: pairs
    shop.throttle("sms", limit=5, per=1, bursts=3)  # wrong: misspelt
    shop.quota("sms", limit=5, per="year")  # wrong: day, week or month
    shop.quota("sms", limit=5, per=3600)  # wrong: a period has a name


def schedules() -> None:
    shop.scheduled("0 3 * * *")  # wrong: schedules have a key
    shop.scheduled("0 3 * * *", key="a", missed="later")  # wrong: "once" or "skip"
    shop.scheduled(300, key="a")  # wrong: `every`
    shop.scheduled(every="5 min", key="a")  # wrong: a number
    shop.scheduled("0 3 * * *", key="a", timezone=8)  # wrong: a zone
    shop.scheduler(drain="3 s")  # wrong: a number
    shop.scheduler(3)  # wrong: options have names


def clients(settings: dict[str, Any]) -> None:
    Dibs()  # wrong: of which server?
    Dibs("redis://localhost", "shop:")  # wrong: options have names
    Dibs("redis://localhost", ttl=5)  # wrong: each call has its own
    Dibs("redis://localhost", on_outage="raise")  # wrong: "open" or "closed"
    Dibs("redis://localhost", budget="0.1")  # wrong: a number
    Dibs("redis://localhost", namespace=b"shop:")  # wrong: text
    Dibs("redis://localhost", listeners=print)  # wrong: a list of them
    Dibs("redis://localhost", listeners=["print"])  # wrong: functions
    Dibs(host="localhost", port=6379)  # wrong: a URL
    AsyncDibs("redis://localhost", on_outage=None)  # wrong: a client has a policy
    Dibs("redis://localhost", **settings).close(1)  # wrong: no arguments
