"""Programs with frameworks, jobs, schedules and limits that every checker must accept."""

from datetime import timedelta
from typing import Annotated, Any, assert_type
from zoneinfo import ZoneInfo

import celery  # type: ignore[import-untyped]
import dramatiq
import flask
import rq
from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]
from fastapi import Depends, FastAPI, Request
from rq import job as _job
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from taskiq import InMemoryBroker

from dibs import AsyncDibs, AsyncLease, Busy, Dibs, Unavailable
from dibs.integrations import asgi, fastapi, starlette, taskiq, wsgi
from dibs.integrations import celery as celery_dibs
from dibs.integrations import django as django_dibs
from dibs.integrations import dramatiq as dramatiq_dibs
from dibs.integrations import flask as flask_dibs
from dibs.integrations import rq as rq_dibs

shop = Dibs("redis://localhost")
kitchen = AsyncDibs("redis://localhost")
app = FastAPI()


# ---- FastAPI: endpoints, and leases that they depend on
async def user_of(request: Request) -> str | None:
    return request.headers.get("x-user")


fastapi.install(app, kitchen, user=user_of, secret="s", per_host=True)
PAYMENT = fastapi.Policy(window=timedelta(days=1), after="replay", key="required")
Held = Annotated[AsyncLease, Depends(fastapi.held("order:{number}", ttl=5, wait=1))]


@app.post("/orders/{number}")
@fastapi.once(PAYMENT)
async def order(number: int, lease: Held) -> dict[str, float]:
    return {"remaining": lease.remaining, "number": number}


@app.post("/sms", dependencies=[Depends(fastapi.throttled("sms:{user}", limit=3, per=60))])
@fastapi.prevent_duplicate_submit(interval=3)
def sms(user: str) -> str:
    return user


# ---- Flask
pages = flask.Flask("shop")
flask_dibs.install(pages, shop, user=lambda: flask.session.get("user"))


@pages.post("/orders/<int:number>")
@flask_dibs.once(window=10, after="hold", by=["path.number"])
def page(number: int) -> tuple[str, int]:
    return str(number), 201


# ---- Starlette
star = Starlette()
starlette.install(star, kitchen)


@starlette.once(window=10)
async def star_order(request: Request) -> JSONResponse:
    return JSONResponse({})


# ---- Django
@django_dibs.once(window=10, within=django_dibs.atomic())
def view(request: HttpRequest, number: int) -> HttpResponse:
    return HttpResponse(bytes(number))


# ---- any ASGI and WSGI application
POLICIES = [asgi.Policy("POST /orders", window=10), asgi.Policy("* /forms/*", window=3)]
asgi.DibsMiddleware(app, dibs=kitchen, policies=POLICIES, user=lambda scope: scope.get("user"))
wsgi.DibsMiddleware(pages.wsgi_app, dibs="redis://localhost", policies=POLICIES)


# ---- jobs
worker = celery.Celery("shop")
broker = InMemoryBroker()


@worker.task(base=celery_dibs.unique(shop, "report:{month}", until="start", alone=True))
def celery_report(month: int) -> int:
    return month


@rq_dibs.unique(shop, "report:{month}", on_duplicate="raise", until=60)
def rq_report(month: int) -> int:
    return month


@dramatiq.actor(actor_class=dramatiq_dibs.unique(shop, "report:{month}"))
def dramatiq_report(month: int) -> None:
    print(month)


@taskiq.unique(kitchen, "report:{month}", queued=timedelta(hours=1))
@broker.task
async def taskiq_report(month: int) -> int:
    return month


async def enqueue(queue: rq.Queue) -> _job.Job:
    dramatiq_report.send(3)
    await taskiq_report.kiq(3)
    assert_type(rq_report(3), int)
    return queue.enqueue(rq_report, 3)


# ---- schedules, for threads and for asyncio
@shop.scheduled("0 3 * * *", key="nightly", timezone=ZoneInfo("Asia/Taipei"), missed="skip")
def nightly() -> int:
    return 1


@kitchen.scheduled(every=timedelta(minutes=5), key="often", at_least=60, on_outage="open")
async def often() -> str:
    return "done"


async def run_schedules() -> str:
    assert_type(nightly(), int)
    with shop.scheduler(drain=3):
        pass
    async with kitchen.scheduler() as scheduler:
        scheduler.look()
    return await often()


# ---- one leader
def lead() -> None:
    while True:
        with shop.leader("indexer", ttl=15) as lease:
            while not lease.lost:
                print(lease.remaining)


# ---- limits: a key, a function, a calendar
def send(text: str) -> Any:
    try:
        shop.throttle("sms", limit=10, per=60, burst=3, also=[(100, 3600)], cost=len(text))
        used = shop.quota("letters", limit=1000, per="month", timezone="Asia/Taipei", cost=2)
        used.settle(1)
        return used.left
    except Busy as busy:
        return busy.retry_after
    except Unavailable:
        return None


@kitchen.throttled("api:{user}", limit=5, per=1, wait=3, busy=lambda error: 0)
async def call_api(user: str) -> int:
    return len(user)


async def use_limits() -> int:
    await kitchen.throttle("sms", limit=10, per=60, exact=True)
    return await call_api("ann")
