"""The playground as an ASGI app: the page, one panel for each verb of dibs, and a bot."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from local_line import KnownHosts
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from .chat import BotPanel
from .documentation import Documentation
from .engine import Engine
from .faults import Faults, welcome
from .hold import HoldPanel
from .machines import MachinesPanel
from .menu import MenuPanel
from .orders import OrdersPanel

STATIC = Path(__file__).with_name("static")
_LONGEST_BODY = 1024
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Playground:
    """The embedded server and the panels on it: started on entry, ended on exit."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        """Names under which the page is served, besides addresses of this machine."""
        self._engine = Engine()
        self.faults = Faults(self._engine)
        self.hold = HoldPanel(self._engine, self.faults)
        self.orders = OrdersPanel(self._engine, self.faults)
        self.menu = MenuPanel(self._engine, self.faults)
        self.machines = MachinesPanel(self._engine, self.faults)
        self.chat = BotPanel(self._engine, self.faults)
        self._panels = (
            self.hold, self.orders, self.menu, self.machines, self.chat, self.faults,
        )  # fmt: skip
        self._open = AsyncExitStack()

    async def __aenter__(self) -> "Playground":
        """DibsError: the embedded server cannot be started; the message says why."""
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self._engine)
            for panel in self._panels:
                await opening.enter_async_context(panel)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._open.aclose()

    async def end_requests(self) -> None:
        """End what would not end by itself: streams, and requests that wait."""
        for panel in reversed(self._panels):
            await panel.end_requests()


def create_app(playground: Playground) -> Starlette:
    """The app. *playground* is opened with its lifespan."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with playground:
            yield

    routes = [
        Route("/", _page),
        Mount("/pages", Documentation()),
        Mount("/static", StaticFiles(directory=STATIC)),
        Mount("/faults", routes=playground.faults.routes),
        Mount("/hold", routes=playground.hold.routes),
        Mount("/orders", routes=playground.orders.routes),
        Mount("/menu", routes=playground.menu.routes),
        Mount("/machines", routes=playground.machines.routes),
        Mount("/chat", routes=playground.chat.routes),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _sentence},
        max_body_size=_LONGEST_BODY,
        middleware=[Middleware(KnownHosts, named=playground.hosts)],
    )


async def _page(request: Request) -> Response:
    """Serve the page, and give a new visitor their own keys."""
    return welcome(request, FileResponse(STATIC / "index.html", headers=_HEADERS))


async def _sentence(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


playground = Playground()
app = create_app(playground)
