"""The rich menu: whether it is up to date and shown to all users. The bot works without it."""

from ...richmenu.channel import Channel
from ...richmenu.plan import State
from ..findings import Finding, degraded, ok

MENU = "rich menu"
_APPLY = "python -m apps.weamind richmenu apply"


async def check(channel: Channel) -> Finding:
    """Check which menu all users see."""
    return judge(await channel.menus())


def judge(state: State) -> Finding:
    """The finding for this state."""
    if state.is_current:
        return ok(MENU, "everybody sees it")
    if state.shown is None:
        return degraded(MENU, "nobody sees one that was set by the API", _APPLY)
    whose = "an older one of ours" if state.shown in state.own else "somebody else's"
    return degraded(MENU, f"everybody sees {whose}", _APPLY)
