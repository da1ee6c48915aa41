"""The orders service, which dies if a request asks for it: after its commit, before its answer."""

import os
import signal

from starlette.types import Message, Receive, Scope, Send

from apps.orders.main import app as orders

from .exchanges import DIES

_ASKED = tuple(word.lower().encode() for word in DIES)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """The service. When it answers an order, that is committed."""

    async def die(message: Message) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    await orders(scope, receive, die if _ASKED in scope.get("headers", ()) else send)
