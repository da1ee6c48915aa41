"""Count the files of dibs that one call goes through, as a reader who follows it would.

    python tools/count_files.py            one line for each call: how many files, and which
    python tools/count_files.py <src>      the same for another copy of the package

The first call is not counted: what is done once for each object or type is not read with every
call. Of five more the smallest count is taken, because a timer may run beside the others. Needs a
server, which is started here.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

Call = Callable[[], Awaitable[Any]]


@contextmanager
def entered(package: Path) -> Generator[list[str]]:
    """The files under *package* in which a function is called, in the order of the first call."""
    found: list[str] = []
    inside = str(package) + "/"

    def look(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(inside):
            path = name.removeprefix(inside)
            if path not in found:
                found.append(path)

    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def calls(url: str) -> dict[str, Call]:
    """What is counted, by name."""
    from dibs import AsyncDibs
    from dibs.integrations.asgi import DibsMiddleware, Policy

    dibs = AsyncDibs(url, budget=5)

    async def hold() -> None:
        async with dibs.hold("processing:user:42", ttl=5):
            pass

    @dibs.cached("menu:{branch}", ttl=180)
    async def hit(branch: str) -> dict[str, str]:
        return {"branch": branch}

    async def claim() -> None:
        async with dibs.claim("order:1", window=10) as claimed:
            claimed.complete({"order": 1})

    async def order(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    app = DibsMiddleware(order, dibs=dibs, policies=[Policy("POST /orders", window=10)])
    return {
        "hold": hold,
        "cached hit": lambda: hit("b1"),
        "claim": claim,
        "guarded POST": lambda: post(app),
    }


async def post(app: Any) -> None:
    """One request, without a server for HTTP."""
    scope = {
        "type": "http", "method": "POST", "path": "/orders", "raw_path": b"/orders",
        "query_string": b"", "headers": [(b"content-type", b"application/json")],
        "root_path": "", "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "asgi": {"version": "3.0"},
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"cart": 7}', "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        pass

    await app(scope, receive, send)


async def files_of(call: Call, package: Path) -> list[str]:
    """The files that one call enters, and those of tasks beside it."""
    await asyncio.sleep(0.05)
    with entered(package) as files:
        await call()
    return files


async def count(url: str, package: Path) -> None:
    """Print how many files each call enters."""
    for name, call in (await calls(url)).items():
        await call()
        files = min([await files_of(call, package) for _ in range(5)], key=len)
        print(f"{name:14}{len(files):3}  {' '.join(sorted(files))}")


def main(arguments: list[str]) -> None:
    """Start a server, count, stop it."""
    source = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1] / "src"
    sys.path.insert(0, str(source.resolve()))
    import dibs
    from dibs.testing import Server

    with Server.start("valkey") as server:
        asyncio.run(count(server.url, Path(str(dibs.__file__)).parent))


if __name__ == "__main__":
    main(sys.argv[1:])
