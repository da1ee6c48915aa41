"""The claims of a request of Django whose response is made later: a stream, a template.

The request owns them: they end with it at the latest, also if a middleware replaces the response.
"""

# pyright: basic
# Django has no types.

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.signals import got_request_exception

from .._http.policy import Policy
from .._http.responses import Recording

_CLAIMS = "_dibs_claims"
_END: Any = object()


class OwnedClaim:
    """A claim, and the response by which it ends, as far as that is stored."""

    def __init__(
        self,
        policy: Policy,
        claim: Any,
        end: Callable[[Recording], object],
        fail: Callable[[], object],
    ) -> None:
        """*end*, *fail*: end the claim, from any thread."""
        self.policy = policy
        self._claim = claim
        self.end_by = end
        self.fail = fail
        self.recording = Recording(policy.record_limit)
        self.is_whole = False
        """True: nothing is missing in the recording."""

    @property
    def is_kept(self) -> bool:
        """Return True if the response will be stored, also if its client leaves."""
        is_stored = self.policy.record_limit is not None and self.policy.on_disconnect == "finish"
        return is_stored and self.recording.is_storable and self._claim.is_open

    def end(self) -> None:
        """End it by its response; by the fact that there was one, if that is not whole."""
        if not self.is_whole:
            self.recording.discard()
        self.end_by(self.recording)

    def leave(self) -> None:
        """The client has not waited for the whole response, or got another one."""
        if self.is_whole or self.policy.on_disconnect == "finish":
            self.end()
        elif self._claim.is_open:
            self.fail()

    def release(self) -> None:
        """Leave nothing behind: the client corrects the request, and tries again."""
        self._claim.release()
        self.fail()

    def close(self) -> None:
        """The request has ended, whatever became of the response."""
        if self._claim.is_open:
            self.end()


def own(request: Any, claim: OwnedClaim) -> None:
    """End *claim* with *request* (of Django itself), at the latest."""
    claims = request.__dict__.get(_CLAIMS)
    if claims is None:
        claims = request.__dict__[_CLAIMS] = []
        close = request.close  # called with the response that is really sent

        def close_claims() -> None:
            for each in claims:
                each.close()
            close()

        request.close = close_claims
    claims.append(claim)


def _fail_claims(sender: object, request: Any = None, **_: object) -> None:
    """A middleware has raised: what the view has done is no success."""
    for each in getattr(request, "__dict__", {}).get(_CLAIMS, ()):
        each.fail()


got_request_exception.connect(_fail_claims, dispatch_uid="dibs")


# ---- streams


def record_stream(response: Any, claim: OwnedClaim) -> None:
    """Record the stream of *response*; its end ends *claim*, before its client has all of it."""
    claim.recording.begin(response.status_code, response.items())
    if getattr(response, "file_to_stream", None) is not None:  # the server may send it itself
        claim.recording.discard()
        response._resource_closers.append(claim.close)
        return
    kind = _AsyncStream if response.is_async else _Stream
    pieces = kind(response.streaming_content, claim)
    response.streaming_content = pieces
    # Before the close of the source, which then has been read to its end.
    response._resource_closers.insert(0, pieces.close)


class _Stream:
    def __init__(self, pieces: Iterator[bytes], claim: OwnedClaim) -> None:
        self._pieces = pieces
        self._claim = claim

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._claim.is_whole = True
            self._claim.end()
            raise
        except BaseException:
            self._claim.fail()
            raise
        self._claim.recording.add(piece)
        return piece

    def close(self) -> None:
        """The response is closed: its client has left, or has all."""
        while self._claim.is_kept:
            if next(self, _END) is _END:
                return
        self._claim.leave()


class _AsyncStream:
    """Read in its own task: Django cancels the one that sends, if the client leaves."""

    def __init__(self, pieces: AsyncIterator[bytes], claim: OwnedClaim) -> None:
        self._pieces = pieces
        self._claim = claim
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue(1)
        self._reading: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._is_left = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._reading is None:
            self._read()
        piece = await self._queue.get()
        if piece is not _END:
            return piece
        raise StopAsyncIteration if self._error is None else self._error

    def _read(self) -> None:
        self._reading = self._loop.create_task(self._read_all())
        _reading.add(self._reading)
        self._reading.add_done_callback(_reading.discard)

    async def _read_all(self) -> None:
        try:
            async for piece in self._pieces:
                self._claim.recording.add(piece)
                if not self._is_left:
                    await self._queue.put(piece)
                if self._is_left and not self._claim.is_kept:
                    break
            else:
                self._claim.is_whole = True
            await _in_thread(self._claim.leave)
        except BaseException as error:
            self._error = error
            is_stopped = isinstance(error, asyncio.CancelledError) and self._is_left
            await _in_thread(self._claim.leave if is_stopped else self._claim.fail)
        if not self._is_left:
            await self._queue.put(_END)

    def close(self) -> None:
        """The response is closed, in some thread: its client has left, or has all."""
        self._loop.call_soon_threadsafe(self._leave_stream)

    def _leave_stream(self) -> None:
        self._is_left = True
        if self._reading is None:
            self._read()
        while not self._queue.empty():
            self._queue.get_nowait()  # so that what waits to be sent is not waited for
        if not self._claim.is_kept and self._reading is not None:
            self._reading.cancel()


_reading: set["asyncio.Task[None]"] = set()
"""Keeps the tasks alive that read what nobody waits for."""


async def _in_thread(end: Callable[[], object]) -> None:
    await sync_to_async(end, thread_sensitive=False)()
