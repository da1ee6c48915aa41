"""`throttle`: so many calls of a key in a time, counted by the server, on every engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from dibs import AsyncDibs, Busy, Event, Unavailable, UsageError
from dibs.testing import FaultProxy, Server

from .._tasks import eventually, sleep
from ..events import kinds

KEY = "sms:42"


async def passed(dibs: AsyncDibs, number: int, **options: Any) -> int:
    """How many of *number* calls are let through."""
    count = 0
    for _ in range(number):
        try:
            await dibs.throttle(KEY, **options)
            count += 1
        except Busy:
            continue
    return count


async def test_a_burst_is_let_through_and_no_more(server: Server) -> None:
    """Five at once, from any process; the sixth is Busy until one is regained."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        assert await passed(one, 3, limit=5, per=3600) == 3
        assert await passed(two, 9, limit=5, per=3600) == 2
        with pytest.raises(Busy) as caught:
            await one.throttle(KEY, limit=5, per=3600)
        assert 600 < caught.value.retry_after <= 720, "an hour for five: one in twelve minutes"
        assert (caught.value.state, caught.value.holder, caught.value.key) == (
            "throttled", None, KEY,
        )  # fmt: skip
        assert str(caught.value).startswith("sms:* was called too often; try again in ")
        assert server.keys() == [KEY]


async def test_the_next_call_is_allowed_when_the_error_says_so(server: Server) -> None:
    """Not before `retry_after`, and at it."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        await dibs.throttle(KEY, limit=1, per=2)
        with pytest.raises(Busy) as caught:
            await dibs.throttle(KEY, limit=1, per=2)
        assert 0 < caught.value.retry_after <= 2
        await sleep(caught.value.retry_after + 0.002)
        await dibs.throttle(KEY, limit=1, per=2)


async def test_a_burst_of_its_own(server: Server) -> None:
    """More at once than the limit, or evenly spaced."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        assert await passed(dibs, 12, limit=5, per=3600, burst=10) == 10
        server.flush()
        assert await passed(dibs, 3, limit=5, per=3600, burst=1) == 1


async def test_what_is_used_expires(server: Server) -> None:
    """The key is kept until the whole burst is available again, and no longer."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        await dibs.throttle(KEY, limit=5, per=500)
        assert 90_000 < server.client().pttl(KEY) <= 100_050
        await dibs.throttle("soon", limit=100, per=1)
        await eventually(lambda: not server.client().exists("soon"))


async def test_a_call_costs_one_round_trip(valkey: Server) -> None:
    """One script: TIME, GET, SET."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        await dibs.throttle(KEY, limit=5, per=60)  # makes the script known
        before = valkey.command_counts()
        await dibs.throttle(KEY, limit=5, per=60)
        spent = valkey.command_counts() - before
        assert spent["evalsha"] == 1
        assert spent.total() - spent["info"] - spent["config|resetstat"] == 4, spent


@pytest.mark.parametrize("rate", ["12000000:2000000060000000", "99:2000009960000000"])
async def test_a_slower_rate_than_before_and_a_clock_that_was_set_back(
    server: Server, rate: str
) -> None:
    """What was used stays used; of another rate it counts as a whole burst at most."""
    written = 2 * 10**15
    server.client().set(KEY, f"dibs1 rate {written};{rate} 0123456789abcdef-1", px=60_000)
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(Busy) as caught:
            await dibs.throttle(KEY, limit=5, per=60)
        assert 0 < caught.value.retry_after <= 12


@pytest.mark.parametrize("value", ["text", "dibs1 done 0-1@a:1", "dibs1 rate now"])
async def test_another_value_is_not_touched(server: Server, value: str) -> None:
    """A lease, what a claim left, another program's: UsageError."""
    server.client().set(KEY, value)
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(UsageError, match=r"^\w+:\*: the key holds a value of another type"):
            await dibs.throttle(KEY, limit=5, per=60)
    assert server.client().get(KEY) == value.encode()


async def test_functions_are_throttled_by_their_arguments(server: Server) -> None:
    """Each key for itself; *busy* answers in place of the function."""
    async with AsyncDibs(server.url, budget=5, namespace="shop:") as dibs:

        @dibs.throttled("sms:{user}", limit=1, per=3600)
        async def send(user: int, text: str) -> str:
            return text

        @dibs.throttled("mail:{user}", limit=1, per=3600, busy=lambda error: error.name)
        async def mail(user: int) -> str:
            return "sent"

        assert await send(1, "a") == "a" and await send(2, text="b") == "b"
        with pytest.raises(Busy, match=r"^sms:{user} was called too often"):
            await send(1, "c")
        assert [await mail(1), await mail(1)] == ["sent", "mail:{user}"]
        assert sorted(server.keys()) == ["shop:mail:1", "shop:sms:1", "shop:sms:2"]
        with pytest.raises(UsageError):
            dibs.throttled("sms:{nobody}", limit=1, per=1)(send)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0, "per": 60},
        {"limit": True, "per": 60},
        {"limit": 1.5, "per": 60},
        {"limit": 5, "per": 0},
        {"limit": 5, "per": 60, "burst": 0},
        {"limit": 1, "per": 10**8, "burst": 100},
        {"limit": 5, "per": 60, "on_outage": "ajar"},
    ],
)
async def test_an_option_that_is_invalid_is_refused_before_any_request(
    options: dict[str, Any],
) -> None:
    """UsageError; nothing is connected."""
    async with AsyncDibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError):
            await dibs.throttle(KEY, **options)
        with pytest.raises(TypeError):
            await dibs.throttle(KEY, limit=5)  # type: ignore[call-arg]


async def test_events_have_names_and_no_keys(server: Server) -> None:
    """passed, throttled with its `retry_after`; the name is the template, or what was given."""
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        assert await passed(dibs, 2, limit=1, per=3600, name="sms:{user}") == 1
        await dibs.throttle("mail:7", limit=1, per=60)
    assert kinds(events) == ["passed", "throttled", "passed"]
    assert [event.name for event in events] == ["sms:{user}", "sms:{user}", "mail:*"]
    assert events[0].guarded is True
    assert events[1].retry_after is not None and 3000 < events[1].retry_after <= 3600


async def test_in_an_outage_the_policy_decides(line: FaultProxy) -> None:
    """open: let through, and marked; closed: Unavailable."""
    line.refuse()
    events: list[Event] = []
    async with AsyncDibs(line.url, listeners=[events.append]) as dibs:
        assert await passed(dibs, 3, limit=1, per=3600) == 3
        with pytest.raises(Unavailable):
            await dibs.throttle(KEY, limit=1, per=3600, on_outage="closed")
    assert kinds(events) == ["outage", "passed"] * 3 + ["outage"]
    assert [event.guarded for event in events] == [None, False] * 3 + [True]


async def test_a_client_that_is_closed_counts_nothing(server: Server) -> None:
    """UsageError, as for every verb."""
    dibs = AsyncDibs(server.url)
    await dibs.aclose()
    with pytest.raises(UsageError, match="closed"):
        await dibs.throttle(KEY, limit=1, per=60)
    assert server.keys() == []


# ---- requests that are repeated


@pytest.fixture
def own_line(server: Server) -> Iterator[FaultProxy]:
    """A line on which requests and replies can be held back."""
    with FaultProxy(server.port) as proxy:
        yield proxy


async def test_a_request_whose_reply_was_lost_counts_once(
    server: Server, own_line: FaultProxy
) -> None:
    """The last call that is left: it was counted, its reply is lost, the repeat is let through."""
    async with AsyncDibs(own_line.url, budget=1) as dibs:
        assert await passed(dibs, 4, limit=5, per=3600) == 4
        own_line.swallow_replies(match=KEY.encode())
        await dibs.throttle(KEY, limit=5, per=3600, on_outage="closed")
        assert own_line.triggered == 1
        assert await passed(dibs, 1, limit=5, per=3600) == 0


async def test_a_copy_that_arrives_late_is_not_counted_again(
    server: Server, own_line: FaultProxy
) -> None:
    """The repeat was counted, then the first copy arrives, where the server did not end it."""
    async with AsyncDibs(own_line.url, budget=1) as dibs:
        await dibs.throttle(KEY, limit=5, per=3600)
        own_line.hold_requests(match=KEY.encode())
        await dibs.throttle(KEY, limit=5, per=3600, on_outage="closed")
        assert own_line.triggered == 1
        own_line.deliver()
        for _ in range(3):
            server.client().ping()
        assert await passed(dibs, 5, limit=5, per=3600) == 3
