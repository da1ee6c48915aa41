"""What other projects' own suites ask of them, asked of us.

idemkit, asgi-idempotency-header and ronango/fastapi-idempotency: each behaviour that their tests
check and that is one of a guard, not of their code. What we do otherwise is listed at the end,
with the sentence of our documentation that says so.
"""

import asyncio
from typing import Any

import pytest

from dibs import AsyncDibs, Event
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.testing import Server

from . import Call, answer, read
from .edges import Gate, opened

KEYED = {"idempotency-key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}
REPLAY: dict[str, Any] = {"after": "replay", "key": "only"}
EDGES = ("asgi", "wsgi", "starlette", "fastapi", "flask", "django", "drf")
every_edge = pytest.mark.parametrize("edge", EDGES)


# ---- all three: a key names a submission


@every_edge
async def test_a_second_request_with_the_key_is_replayed(valkey: Server, edge: str) -> None:
    """The handler runs once; status and body are those of the first, and it says so."""
    async with opened(edge, valkey, **REPLAY) as shop:
        first, again = await shop.post(headers=KEYED), await shop.post(headers=KEYED)
        assert (again.status, again.body) == (first.status, first.body) and len(shop.runs) == 1
        assert again.is_replay and not first.is_replay


@every_edge
async def test_without_a_key_requests_pass(valkey: Server, edge: str) -> None:
    """Each runs, none is stored."""
    async with opened(edge, valkey, **REPLAY) as shop:
        for number in (1, 2):
            assert (await shop.post()).json == {"order": number}
        assert valkey.keys() == []


@every_edge
async def test_a_key_may_be_required(valkey: Server, edge: str) -> None:
    """400 without it, and nothing runs; an empty one is malformed, not missing."""
    async with opened(edge, valkey, after="replay", key="required") as shop:
        missing, empty = await shop.post(), await shop.post(headers={"idempotency-key": ""})
        assert (missing.status, missing.json["type"]) == (400, "urn:dibs:key-missing")
        assert (empty.status, empty.json["type"]) == (400, "urn:dibs:key-malformed")
        assert shop.runs == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_methods_that_change_nothing_pass(valkey: Server, method: str) -> None:
    """Key or no key, with a policy for all methods."""
    async with opened("asgi", valkey, route="* /*", after="replay", key="required") as shop:
        for _ in range(2):
            assert (await Call(shop.app, f"{method} /orders", headers=KEYED).run()).status == 201
        assert len(shop.runs) == 2 and valkey.keys() == []


@every_edge
@pytest.mark.parametrize("key", ["k" * 256, "caf\xe9", "a b"], ids=["long", "not ASCII", "space"])
async def test_a_key_that_is_none(valkey: Server, edge: str, key: str) -> None:
    """400, without running anything."""
    async with opened(edge, valkey, **REPLAY) as shop:
        assert (await shop.post(headers={"idempotency-key": key})).status == 400
        assert shop.runs == []


@every_edge
async def test_another_payload_is_a_422(valkey: Server, edge: str) -> None:
    """Another body, or another query; another path is another place."""
    async with opened(edge, valkey, **REPLAY) as shop:
        await shop.post(headers=KEYED)
        assert (await shop.post(body=b"[1]", headers=KEYED)).status == 422
        assert (await shop.post("/orders?a=1", headers=KEYED)).status == 422
        assert (await shop.post("/payments", headers=KEYED)).status == 201
        assert len(shop.runs) == 2


@every_edge
async def test_at_once_one_runs(valkey: Server, edge: str) -> None:
    """The others get a 409 with Retry-After."""
    async with opened(edge, valkey, **REPLAY) as shop:
        shop.gate = Gate()
        first = asyncio.create_task(shop.post(headers=KEYED))
        await shop.gate.begun()
        refused = await shop.post(headers=KEYED)
        assert refused.status == 409 and int(refused.headers["retry-after"]) >= 1
        shop.gate.open()
        assert (await first).status == 201 and len(shop.runs) == 1


@every_edge
async def test_a_5xx_is_not_kept(valkey: Server, edge: str) -> None:
    """The retry runs."""
    async with opened(edge, valkey, **REPLAY) as shop:
        shop.statuses = [503, 201]
        assert [(await shop.post(headers=KEYED)).status for _ in range(2)] == [503, 201]


# ---- idemkit


async def test_cookies_are_sent_once_and_all_of_them(valkey: Server) -> None:
    """Both lines on the first answer, none on a replay; what says where it is, on both."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        lines = [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("etag", '"1"'), ("location", "/1")]
        await answer(send, headers=[*lines, ("authorization", "Bearer secret")])

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        policies = [Policy("POST /orders", window=60, **REPLAY)]
        guarded = DibsMiddleware(app, dibs=dibs, policies=policies)
        first = await Call(guarded, headers=KEYED).run()
        again = await Call(guarded, headers=KEYED).run()
    assert [line for line in first.header_lines if line[0] == "set-cookie"] == [
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]
    assert {"set-cookie", "authorization"}.isdisjoint(again.headers)
    assert again.headers["etag"] == '"1"' and again.headers["location"] == "/1"


@every_edge
async def test_tenants_are_apart(valkey: Server, edge: str) -> None:
    """By what the application says, in any spelling of the header."""
    async with opened(edge, valkey, site={"user": "x-tenant"}, **REPLAY) as shop:
        for number, tenant in enumerate(("a", "b"), start=1):
            for replayed in (False, True):
                reply = await shop.post(headers={**KEYED, "x-tenant": tenant})
                assert (reply.is_replay, len(shop.runs)) == (replayed, number)


@every_edge
async def test_quotes_do_not_make_another_key(valkey: Server, edge: str) -> None:
    """As the draft writes it, or as most clients do."""
    async with opened(edge, valkey, **REPLAY) as shop:
        await shop.post(headers={"idempotency-key": "abc"})
        assert (await shop.post(headers={"idempotency-key": '"abc"'})).is_replay


@pytest.mark.parametrize(("size", "is_kept"), [(12, True), (11, False)])
async def test_an_answer_up_to_the_limit_is_kept(valkey: Server, size: int, is_kept: bool) -> None:
    """Exactly at it, too."""
    async with opened("asgi", valkey, most=size, **REPLAY) as shop:
        first = await shop.post(headers=KEYED)
        assert len(first.body) == 12
        assert (await shop.post(headers=KEYED)).is_replay is is_kept and len(shop.runs) == 1


@pytest.mark.parametrize(("policy", "status"), [("open", 201), ("closed", 503)])
async def test_without_a_store_the_policy_decides(
    own_server: Server, policy: Any, status: int
) -> None:
    """Closed: 503 with Retry-After, and nothing runs."""
    own_server.kill()
    async with opened("asgi", own_server, on_outage=policy, **REPLAY) as shop:
        reply = await shop.post(headers=KEYED)
        assert reply.status == status and len(shop.runs) == (status == 201)
        assert ("retry-after" in reply.headers) is (status == 503)


async def test_what_happens_is_told_and_a_listener_that_breaks_breaks_nothing(
    valkey: Server,
) -> None:
    """Claimed, replayed, mismatch; without the key."""
    events: list[Event] = []

    def broken(event: Event) -> None:
        events.append(event)
        raise RuntimeError("of a listener")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await answer(send)

    async with AsyncDibs(valkey.url, budget=5, listeners=[broken]) as dibs:
        policies = [Policy("POST /orders", window=60, **REPLAY)]
        guarded = DibsMiddleware(app, dibs=dibs, policies=policies)
        for body in (b"{}", b"{}", b"[]"):
            await Call(guarded, headers=KEYED, body=body).run()
    assert {event.kind for event in events} >= {"claimed", "replayed", "mismatch"}
    assert KEYED["idempotency-key"] not in str(events)


# ---- ronango/fastapi-idempotency


@pytest.mark.parametrize("cuts", [0, 100])
async def test_a_body_at_the_limit_passes_and_one_above_is_a_413(valkey: Server, cuts: int) -> None:
    """In one piece or in many, and the handler sees all of it."""
    async with opened("asgi", valkey, body_limit=1000, **REPLAY) as shop:
        assert (await shop.post(body=b"x" * 1000, headers=KEYED, cuts=cuts)).status == 201
        over = {"idempotency-key": "other"}
        assert (await shop.post(body=b"x" * 1001, headers=over, cuts=cuts)).status == 413
        assert len(shop.runs) == 1


async def test_a_claim_of_a_crashed_process_is_free_after_its_lease(valkey: Server) -> None:
    """No cleanup is needed."""
    async with opened("asgi", valkey, lease=0.2, **REPLAY) as shop:
        await shop.post(headers=KEYED)
        [key] = valkey.keys()
        client = valkey.client()
        client.set(key, b"1f00d-1 - 1@host:1", px=200)  # as a process leaves it that was killed
        while (reply := await shop.post(headers=KEYED)).status != 201:
            assert reply.status == 409
            await asyncio.sleep(0.02)
        assert len(shop.runs) == 2


async def test_who_cannot_be_told_is_not_served(valkey: Server) -> None:
    """What `user=` raises is raised, and the handler does not run."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("must not run")

    def broken(scope: Any) -> str:
        raise LookupError("no such tenant")

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        policies = [Policy("POST /orders", window=60, **REPLAY)]
        guarded = DibsMiddleware(app, dibs=dibs, policies=policies, user=broken)
        with pytest.raises(LookupError, match="no such tenant"):
            await Call(guarded, headers=KEYED).run()
    assert valkey.keys() == []


async def test_a_message_of_the_application_is_not_changed(valkey: Server) -> None:
    """What it sends is sent, as the very object."""
    sent: list[Any] = []
    start = {"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"1")]}
    before = {**start, "headers": list(start["headers"])}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await send(start)
        await send({"type": "http.response.body", "body": b""})

    async def sending(message: Any) -> None:
        sent.append(message)

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        policies = [Policy("POST /orders", window=60, **REPLAY)]
        guarded = DibsMiddleware(app, dibs=dibs, policies=policies)
        await Call(guarded, headers=KEYED, sending=sending).run()
    assert sent[0] is start and start == before
