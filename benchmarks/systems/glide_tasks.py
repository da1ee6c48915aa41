"""valkey-glide: a multiplexing client in Rust. It has no lock; these are the commands of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import uuid4

from glide import GlideClient, GlideClientConfiguration, NodeAddress

from . import TTL


class Tasks:
    def __init__(self, client: GlideClient) -> None:
        self.client = client

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        return cls(
            await GlideClient.create(GlideClientConfiguration([NodeAddress("127.0.0.1", port)]))
        )

    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        ask, px = self.client.custom_command, str(TTL * 1000)

        async def pair() -> None:
            token = uuid4().hex
            if await ask(["SET", key, token, "NX", "PX", px]) is None:
                raise AssertionError(f"{key} was not free")
            await ask(["DELIFEQ", key, token])

        return pair

    async def aclose(self) -> None:
        await self.client.close()
