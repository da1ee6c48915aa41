"""dogpile.cache on its Redis backend, at its defaults: a lock in the process, pickled values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dogpile.cache import make_region

from . import KEPT


class Threads:
    def __init__(self, port: int, callers: int) -> None:
        self.region = make_region().configure(
            "dogpile.cache.redis", expiration_time=KEPT, arguments={"port": port}
        )

    def cached(self, load: Callable[[str], Any]) -> Callable[[str], Any]:
        @self.region.cache_on_arguments()
        def read(name: str) -> Any:
            return load(name)

        return read

    def many(self, load: Callable[[list[str]], Any]) -> Callable[[list[str]], Any]:
        def create(*keys: str) -> list[Any]:
            return list(load(list(keys)).values())

        def read(names: list[str]) -> dict[str, Any]:
            keys = [f"dogpile:{name}" for name in names]
            return dict(zip(names, self.region.get_or_create_multi(keys, create), strict=True))

        return read

    def close(self) -> None:
        self.region.backend.writer_client.close()
