"""One HTTP request and its answer, as a strict server would carry them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from .asgi import App, Headers, Message, Scope
from .connection import Connection
from .message_order import MessageOrder, OutOfOrder
from .notifier import Notifier

DISCONNECT = "http.disconnect"


@dataclass(frozen=True)
class Response:
    """What makes two answers the same to a client."""

    status: int | None
    body: bytes
    content_type: bytes | None

    def __str__(self) -> str:
        kind = self.content_type.decode("latin-1") if self.content_type else "no type"
        return f"{self.status} with {len(self.body)} bytes of {kind}"


class Exchange(Connection):
    """One request, as a server carries it: strict about the order of what the app sends.

    After the client has left, what is sent is dropped, as uvicorn does it, or, with `send_raises`,
    raises OSError, as ASGI 2.4 has it.
    """

    def __init__(
        self,
        app: App,
        scope: Scope,
        *,
        notifier: Notifier,
        body: Sequence[bytes] = (b"",),
        unfinished: bool = False,
        send_raises: bool = False,
        on_last_byte: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(app, scope, notifier=notifier)
        self.violation: str | None = None
        self.complete = False
        self.disconnected = False
        self._order = MessageOrder()
        self._pipe_breaks = send_raises
        self._at_the_end = on_last_byte or _nothing
        for place, chunk in enumerate(body):
            self.feed(chunk, more=unfinished or place < len(body) - 1)

    @property
    def status(self) -> int | None:
        """The status of the answer, or None while there is none."""
        return next((each["status"] for each in self.sent if "status" in each), None)

    @property
    def headers(self) -> Headers:
        """The headers of the answer, names in lower case, in their order."""
        starts = [each for each in self.sent if each["type"] == "http.response.start"]
        return [(bytes(name).lower(), bytes(value)) for name, value in _headers_of(starts)]

    @property
    def body(self) -> bytes:
        """What has arrived of the body."""
        return b"".join(self.chunks)

    @property
    def chunks(self) -> list[bytes]:
        """What has arrived of the body, frame by frame, without the empty ones."""
        frames = [each for each in self.sent if each["type"] == "http.response.body"]
        return [bytes(each["body"]) for each in frames if each.get("body")]

    @property
    def response(self) -> Response:
        """What has arrived, to compare it with another."""
        return Response(self.status, self.body, self.header("content-type"))

    @property
    def seen(self) -> str:
        """What the client has got, in words."""
        if self.status is None:
            return f"no answer{self._ending()}"
        end = "" if self.complete else ", cut short"
        return f"{self.status} with {len(self.body)} bytes{end}{self._ending()}"

    def header(self, name: str) -> bytes | None:
        """Return the value of a header of the answer, or None."""
        wanted = name.lower().encode()
        return next((value for each, value in self.headers if each == wanted), None)

    def feed(self, chunk: bytes, *, more: bool) -> None:
        """Hand in the next piece of the request's body."""
        self.deliver({"type": "http.request", "body": chunk, "more_body": more})

    def disconnect(self) -> None:
        """Let the client disconnect; from now on that is what `receive` returns."""
        self.disconnected = True
        self._notifier.notify()

    async def answered(self) -> None:
        """Wait until the client has the whole answer, or the call has ended without one."""
        await self._notifier.until(
            lambda: self.complete or self.done, lambda: f"no whole answer: {self.seen}"
        )

    async def arrived(self, count: int) -> None:
        """Wait until the client has this many frames of the body, or the call has ended."""
        await self._notifier.until(
            lambda: len(self.chunks) >= count or self.done,
            lambda: f"frame {count} of the answer did not arrive: {self.seen}",
        )

    async def _receive(self) -> Message:
        while not self._inbox:
            if self.disconnected or self._order.finished:
                return {"type": DISCONNECT}
            self._note_waiting()
            await self._notifier.next()
        return await super()._receive()

    async def _send(self, message: Message) -> None:
        self._note_order(message)
        if self.disconnected:
            return self._send_to_nobody()
        await super()._send(message)
        if self._order.finished and not self.complete:
            self.complete = True
            self._notifier.notify()
            await self._at_the_end()
        return None

    def _note_order(self, message: Message) -> None:
        try:
            self._order.take(message)
        except OutOfOrder as refusal:
            self.violation = self.violation or str(refusal)
            raise

    def _send_to_nobody(self) -> None:
        self._notifier.notify()
        if self._pipe_breaks:
            raise BrokenPipeError("the client has left")


async def _nothing() -> None:
    pass


def _headers_of(starts: Sequence[Message]) -> Headers:
    return list(starts[0].get("headers", ())) if starts else []
