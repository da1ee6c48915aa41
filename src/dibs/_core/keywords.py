"""How options are declared for type checkers, and what is said of one that does not exist."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypedDict as TypedDict
else:

    class TypedDict:
        """What Python knows from 3.15 on: a TypedDict that may be `closed`, without other keys.

        Some checkers take the options of an open one for some of more, and accept any name.
        """

        def __init_subclass__(cls, **about: bool) -> None:
            super().__init_subclass__()  # of Generic, for one
            known: dict[str, Any] = {}
            for base in cls.__bases__:
                known |= getattr(base, "__annotations__", {})
            cls.__annotations__ = known | cls.__annotations__


def unknown_option(verb: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for an option *name* that *verb* does not have, in the words of Python."""
    import difflib  # only programs with a mistake need it

    similar = difflib.get_close_matches(name, list(known), n=1, cutoff=0.65)
    hint = f". Did you mean {similar[0]!r}?" if similar else ""
    return TypeError(f"{verb}() got an unexpected keyword argument {name!r}{hint}")


def refuse_unknown(verb: str, options: Iterable[str], keywords: type, *others: str) -> None:
    """Raise TypeError for one of *options* that is neither in *keywords* nor among *others*."""
    known = [*keywords.__annotations__, *others]
    for name in options:
        if name not in known:
            raise unknown_option(verb, name, known)
