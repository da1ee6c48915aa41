"""Server-sent events, for every framework: what a `streamed` function yields, for a browser.

return StreamingResponse(
    sse(answer(prompt), request.headers.get("last-event-id")), media_type="text/event-stream"
)
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, overload

from .._internal_api import AnyAsyncStream, AnyStream, Seconds, seconds
from ..errors import UsageError

__all__ = ["sse"]


@overload
def sse(
    stream: AnyAsyncStream, last_event_id: str | None = None, *, heartbeat: Seconds = 15
) -> AsyncIterator[bytes]: ...
@overload
def sse(
    stream: AnyStream, last_event_id: str | None = None, *, heartbeat: Seconds = 15
) -> Iterator[bytes]: ...
def sse(stream: Any, last_event_id: str | None = None, *, heartbeat: Seconds = 15) -> Any:
    """Yield a stream as server-sent events, for a response of the type `text/event-stream`.

    Each item is an event with an `id`: its number and the run that it is of. A browser that
    reconnects goes on behind the last one, at any process. At the end comes the event `end`;
    `restart` says that what was received belongs to another run, `interrupted` that its process has
    died, `failed` that it has raised an exception.

    Args:
        stream: What a call of a streamed function returns. Text is sent as it is, anything else as
            its codec writes it.
        last_event_id: The header `Last-Event-ID` of the request.
        heartbeat: After how many seconds without an item a comment is sent.

    Raises:
        UsageError: It is no stream, or an option is invalid.
    """
    pause = seconds(heartbeat, "heartbeat")
    if not hasattr(stream, "skip"):
        raise UsageError("sse is for what a streamed function returns: sse(answer(prompt))")
    if hasattr(stream, "__anext__"):
        from ._async.sse import events_of
    else:
        from ._sync.sse import events_of
    return events_of(stream, last_event_id, pause)
