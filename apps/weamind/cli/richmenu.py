"""`richmenu apply | show | remove`: done, and said in a line."""

import asyncio

from ..core.config import SettingsError, read_settings
from ..richmenu.applying import Applied, apply, remove
from ..richmenu.buttons import BUTTONS
from ..richmenu.channel import Channel, LineError
from ..richmenu.definition import is_own, name
from ..richmenu.plan import Menu, State
from .problems import FAILED, MISTAKEN, report_problems


def richmenu(verb: str) -> int:
    """The exit code."""
    try:
        settings = read_settings()
    except SettingsError as error:
        return report_problems(error.mistakes, MISTAKEN)
    token = settings.line_channel_access_token.get_secret_value()
    try:
        return asyncio.run(_do(verb, settings.line_api_base, token))
    except LineError as error:
        return report_problems([str(error)], FAILED)
    except KeyboardInterrupt:
        return report_problems(["interrupted"], FAILED)


async def _do(verb: str, api_base: str, token: str) -> int:
    async with Channel(api_base, token) as channel:
        if verb == "show":
            for line in described(await channel.menus()):
                print(line)
            return 0
        done = await (apply(channel) if verb == "apply" else remove(channel))
    print(result_line(verb, done))
    if done.left:
        what = f"{done.left} older menus could not be removed: run it again"
        return report_problems([what], FAILED)
    return 0


def result_line(verb: str, done: Applied) -> str:
    """What was done, in a line."""
    if verb == "remove":
        return f"Removed: {done.removed} menus." if done.removed else "There was nothing to remove."
    first = "Everybody sees the new menu" if done.made else "The menu is up to date"
    return f"{first}; older ones removed: {done.removed}." if done.removed else f"{first}."


def described(state: State) -> list[str]:
    """Which menus LINE has, and what the buttons of ours are."""
    others = [menu for menu in state.menus if not is_own(menu.name)]
    return [
        f"everybody sees: {_shown(state)}",
        f"menus of ours: {len(state.own)}, of others: {len(others)}",
        "buttons: " + " · ".join(f"{each.label} ({each.data})" for each in BUTTONS),
    ]


def _shown(state: State) -> str:
    if state.shown is None:
        return "no menu that was set by the API" if state.default is None else "an unknown menu"
    return _kind(state.shown)


def _kind(menu: Menu) -> str:
    if menu.name == name():
        return "our menu, as it is now"
    return "an older menu of ours" if is_own(menu.name) else "somebody else's menu"
