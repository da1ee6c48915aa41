"""`--state FILE`: what the platform keeps from one run to the next.

Kept: the channel with its secret and token, people, groups, chats, rich menus with their pictures,
audiences, coupons, LIFF apps and the used quota. Not kept: the bytes of what people sent, tokens
that work once, and the journal.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from .platform import Platform
from .sources import Source

Json = dict[str, Any]
VERSION = 1
_PAUSE = 1.0
"""Seconds between two looks whether there is something to write."""
_log = logging.getLogger("local_line")


def read(file: Path) -> Json:
    """What an earlier run has written; nothing, if there was none.

    OSError: it cannot be read. ValueError: it is something else.
    """
    try:
        state = json.loads(file.read_bytes() or b"{}")
    except FileNotFoundError:
        return {}
    except ValueError:
        state = None
    if not isinstance(state, dict) or state.get("version", VERSION) != VERSION:
        raise ValueError(f"{file} is no state of this version of local-line")
    return state


def write(file: Path, state: Json) -> None:
    """Whole or not at all, and for the owner's eyes: the channel's secret is in it."""
    text = json.dumps(state, ensure_ascii=False)
    with NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as draft:
        try:
            draft.write(text)
            draft.flush()
            os.replace(draft.name, file)
        except BaseException:
            os.unlink(draft.name)
            raise


def snapshot(platform: Platform) -> Json:
    """All that is kept of *platform*, as JSON."""
    channel = platform.channel
    names = ("secret", "access_token", "channel_id", "bot_id", "basic_id")
    return {
        "version": VERSION,
        "channel": {name: getattr(channel, name) for name in names},
        "me": platform.me.chat_id,
        "used": platform.used,
        "last_message": platform.last_number,
        "accounts": platform.accounts.snapshot(),
        "chats": platform.chats.snapshot(),
        "menus": platform.menus.snapshot(),
        "audiences": platform.audiences.snapshot(),
        "coupons": platform.coupons,
        "liff_apps": platform.liff_apps,
    }


def restore(platform: Platform, state: Json) -> None:
    """*platform*, which has just been created, goes on from there. ValueError: it is damaged."""
    if not state:
        return
    try:
        platform.accounts.restore(state["accounts"])
        platform.chats.restore(state["chats"])
        platform.menus.restore(state["menus"])
        platform.audiences.restore(state["audiences"])
        platform.coupons |= state["coupons"]
        platform.liff_apps |= state["liff_apps"]
        platform.me = Source.user(state["me"])
        platform.used = state["used"]
        platform.last_number = state["last_message"]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the state is damaged: {error!r}") from None


@asynccontextmanager
async def kept(platform: Platform, file: Path) -> AsyncIterator[None]:
    """It is written a second after each change, and at the end."""
    saving = asyncio.create_task(_keep(platform, file))
    try:
        yield
    finally:
        saving.cancel()
        await asyncio.wait([saving])
    # Not after an error: a run that could not start has nothing to say about the one that did.
    write(file, snapshot(platform))


async def _keep(platform: Platform, file: Path) -> None:
    saved, is_failing = platform.journal.changes, False
    while True:
        await asyncio.sleep(_PAUSE)
        changes = platform.journal.changes
        if changes == saved:
            continue
        try:
            write(file, snapshot(platform))
            saved, is_failing = changes, False
        except OSError as error:
            if not is_failing:  # said once, tried again each second
                _log.warning("%s cannot be written: %s", file, error.strerror)
            is_failing = True
