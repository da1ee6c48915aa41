"""A unit of work: what would be told to others inside a transaction waits until that is decided.

    @dibs.once("transfer:{key}", …, within=Session.begin)    opens the transaction, and the unit
    def transfer(session, key):
        with dibs.hold("account:a", ttl=30):                 its release waits in the unit
            move(session, …)
        balance.invalidate("a")                              at once, and again after the commit
                                                             COMMIT, `decide`, then the `effects`

There are two steps, so that other ends can come between them: `decide` when the transaction has
ended, and carrying out the `effects`. A unit that is decided takes no more of them. The current one
is in a context variable: a task that was started inside belongs to it, and a thread of
`asyncio.to_thread`, but no `threading.Thread`.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from ..errors import UsageError

Outcome = Literal["committed", "rolled_back", "unknown"]
"""unknown: the transaction has ended, and whether it has committed could not be seen."""

NO_TRANSACTION = (
    "after_commit is called where no transaction is open that says when it commits: call it in a "
    "function with within=, or after claim.within(…) with a session of SQLAlchemy or with Django"
)


Place = tuple[object, bytes]
"""A key, and the client whose key it is: another one may be of another server."""


class Effect(Protocol):
    """What others see when the unit has ended."""

    @property
    def owner(self) -> object:
        """The client whose effect it is."""
        ...

    @property
    def key(self) -> bytes:
        """Return what it is about, as the server sees it."""
        ...

    @property
    def since(self) -> float:
        """Return when it was begun."""
        ...

    def check(self) -> None:
        """Return if the transaction may commit. Raises LeaseLost if it must not."""
        ...

    def undo(self, unit: "Unit") -> None:
        """The savepoint in which it was added to *unit* was rolled back."""
        ...


class Unit:
    """One transaction, and what waits for its end."""

    __slots__ = (
        "__weakref__", "_calls", "_leases", "_values", "identity", "invalidated", "is_over",
        "loaded", "loads", "outcome", "outer", "says_when", "watch_savepoint",
    )  # fmt: skip

    def __init__(self, outer: "Unit | None" = None, identity: object = None) -> None:
        self.outer = outer
        """The unit around it, of the same transaction or of another one."""
        self.identity = identity
        """The same object for all units on one connection."""
        self.outcome: Outcome | None = None
        """None: it is open."""
        self.says_when = True
        """Whether its outcome will be known."""
        self.is_over: Callable[[], bool] | None = None
        """Where the transaction may end without a word: whether it has."""
        self.watch_savepoint: Callable[[Effect], None] | None = None
        """Called with each effect, to `undo` it with the savepoint that is open."""
        self.loaded: dict[Place, Any] = {}
        """Cached values that were loaded inside, perhaps from rows that only this unit sees."""
        self.loads: dict[object, dict[bytes, Any]] = {}
        """Loads of each client that are under way inside, which no one else may join."""
        self.invalidated: set[Place] = set()
        """Values and tags: what others store meanwhile may be older than what is written here."""
        self._leases: list[Effect] = []
        self._values: dict[Place, Effect] = {}
        """The last one for each key: what is invalidated after it was loaded is not stored."""
        self._calls: list[Effect] = []

    @property
    def is_open(self) -> bool:
        """Return whether it takes effects."""
        if self.outcome is None and self.is_over is not None and self.is_over():
            self.decide("unknown")
        return self.outcome is None

    # ---- what waits

    def add(self, effect: Effect) -> bool:
        """Have the end of a lease or claim wait. False: it is over, so carry it out now."""
        return self._wait(effect, self._leases)

    def call(self, effect: Effect) -> bool:
        """Have a function of the user called. Raises UsageError if the commit will not be seen."""
        if not self.says_when:
            raise UsageError(NO_TRANSACTION)
        return self._wait(effect, self._calls)

    def put(self, effect: Effect) -> bool:
        """Have a change of a cached value wait, in place of what waits for that key."""
        if not self.is_open:
            return False
        place = effect.owner, effect.key
        self._values[place] = effect
        if self.outcome is not None:  # meanwhile, in another thread
            return self._values.pop(place, None) is None
        if self.watch_savepoint is not None:
            self.watch_savepoint(effect)
        return True

    def value(self, owner: object, key: bytes) -> Effect | None:
        """Return the change of the cached value of *key* that waits."""
        return self._values.get((owner, key))

    def has_changed(self, owner: object, key: bytes, tags: Iterable[bytes]) -> bool:
        """Return whether a cached value was invalidated inside, so that a stored one may be old."""
        changed = self.invalidated
        return bool(changed) and any((owner, each) in changed for each in (key, *tags))

    def loads_of(self, owner: object) -> dict[bytes, Any]:
        """Return the loads of a client that are under way inside."""
        return self.loads.setdefault(owner, {})

    def forget(self, owner: object, key: bytes | None) -> None:
        """Forget what was loaded inside. None: all, for it may have a tag."""
        if key is None:
            self.loaded.clear()
            self.loads.clear()
        else:
            self.loaded.pop((owner, key), None)
            self.loads_of(owner).pop(key, None)

    def _wait(self, effect: Effect, effects: list[Effect]) -> bool:
        if not self.is_open:
            return False
        effects.append(effect)
        if self.outcome is not None:  # meanwhile, in another thread
            return not self.take_back(effect)
        if self.watch_savepoint is not None:
            self.watch_savepoint(effect)
        return True

    def pending(self, owner: object, key: bytes) -> Effect | None:
        """Return a lease or claim of *key* that has ended inside, and waits."""
        waiting = list(self._leases)
        return next((each for each in waiting if each.key == key and each.owner is owner), None)

    def take_back(self, effect: Effect) -> bool:
        """Let *effect* not wait any more. False: it does not wait here."""
        place = effect.owner, effect.key
        if self._values.get(place) is effect:
            return self._values.pop(place, None) is not None
        for effects in (self._leases, self._calls):
            try:
                effects.remove(effect)
            except ValueError:
                continue
            return True
        return False

    def check(self) -> None:
        """Return if the transaction may commit.

        Raises LeaseLost if a lease that guarded it was lost.
        """
        for effect in list(self._leases):
            effect.check()

    @property
    def waiting(self) -> list[Effect]:
        """All that wait."""
        return [*self._values.values(), *self._calls, *self._leases]

    # ---- its end

    def decide(self, outcome: Outcome) -> None:
        """The transaction has ended; the first outcome counts."""
        if self.outcome is None:
            self.outcome = outcome

    def hand_to(self, outer: "Unit") -> None:
        """The savepoint of this unit was released: what waits belongs to *outer* from now on."""
        outer.loaded.update(self.loaded)
        outer.invalidated |= self.invalidated
        for key in list(self._values):
            outer.put(self._values.pop(key))
        for effect in _emptied(self._calls):
            outer.call(effect)
        for effect in _emptied(self._leases):
            outer.add(effect)

    def effects(self) -> list[Effect]:
        """Return all that is to be carried out, in this order; each is returned once.

        Values first, because they are read already; then the functions, in their order; then
        leases and claims, the last one begun first.
        """
        values = [self._values.pop(key) for key in list(self._values)]
        leases = sorted(_emptied(self._leases), key=lambda each: each.since, reverse=True)
        self.forget(None, None)
        self.invalidated.clear()
        return [*values, *_emptied(self._calls), *leases]


AT_ONCE = Unit()
"""The home of a lease that is released at the end of its block, whatever is around it."""


def _emptied(effects: list[Effect]) -> list[Effect]:
    """Return all of *effects*, in order.

    Each is taken out in one step: other threads do so as well.
    """
    taken: list[Effect] = []
    while effects:
        taken.append(effects.pop(0))
    return taken


# ---- the current one

_current: ContextVar[Unit | None] = ContextVar("dibs_unit", default=None)


class _Use:
    """Whether a unit was ever opened in this process: if not, none is looked for."""

    __slots__ = ("__weakref__", "has_begun")

    def __init__(self) -> None:
        self.has_begun = False

    def open(self) -> None:
        """Leave all units, in a forked child: the transactions are the parent's."""
        self.has_begun = False
        _current.set(None)


use = _Use()


def current() -> Unit | None:
    """Return the innermost unit of this task or thread that is open."""
    unit = _current.get()
    while unit is not None and not unit.is_open:
        unit = unit.outer
    return unit


def around(unit: Unit) -> Unit | None:
    """Return the open unit of the same transaction around *unit*, which was a savepoint in it."""
    outer = unit.outer
    while outer is not None and not (outer.is_open and outer.identity == unit.identity):
        outer = outer.outer
    return outer


def enter(unit: Unit) -> None:
    """Make *unit* the current one of this task or thread."""
    use.has_begun = True
    _current.set(unit)


def leave(unit: Unit) -> None:
    """Make the one around *unit* current, if this is where it was entered."""
    if _current.get() is unit:
        _current.set(unit.outer)
