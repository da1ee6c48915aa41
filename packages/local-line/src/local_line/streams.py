"""Server-Sent Events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Send


class Stream(StreamingResponse):
    """Server-Sent Events, whose source is closed with the page, not by the garbage collector."""

    def __init__(self, source: AsyncGenerator[str, None]) -> None:
        headers = {"Cache-Control": "no-store"}
        super().__init__(source, headers=headers, media_type="text/event-stream")
        self._source = source

    async def stream_response(self, send: Send) -> None:
        """Send all events, then close the source."""
        async with aclosing(self._source):
            await super().stream_response(send)
