"""A phone in a real browser and a real bot behind it, for the tests of the pages."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import httpx2 as httpx
from local_line import LocalLine, served
from PIL import Image
from starlette.requests import Request
from starlette.responses import Response

SECRET, TOKEN = "channel secret", "channel access token"
TIMEOUT = 20.0
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1200, "height": 900}

Json = dict[str, Any]


class Bot:
    """Answers events with what the test has told it to say; nothing: it says nothing."""

    def __init__(self, line: LocalLine) -> None:
        self._line = line
        self.status = 200
        self.says: Callable[[Json], list[Json]] = lambda event: []
        self.events: list[Json] = []
        self.bodies: list[list[Json]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        events = json.loads(await Request(scope, receive).body())["events"]
        self.bodies.append(events)
        self.events += events
        await Response(status_code=self.status)(scope, receive, send)
        for event in events if self.status == 200 else []:
            if "replyToken" in event and (messages := self.says(event)):
                body = {"replyToken": event["replyToken"], "messages": messages}
                await self.call("POST", "/v2/bot/message/reply", json=body)

    async def call(self, method: str, path: str, **content: Any) -> Json:
        headers = {"Authorization": f"Bearer {TOKEN}"} | content.pop("headers", {})
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=TIMEOUT) as http:
            url = self._line.api_base + path
            answer = await http.request(method, url, headers=headers, **content)
            assert answer.status_code < 300, answer.text
            return answer.json()


class Stage:
    """The platform and the bot in a thread with a loop, so that the test can drive a browser."""

    line: LocalLine
    bot: Bot

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._open = AsyncExitStack()
        self._thread.start()
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, Any], *, within: float = TIMEOUT) -> Any:
        """Its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within)

    async def _start(self) -> None:
        line = LocalLine(
            secret=SECRET,
            access_token=TOKEN,
            port=self._port,
            quota=None,
            redelivered_after=(0.05, 0.05, 30),
        )
        self.line = await self._open.enter_async_context(line)
        self.bot = Bot(self.line)
        self.line.webhook_url = await self._open.enter_async_context(served(self.bot))

    def call(self, method: str, path: str, **content: Any) -> Json:
        """What the bot asks of the platform."""
        return self.run(self.bot.call(method, path, **content))

    def close(self) -> None:
        self.run(self._open.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def show_menu(self, *labels: str, **rest: Any) -> None:
        """A rich menu of so many columns."""
        width = 2400 // len(labels)
        areas = [
            {
                "bounds": {"x": n * width, "y": 0, "width": width, "height": 810},
                "action": {"type": "postback", "label": label, "data": f"do={label}"},
            }
            for n, label in enumerate(labels)
        ]
        size = {"width": 2400, "height": 810}
        menu = {"size": size, "selected": True, "name": "m", "chatBarText": "選單", "areas": areas}
        id = self.call("POST", "/v2/bot/richmenu", json=menu | rest)["richMenuId"]
        file = io.BytesIO()
        Image.new("RGB", (1200, 405), "#1d6660").save(file, "PNG")
        kind = {"Content-Type": "image/png"}
        path = f"/v2/bot/richmenu/{id}/content"
        self.call("POST", path, content=file.getvalue(), headers=kind)
        self.call("POST", f"/v2/bot/user/all/richmenu/{id}")


def is_mistake(said: Any) -> bool:
    """An error; not that the browser tells of every answer that is not 2xx."""
    return said.type == "error" and not re.search("status of (409|503)", said.text)


def text(words: str, *labels: str, **rest: Any) -> Json:
    """A message, with quick replies."""
    message: Json = {"type": "text", "text": words, **rest}
    if labels:
        actions = [{"type": "message", "label": each, "text": f"我選{each}"} for each in labels]
        items = [{"type": "action", "action": action} for action in actions]
        message["quickReply"] = {"items": items}
    return message


def flex(contents: Json, alt: str = "卡片") -> Json:
    return {"type": "flex", "altText": alt, "contents": contents}


def say(page: Any, words: str) -> None:
    page.locator("#say").fill(words)
    page.keyboard.press("Enter")


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    expect.set_options(timeout=TIMEOUT * 1000)
    return expect(locator)


def bubble(*contents: Json, **rest: Any) -> Json:
    return {"type": "bubble", "body": box(*contents), **rest}


def box(*contents: Json, layout: str = "vertical", **rest: Any) -> Json:
    return {"type": "box", "layout": layout, "contents": list(contents), **rest}


def words(text: str, **rest: Any) -> Json:
    return {"type": "text", "text": text, **rest}
