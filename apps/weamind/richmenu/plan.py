"""What is to be done so that all users see our current menu. Pure: no I/O."""

from dataclasses import dataclass
from typing import NamedTuple

from .definition import is_own, name


class Menu(NamedTuple):
    """A menu that LINE has."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class State:
    """All menus that LINE has, and the default, if it was set by the API."""

    menus: tuple[Menu, ...]
    default: str | None

    @property
    def own(self) -> tuple[Menu, ...]:
        """The menus that we created."""
        return tuple(menu for menu in self.menus if is_own(menu.name))

    @property
    def shown(self) -> Menu | None:
        """The default menu. None: the API has set none, or it is not listed."""
        return next((menu for menu in self.menus if menu.id == self.default), None)

    @property
    def is_current(self) -> bool:
        """True: the default is our current menu."""
        return self.shown is not None and self.shown.name == name()


@dataclass(frozen=True, slots=True)
class Plan:
    """Whether to create a new menu; afterwards, which to remove."""

    make: bool
    remove: tuple[str, ...]


def plan(state: State) -> Plan:
    """A menu of ours that is not shown is removed rather than reused: it may have no picture."""
    kept = state.default if state.is_current else None
    return Plan(kept is None, tuple(menu.id for menu in state.own if menu.id != kept))
