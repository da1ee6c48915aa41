"""Apply the menu at LINE, and remove it again. Both can be repeated; other menus are left alone."""

from collections.abc import Iterable
from dataclasses import dataclass

from .channel import Channel, LineError
from .definition import definition, picture
from .plan import plan


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done."""

    made: bool
    """False: all users saw it already."""
    removed: int
    """How many older ones of ours were removed."""
    left: int = 0
    """How many of them LINE did not remove."""


async def apply(channel: Channel) -> Applied:
    """Show our current menu to all users.

    LineError: they see the previous one; or, if LINE stopped answering at the very end, the new
    one, complete.

    Older ones of ours are removed afterwards. A concurrent run may leave a second one behind, which
    the next run removes.
    """
    todo = plan(await channel.menus())
    if todo.make:
        await _make(channel)
    return await _removed(channel, todo.remove, made=todo.make)


async def remove(channel: Channel) -> Applied:
    """Remove all menus of ours. LineError: nothing was done."""
    state = await channel.menus()
    own = [menu.id for menu in state.own]
    if state.default in own:
        await channel.cancel_default()
    return await _removed(channel, own, made=False)


async def _make(channel: Channel) -> None:
    menu_id = await channel.make_menu(definition())
    try:
        await channel.upload(menu_id, picture())
        await channel.set_default(menu_id)
    except LineError:
        if not await _is_shown(channel, menu_id):
            raise
    except BaseException:
        await _is_shown(channel, menu_id)
        raise


async def _is_shown(channel: Channel, menu_id: str) -> bool:
    """True: only LINE's answer was lost. False: it is not shown, so it is deleted.

    If LINE cannot be asked, it is left to the next time.
    """
    try:
        if await channel.default_menu() == menu_id:
            return True
        await channel.delete_menu(menu_id)
    except LineError:
        pass  # what went wrong first is what the caller has to know
    return False


async def _removed(channel: Channel, menu_ids: Iterable[str], *, made: bool) -> Applied:
    removed = left = 0
    for menu_id in menu_ids:
        try:
            await channel.delete_menu(menu_id)
            removed += 1
        except LineError:
            left += 1
    return Applied(made, removed, left)
