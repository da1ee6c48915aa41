"""The end of a response under ASGI: what ends with it, before its client has the whole of it."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, Unpack

from .._http.policy import Policy
from .._http.responses import Completion, Recording
from .._internal_api import HoldKeywords
from ..errors import LeaseLost, UsageError
from ._async.http_claims import end_claim, how_it_ended
from ._request_transaction import STREAMED, OpenTransaction, warn_of_success

if TYPE_CHECKING:
    from .. import AsyncDibs, AsyncLease
    from .._internal_api import AsyncClaim, How

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_FILES = ("http.response.pathsend", "http.response.zerocopysend")


class Recorder:
    """The claim of a request, and its response as far as that is stored."""

    __slots__ = ("_how", "_policy", "_recording", "claim", "is_rolled_back", "transaction")

    def __init__(self, policy: Policy, claim: "AsyncClaim", path: str | None = None) -> None:
        """*path*: of the request, if its router may redirect it."""
        self.claim = claim
        self._policy = policy
        self._recording = Recording(policy.record_limit, path)
        self._how: How | None = None
        """How the request has ended; None: its response is not complete."""
        self.transaction: OpenTransaction | None = None
        """It ends before anything of the response is sent."""
        self.is_rolled_back = False
        """The endpoint has raised in its transaction."""

    def record(self, message: Message, *, is_complete: bool) -> None:
        """Record a message. Raises UsageError if a stream cannot be stored in a transaction."""
        kind = message["type"]
        if kind == "http.response.start":
            self._recording.begin(message["status"], message.get("headers", ()))
        elif kind == "http.response.body":
            self._recording.add(message.get("body", b""))
        elif kind in _FILES:
            self._recording.discard()
        if self.transaction is not None and (
            kind in _FILES or (kind == "http.response.body" and not is_complete)
        ):
            raise UsageError(STREAMED)

    @property
    def is_kept(self) -> bool:
        """Return True if the response will be stored, also if its client leaves."""
        policy = self._policy
        is_stored = policy.record_limit is not None and policy.on_disconnect == "finish"
        return is_stored and self._recording.is_storable

    async def decide(self) -> None:
        """The response is complete: end the transaction by it. Raises what the commit raises."""
        if not self.claim.is_open:
            return
        self._how = how_it_ended(self.claim, self._policy, self._recording)
        if self.transaction is not None:
            await self.transaction.end(self._how)
        elif self.is_rolled_back:
            warn_of_success(self.claim.name, self._recording.status)

    async def end(self) -> None:
        """End the claim, as was decided."""
        if self._how is not None and self.claim.is_open:
            await self.claim.end(self._how)

    async def leave(self) -> None:
        """The response was begun, and will not be completed: its client has left a stream."""
        if not self._recording.status or self.transaction is not None or not self.claim.is_open:
            return
        if self._policy.on_disconnect == "release":
            await self.claim.fail()
            return
        self._recording.discard()  # the work was done, only the response is incomplete
        await end_claim(self.claim, self._policy, self._recording)

    async def close(self) -> None:
        """End the claim, if it is still open.

        The application ended by an error, by cancellation, or without a response. A detached claim
        stays detached if there was a response.
        """
        try:
            if self.transaction is not None:
                await self.transaction.roll_back()
                await self.transaction.carry_out()
        finally:
            if self.claim.is_open or not self._recording.status:
                # In a task that is cancelled again here, the release is delivered nevertheless.
                await self.claim.fail()


class RequestLeases:
    """What one request holds.

    It is released before the response is complete for its client, as a claim is: who has the whole
    response can ask again at once, and a stream is held to its end. Background tasks of the
    application do not hold it.
    """

    def __init__(self, dibs: "AsyncDibs") -> None:
        self._dibs = dibs
        self._stack = AsyncExitStack()
        self._held: list[tuple[AsyncLease, bool]] = []

    async def take(
        self, key: str, name: str | None, **options: Unpack[HoldKeywords]
    ) -> "AsyncLease":
        """Hold *key*. Raises Busy if another holder has it.

        Raises Unavailable if the store is out.
        """
        hold = self._dibs.hold(key, name=name, **options)
        lease = await self._stack.enter_async_context(hold)
        self._held.append((lease, options.get("on_late") == "raise"))
        return lease

    def check(self) -> None:
        """Raise LeaseLost if a lease with on_late="raise" was lost."""
        for lease, is_strict in self._held:
            try:
                lease.check()
            except LeaseLost as error:
                if is_strict and error.state == "lost":  # not one that the endpoint has released
                    raise

    async def release(self) -> None:
        """End the leases before the response is complete.

        Raises LeaseLost if it is too late for that.
        """
        self.check()
        # Not by the stack: a stream is sent by another task than the one that took the lease,
        # and only that one can be cancelled when it is lost.
        while self._held:
            await self._held.pop()[0].release()

    async def leave(self, error: BaseException | None) -> None:
        """End the leases after the application has returned, or raised *error*.

        LeaseLost: the loss of a lease stopped it, or it ended too late.
        """
        trace = None if error is None else error.__traceback__
        await self._stack.__aexit__(None if error is None else type(error), error, trace)


class RequestEnd:
    """Passes the response of a request on, and ends what ends with it.

    Before the message with which the client has the whole response, in this order:

    1. the transaction of `within=` commits, or is rolled back;
    2. the dependencies of FastAPI end. Since 0.118, those with `yield` end after the response: a
       session would commit, or fail to, when the client has its success;
    3. what has waited for the commit is carried out, and the leases of the request are released;
    4. its claim ends, and the response is stored.

    An error in 1 and 2 is raised to the application: nothing is complete yet, and the client gets a
    500, or a response that is cut off. Background tasks come after all this.
    """

    __slots__ = (
        "_completion", "_finds_opener", "_held", "_is_over", "_opener", "_receive", "_scope",
        "_send", "_stage", "leases", "recorder",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        opener: "asyncio.Task[Any] | None" = None,
    ) -> None:
        """*opener*: the task in which FastAPI runs the endpoint; None: not known yet."""
        self._scope = scope
        self._receive = receive
        self._send = send
        self._opener = opener
        self._finds_opener = opener is None
        self._completion: Completion | None = None
        """None: the response has not begun."""
        self._held: list[Message] = []
        """What is sent when all has ended."""
        self._stage: Literal["open", "ending", "decided", "ended", "failed"] = "open"
        """decided: it waits for the end of the application. failed: a commit, or a dependency."""
        self._is_over: asyncio.Event | None = None
        """Set when the application may learn that its client has left."""
        self.recorder: Recorder | None = None
        self.leases: RequestLeases | None = None

    async def run(self, app: App) -> None:
        """Run the application. Raises what it raises, which ends its claim."""
        try:
            await app(self._scope, self.receive, self.send)
            await self.finish()
        finally:
            if self.recorder is not None:
                await self.recorder.close()

    # ---- what the application receives

    async def receive(self) -> Message:
        """Return what the server sends.

        That the client has left is kept from an application whose response will be stored.
        """
        if self._finds_opener and self._completion is None and self._open_stack() is not None:
            # Code of FastAPI reads the body, with its dependencies open: this is the task to which
            # they belong, if it is also the one that sends the response.
            self._opener = asyncio.current_task()
        message = await self._receive()
        if message["type"] == "http.disconnect" and self._is_kept:
            self._is_over = self._is_over or asyncio.Event()
            await self._is_over.wait()
        return message

    @property
    def _is_kept(self) -> bool:
        """True: the response is stored when it is complete, whether or not anybody gets it."""
        is_open = self._stage in ("open", "ending")
        return is_open and self.recorder is not None and self.recorder.is_kept

    # ---- what it sends

    async def send(self, message: Message) -> None:
        """Pass on, now or later. Raises what a commit or a dependency raises."""
        if self._stage == "decided":
            self._held.append(message)
        elif self._stage != "open":
            await self._send(message)
        elif self._record_message(message):
            await self._complete_response(message)
        elif self._must_wait(message):
            self._held.append(message)
        else:
            if self._held:
                await self._send_held()
            await self._send_on(message)

    def _record_message(self, message: Message) -> bool:
        """Record a message. Returns whether the client has the whole response with it."""
        kind, is_complete = message["type"], False
        if kind == "http.response.start":
            method, headers = str(self._scope["method"]).upper(), message.get("headers", ())
            self._completion = Completion(method, message["status"], headers)
            is_complete = self._completion.is_complete
        elif self._completion is not None and kind in ("http.response.body", *_FILES):
            size = message.get("count", 0) if kind in _FILES else len(message.get("body", b""))
            is_last = kind == "http.response.pathsend" or not message.get("more_body")
            is_complete = self._completion.add(size, is_last=is_last)
        if self.recorder is not None:
            self.recorder.record(message, is_complete=is_complete)
            if self._is_over is not None and not self.recorder.is_kept:
                self._is_over.set()
        return is_complete

    def _must_wait(self, message: Message) -> bool:
        """Return True if the response begins, and its start waits for what may complete it.

        If a commit fails, nothing is sent yet, and the client gets a 500.
        """
        if message["type"] != "http.response.start" or self._completion is None:
            return False
        if self.recorder is not None and self.recorder.transaction is not None:
            return True
        return self._completion.has_length and self._open_stack() is not None

    async def _complete_response(self, message: Message) -> None:
        """End all that ends with the response, then send what completes it."""
        self._stage = "ending"
        try:
            is_over = await self._decide_transaction()
            if is_over:
                await self._end_claim()
        except BaseException:
            self._stage = "failed"
            raise
        finally:
            if self._is_over is not None:
                self._is_over.set()
        if not is_over:
            self._stage = "decided"
            self._held.append(message)
            return
        if self._held:
            await self._send_held()
        await self._send(message)

    async def _decide_transaction(self) -> bool:
        """Commit, and end the dependencies. False: that is left to the application."""
        if self.leases is not None:
            self.leases.check()
        if self.recorder is not None:
            await self.recorder.decide()
        stack = self._open_stack()
        if stack is None:
            return True
        if asyncio.current_task() is not self._opener:
            # Only the task that has entered the dependencies can end them. It does when the message
            # seems to be sent, and the application returns.
            return False
        await stack.aclose()
        return True

    async def _end_claim(self) -> None:
        """Release what was held, and end the claim."""
        if self.recorder is not None and self.recorder.transaction is not None:
            await self.recorder.transaction.carry_out()
        if self.leases is not None:
            await self.leases.release()
        if self.recorder is not None:
            await self.recorder.end()
        self._stage = "ended"

    async def finish(self) -> None:
        """The application has returned: end what could not be ended before.

        If it began a response and did not complete it, its client has left.
        """
        if self._stage == "decided":
            await self._end_claim()
            await self._send_held()
        elif self._stage == "open":
            await self._send_held()
            if self.recorder is not None:
                await self.recorder.leave()

    async def _send_held(self) -> None:
        held, self._held = self._held, []
        for message in held:
            await self._send_on(message)

    async def _send_on(self, message: Message) -> None:
        """Send.

        Raises OSError if the client has left, and nobody needs the rest of the response.
        """
        try:
            await self._send(message)
        except OSError:
            if self.recorder is None:
                raise
            # The next message may be the whole body, and then the response can be stored.
            if message["type"] != "http.response.start" and not self._is_kept:
                await self.recorder.leave()
                raise

    def _open_stack(self) -> Any:
        """FastAPI's dependencies that end after the response; None: there are none."""
        stack: Any = self._scope.get("fastapi_inner_astack")
        return stack if getattr(stack, "_exit_callbacks", None) else None
