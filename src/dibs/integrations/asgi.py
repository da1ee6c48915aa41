"""Duplicate submissions and idempotency keys for any ASGI application.

    app = DibsMiddleware(app, dibs=AsyncDibs("redis://…"), policies=[
        Policy("POST /orders", window=86400, after="replay", key="required"),
        Policy("POST /forms/*", window=10, after="hold", message="Already sent, please wait."),
    ])

A request that no policy is meant for is not touched at all.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, cast

from .._async.claim import AsyncClaim
from .._async.client import AsyncDibs
from .._http.answers import Answer
from .._http.facts import Facts, KeyTrouble, Submission, submission_of
from .._http.identity import Identity, identify
from .._http.kept import Headers
from .._http.policy import Policy, check_routes, find
from .._http.recording import Recording
from .._http.site import inner_path, make_site
from ._bodies import AsgiBody
from ._claims import aclaimed, aended, applied, values_of

__all__ = ["DibsMiddleware", "Policy"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
User = Callable[[Scope], Any]


class DibsMiddleware:
    """Does each submission once, by the policies of the routes.

    *dibs*: an AsyncDibs (yours to close) or a URL. *user*: tells from the scope who submits, as a
    string, or None where it is not known. *session_cookie*: the name of the cookie that says so.
    Without either, it is the Authorization header; see `dibs._http.identity`. *secret*: keys the
    hashes under which submissions are stored; the same in all processes. *service*: the name of
    this application, where several use one store; *per_host*: the Host header counts, too.
    """

    def __init__(
        self,
        app: App,
        *,
        dibs: AsyncDibs | str,
        policies: Iterable[Policy] = (),
        user: User | None = None,
        session_cookie: str | None = None,
        secret: str | bytes | None = None,
        service: str = "",
        per_host: bool = False,
    ) -> None:
        self._app = app
        self._url = dibs if isinstance(dibs, str) else None
        self._dibs = AsyncDibs(dibs) if isinstance(dibs, str) else dibs
        self._policies = tuple(policies)
        self._user = user
        self._site = make_site(secret, service, session_cookie, per_host=per_host)
        check_routes(self._policies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" and self._url is not None:
            return await self._app(scope, receive, ending(send, self._close))
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        policy = find(self._policies, scope["method"], *paths_of(scope))
        if policy is None or _is_open(policy, scope):
            return await self._app(scope, receive, send)
        return await self._guard(policy, scope, receive, send)

    async def _guard(self, policy: Policy, scope: Scope, receive: Receive, send: Send) -> None:
        body = AsgiBody(receive)
        try:
            submission = await self._submission(policy, scope, body)
            if body.is_gone or submission is None:
                return None  # nobody waits, and what it is cannot be known: it must not be done
            outcome = await aclaimed(self._dibs, policy, policy.route, submission)
            if isinstance(outcome, Answer):
                return await give(outcome, send)
            recorder = Recorder(applied(policy, submission), outcome, send)
            return await recorder.run(self._app, scope, body.receive)
        finally:
            body.close()

    async def _submission(
        self, policy: Policy, scope: Scope, body: AsgiBody
    ) -> Submission | KeyTrouble | None:
        headers = header_lines(scope)
        named = dict(headers)
        trouble = await body.read(named, policy.body_limit)
        if trouble is not None:
            return trouble
        said = await settled(self._user(scope)) if self._user else None
        who = who_of(scope, headers, named, said, self._site.session_cookie)
        facts = Facts(
            method=scope["method"],
            route=policy.route,
            path=place_of(scope),
            query=query_of(scope),
            headers=named,
            body=body.data,
            long=body.long,
            user=who.user,
            client=who.client,
            path_fields=_fields_of(policy, scope) if "{" in policy.route else {},
            service=self._site.service,
            host=self._site.host(named.get("host", "")) if self._site.per_host else "",
        )
        keys = values_of(headers, policy.header) if policy.header.lower() in named else []
        return submission_of(policy, facts, keys, self._site.secret)

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


def paths_of(scope: Scope) -> tuple[str, ...]:
    """The path as the application sees it; with a prefix (`root_path`), both ways."""
    path, root = str(scope["path"]), scope.get("root_path", "")
    return (inner_path(path, root), path) if root else (path,)


def place_of(scope: Scope) -> str:
    """The path that counts: without the prefix of the server, with that of a mount."""
    root = scope.get("app_root_path", scope.get("root_path", ""))
    return inner_path(str(scope["path"]), root) if root else str(scope["path"])


def mount_of(scope: Scope) -> str:
    """Where inside of the application it hangs; nothing, where it is the application."""
    if "app_root_path" not in scope:
        return ""
    return inner_path(str(scope.get("root_path", "")), scope["app_root_path"])


def _fields_of(policy: Policy, scope: Scope) -> dict[str, str]:
    """The `{fields}` of the route, from whichever path fits it."""
    for path in paths_of(scope):
        if policy.covers(scope["method"], path):
            return policy.parts_of(path)
    return {}


def _is_open(policy: Policy, scope: Scope) -> bool:
    """True: the policy is for requests with a key, and this one has none."""
    if policy.key != "only":
        return False
    name = policy.header.lower().encode("latin-1")
    return all(bytes(each).lower() != name for each, _ in scope.get("headers", ()))


def query_of(scope: Scope) -> str:
    """As it stands in the address."""
    return scope.get("query_string", b"").decode("latin-1")


def header_lines(scope: Scope) -> Headers:
    """Names in lower case, one entry for each line."""
    return decoded(scope.get("headers", ()))


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """As text."""
    return tuple(
        [(bytes(n).decode("latin-1").lower(), bytes(v).decode("latin-1")) for n, v in headers]
    )


def who_of(
    scope: Scope, headers: Headers, named: dict[str, str], said: object, session: str | None
) -> Identity:
    """Who submits. *named*: the last line of each header. HTTP/2 may send cookies in several."""
    client = scope.get("client")
    return identify(
        said,
        session=session,
        authorization=named.get("authorization", ""),
        cookies="; ".join(values_of(headers, "cookie")) if "cookie" in named else "",
        address=client[0] if client else None,
        agent=named.get("user-agent", ""),
    )


async def settled(who: Any) -> object:
    """What the caller's `user` says, awaited if need be."""
    return cast(Any, await who) if isinstance(who, Awaitable) else who
