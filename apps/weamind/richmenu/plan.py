"""What is to be done so that everybody sees our menu as it is now. It decides, and does nothing."""

from dataclasses import dataclass
from typing import NamedTuple

from .definition import is_own, name


class Menu(NamedTuple):
    """A menu that LINE has."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class State:
    """All menus that LINE has, and the one that everybody sees, if it was set by the API."""

    menus: tuple[Menu, ...]
    default: str | None

    @property
    def own(self) -> tuple[Menu, ...]:
        """Those that we made."""
        return tuple(menu for menu in self.menus if is_own(menu.name))

    @property
    def shown(self) -> Menu | None:
        """What everybody sees. None: nothing of the API's, or a menu that is in no list."""
        return next((menu for menu in self.menus if menu.id == self.default), None)

    @property
    def is_current(self) -> bool:
        """True: everybody sees our menu as it is now."""
        return self.shown is not None and self.shown.name == name()


@dataclass(frozen=True, slots=True)
class Plan:
    """Make a new one or not; afterwards, which to remove."""

    make: bool
    remove: tuple[str, ...]


def plan(state: State) -> Plan:
    """A menu of ours that nobody sees is not taken up again but removed: who knows whether it
    ever got its picture."""
    kept = state.default if state.is_current else None
    return Plan(kept is None, tuple(menu.id for menu in state.own if menu.id != kept))
