"""Jobs of three frameworks that run in a transaction, and die where a test wants them to."""

from __future__ import annotations

import os
import signal
from typing import Any
from uuid import uuid4

import dramatiq
from celery import Celery
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session, sessionmaker

from dibs import Dibs, Event
from dibs.integrations import celery as for_celery
from dibs.integrations import dramatiq as for_dramatiq
from dibs.integrations import rq as for_rq
from tests.integrations.jobs.job_control import URL, client_of

DATABASE = os.environ.get("JOBS_DATABASE", "sqlite://")
LEASE = 2

engine = create_engine(DATABASE)
sessions = sessionmaker(engine)
client = client_of(URL)


def die_if_asked(moment: str) -> None:
    """The test has asked for a death at this *moment*, once."""
    if client.getdel(f"die:{moment}"):
        os.kill(os.getpid(), signal.SIGKILL)


@event.listens_for(sessions, "after_commit")
def committed(session: Session) -> None:
    if "key" in session.info:
        die_if_asked(f"committed:{session.info['key']}")


def told(fact: Event) -> None:
    """Redis knows of the end, and the framework does not."""
    if fact.kind in ("completed", "released") and fact.name.startswith("pay"):
        die_if_asked("told")


dibs = Dibs(URL, namespace="within:", budget=5, listeners=[told])


def pay(session: Session, key: str) -> dict[str, str]:
    """The work."""
    client.rpush(f"every:{key}", "run")
    number = uuid4().hex
    session.info["key"] = key
    session.execute(text(f"INSERT INTO payments VALUES ('{key}', '{number}')"))
    return {"number": number}


PAID: dict[str, Any] = {"until": 3600, "within": sessions.begin, "lease": LEASE}
DONE: dict[str, Any] = {"until": "end", "within": sessions.begin, "lease": LEASE}

app = Celery("within", broker=URL, backend=URL)
app.conf.update(broker_connection_retry_on_startup=True, task_default_retry_delay=0)
LATE = {"acks_late": True, "reject_on_worker_lost": True}


@app.task(base=for_celery.unique(dibs, "pay:{key}", **PAID), **LATE)
def celery_paid(session: Session, key: str) -> Any:
    return pay(session, key)


@app.task(base=for_celery.unique(dibs, "pay-ended:{key}", **DONE), **LATE)
def celery_done(session: Session, key: str) -> Any:
    return pay(session, key)


@app.task(base=for_celery.unique(dibs, "pay-retried:{key}", **PAID), bind=True, **LATE)
def celery_retried(self: Any, session: Session, key: str) -> Any:
    paid = pay(session, key)
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return paid


@for_rq.unique(dibs, "pay:{key}", **PAID)
def rq_paid(session: Session, key: str) -> Any:
    return pay(session, key)


@for_rq.unique(dibs, "pay-ended:{key}", **DONE)
def rq_done(session: Session, key: str) -> Any:
    return pay(session, key)


@for_rq.unique(dibs, "pay-retried:{key}", **PAID)
def rq_retried(session: Session, key: str) -> Any:
    from rq import Retry

    paid = pay(session, key)
    return Retry(max=2) if client.llen(f"every:{key}") < 3 else paid


broker = RedisBroker(url=URL, heartbeat_timeout=3000, maintenance_chance=1_000_000)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)


@dramatiq.actor(actor_class=for_dramatiq.unique(dibs, "pay:{key}", **PAID), store_results=True)
def dramatiq_paid(session: Session, key: str) -> Any:
    return pay(session, key)


@dramatiq.actor(
    actor_class=for_dramatiq.unique(dibs, "pay-ended:{key}", **DONE), store_results=True
)
def dramatiq_done(session: Session, key: str) -> Any:
    return pay(session, key)


@dramatiq.actor(
    actor_class=for_dramatiq.unique(dibs, "pay-retried:{key}", **PAID), store_results=True
)
def dramatiq_retried(session: Session, key: str) -> Any:
    paid = pay(session, key)
    if client.llen(f"every:{key}") < 3:
        raise dramatiq.Retry("again", delay=0)
    return paid
