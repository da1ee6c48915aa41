"""Which answers are final, at every edge: only those are stored, and none is forgotten."""

import time
from typing import Any

import pytest

from dibs import UsageError
from dibs.testing import Server

from .edges import DECORATORS, opened
from .every_edge import KEYED, REPLAY, every_edge

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

PROBLEM = {"content-type": "application/problem+json"}
LATER: dict[str, tuple[int, dict[str, str], dict[str, Any]]] = {
    "409 with Retry-After": (409, {"retry-after": "5"}, {}),
    "404 with Retry-After": (404, {"retry-after": "5"}, {}),
    "423": (423, {}, {}),
    "busy": (409, {**PROBLEM, "retry-after": "5"}, {"type": "urn:dibs:busy"}),
    "another service's already-done": (409, PROBLEM, {"type": "urn:dibs:already-done"}),
    "unavailable": (503, {**PROBLEM, "retry-after": "1"}, {"type": "urn:dibs:unavailable"}),
    "another service's mismatch": (422, PROBLEM, {"type": "urn:dibs:payload-mismatch"}),
}


@every_edge
@pytest.mark.parametrize("case", LATER)
async def test_an_answer_that_says_later_is_never_stored(
    valkey: Server, edge: str, case: str
) -> None:
    """The client that obeys and comes back is processed."""
    async with opened(edge, valkey, on_error="hold", **REPLAY) as shop:
        shop.status, shop.headers, shop.facts = LATER[case]
        assert (await shop.post(headers=KEYED)).status == shop.status
        shop.status, shop.headers, shop.facts = 201, {}, {}
        done = await shop.post(headers=KEYED)
        assert (done.status, done.is_replay, done.json) == (201, False, {"order": 2})
        assert (await shop.post(headers=KEYED)).is_replay


@every_edge
@pytest.mark.parametrize("options", [{"after": "hold"}, {"after": "release"}, {"most": 4}], ids=str)
async def test_a_refusal_of_dibs_is_no_failure_of_the_work(
    valkey: Server, edge: str, options: dict[str, Any]
) -> None:
    """Also where responses are not stored, or this one is too long: on_error holds no key."""
    async with opened(edge, valkey, on_error="hold", **{**REPLAY, **options}) as shop:
        shop.status, shop.headers, shop.facts = LATER["unavailable"]
        assert (await shop.post(headers=KEYED)).status == 503
        shop.headers, shop.facts = {}, {}
        assert (await shop.post(headers=KEYED)).json == {"order": 2}
        assert (await shop.post(headers=KEYED)).status == 409


@every_edge
@pytest.mark.parametrize("status", [400, 422])
async def test_a_request_that_is_not_valid_may_be_corrected_under_its_key(
    valkey: Server, edge: str, status: int
) -> None:
    """By a middleware and by a decorator alike: the key belongs to no payload yet."""
    async with opened(edge, valkey, **REPLAY) as shop:
        shop.statuses = [status, 201]
        assert (await shop.post(body=b'{"dish": ""}', headers=KEYED)).status == status
        corrected = await shop.post(body=b'{"dish": "tea"}', headers=KEYED)
        assert (corrected.status, corrected.is_replay) == (201, False)


@every_edge
async def test_the_statuses_that_are_stored_can_be_chosen(valkey: Server, edge: str) -> None:
    """`store=` names each 4xx; what it does not name is released, 2xx is always stored."""
    async with opened(edge, valkey, store=[402, 404, 422], **REPLAY) as shop:
        for number, (status, is_stored) in enumerate(
            [(402, True), (404, True), (422, True), (409, False), (400, False), (200, True)]
        ):
            shop.status, keyed = status, {"idempotency-key": f"k-{number}"}
            assert (await shop.post(headers=keyed)).status == status
            again = await shop.post(headers=keyed)
            assert (again.status, again.is_replay) == (status, is_stored), status


@every_edge
async def test_the_first_answer_may_be_the_only_one(valkey: Server, edge: str) -> None:
    """`store="all"`, whatever it was; only what says later is processed again."""
    async with opened(edge, valkey, store="all", **REPLAY) as shop:
        for status in (500, 503, 502, 400, 401, 404, 422, 201):
            shop.status, keyed = status, {"idempotency-key": f"k-{status}"}
            first = await shop.post(headers=keyed)
            shop.status = 200
            again = await shop.post(headers=keyed)
            assert (first.status, again.status, again.is_replay) == (status, status, True)
            assert again.json == first.json
        shop.status, shop.headers, keyed = 409, {"retry-after": "1"}, {"idempotency-key": "k-later"}
        await shop.post(headers=keyed)
        shop.status, shop.headers = 201, {}
        assert (await shop.post(headers=keyed)).status == 201


@every_edge
async def test_a_final_4xx_is_stored_without_a_word(valkey: Server, edge: str) -> None:
    """A card that was declined; but a middleware cannot tell the 404 of an endpoint from others."""
    async with opened(edge, valkey, **REPLAY) as shop:
        for status in (402, 404, 409, 410):
            shop.status, keyed = status, {"idempotency-key": f"k-{status}"}
            await shop.post(headers=keyed)
            is_stored = status != 404 or edge in DECORATORS
            assert (await shop.post(headers=keyed)).is_replay is is_stored, status


# ---- what was done is not done again


PAYMENTS: dict[str, Any] = {**REPLAY, "on_outage": "closed", "on_error": "hold", "window": 86400}


def said(caplog: pytest.LogCaptureFixture) -> str:
    """The one warning."""
    warnings = [record.getMessage() for record in caplog.records if record.name == "dibs"]
    assert len(warnings) == 1, warnings
    return warnings[0]


@every_edge
async def test_an_answer_is_stored_although_its_lease_ran_out(
    valkey: Server, edge: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The key is free: the retry gets the answer, and a warning names the route."""
    async with opened(edge, valkey, **PAYMENTS) as shop:
        shop.during = valkey.flush
        assert (await shop.post(headers=KEYED)).status == 201
        again = await shop.post(headers=KEYED)
        assert (again.status, again.is_replay, len(shop.runs)) == (201, True, 1)
    assert said(caplog).startswith("POST ") and "its lease ran out" in said(caplog)


@pytest.mark.parametrize("edge", ["asgi", "starlette", "fastapi"])
async def test_an_async_endpoint_that_blocks_its_loop_is_done_once(
    valkey: Server, edge: str, caplog: pytest.LogCaptureFixture
) -> None:
    """For longer than its lease, so that nothing is renewed: a payment by a library that waits."""
    async with opened(edge, valkey, lease=1, **PAYMENTS) as shop:
        shop.during = lambda: time.sleep(1.5)
        assert (await shop.post(headers=KEYED)).status == 201
        again = await shop.post(headers=KEYED)
        assert (again.status, again.is_replay, len(shop.runs)) == (201, True, 1)
    assert "POST " in caplog.text


@every_edge
async def test_a_server_without_room_for_an_answer_knows_that_it_was_given(
    own_server: Server, edge: str, caplog: pytest.LogCaptureFixture
) -> None:
    """*done* takes the place of the claim: 409, and the work is not repeated."""
    client = own_server.client()
    client.config_set("maxmemory-policy", "noeviction")
    async with opened(edge, own_server, **PAYMENTS) as shop:
        shop.during = lambda: client.config_set("maxmemory", 1)
        assert (await shop.post(headers=KEYED)).status == 201
        client.config_set("maxmemory", 0)
        again = await shop.post(headers=KEYED)
        assert (again.status, again.json["type"]) == (409, "urn:dibs:already-done")
        assert "retry-after" not in again.headers and len(shop.runs) == 1
        assert 86_000_000 < client.pttl(own_server.keys()[0]) <= 86_400_050
    assert said(caplog).startswith("POST ") and "without it" in said(caplog)


def test_all_answers_are_not_stored_in_a_transaction() -> None:
    """A failure is rolled back, and its record with it."""
    from dibs.integrations.starlette import once

    async def pay(session: Any, request: Any) -> Any: ...

    with pytest.raises(UsageError, match="rolls back"):
        once(within=lambda: None, store="all", **PAYMENTS)(pay)  # type: ignore[arg-type]
