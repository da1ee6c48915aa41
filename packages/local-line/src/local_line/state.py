"""`--state FILE`: what the platform keeps from one run to the next.

Kept: the channel with its secret and token, people, groups, chats, rich menus with their pictures,
audiences, coupons, LIFF apps and the used quota. Not kept: the bytes of what people sent, tokens
that work once, and the journal.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from errno import EBUSY
from pathlib import Path
from typing import Any

from .platform import Platform
from .sources import Source

if sys.platform != "win32":
    import fcntl

Json = dict[str, Any]
VERSION = 1
_CHANNEL = ("secret", "access_token", "channel_id", "bot_id", "basic_id")
_PAUSE = 1.0
"""Seconds between two checks for changes to write."""
_log = logging.getLogger("local_line")


def read(file: Path) -> Json:
    """Read what an earlier run has written; nothing, if there was none.

    OSError: it cannot be read. ValueError: it is something else.
    """
    try:
        state = json.loads(file.read_bytes() or b"{}")
    except FileNotFoundError:
        return {}
    except ValueError:
        state = None
    if not isinstance(state, dict) or not _is_state(state):
        raise ValueError(f"{file} is no state of this version of local-line")
    return state


def _is_state(state: Json) -> bool:
    channel = state.get("channel", {})
    is_channel = isinstance(channel, dict) and channel.keys() <= {*_CHANNEL}
    return is_channel and state.get("version", VERSION) == VERSION


class StateFile:
    """The locked file: no other run writes it meanwhile. A kill releases it, too."""

    def __init__(self, file: Path) -> None:
        """OSError: it cannot be opened, or another run holds it."""
        self._file = file
        self._draft = file.with_name(f"{file.name}.new")
        self._held = _locked(file)

    def write(self, state: Json) -> None:
        """Write it atomically, readable by the owner only: it contains the channel's secret."""
        try:
            with open(self._draft, "wb", opener=_private) as draft:
                draft.write(json.dumps(state).encode())
            held = _locked(self._draft)
            os.replace(self._draft, self._file)
        except OSError as error:
            self._draft.unlink(missing_ok=True)
            error.filename = str(self._file)
            raise
        self.close()
        self._held = held

    def close(self) -> None:
        """Release it for another run."""
        if self._held is not None:
            os.close(self._held)


def _private(file: str, flags: int) -> int:
    return os.open(file, flags, 0o600)


def _locked(file: Path) -> int | None:
    """Its locked descriptor; on Windows none: an open file cannot be replaced there."""
    if sys.platform == "win32":
        return None
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(file)):
            raise BlockingIOError  # the one that holds it has just written
    except BlockingIOError:
        os.close(descriptor)
        raise OSError(EBUSY, "in use by another local-line", str(file)) from None
    except OSError:  # a file system without locks
        pass
    return descriptor


def snapshot(platform: Platform) -> Json:
    """All that is kept of *platform*, as JSON."""
    channel = platform.channel
    return {
        "version": VERSION,
        "channel": {name: getattr(channel, name) for name in _CHANNEL},
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
    """Restore *platform*, which has just been created. ValueError: the state is damaged."""
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
async def kept(platform: Platform, file: StateFile) -> AsyncIterator[None]:
    """Write the state a second after each change, and at the end."""
    saving = asyncio.create_task(_keep(platform, file))
    try:
        yield
    finally:
        saving.cancel()
        await asyncio.wait([saving])
    # Not after an error: a run that could not start has nothing to say about the one that did.
    file.write(snapshot(platform))


async def _keep(platform: Platform, file: StateFile) -> None:
    saved, is_failing = platform.journal.changes, False
    while True:
        await asyncio.sleep(_PAUSE)
        changes = platform.journal.changes
        if changes == saved:
            continue
        try:
            file.write(snapshot(platform))
            saved, is_failing = changes, False
        except OSError as error:
            if not is_failing:  # said once, tried again each second
                _log.warning("%s cannot be written: %s", error.filename, error.strerror)
            is_failing = True
