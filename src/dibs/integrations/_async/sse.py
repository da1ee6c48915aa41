"""Server-sent events of a stream."""

import json
from collections.abc import AsyncIterator
from typing import Any

from ..._http.sse import HEARTBEAT, event, read_last_event_id
from ..._internal_api import begin_stream, item_text, wait_for_item
from ...errors import Interrupted


async def events_of(
    stream: Any, last_event_id: str | None, heartbeat: float
) -> AsyncIterator[bytes]:
    """The items, each with its number; at last how it ended."""
    received, before = read_last_event_id(last_event_id)
    try:
        run = await begin_stream(stream)
        if received and run != before:  # two runs are never put together
            yield event("", name="restart")
        elif received:
            stream.position = received
        while True:
            if not await wait_for_item(stream, heartbeat):
                yield HEARTBEAT
                continue
            item = await anext(stream)
            if isinstance(item, Interrupted):
                yield event("", name="restart")
                continue
            run = await begin_stream(stream)
            yield event(item_text(stream, item), number=stream.position, run=run)
    except StopAsyncIteration:
        yield event("", name="end")
    except Interrupted as error:
        yield event(json.dumps({"items": error.items}), name="interrupted")
    except Exception as error:
        yield event(json.dumps({"type": type(error).__name__}), name="failed")
        raise
    finally:
        await stream.aclose()
