"""The table of Dramatiq: actors with a plan, and every way to send them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage, GroupCallbacks, Middleware, MiddlewareError
from dramatiq.rate_limits.backends import RedisBackend as LimiterBackend

from dibs import Dibs
from dibs.integrations.dramatiq import unique
from dibs.testing import Server, eventually
from tests.integrations.jobs.conftest import running
from tests.integrations.jobs.job_control import STORE_URL, URL, JobFailed
from tests.integrations.jobs.table import (
    LEASE,
    LIMIT,
    PLANS,
    QUEUED,
    Facts,
    Fate,
    Workers,
    done,
    facts,
    next_step,
    wait_for_refusal,
    wait_until,
)

REFUSED = "refused by a middleware"


class Refusing(Middleware):
    """Of the application."""

    def before_process_message(self, broker: Any, message: Any) -> None:
        if REFUSED in message.args:
            raise MiddlewareError("before it starts")


broker = RedisBroker(url=URL, heartbeat_timeout=3000, maintenance_chance=1_000_000)
broker.add_middleware(CurrentMessage())
broker.add_middleware(GroupCallbacks(LimiterBackend(url=URL)))
broker.add_middleware(Refusing())
dramatiq.set_broker(broker)
dibs = Dibs(STORE_URL, namespace="unique:", budget=5)


def actor(**options: Any) -> Any:
    made = unique(dibs, "t:{key}", queued=QUEUED, lease=LEASE)
    return dramatiq.actor(actor_class=made, max_retries=3, throws=JobFailed, **options)


@actor()
def follow(key: str, plan: list[str]) -> None:
    message: Any = CurrentMessage.get_current_message()
    step = next_step(key, message.message_id, plan)
    if step == "fail":
        raise JobFailed(key)
    if step == "retry":
        raise dramatiq.Retry("as planned", delay=50)
    if step == "spin":  # an exception can be raised in a thread that runs Python
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.05)
    if step.startswith("copy"):
        copy(message, delay=1 if step == "copy later" else 0)
    if step == "copy":
        wait_for_refusal(key, message.message_id)
    done(key)


def copy(message: Any, delay: float) -> None:
    """The same message once more, as a broker delivers it again."""
    options = {**message.options, "redis_message_id": str(uuid.uuid4())}
    queue = "default"
    if delay:
        queue, options["eta"] = "default.DQ", int((time.time() + delay) * 1000)
    again = message.copy(options=options, queue_name=queue)
    broker.do_enqueue(queue, options["redis_message_id"], again.encode())


@dramatiq.actor
def caller(key: str) -> None:
    """Calls a unique actor."""
    follow(key, ["finish"])


@dramatiq.actor
def first_stage(key: str) -> str:
    return key


@dramatiq.actor
def group_is_done(key: str) -> None:
    done(f"{key}-group")


WAYS: dict[str, list[str]] = {
    "`send`": [],
    "`send_with_options`, delayed": [],
    "a message enqueued by hand": [],
    "in a pipeline": [],
    "by `Retry`": ["retry"],
}
ENDS = {name: plan for name, plan in PLANS.items() if not name.startswith("revoked")}
ENDS["kill -9"], ENDS["time limit"] = ["wait", "finish"], ["spin"]
WORKER = ("-m", "dramatiq", "tests.integrations.jobs.table_dramatiq", "--processes=1",
          "--threads=12", "--skip-logging")  # fmt: skip


class DramatiqCells:
    """Dramatiq with RedisBroker: one process, twelve threads."""

    ways, ends = WAYS, ENDS

    @contextmanager
    def workers(self, server: Server) -> Iterator[None]:
        self.running = Workers(lambda: running(server, *WORKER))
        with self.running:
            yield

    def close(self) -> None:
        broker.close()
        dibs.close()

    def expected(self, way: str, end: str) -> Facts:
        before, runs = len(WAYS[way]), 2 if end in ("retry", "kill -9") else 1
        return Facts(before + runs, int(end not in ("failure", "time limit")), is_free=True)

    def send_all(self, client: Any, keys: dict[tuple[str, str], str]) -> None:
        for (way, end), key in keys.items():
            self.send(way, end, key, [*WAYS[way], *ENDS[end]])
        doomed = {key: len(WAYS[way]) + 1 for (way, end), key in keys.items() if end == "kill -9"}
        others = [(pair, key) for pair, key in keys.items() if key not in doomed]
        wait_until(
            lambda: (
                all(facts(client, key).runs >= n for key, n in doomed.items())
                and all(facts(client, key) >= self.expected(*pair) for pair, key in others)
            )
        )
        self.running.kill_and_start()

    def send(self, way: str, end: str, key: str, plan: list[str]) -> Any:
        limit = {"time_limit": LIMIT * 1000, "max_retries": 0} if end == "time limit" else {}
        if end == "time limit" and "retry" in plan:
            limit["max_retries"] = 1
        if "delayed" in way:
            return follow.send_with_options(args=(key, plan), delay=200, **limit)
        if "hand" in way:
            return broker.enqueue(follow.message_with_options(args=(key, plan), **limit))
        if "pipeline" in way:
            piped = follow.message_with_options(args=(key, plan), pipe_ignore=True, **limit)
            return (first_stage.message(key) | piped).run()
        return follow.send_with_options(args=(key, plan), **limit)

    def is_quiet(self, client: Any) -> bool:
        return not any(client.hlen(f"dramatiq:{each}.msgs") for each in ("default", "default.DQ"))

    # ---- what else may happen to a message

    @property
    def fates(self) -> Any:
        return {
            "called as a function, in another actor": self.called,
            "an error in a middleware, before the actor": self.refused,
            "`max_age` is over": self.too_old,
            "the queue is emptied": self.flushed,
            "a duplicate in a group": self.in_a_group,
        }

    def called(self, fate: Fate) -> str:
        follow.send_with_options(args=(fate.key, ["finish"]), delay=3_600_000)
        caller.send(fate.key)
        eventually(lambda: fate.client.llen(f"done:{fate.key}") == 1, within=90)
        return "it runs, unguarded"

    def next_one(self, fate: Fate) -> str:
        eventually(lambda: not fate.client.exists(f"unique:t:{fate.key}"), within=90)
        follow.send(fate.key, ["finish"])
        eventually(lambda: facts(fate.client, fate.key) == (1, 1, True), within=90)
        return "the next one runs"

    def refused(self, fate: Fate) -> str:
        follow.send_with_options(args=(fate.key, REFUSED), max_retries=0)
        return self.next_one(fate)

    def too_old(self, fate: Fate) -> str:
        follow.send_with_options(args=(fate.key, ["finish"]), max_age=1, delay=100)
        return self.next_one(fate)

    def flushed(self, fate: Fate) -> str:
        message = follow.send_with_options(args=(fate.key, ["finish"]), delay=3_600_000)
        for each in ("", ".msgs"):
            fate.client.delete(f"dramatiq:default.DQ{each}")
        assert follow.send(fate.key, ["finish"]).message_id == message.message_id
        return "the key is kept for `queued`: a broker cannot be asked"

    def in_a_group(self, fate: Fate) -> str:
        follow.send_with_options(args=(fate.key, ["finish"]), delay=3_600_000)
        group = dramatiq.group([follow.message(fate.key, ["finish"]), first_stage.message("x")])
        group.add_completion_callback(group_is_done.message(fate.key))
        group.run()
        eventually(lambda: fate.client.llen(f"done:{fate.key}-group") == 1, within=30)
        return "it counts as processed: the completion callback runs"
