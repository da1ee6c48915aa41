"""Duplicate submissions and idempotency keys for any ASGI application.

    app = DibsMiddleware(app, dibs=AsyncDibs("redis://…"), policies=[
        Policy("POST /orders", window=86400, after="replay", key="required"),
        Policy("POST /forms/*", window=10, after="hold", message="Already sent, please wait."),
    ])

A request that no policy is meant for is not touched at all.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, cast

from .._async.claim import AsyncClaim
from .._async.dibs import AsyncDibs
from .._http.answers import Answer
from .._http.facts import Facts, KeyTrouble, Submission, submission_of
from .._http.kept import Headers
from .._http.policy import Policy, find
from .._http.recording import Recording
from ..errors import UsageError
from ._claims import aclaimed, aended, values_of

__all__ = ["DibsMiddleware", "Policy"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
User = Callable[[Scope], Any]

MOST_READ = 1 << 20
"""Bytes of a request's body that are looked at; the rest passes by."""


class DibsMiddleware:
    """Does each submission once, by the policies of the routes.

    *dibs*: an AsyncDibs (yours to close) or a URL. *user*: tells from the scope who submits, as a
    string or None; without it, it is the Authorization header, else the cookies, else the client's
    address. *secret*: keys the hashes under which submissions are stored; the same in all
    processes.
    """

    def __init__(
        self,
        app: App,
        *,
        dibs: AsyncDibs | str,
        policies: Iterable[Policy] = (),
        user: User | None = None,
        secret: str | bytes = b"",
    ) -> None:
        self._app = app
        self._url = dibs if isinstance(dibs, str) else None
        self._dibs = AsyncDibs(dibs) if isinstance(dibs, str) else dibs
        self._policies = tuple(policies)
        self._user = user
        self._secret = secret.encode() if isinstance(secret, str) else secret
        if any(not policy.route for policy in self._policies):
            raise UsageError('a policy of the middleware needs a route: Policy("POST /orders", …)')

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" and self._url is not None:
            return await self._app(scope, receive, ending(send, self._close))
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        policy = find(self._policies, scope["method"], path_of(scope))
        if policy is None:
            return await self._app(scope, receive, send)
        return await self._guard(policy, scope, receive, send)

    async def _guard(self, policy: Policy, scope: Scope, receive: Receive, send: Send) -> None:
        entry = await Entry.read(receive)
        if entry.is_gone:
            return None  # nobody waits for it, and what it is cannot be known: it must not be done
        submission = await self._submission(policy, scope, entry)
        outcome = await aclaimed(self._dibs, policy, policy.route, submission)
        if isinstance(outcome, Answer):
            return await give(outcome, send)
        recorder = Recorder(policy, outcome, send)
        return await recorder.run(self._app, scope, entry.receive)

    async def _submission(
        self, policy: Policy, scope: Scope, entry: "Entry"
    ) -> Submission | KeyTrouble:
        headers = header_lines(scope)
        facts = Facts(
            method=scope["method"],
            route=policy.route,
            path=path_of(scope),
            query=scope.get("query_string", b"").decode("latin-1"),
            headers=dict(headers),
            body=entry.body,
            is_whole=entry.is_whole,
            user=await settled(self._user(scope)) if self._user else who_of(scope, headers),
            path_fields=policy.parts_of(path_of(scope)),
        )
        keys = values_of(headers, policy.header)
        return submission_of(policy, facts, keys, self._secret)

    async def _close(self) -> None:
        """Close what is ours. The application may live again, as it does in tests."""
        assert self._url is not None
        old, self._dibs = self._dibs, AsyncDibs(self._url)
        await old.aclose()


def ending(send: Send, close: Callable[[], Awaitable[None]]) -> Send:
    """*send* for a lifespan, with *close* before the server hears that the application has ended.

    One that has no lifespan, and raises or returns at once, has not ended by that.
    """

    async def watched(message: Message) -> None:
        if message["type"].startswith("lifespan.shutdown."):
            await close()
        await send(message)

    return watched


async def give(answer: Answer, send: Send) -> None:
    """Send a whole answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


# ---- the request


class Entry:
    """The beginning of a request's body, read ahead; the application gets all of it in order."""

    def __init__(self, receive: Receive, messages: deque[Message]) -> None:
        self._receive = receive
        self._messages = messages
        self.is_whole = not messages[-1].get("more_body")
        self.is_gone = messages[-1]["type"] == "http.disconnect"
        """The client left before it had said everything."""

    @classmethod
    async def read(cls, receive: Receive) -> "Entry":
        """Read until the end, or until it is enough."""
        messages: deque[Message] = deque()
        size = 0
        while not messages or (messages[-1].get("more_body") and size < MOST_READ):
            messages.append(await receive())
            size += len(messages[-1].get("body", b""))
        return cls(receive, messages)

    @property
    def body(self) -> bytes:
        """What was read. Put together when asked for, not kept beside its pieces."""
        return b"".join([message.get("body", b"") for message in self._messages])

    async def receive(self) -> Message:
        """What was read, then what comes: a client that really leaves is told as ever."""
        return self._messages.popleft() if self._messages else await self._receive()


# ---- the answer


class Recorder:
    """Passes an answer on, and ends the claim with its last piece, before that is sent.

    So whoever has the whole answer can submit again and be told the truth; and what the
    application does afterwards (background tasks) is not part of the claim.
    """

    __slots__ = ("_claim", "_recording", "_send")

    def __init__(self, policy: Policy, claim: AsyncClaim, send: Send) -> None:
        self._claim = claim
        self._recording = Recording(policy)
        self._send = send

    async def run(self, app: App, scope: Scope, receive: Receive) -> None:
        """The application, with the claim around it. What it raises is raised."""
        try:
            await app(scope, receive, self.send)
            await self.leave()
        finally:
            await self.close()

    async def leave(self) -> None:
        """The application has returned. If it had begun to answer and stopped, the client has left
        in the middle of a stream: the work was done, only the answer is incomplete.
        """
        if self._recording.status:
            self._recording.give_up()
            await aended(self._claim, self._recording)

    async def close(self) -> None:
        """The application has ended, by an error, cancelled, or without an answer: so has the
        claim, if it is still open.
        """
        # In a task that is cancelled again here, the release is on its way nevertheless.
        await self._claim.fail()

    async def send(self, message: Message) -> None:
        """Record and pass on."""
        kind = message["type"]
        if kind == "http.response.start":
            self._recording.begin(message["status"], decoded(message.get("headers", ())))
        elif kind == "http.response.body":
            self._recording.add(message.get("body", b""))
        elif kind in ("http.response.pathsend", "http.response.zerocopysend"):
            self._recording.give_up()
        if is_last(message):
            await aended(self._claim, self._recording)
        try:
            await self._send(message)
        except OSError:
            # The client has left. With the next piece the application hears of it: that may be
            # all there is, and then it can be kept.
            if kind != "http.response.start":
                await self.leave()
                raise


def is_last(message: Message) -> bool:
    """True: with this message the answer is whole."""
    kind = message["type"]
    if kind == "http.response.pathsend":
        return True
    return kind in ("http.response.body", "http.response.zerocopysend") and not message.get(
        "more_body"
    )


# ---- reading a scope


def path_of(scope: Scope) -> str:
    """The path, as the outermost application sees it."""
    return str(scope["path"])


def header_lines(scope: Scope) -> Headers:
    """Names in lower case, one entry for each line."""
    return decoded(scope.get("headers", ()))


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """As text."""
    return tuple(
        [(bytes(n).decode("latin-1").lower(), bytes(v).decode("latin-1")) for n, v in headers]
    )


def who_of(scope: Scope, headers: Headers) -> str | None:
    """Who submits, as far as the request itself tells, and from what: else a header could be
    filled in with somebody's address. HTTP/2 may send cookies in several lines.
    """
    for name in ("authorization", "cookie"):
        lines = values_of(headers, name)
        if any(lines):
            return f"{name} {'; '.join(lines)}"
    client = scope.get("client")
    return f"address {client[0]}" if client else None


async def settled(who: Any) -> str | None:
    """What the caller's `user` says, awaited if need be."""
    if isinstance(who, Awaitable):
        who = cast(Any, await who)
    return None if who is None else str(who)
