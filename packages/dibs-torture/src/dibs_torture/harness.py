"""What a case works with: an app behind the middleware, a client, a key, and the checks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any, Unpack

from .adapter import Adapter
from .application import Call, CaseApplication, Handler
from .asgi import App, Headers, Scope, Wrap
from .connection import Connection
from .exchange import Exchange, Response
from .notifier import Notifier, expect
from .request import RequestOptions, scope_of

USUAL = Response(201, b'{"run":1}', b"application/json")  # of the default handler
SETTLED_WITHIN = 0.05  # for duplicates that wait: time to come as far as they will


class Harness:
    """One case against one middleware. The checks raise PromiseBroken."""

    def __init__(self, wrap: Wrap, adapter: Adapter) -> None:
        self.adapter = adapter
        self.wrap = wrap
        self.notifier = Notifier(adapter.within)
        self.application = CaseApplication(notifier=self.notifier)
        self.state: dict[str, Any] = {}
        self.log: list[str] = []
        self.connections: list[Connection] = []
        self.app = wrap(self.application)
        self.use_new_key()

    @property
    def runs(self) -> int:
        """How often the app has been run."""
        return self.application.runs

    # --------------------------------------------------------------------------- the app

    def handle(self, handler: Handler) -> None:
        """Let the app answer all requests this way."""
        self.application.handler = handler

    def block_handler(self) -> asyncio.Event:
        """Make the app mark "working", and respond once the returned event is set."""
        release = asyncio.Event()

        async def handler(call: Call) -> None:
            self.mark("working")
            await release.wait()
            await call.respond()

        self.handle(handler)
        return release

    def mark(self, word: str) -> None:
        """Record how far the app has come."""
        self.log.append(word)
        self.notifier.notify()

    async def wait_mark(self, word: str) -> None:
        """Wait until the app has come that far."""
        await self.notifier.until(
            lambda: word in self.log or all(connection.done for connection in self.connections),
            lambda: self._not_there(word),
        )
        expect(word in self.log, self._not_there(word))

    def _not_there(self, word: str) -> str:
        return f'the app did not get to "{word}": {self.connections[-1].seen}'

    # ------------------------------------------------------------------------ the client

    def use_new_key(self) -> None:
        """From now on ask for something new: another key, another payload."""
        self.key = str(uuid.uuid4())
        self.payload = b'{"item":"%s"}' % self.key.encode()

    def start_request(self, **options: Unpack[RequestOptions]) -> Exchange:
        """Send a request, by default the guarded one with the harness's key, and do not wait."""
        route = options.get("route", self.adapter.guarded)
        content_type = options.get("content_type", b"application/json")
        headers = [
            (b"content-type", content_type),
            *self._key_headers(options),
            *options.get("headers", []),
        ]
        app = options.get("outer", _unchanged)(self.app)
        exchange = Exchange(
            app,
            scope_of(route, headers, state=self.state) | options.get("scope", {}),
            notifier=self.notifier,
            body=options.get("body", [self.payload]),
            unfinished=options.get("unfinished", False),
            send_raises=options.get("send_raises", False),
            on_last_byte=options.get("on_last_byte"),
        )
        self.connections.append(exchange)
        return exchange

    async def request(self, **options: Unpack[RequestOptions]) -> Exchange:
        """Send a request and wait until its call has ended."""
        exchange = self.start_request(**options)
        await exchange.ended()
        return exchange

    def connect(self, scope: Scope) -> Connection:
        """Start a websocket or a lifespan."""
        connection = Connection(self.app, scope, notifier=self.notifier)
        self.connections.append(connection)
        return connection

    def _key_headers(self, options: RequestOptions) -> Headers:
        if self.adapter.header is None:
            return []
        name = self.adapter.header.lower().encode()
        return [(name, value) for value in options.get("keys", [self.key.encode()])]

    # ---------------------------------------------------------------------------- checks

    def expect_response(self, exchange: Exchange, *, status: int = 201) -> None:
        """The client has the whole answer, and it is the app's."""
        expect(exchange.complete, f"no whole answer: {exchange.seen}")
        expect(exchange.status == status, f"{exchange.status} instead of the app's {status}")

    def expect_refused(self, exchange: Exchange) -> None:
        """The client was refused: its request is a duplicate."""
        expect(exchange.complete, f"a duplicate got no whole answer: {exchange.seen}")
        expect(exchange.status in self.adapter.running, f"a duplicate got {exchange.seen}")

    async def expect_remembered(
        self, expected: Response = USUAL, **options: Unpack[RequestOptions]
    ) -> Exchange:
        """A retry gets this answer, or is refused by a middleware that never replays; none runs."""
        retry = await self._retry_that_does_not_run(options)
        if self.adapter.after == "replay":
            expect(retry.response == expected, f"the retry got {retry.response}, not {expected}")
        else:
            self.expect_refused(retry)
        return retry

    async def expect_not_rerun(
        self, expected: Response = USUAL, **options: Unpack[RequestOptions]
    ) -> str:
        """A retry gets this answer or a refusal, and none runs; returns which, in words."""
        retry = await self._retry_that_does_not_run(options)
        if retry.response == expected:
            return "the retry is a replay"
        refusal = retry.status is not None and 400 <= retry.status < 600
        expect(refusal, f"the retry got {retry.response}, not {expected}")
        return f"the retry is refused with {retry.status}"

    async def expect_rerun(self, **options: Unpack[RequestOptions]) -> Exchange:
        """A retry runs at once, and is answered."""
        before = self.runs
        retry = self.start_request(**options)
        await retry.answered()
        expect(self.runs == before + 1, f"the retry did not run: {retry.seen}")
        self.expect_response(retry)
        return retry

    async def refusal(self) -> Exchange:
        """Return what a duplicate gets while the first is running."""
        release = self.block_handler()
        first = self.start_request()
        await self.wait_mark("working")
        duplicate = self.start_request()
        await self.wait_refused([duplicate])
        release.set()
        await first.ended()
        self.expect_refused(duplicate)
        return duplicate

    async def wait_refused(self, duplicates: Sequence[Exchange]) -> None:
        """Wait until all duplicates are refused, or wait; none runs."""
        before = self.runs
        if self.adapter.waits:
            await asyncio.sleep(SETTLED_WITHIN)  # to see more; the verdict does not depend on it
        else:
            await self.notifier.until(
                lambda: all(each.done for each in duplicates) or self.runs > before,
                lambda: f"a duplicate was not refused: {[each.seen for each in duplicates]}",
            )
        expect(self.runs == before, "a duplicate ran while the first was running")

    async def _retry_that_does_not_run(self, options: RequestOptions) -> Exchange:
        before = self.runs
        retry = self.start_request(**options)
        await self.notifier.until(
            lambda: retry.complete or retry.done or self.runs > before,
            lambda: f"the retry got no whole answer: {retry.seen}",
        )
        expect(self.runs == before, "the retry ran the app again")
        expect(retry.complete, f"the retry got {retry.seen}")
        return retry


def _unchanged(app: App) -> App:
    return app
