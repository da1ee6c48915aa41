"""`ToolGuard`: what a model asks for again is done once, and the model learns why."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dibs import AsyncDibs, Busy, Dibs, Duplicate, Mismatch, Unavailable, UsageError
from dibs.integrations.agents import ToolGuard
from dibs.testing import FaultProxy, Server

from .agent_sdks import SDKS, Sdk

pytestmark = [
    pytest.mark.usefixtures("nothing_stays_open"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the SDKs
]
DAY = 86_400
FIVE = {"order": "o-7", "cents": 500}


class Bank:
    """Charges, and lets no charge end before it may."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def charge(self, order: str, cents: int) -> dict[str, int]:
        """Charge the card.

        Args:
            order: Which order.
            cents: How much.
        """
        self.charged.append(order)
        self.began.set()
        await self.may_end.wait()
        return {"charge": len(self.charged), "cents": cents}

    def tool(self, wrap: Callable[..., Any] = lambda function: function) -> Any:
        """A function of its own."""

        async def charge(order: str, cents: int) -> dict[str, int]:
            return await self.charge(order, cents)

        charge.__doc__ = inspect.getdoc(self.charge)
        return wrap(charge)


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    """Each SDK in turn."""
    return SDKS[request.param]()


@asynccontextmanager
async def charging(
    sdk: Sdk, server: Server, timeout: float | None = None, **options: Any
) -> AsyncIterator[Bank]:
    """A bank whose charge is the tool of *sdk*, once for each order. *timeout*: of the SDK."""
    options = {"window": DAY, "payload": ["cents"], **options}
    async with AsyncDibs(server.url, budget=5) as dibs:
        bank, guard = Bank(), ToolGuard(dibs, refusal=sdk.refusal)
        sdk.register(bank.tool(guard.once("charge:{order}", **options)), timeout)
        yield bank


async def test_the_model_sees_the_tool_as_it_is(sdk: Sdk, valkey: Server) -> None:
    """Name, description and parameters are those of the function without the guard."""
    plain = type(sdk)()
    plain.register(Bank().tool())
    async with charging(sdk, valkey):
        assert await sdk.schema() == await plain.schema()
        assert "How much" in str(await sdk.schema())


async def test_what_is_asked_for_three_times_at_once_is_done_once(sdk: Sdk, valkey: Server) -> None:
    """All three calls have the result of the one that ran, and so has a later one."""
    async with charging(sdk, valkey) as bank:
        told = [*await sdk.ask(FIVE, FIVE, FIVE), *await sdk.ask(FIVE)]
        assert bank.charged == ["o-7"]
        assert len(told) == 4 and len(set(told)) == 1 and not told[0].failed
        assert "charge" in told[0].text


async def test_other_values_are_refused_in_a_sentence(sdk: Sdk, valkey: Server) -> None:
    """The model is told which argument differs, and nothing else of the run is stopped."""
    async with charging(sdk, valkey) as bank:
        await sdk.ask(FIVE)
        refused, other = await sdk.ask({"order": "o-7", "cents": 600}, {"order": "o-8", "cents": 1})
        assert (
            "charge was called before for the same order, with other values of cents"
            in refused.text
        )
        assert refused.failed in (True, None) and not other.failed
        assert bank.charged == ["o-7", "o-8"]


async def test_who_asks_again_for_what_keeps_no_result_is_told_so(sdk: Sdk, valkey: Server) -> None:
    """It ended before: the model is to look, not to repeat."""
    async with charging(sdk, valkey, after="hold") as bank:
        await sdk.ask(FIVE)
        [told] = await sdk.ask(FIVE)
        assert "has ended; its result was not kept" in told.text and "ask the user" in told.text
        assert bank.charged == ["o-7"]


async def test_who_waits_no_longer_is_told_to_repeat_the_call(sdk: Sdk, valkey: Server) -> None:
    """While the first call runs."""
    async with charging(sdk, valkey, wait=0) as bank:
        bank.may_end.clear()
        first = asyncio.create_task(sdk.ask(FIVE))
        await bank.began.wait()
        [told] = await sdk.ask(FIVE)
        bank.may_end.set()
        assert "charge is still running for the same order" in told.text
        assert "exactly the same arguments in" in told.text
        assert not (await first)[0].failed and bank.charged == ["o-7"]


async def test_a_timeout_of_the_sdk_charges_once(sdk: Sdk, valkey: Server) -> None:
    """The work goes on without its caller; a call that comes after it has its result."""
    async with charging(sdk, valkey, timeout=0.1) as bank:
        bank.may_end.clear()
        while not bank.began.is_set():  # a slow machine may take longer than that to begin
            [told] = await sdk.ask(FIVE)
            assert "charge" not in told.text or "imed out" in told.text
        bank.may_end.set()
        while "cents" not in told.text:
            [told] = await sdk.ask(FIVE)
        assert bank.charged == ["o-7"]


# ---- what the sentences say, without an SDK


class Refused(Exception):
    """How a test tells a model of a failure."""


def guarded(dibs: Dibs) -> tuple[ToolGuard, list[str]]:
    """A guard, and what was done."""
    return ToolGuard(dibs, refusal=Refused), []


def test_a_plain_function_is_guarded_in_its_thread(valkey: Server) -> None:
    """With a `Dibs`; its result is replayed, and its message told as it is."""
    with Dibs(valkey.url, budget=5) as dibs:
        guard, done = guarded(dibs)

        @guard.once("mail:{to}", window=DAY)
        def mail(to: str) -> str:
            done.append(to)
            return f"sent to {to}"

        @guard.once("call:{to}", window=DAY, after="hold", message="They were called today.")
        def call(to: str) -> None:
            done.append(to)

        assert mail("ann") == mail("ann") == "sent to ann"
        call("bob")
        with pytest.raises(Refused, match=r"^They were called today\.$") as caught:
            call("bob")
        assert isinstance(caught.value.__cause__, Duplicate)
        assert done == ["ann", "bob"]


def test_what_is_no_exception_is_the_result(valkey: Server) -> None:
    """For SDKs that show their model what a tool returns."""
    with Dibs(valkey.url, budget=5) as dibs:
        guard = ToolGuard(dibs, refusal=str)

        @guard.once("call:{to}", window=DAY, after="hold")
        def call(to: str) -> str:
            return "called"

        assert call("bob") == "called"
        assert call("bob").startswith("call was called before for the same to and has ended")


def test_a_refusal_inside_is_not_told_as_one_of_the_call(valkey: Server) -> None:
    """The function had begun, so nothing says that the call did nothing."""
    with Dibs(valkey.url, budget=5) as dibs:
        guard, done = guarded(dibs)

        @guard.once("move:{box}", window=DAY)
        def move(box: str, error: str) -> None:
            done.append(box)
            raise {
                "busy": Busy("shelf", 3.0),
                "duplicate": Duplicate("part", 3.0, "done"),
                "mismatch": Mismatch("part"),
                "out": Unavailable("silent"),
            }[error]

        sentences: dict[str, str] = {}
        for error in ("busy", "duplicate", "mismatch", "out"):
            with pytest.raises(Refused) as caught:
                move(error, error)
            sentences[error] = str(caught.value)
        assert not any("did nothing" in each for each in sentences.values())
        assert "another call works on the same thing. Call it again in 3 s" in sentences["busy"]
        assert "a part of it was asked for before" in sentences["duplicate"]
        assert sentences["mismatch"] == sentences["duplicate"]
        assert "a service that it needs does not answer" in sentences["out"]
        assert len(done) == 4


def test_other_verbs_are_told_as_well(valkey: Server) -> None:
    """`told` above a function that another verb guards; errors of its own pass."""
    with Dibs(valkey.url, budget=5) as dibs:
        guard, done = guarded(dibs)

        @guard.told
        @dibs.throttled("search:{user}", limit=1, per=60)
        def search(user: str) -> None:
            done.append(user)
            if user == "wrong":
                raise LookupError(user)

        search("ann")
        with pytest.raises(Refused, match=r"^search was called too often\. Call it again in \d"):
            search("ann")
        with pytest.raises(LookupError):
            search("wrong")
        assert done == ["ann", "wrong"]


async def test_in_an_outage_the_model_is_told_that_nothing_was_done(proxy: FaultProxy) -> None:
    """With the policy "closed"; the same call, later, is the right one."""
    proxy.refuse()
    async with AsyncDibs(proxy.url, on_outage="closed") as dibs:

        @ToolGuard(dibs, refusal=Refused).once("mail:{to}", window=DAY)
        async def mail(to: str) -> str:
            raise AssertionError("not reached")

        with pytest.raises(Refused, match="so this call did nothing"):
            await mail("ann")


class RunContext:
    """Called as that of an SDK."""

    tool_call_id = "call-1"
    user = "ann"


@pytest.mark.parametrize(
    ("template", "payload"),
    [
        ("pay:{ctx.tool_call_id}", ()),
        ("pay:{order}:{ctx.request_id}", ()),
        ("pay:{order}", ["ctx.run_id"]),
        ("pay:{ctx}", ()),
        ("pay:{context}", ()),
        ("pay:{context:hash}", ()),
        ("pay:{tool_call_id}", ()),
    ],
)
def test_the_id_of_a_call_is_no_key(template: str, payload: Any) -> None:
    """A model that asks again makes another call, so it would be charged again."""
    guard = ToolGuard(AsyncDibs("redis://localhost"), refusal=Refused)

    async def pay(ctx: Any, context: "RunContext[None]", order: str, tool_call_id: str) -> None: ...

    with pytest.raises(UsageError, match="a model that asks again makes a new call"):
        guard.once(template, window=DAY, payload=payload)(pay)


async def test_what_a_context_says_of_the_user_is_a_key(valkey: Server) -> None:
    """Other paths from the context, which the model does not choose."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @ToolGuard(dibs, refusal=Refused).once("pay:{ctx.user}:{order}", window=DAY)
        async def pay(ctx: RunContext, order: str) -> str:
            return order

        assert await pay(RunContext(), "o-7") == "o-7"
        assert valkey.client().keys() == [b"pay:ann:o-7"]


@pytest.mark.parametrize(
    ("dibs", "refusal"), [("redis://localhost", Refused), (AsyncDibs("redis://localhost"), "text")]
)
def test_what_makes_no_guard_is_refused(dibs: Any, refusal: Any) -> None:
    """No client, or nothing that can be called."""
    with pytest.raises(UsageError):
        ToolGuard(dibs, refusal=refusal)
