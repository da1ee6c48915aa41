# Generated from src/dibs/integrations/_async/sse.py by unasync.py – do not edit.
"""Server-sent events of a stream."""

import json
from collections.abc import Iterator
from typing import Any

from ..._http.sse import HEARTBEAT, event, read_last_event_id
from ..._internal_api import begin_stream, item_text, wait_for_item
from ...errors import Interrupted


def events_of(
    stream: Any, last_event_id: str | None, heartbeat: float
) -> Iterator[bytes]:
    """The items, each with its number; at last how it ended."""
    received, before = read_last_event_id(last_event_id)
    try:
        run = begin_stream(stream)
        if received and run != before:  # two runs are never put together
            yield event("", name="restart")
        elif received:
            stream.position = received
        while True:
            if not wait_for_item(stream, heartbeat):
                yield HEARTBEAT
                continue
            item = next(stream)
            if isinstance(item, Interrupted):
                yield event("", name="restart")
                continue
            run = begin_stream(stream)
            yield event(item_text(stream, item), number=stream.position, run=run)
    except StopIteration:
        yield event("", name="end")
    except Interrupted as error:
        yield event(json.dumps({"items": error.items}), name="interrupted")
    except Exception as error:
        yield event(json.dumps({"type": type(error).__name__}), name="failed")
        raise
    finally:
        stream.close()
