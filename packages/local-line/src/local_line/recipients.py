"""The recipients of a narrowcast: LINE's recipient objects, read as sets of users."""

from collections.abc import Callable, Set
from typing import Any

from .refusals import Detail, wrong_body

Users = frozenset[str]
Json = dict[str, Any]


class Recipients:
    """Reads recipient objects; audiences and earlier calls are looked up by the given functions."""

    def __init__(
        self,
        friends: Set[str],
        *,
        audience: Callable[[int], Set[str] | None],
        earlier: Callable[[str], Set[str] | None],
    ) -> None:
        self._friends = frozenset(friends)
        self._audience = audience
        self._earlier = earlier

    def read(self, recipient: Any, path: str = "recipient") -> Users:
        """The matching friends.

        Refusal: 400, it is not a recipient object, or names an unknown one.
        """
        kind = recipient.get("type") if isinstance(recipient, dict) else None
        if kind == "audience":
            return self._found(self._audience, recipient.get("audienceGroupId"), int, path)
        if kind == "redelivery":
            return self._found(self._earlier, recipient.get("requestId"), str, path)
        if kind == "operator":
            return self._combined(recipient, path)
        raise wrong_body([Detail(f"{path}.type", "invalid recipient type")])

    def _found(
        self, find: Callable[[Any], Set[str] | None], key: Any, kind: type, path: str
    ) -> Users:
        found = find(key) if type(key) is kind else None
        if found is None:
            raise wrong_body([Detail(path, "not found")])
        return self._friends & found

    def _combined(self, recipient: Json, path: str) -> Users:
        given = [name for name in ("and", "or", "not") if name in recipient]
        if len(given) != 1:
            raise wrong_body([Detail(path, "must have one of: and, or, not")])
        name = given[0]
        if name == "not":
            return self._friends - self.read(recipient["not"], f"{path}.not")
        parts = self._parts(recipient[name], f"{path}.{name}")
        return frozenset.intersection(*parts) if name == "and" else frozenset.union(*parts)

    def _parts(self, listed: Any, path: str) -> list[Users]:
        if not isinstance(listed, list) or not 1 <= len(listed) <= 10:
            raise wrong_body([Detail(path, "Size must be between 1 and 10")])
        return [self.read(each, f"{path}[{index}]") for index, each in enumerate(listed)]
