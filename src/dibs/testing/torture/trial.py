"""What a case works with: an app of its own behind the middleware, a key of its own, and eyes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any, Unpack

from .adapter import Adapter
from .asgi import App, Headers, Scope, Wrap
from .exchange import Answer, Exchange
from .line import Line
from .news import News, expect
from .request import Wishes, scope_of
from .stage import Call, Handler, Stage

USUAL = Answer(201, b'{"run":1}', b"application/json")  # what the app says unless told otherwise
SETTLED_WITHIN = 0.05  # for duplicates that wait: time to come as far as they will


class Trial:
    """One case against one middleware; whatever it sees amiss, it raises Broken."""

    def __init__(self, wrap: Wrap, adapter: Adapter) -> None:
        self.adapter = adapter
        self.wrap = wrap
        self.news = News(adapter.within)
        self.stage = Stage(news=self.news)
        self.state: dict[str, Any] = {}
        self.log: list[str] = []
        self.lines: list[Line] = []
        self.app = wrap(self.stage)
        self.renew()

    @property
    def runs(self) -> int:
        """How often the app has been run."""
        return self.stage.runs

    # --------------------------------------------------------------------------- the app's side

    def handle(self, handler: Handler) -> None:
        """Let the app answer all requests this way."""
        self.stage.handler = handler

    def work_behind_a_gate(self) -> asyncio.Event:
        """Let the app say "working" and answer once the returned gate is open."""
        gate = asyncio.Event()

        async def handler(call: Call) -> None:
            self.mark("working")
            await gate.wait()
            await call.answer()

        self.handle(handler)
        return gate

    def mark(self, word: str) -> None:
        """Write down how far the app has come."""
        self.log.append(word)
        self.news.tell()

    async def marked(self, word: str) -> None:
        """Wait until the app has come that far."""
        await self.news.until(
            lambda: word in self.log or all(line.done for line in self.lines),
            lambda: self._not_there(word),
        )
        expect(word in self.log, self._not_there(word))

    def _not_there(self, word: str) -> str:
        return f'the app did not get to "{word}": {self.lines[-1].seen}'

    # ------------------------------------------------------------------------ the client's side

    def renew(self) -> None:
        """From now on ask for something new: another key, another payload."""
        self.key = str(uuid.uuid4())
        self.payload = b'{"item":"%s"}' % self.key.encode()

    def post(self, **wishes: Unpack[Wishes]) -> Exchange:
        """Send a request, by default the guarded one with the trial's key, and do not wait."""
        route = wishes.get("route", self.adapter.guarded)
        kind = wishes.get("kind", b"application/json")
        headers = [(b"content-type", kind), *self._key_lines(wishes), *wishes.get("headers", [])]
        app = wishes.get("outer", _as_it_is)(self.app)
        exchange = Exchange(
            app,
            scope_of(route, headers, state=self.state) | wishes.get("facts", {}),
            news=self.news,
            body=wishes.get("body", [self.payload]),
            unfinished=wishes.get("unfinished", False),
            pipe_breaks=wishes.get("pipe_breaks", False),
            at_the_end=wishes.get("at_the_end"),
        )
        self.lines.append(exchange)
        return exchange

    async def ask(self, **wishes: Unpack[Wishes]) -> Exchange:
        """Send a request and wait until its call has ended."""
        exchange = self.post(**wishes)
        await exchange.ended()
        return exchange

    def open(self, scope: Scope) -> Line:
        """Begin something that is not a request."""
        line = Line(self.app, scope, news=self.news)
        self.lines.append(line)
        return line

    def _key_lines(self, wishes: Wishes) -> Headers:
        if self.adapter.header is None:
            return []
        name = self.adapter.header.lower().encode()
        return [(name, value) for value in wishes.get("keys", [self.key.encode()])]

    # ---------------------------------------------------------------------------- what must hold

    def answered(self, exchange: Exchange, *, status: int = 201) -> None:
        """The client has the whole answer, and it is the app's."""
        expect(exchange.complete, f"no whole answer: {exchange.seen}")
        expect(exchange.status == status, f"{exchange.status} instead of the app's {status}")

    def refused(self, exchange: Exchange) -> None:
        """The client was told that its request is a duplicate."""
        expect(exchange.complete, f"a duplicate got no whole answer: {exchange.seen}")
        expect(exchange.status in self.adapter.running, f"a duplicate got {exchange.seen}")

    async def remembered(self, answer: Answer = USUAL, **wishes: Unpack[Wishes]) -> Exchange:
        """A retry gets this answer, or is refused by a middleware that never replays; none runs."""
        retry = await self._retry_that_does_not_run(wishes)
        if self.adapter.after == "replay":
            expect(retry.answer == answer, f"the retry got {retry.answer} instead of {answer}")
        else:
            self.refused(retry)
        return retry

    async def not_run_again(self, answer: Answer = USUAL, **wishes: Unpack[Wishes]) -> str:
        """A retry gets this answer or a refusal, and none runs; returns which, in words."""
        retry = await self._retry_that_does_not_run(wishes)
        if retry.answer == answer:
            return "the retry is a replay"
        refusal = retry.status is not None and 400 <= retry.status < 600
        expect(refusal, f"the retry got {retry.answer} instead of {answer}")
        return f"the retry is refused with {retry.status}"

    async def runs_again(self, **wishes: Unpack[Wishes]) -> Exchange:
        """A retry runs at once, and is answered."""
        before = self.runs
        retry = self.post(**wishes)
        await retry.answered()
        expect(self.runs == before + 1, f"the retry did not run: {retry.seen}")
        self.answered(retry)
        return retry

    async def refusal(self) -> Exchange:
        """Return what a duplicate is told while the first is running."""
        gate = self.work_behind_a_gate()
        first = self.post()
        await self.marked("working")
        duplicate = self.post()
        await self.parked([duplicate])
        gate.set()
        await first.ended()
        self.refused(duplicate)
        return duplicate

    async def parked(self, duplicates: Sequence[Exchange]) -> None:
        """Wait until all duplicates are refused, or wait; none runs."""
        before = self.runs
        if self.adapter.waits:
            await asyncio.sleep(SETTLED_WITHIN)  # to see more; the verdict does not hang on it
        else:
            await self.news.until(
                lambda: all(each.done for each in duplicates) or self.runs > before,
                lambda: f"a duplicate was not refused: {[each.seen for each in duplicates]}",
            )
        expect(self.runs == before, "a duplicate ran while the first was running")

    async def _retry_that_does_not_run(self, wishes: Wishes) -> Exchange:
        before = self.runs
        retry = self.post(**wishes)
        await self.news.until(
            lambda: retry.complete or retry.done or self.runs > before,
            lambda: f"the retry got no whole answer: {retry.seen}",
        )
        expect(self.runs == before, "the retry ran the app again")
        expect(retry.complete, f"the retry got {retry.seen}")
        return retry


def _as_it_is(app: App) -> App:
    return app
