"""What is compared: each library with its defaults, and with what its documentation advises."""

from __future__ import annotations

from typing import NamedTuple

LOCK = ("lock", "long_work")
ONCE = ("duplicate", "crash")


class Entry(NamedTuple):
    """A row of the table."""

    library: str
    setting: str
    """What `libraries.py` knows it by; empty: its defaults."""
    says: str
    """The setting, for the reader."""
    verb: str
    """What is called in an outage and in a failover."""
    cases: tuple[str, ...]

    @property
    def name(self) -> str:
        """What results are filed under."""
        return f"{self.library} {self.setting}".strip()


ENTRIES = (
    Entry(
        "dibs",
        "",
        "",
        "lock",
        (*LOCK, *ONCE, "stampede", "throttle", "outage", "failover", "torture"),
    ),
    Entry("dibs", "closed", '`on_outage="closed"`', "lock", ("outage", "failover")),
    Entry("dibs", "within", "`once(within=)`", "order", ("crash",)),
    Entry("dibs", "even", "`throttle(burst=1)`", "throttle", ("throttle",)),
    Entry("dibs", "exact", "`throttle(exact=True)`", "throttle", ("throttle",)),
    Entry(
        "grelmicro",
        "",
        "",
        "lock",
        (*LOCK, *ONCE, "stampede", "throttle", "outage", "failover", "torture"),
    ),
    Entry("grelmicro", "short", "`lease_duration=10`", "lock", LOCK),
    Entry("grelmicro", "sliding", "`sliding_window`", "throttle", ("throttle",)),
    Entry(
        "redis-infra", "", "", "lock", (*LOCK, *ONCE, "stampede", "throttle", "outage", "failover")
    ),
    Entry("redis-infra", "patient", "`tries=1200, lock_ttl=60`", "cached", ("stampede",)),
    Entry("redis-py", "", "`Lock(timeout=10)`", "lock", (*LOCK, "outage", "failover")),
    Entry(
        "redis-py", "impatient", "`socket_timeout=0.25`, no retries", "lock", ("outage", "failover")
    ),
    Entry("python-redis-lock", "", "", "lock", (*LOCK, "outage", "failover")),
    Entry("python-redis-lock", "renewed", "`expire=10, auto_renewal=True`", "lock", LOCK),
    Entry("cashews", "", "", "lock", (*LOCK, "stampede", "throttle", "outage")),
    Entry("cashews", "lock", "`lock=True`", "cached", ("stampede",)),
    Entry("cachefence", "", "", "cached", ("stampede", "outage", "failover")),
    Entry("cachefence", "patient", "`wait_for_lock=60, lock_timeout=60`", "cached", ("stampede",)),
    Entry("flightlock", "", "", "cached", ("stampede", "outage", "failover")),
    Entry("idemkit", "", "", "once", (*ONCE, "outage", "torture")),
    Entry("idemkit", "lease", "`lease_ttl_seconds=10`", "once", ("crash",)),
    Entry("exactly-once", "", "", "once", (*ONCE, "outage")),
    Entry("exactly-once", "probed", "`check_then_decide`, `lease_ttl=10`", "once", ONCE),
    Entry("deduplex", "", "", "once", (*ONCE, "outage", "failover")),
    Entry("deduplex", "wait", '`on_race="wait"`', "once", ("duplicate",)),
    Entry("powertools", "", "a Lambda of 15 s", "once", (*ONCE, "outage", "failover")),
    Entry("dbos", "", "a workflow, SQLite", "order", ("crash",)),
    Entry("throttled-py", "", "", "throttle", ("throttle", "outage")),
    Entry("throttled-py", "sliding", "`SLIDING_WINDOW`", "throttle", ("throttle",)),
)
PACKAGES = {"powertools": "aws-lambda-powertools", "dibs": "pydibs", "redis-py": "redis"}
"""Where the package has another name."""
NAMES = {"powertools": "AWS Powertools", "dbos": "DBOS", "redis-py": "redis-py `Lock`"}
"""Where readers know it by another name."""
ALONE = frozenset({"stampede", "throttle", "failover", "torture"})
"""Cases that keep the machine busy: one at a time. The others wait, mostly."""
