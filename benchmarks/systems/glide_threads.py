"""valkey-glide-sync: the same Rust core for threads, a separate package. No lock either."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from glide_sync import GlideClient, GlideClientConfiguration, NodeAddress

from . import TTL


class Threads:
    def __init__(self, port: int, callers: int) -> None:
        self.client = GlideClient.create(GlideClientConfiguration([NodeAddress("127.0.0.1", port)]))

    def pair_on(self, key: str) -> Callable[[], None]:
        ask, px = self.client.custom_command, str(TTL * 1000)

        def pair() -> None:
            token = uuid4().hex
            if ask(["SET", key, token, "NX", "PX", px]) is None:
                raise AssertionError(f"{key} was not free")
            ask(["DELIFEQ", key, token])

        return pair

    def close(self) -> None:
        self.client.close()
