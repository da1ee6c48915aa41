"""Bots in the style of the examples that come with LINE's Python SDK, call by call."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi import Request as AsyncRequest
from flask import Flask, abort, request
from linebot.v3 import WebhookHandler, WebhookParser
from linebot.v3 import insight as insights
from linebot.v3 import messaging as m
from linebot.v3 import webhooks as hooks
from linebot.v3.exceptions import InvalidSignatureError
from PIL import Image

Json = dict[str, Any]
FAR = "https://example.com/p.png"


def echo(secret: str, configuration: Any) -> FastAPI:
    """As `fastapi-echo`: parser, asynchronous client, every text sent back."""
    app, parser = FastAPI(), WebhookParser(secret)

    @app.post("/callback")
    async def callback(request: AsyncRequest) -> str:
        body = (await request.body()).decode()
        try:
            events = parser.parse(body, request.headers["X-Line-Signature"])
        except InvalidSignatureError:
            raise HTTPException(400, "Invalid signature") from None
        async with m.AsyncApiClient(configuration) as client:
            for event in events:
                is_message = isinstance(event, hooks.MessageEvent)
                if is_message and isinstance(event.message, hooks.TextMessageContent):
                    text = {"type": "text", "text": event.message.text}
                    asked = {"replyToken": event.reply_token, "messages": [text]}
                    await m.AsyncMessagingApi(client).reply_message(
                        m.ReplyMessageRequest.from_dict(asked)
                    )
        return "OK"

    return app


class KitchenSink:
    """As `flask-kitchensink`: handlers of every kind of event, and a command for many calls."""

    def __init__(self, secret: str, configuration: Any) -> None:
        self.app = Flask(__name__)
        self.downloads: list[bytes] = []
        self._configuration = configuration
        self._handler = WebhookHandler(secret)
        self.app.add_url_rule("/callback", view_func=self.callback, methods=["POST"])
        self._add_handlers()

    def callback(self) -> str:
        try:
            body = request.get_data(as_text=True)
            self._handler.handle(body, request.headers["X-Line-Signature"])
        except InvalidSignatureError:
            abort(400)
        return "OK"

    def _add_handlers(self) -> None:
        content = hooks
        media = (content.ImageMessageContent, content.VideoMessageContent)
        media += (content.AudioMessageContent, content.FileMessageContent)
        self._on_message(content.TextMessageContent, self.on_text)
        self._on_message(content.LocationMessageContent, self.on_location)
        self._on_message(content.StickerMessageContent, self.on_sticker)
        self._on_message(media, self.on_content)
        for kind in (hooks.FollowEvent, hooks.JoinEvent, hooks.PostbackEvent, hooks.BeaconEvent):
            self._on(kind, self.on_other)
        self._on(hooks.MemberJoinedEvent, self.on_other)
        for kind in (hooks.UnfollowEvent, hooks.LeaveEvent, hooks.MemberLeftEvent):
            self._on(kind, lambda event: None)

    def _on(self, kind: Any, do: Callable[[Any], None]) -> None:
        self._handler.add(kind)(lambda event: do(event))  # the SDK counts a method's `self`

    def _on_message(self, kind: Any, do: Callable[[Any], None]) -> None:
        self._handler.add(hooks.MessageEvent, message=kind)(lambda event: do(event))

    # ---- events

    def on_location(self, event: Any) -> None:
        place = event.message
        facts = {"title": "Location", "address": place.address}
        where = {"latitude": place.latitude, "longitude": place.longitude}
        self._reply(event, {"type": "location"} | facts | where)

    def on_sticker(self, event: Any) -> None:
        sticker = {"packageId": event.message.package_id, "stickerId": event.message.sticker_id}
        self._reply(event, {"type": "sticker"} | sticker)

    def on_content(self, event: Any) -> None:
        with m.ApiClient(self._configuration) as client:
            data = m.MessagingApiBlob(client).get_message_content(message_id=event.message.id)
        self.downloads.append(bytes(data))
        self._reply(event, text("Save content."))

    def on_other(self, event: Any) -> None:
        data = event.postback.data if event.type == "postback" else ""
        self._reply(event, text(f"{event.type} {data}".strip()))

    def on_text(self, event: Any) -> None:
        word = event.message.text
        with m.ApiClient(self._configuration) as client:
            answer = getattr(self, f"do_{word}", None)
            messages = answer(m.MessagingApi(client), event) if answer else [text(word)]
        if messages:
            self._reply(event, *messages)

    def _reply(self, event: Any, *messages: Json) -> None:
        body = {"replyToken": event.reply_token, "messages": list(messages)}
        with m.ApiClient(self._configuration) as client:
            m.MessagingApi(client).reply_message(m.ReplyMessageRequest.from_dict(body))

    # ---- commands

    def do_profile(self, api: Any, event: Any) -> list[Json]:
        profile = api.get_profile(user_id=event.source.user_id)
        return [text(f"Display name: {profile.display_name}")]

    def do_emojis(self, api: Any, event: Any) -> list[Json]:
        emoji = {"index": 0, "productId": "5ac1bfd5040ab15980c9b435", "emojiId": "001"}
        return [text("$ LINE emoji", emojis=[emoji])]

    def do_quota(self, api: Any, event: Any) -> list[Json]:
        quota = api.get_message_quota()
        return [text(f"type: {quota.type}"), text(f"value: {quota.value}")]

    def do_quota_consumption(self, api: Any, event: Any) -> list[Json]:
        return [text(f"total usage: {api.get_message_quota_consumption().total_usage}")]

    def do_push(self, api: Any, event: Any) -> None:
        body = {"to": event.source.user_id, "messages": [text("PUSH!")]}
        api.push_message(m.PushMessageRequest.from_dict(body))

    def do_multicast(self, api: Any, event: Any) -> None:
        body = {"to": [event.source.user_id], "messages": [text("MULTICAST!")]}
        api.multicast(m.MulticastRequest.from_dict(body))

    def do_broadcast(self, api: Any, event: Any) -> None:
        api.broadcast(m.BroadcastRequest.from_dict({"messages": [text("BROADCAST!")]}))

    def do_sent(self, api: Any, event: Any) -> list[Json]:
        sent = api.get_number_of_sent_broadcast_messages(var_date="20260101")
        return [text(f"sent {sent.status} {sent.success}")]

    def do_bye(self, api: Any, event: Any) -> list[Json]:
        if event.source.type == "group":
            api.leave_group(event.source.group_id)
        elif event.source.type == "room":
            api.leave_room(room_id=event.source.room_id)
        return [text("Leaving")]

    def do_image(self, api: Any, event: Any) -> list[Json]:
        return [{"type": "image", "originalContentUrl": FAR, "previewImageUrl": FAR}]

    def do_confirm(self, api: Any, event: Any) -> list[Json]:
        actions = [action("message", text="Yes!"), action("message", text="No!")]
        return [template("confirm", text="Do it?", actions=actions)]

    def do_buttons(self, api: Any, event: Any) -> list[Json]:
        actions = [action("uri", uri="https://line.me"), action("postback", data="ping")]
        actions += [action("postback", data="ping", text="ping"), action("message", text="ok")]
        return [template("buttons", title="My buttons", text="Hello", actions=actions)]

    def do_carousel(self, api: Any, event: Any) -> list[Json]:
        picker = {"data": "date_postback", "mode": "date"}
        column = {"text": "hoge1", "title": "fuga1"}
        columns = [
            column
            | {"actions": [action("uri", uri="https://line.me"), action("postback", data="a")]},
            column | {"actions": [action("datetimepicker", **picker), action("message", text="b")]},
        ]
        return [template("carousel", columns=columns)]

    def do_image_carousel(self, api: Any, event: Any) -> list[Json]:
        picker = {"data": "datetime_postback", "mode": "datetime"}
        column = {"imageUrl": FAR, "action": action("datetimepicker", label="datetime", **picker)}
        return [template("image_carousel", columns=[column, column])]

    def do_flex(self, api: Any, event: Any) -> list[Json]:
        body = {
            "type": "box",
            "layout": "vertical",
            "contents": [{"type": "text", "text": "Brown"}],
        }
        bubble = {"type": "bubble", "direction": "ltr", "body": body}
        return [{"type": "flex", "altText": "hello", "contents": bubble}]

    def do_quick_reply(self, api: Any, event: Any) -> list[Json]:
        picker = {"data": "data3", "mode": "date"}
        actions = [action("postback", data="d1"), action("message", text="t2")]
        actions += [action("datetimepicker", **picker), action("camera"), action("cameraRoll")]
        items = [{"type": "action", "action": each} for each in [*actions, action("location")]]
        return [text("Quick reply", quickReply={"items": items})]

    def do_link_token(self, api: Any, event: Any) -> list[Json]:
        return [
            text(f"link_token: {api.issue_link_token(user_id=event.source.user_id).link_token}")
        ]

    def do_insight(self, api: Any, event: Any) -> list[Json]:
        with insights.ApiClient(self._configuration) as client:
            insight = insights.Insight(client)
            day = "20260101"
            sent = insight.get_number_of_message_deliveries(var_date=day).status
            friends = insight.get_number_of_followers(var_date=day).followers
            known = insight.get_friends_demographics().available
        return [text(f"{sent} {friends} {known}")]

    def do_http_info(self, api: Any, event: Any) -> None:
        body = {"replyToken": event.reply_token, "messages": [text("Hello")]}
        answer = api.reply_message_with_http_info(m.ReplyMessageRequest.from_dict(body))
        assert answer.status_code == 200 and answer.headers["x-line-request-id"]

    def do_http_error(self, api: Any, event: Any) -> list[Json]:
        body = {"replyToken": "invalid", "messages": [text("Hello")]}
        try:
            api.reply_message_with_http_info(m.ReplyMessageRequest.from_dict(body))
        except m.ApiException as error:
            answer = m.ErrorResponse.from_json(error.body)
            return [text(f"{error.status} {answer.message}")]
        return []


def text(words: str, **rest: Any) -> Json:
    return {"type": "text", "text": words} | rest


def action(kind: str, label: str = "Label", **rest: Any) -> Json:
    return {"type": kind, "label": label} | rest


def template(kind: str, **rest: Any) -> Json:
    return {"type": "template", "altText": kind, "template": {"type": kind} | rest}


def make_tabs(configuration: Any) -> None:
    """As the example `rich-menu`: two menus, each with a tab that leads to the other."""
    with m.ApiClient(configuration) as client:
        api, blob = m.MessagingApi(client), m.MessagingApiBlob(client)
        menus = [
            api.create_rich_menu(_tab(*names)).rich_menu_id for names in (("a", "b"), ("b", "a"))
        ]
        for menu in menus:
            kind = {"Content-Type": "image/png"}
            blob.set_rich_menu_image(rich_menu_id=menu, body=_picture(), _headers=kind)
        api.set_default_rich_menu(rich_menu_id=menus[0])
        for name, menu in zip(("a", "b"), menus, strict=True):
            alias = {"richMenuAliasId": f"richmenu-alias-{name}", "richMenuId": menu}
            api.create_rich_menu_alias(m.CreateRichMenuAliasRequest.from_dict(alias))


def _tab(own: str, other: str) -> Any:
    switch = {"type": "richmenuswitch", "richMenuAliasId": f"richmenu-alias-{other}"}
    switch |= {"data": f"richmenu-changed-to-{other}"}
    halves = [{"type": "uri", "uri": "https://developers.line.biz/"}, switch]
    ordered = halves if own == "a" else halves[::-1]
    areas = [
        {"bounds": {"x": left, "y": 0, "width": 1250, "height": 1686}, "action": what}
        for left, what in zip((0, 1251), ordered, strict=True)
    ]
    size = {"width": 2500, "height": 1686}
    menu = {"size": size, "selected": False, "name": f"richmenu-{own}", "areas": areas}
    return m.RichMenuRequest.from_dict(menu | {"chatBarText": f"richmenu-{own}"})


def _picture() -> bytearray:
    file = io.BytesIO()
    Image.new("RGB", (2500, 1686), "#1d6660").save(file, "PNG")
    return bytearray(file.getvalue())
