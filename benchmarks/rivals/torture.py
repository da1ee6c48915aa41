"""dibs-torture on one middleware, in the environment of that library: `python torture.py NAME`.

PYTHONPATH brings dibs, dibs-torture and this checkout; the answer is a line of JSON.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from dibs_torture import CASES, Adapter, torture
from dibs_torture.asgi import App
from dibs_torture.targets import GUARDED, WINDOW, Target, fill, known_target, stored_in

from dibs.testing import Server


@contextmanager
def grelmicro() -> Generator[Target]:
    """Provide grelmicro's middleware, with the options that its documentation has for the rest:

    who the user is, that a key is required, that payloads are compared.
    """
    from grelmicro import Grelmicro
    from grelmicro.cache import Cache
    from grelmicro.coordination import Coordination
    from grelmicro.http import IdempotencyMiddleware
    from grelmicro.idempotency import Idempotency
    from grelmicro.providers.redis import RedisProvider

    def key_of(scope: Any, key: str) -> str:
        user = hashlib.sha256(dict(scope["headers"]).get(b"authorization", b"")).hexdigest()
        query = scope["query_string"].decode("latin-1")
        return "|".join((user, scope["method"], scope["path"], query, key))

    with Server.start("valkey") as store:
        opened: list[Any] = []

        async def startup() -> None:
            redis = RedisProvider(store.url)
            opened.append(Grelmicro(uses=[redis, Cache(redis), Coordination(redis)]))
            await opened[-1].__aenter__()

        async def shutdown() -> None:
            while opened:
                await opened.pop().__aexit__(None, None, None)

        def wrap(app: App) -> App:
            return IdempotencyMiddleware(
                app,
                idempotency=Idempotency("http", ttl=int(WINDOW)),
                key=key_of,
                require_key=True,
                fingerprint_body=True,
                max_wait=1.0,
                include=("/guarded*",),
            )

        adapter = Adapter(
            waits=True,
            startup=startup,
            shutdown=shutdown,
            guarded=GUARDED,
            also_guarded=f"{GUARDED}/also",
            window=WINDOW,
            store=store,
            contents=functools.partial(stored_in, store),
            full=functools.partial(fill, store),
        )
        yield Target(f"grelmicro {version('grelmicro')}", wrap, adapter)


def main(name: str) -> None:
    """Try the middleware, and write how many promises it keeps."""
    logging.getLogger().addHandler(logging.NullHandler())
    with grelmicro() if name == "grelmicro" else known_target(name) as target:
        report = asyncio.run(
            torture(target.wrap, adapter=target.adapter, cases=CASES, name=target.name)
        )
    counts = {"passed": len(report.passed), "failed": len(report.failed)}
    sys.stdout.write(f"{json.dumps(counts)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
