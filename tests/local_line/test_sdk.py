"""Every call of LINE's Python SDK, made by the SDK, answered as LINE documents it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from linebot.v3 import audience, insight, liff, messaging, module, moduleattach, oauth, shop
from local_line import LocalLine, Source, events
from local_line.coverage import sdk_calls, served_shapes, table
from local_line.sources import new_id
from PIL import Image

SECRET, TOKEN = "channel secret", "channel access token"
Json = dict[str, Any]
DAY = 24 * 3600.0
CLIENTS: dict[str, tuple[Any, type]] = {
    "MessagingApi": (messaging, messaging.MessagingApi),
    "MessagingApiBlob": (messaging, messaging.MessagingApiBlob),
    "ManageAudience": (audience, audience.ManageAudience),
    "ManageAudienceBlob": (audience, audience.ManageAudienceBlob),
    "Insight": (insight, insight.Insight),
    "Liff": (liff, liff.Liff),
    "LineModule": (module, module.LineModule),
    "LineModuleAttach": (moduleattach, moduleattach.LineModuleAttach),
    "ChannelAccessToken": (oauth, oauth.ChannelAccessToken),
    "Shop": (shop, shop.Shop),
}
MENU: Json = {
    "size": {"width": 2500, "height": 1686}, "selected": False, "name": "a", "chatBarText": "Tap",
    "areas": [],
}  # fmt: skip
COUPON: Json = {
    "title": "一杯咖啡", "acquisitionCondition": {"type": "normal"}, "startTimestamp": 1,
    "endTimestamp": 2, "maxUseCountPerTicket": 1, "visibility": "PUBLIC",
    "timezone": "ASIA_TAIPEI", "reward": {"type": "free"},
}  # fmt: skip
HELLO = [{"type": "text", "text": "哈囉"}]


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Sdk:
    """The SDK's clients, and which of their calls were made."""

    def __init__(self, line: LocalLine, token: str = TOKEN) -> None:
        self._line = line
        self._token = token
        self.made: set[tuple[str, str]] = set()

    async def __call__(self, client: str, name: str, *args: Any, **rest: Any) -> Any:
        """What it returns; an error of the API is an exception with `status`."""
        self.made.add((client, name))
        return await asyncio.to_thread(self._call, client, name, args, rest)

    def _call(self, client: str, name: str, args: tuple[Any, ...], rest: Json) -> Any:
        package, kind = CLIENTS[client]
        settings = package.Configuration(host=self._line.api_base, access_token=self._token)
        with package.ApiClient(settings) as api:
            return getattr(kind(api), name)(*args, _request_timeout=10, **rest)

    async def status(self, client: str, name: str, *args: Any, **rest: Any) -> int:
        """With which it is refused."""
        package, _ = CLIENTS[client]
        with pytest.raises(package.ApiException) as raised:
            await self(client, name, *args, **rest)
        return raised.value.status


@asynccontextmanager
async def platform(**options: Any) -> AsyncIterator[tuple[LocalLine, Sdk]]:
    async with LocalLine(secret=SECRET, access_token=TOKEN, name="測試", **options) as line:
        line.webhook_url = "http://127.0.0.1:9/"
        yield line, Sdk(line)


def made(kind: type, facts: Json) -> Any:
    return kind.from_dict(facts)  # pyright: ignore[reportAttributeAccessIssue]


def texts(line: LocalLine, source: Source) -> list[str]:
    return [message["text"] for message in line.chat(source).sent]


def picture(width: int = 2500, height: int = 1686) -> bytearray:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "#1d6660").save(file, "PNG")
    return bytearray(file.getvalue())


# ------------------------------------------------------------------------------- all of it


async def test_every_call_is_answered() -> None:
    """Every method of every client: what is refused is refused as LINE refuses it, none with 404
    for want of a route."""
    clock = Clock()
    async with platform(clock=clock, channel_id="1234567890") as (line, sdk):
        for story in STORIES:
            await story(line, sdk)
        assert all(call.is_known for call in line.calls)
    assert sdk.made == {(call.client, call.name) for call in sdk_calls()}


def test_no_call_of_the_sdk_is_without_a_route() -> None:
    """Read off the SDK that is installed: a newer one with more calls makes this red."""
    missing = [call for call in sdk_calls() if call.shape not in served_shapes()]
    assert not missing and len(sdk_calls()) >= 112


def test_the_table_in_the_documentation_is_fresh() -> None:
    """As `python -m local_line.coverage` prints it."""
    page = Path(__file__).parents[2] / "packages/local-line/MANUAL.md"
    assert page.read_text("utf-8").endswith(f"\n\n{table()}\n")


async def _messages(line: LocalLine, sdk: Sdk) -> None:
    ann, ben = line.somebody("Ann"), line.somebody("Ben")
    line.accounts.person(ben.chat_id).has_blocked = True
    line.accounts.person(ben.chat_id).is_friend = False
    push = made(messaging.PushMessageRequest, {"to": ann.chat_id, "messages": HELLO})
    assert (await sdk("MessagingApi", "push_message", push)).sent_messages[0].quote_token
    many: Json = {"to": [ann.chat_id, ben.chat_id, new_id("user")], "messages": HELLO}
    await sdk("MessagingApi", "multicast", made(messaging.MulticastRequest, many))
    all_of_them = made(messaging.BroadcastRequest, {"messages": HELLO})
    await sdk("MessagingApi", "broadcast", all_of_them)
    await sdk("MessagingApi", "narrowcast", made(messaging.NarrowcastRequest, {"messages": HELLO}))
    assert texts(line, ann) == ["哈囉"] * 4 and not texts(line, ben)
    progress = await sdk("MessagingApi", "get_narrowcast_progress", line.calls[-1].request_id)
    assert (progress.phase, progress.success_count, progress.target_count) == ("succeeded", 1, 1)
    for kind in ("reply", "push", "multicast", "broadcast", "narrowcast"):
        body = made(messaging.ValidateMessageRequest, {"messages": HELLO})
        await sdk("MessagingApi", f"validate_{kind}", body)
    event = line.happen([events.text("嗨")], source=ann)[0]
    answer: Json = {"replyToken": event["replyToken"], "messages": HELLO}
    await sdk("MessagingApi", "reply_message", made(messaging.ReplyMessageRequest, answer))
    read: Json = {"markAsReadToken": event["message"]["markAsReadToken"]}
    by_token = made(messaging.MarkMessagesAsReadByTokenRequest, read)
    await sdk("MessagingApi", "mark_messages_as_read_by_token", by_token)
    chat = made(messaging.MarkMessagesAsReadRequest, {"chat": {"userId": ann.chat_id}})
    await sdk("MessagingApi", "mark_messages_as_read", chat)
    loading = made(messaging.ShowLoadingAnimationRequest, {"chatId": ann.chat_id})
    await sdk("MessagingApi", "show_loading_animation", loading)
    assert line.chat(ann).loading(line.clock()) == 20


async def _phones(line: LocalLine, sdk: Sdk) -> None:
    number = made(messaging.PnpMessagesRequest, {"to": "0" * 64, "messages": HELLO})
    assert await sdk.status("MessagingApi", "push_messages_by_phone", number) == 403
    name = "push_templated_messages_by_phone"
    asked = {"to": "0" * 64, "templateKey": "shipped", "body": {}}
    templated = made(messaging.PnpTemplatedMessageRequest, asked)
    assert await sdk.status("MessagingApi", name, templated) == 403


async def _counts(line: LocalLine, sdk: Sdk) -> None:
    """Numbers of a day are there on the next one."""
    clock = line.clock
    assert isinstance(clock, Clock)
    from local_line.sendings import day_of

    today = day_of(clock.now)
    names = {kind: f"get_number_of_sent_{kind}_messages" for kind in ("reply", "push", "multicast")}
    names["broadcast"] = "get_number_of_sent_broadcast_messages"
    for kind, name in names.items():
        assert (await sdk("MessagingApi", name, today)).status == "unready"
        clock.now += DAY
        counted = await sdk("MessagingApi", name, today)
        assert (counted.status, counted.success) == ("ready", 2 if kind == "multicast" else 1)
        clock.now -= DAY
    for name in ("get_pnp_message_statistics", "get_pnp_templated_message_statistics"):
        assert (await sdk("MessagingApi", name, "20260101")).success == 0
    assert (await sdk("MessagingApi", "get_message_quota")).value == 200
    assert (await sdk("MessagingApi", "get_message_quota_consumption")).total_usage == 5
    ann = line.somebody()
    unit = {"to": ann.chat_id, "messages": HELLO, "customAggregationUnits": ["may_sale"]}
    await sdk("MessagingApi", "push_message", made(messaging.PushMessageRequest, unit))
    usage = await sdk("MessagingApi", "get_aggregation_unit_usage")
    assert usage.num_of_custom_aggregation_units == 1
    listed = await sdk("MessagingApi", "get_aggregation_unit_name_list")
    assert listed.custom_aggregation_units == ["may_sale"]


async def _content(line: LocalLine, sdk: Sdk) -> None:
    event = line.happen([events.image()])[0]
    number = event["message"]["id"]
    data = await sdk("MessagingApiBlob", "get_message_content", number)
    assert Image.open(io.BytesIO(data)).size == (640, 480)
    small = await sdk("MessagingApiBlob", "get_message_content_preview", number)
    assert Image.open(io.BytesIO(small)).width == 240
    name = "get_message_content_transcoding_by_message_id"
    assert (await sdk("MessagingApiBlob", name, number)).status == "succeeded"
    line.happen([events.unsend(number)])
    assert await sdk.status("MessagingApiBlob", "get_message_content", number) == 410
    assert await sdk.status("MessagingApiBlob", "get_message_content", "1") == 404


async def _people(line: LocalLine, sdk: Sdk) -> None:
    ann = line.somebody("Ann")
    assert (await sdk("MessagingApi", "get_bot_info")).display_name == "測試"
    assert (await sdk("MessagingApi", "get_profile", ann.chat_id)).display_name == "Ann"
    assert ann.chat_id in (await sdk("MessagingApi", "get_followers")).user_ids
    assert (await sdk("MessagingApi", "issue_link_token", ann.chat_id)).link_token
    assert await sdk.status("MessagingApi", "get_membership_list") == 404
    assert await sdk.status("MessagingApi", "get_joined_membership_users", 7) == 404
    joined = await sdk("MessagingApi", "get_membership_subscription", ann.chat_id)
    assert joined.subscriptions == []


async def _groups(line: LocalLine, sdk: Sdk) -> None:
    ann, ben = line.somebody("Ann"), line.somebody("Ben")
    for kind in ("group", "room"):
        chat = new_id(kind)
        source = Source(kind, chat, ann.user_id)
        line.happen([events.join(), events.member_joined(ben.chat_id)], source=source)
        count = await sdk("MessagingApi", f"get_{kind}_member_count", chat)
        ids = await sdk("MessagingApi", f"get_{kind}_members_ids", chat)
        assert count.count == 2 and set(ids.member_ids) == {ann.chat_id, ben.chat_id}
        profile = await sdk("MessagingApi", f"get_{kind}_member_profile", chat, ben.chat_id)
        assert profile.display_name == "Ben"
        if kind == "group":
            line.accounts.name_group(chat, "家人")
            assert (await sdk("MessagingApi", "get_group_summary", chat)).group_name == "家人"
        line.happen([events.member_left(ben.chat_id)], source=source)
        assert (await sdk("MessagingApi", f"get_{kind}_member_count", chat)).count == 1
        await sdk("MessagingApi", f"leave_{kind}", chat)
        assert await sdk.status("MessagingApi", f"get_{kind}_member_count", chat) == 404


async def _menus(line: LocalLine, sdk: Sdk) -> None:
    request = made(messaging.RichMenuRequest, MENU)
    await sdk("MessagingApi", "validate_rich_menu_object", request)
    one, two = [
        (await sdk("MessagingApi", "create_rich_menu", request)).rich_menu_id for _ in range(2)
    ]
    for menu in (one, two):
        kind = {"Content-Type": "image/png"}
        await sdk("MessagingApiBlob", "set_rich_menu_image", menu, picture(), _headers=kind)
    assert await sdk("MessagingApiBlob", "get_rich_menu_image", one)
    assert (await sdk("MessagingApi", "get_rich_menu", one)).chat_bar_text == "Tap"
    assert len((await sdk("MessagingApi", "get_rich_menu_list")).richmenus) == 2
    await sdk("MessagingApi", "set_default_rich_menu", one)
    assert (await sdk("MessagingApi", "get_default_rich_menu_id")).rich_menu_id == one
    await sdk("MessagingApi", "cancel_default_rich_menu")
    await _menus_of_people(line, sdk, one, two)
    await _aliases(sdk, one, two)
    await sdk("MessagingApi", "delete_rich_menu", two)


async def _menus_of_people(line: LocalLine, sdk: Sdk, one: str, two: str) -> None:
    ann, ben = line.somebody(), line.somebody()
    await sdk("MessagingApi", "link_rich_menu_id_to_user", ann.chat_id, one)
    people: Json = {"userIds": [ben.chat_id], "richMenuId": one}
    bulk = made(messaging.RichMenuBulkLinkRequest, people)
    await sdk("MessagingApi", "link_rich_menu_id_to_users", bulk)
    change: Json = {"operations": [{"type": "link", "from": one, "to": two}]}
    batch = made(messaging.RichMenuBatchRequest, change)
    await sdk("MessagingApi", "validate_rich_menu_batch_request", batch)
    await sdk("MessagingApi", "rich_menu_batch", batch)
    request_id = line.calls[-1].request_id
    done = await sdk("MessagingApi", "get_rich_menu_batch_progress", request_id)
    assert done.phase == "succeeded"
    linked = await sdk("MessagingApi", "get_rich_menu_id_of_user", ben.chat_id)
    assert linked.rich_menu_id == two
    await sdk("MessagingApi", "unlink_rich_menu_id_from_user", ann.chat_id)
    rest = made(messaging.RichMenuBulkUnlinkRequest, {"userIds": [ben.chat_id]})
    await sdk("MessagingApi", "unlink_rich_menu_id_from_users", rest)
    assert await sdk.status("MessagingApi", "get_rich_menu_id_of_user", ben.chat_id) == 404


async def _aliases(sdk: Sdk, one: str, two: str) -> None:
    alias: Json = {"richMenuAliasId": "tab", "richMenuId": one}
    new = made(messaging.CreateRichMenuAliasRequest, alias)
    await sdk("MessagingApi", "create_rich_menu_alias", new)
    other = made(messaging.UpdateRichMenuAliasRequest, {"richMenuId": two})
    await sdk("MessagingApi", "update_rich_menu_alias", "tab", other)
    assert (await sdk("MessagingApi", "get_rich_menu_alias", "tab")).rich_menu_id == two
    assert len((await sdk("MessagingApi", "get_rich_menu_alias_list")).aliases) == 1
    await sdk("MessagingApi", "delete_rich_menu_alias", "tab")


async def _coupons(line: LocalLine, sdk: Sdk) -> None:
    coupon = made(messaging.CouponCreateRequest, COUPON)
    number = (await sdk("MessagingApi", "create_coupon", coupon)).coupon_id
    assert (await sdk("MessagingApi", "get_coupon_detail", number)).status == "RUNNING"
    await sdk("MessagingApi", "close_coupon", number)
    assert await sdk.status("MessagingApi", "close_coupon", number) == 410
    listed = await sdk("MessagingApi", "list_coupon", status=["CLOSED"])
    assert [each.title for each in listed.items] == ["一杯咖啡"]


async def _webhook(line: LocalLine, sdk: Sdk) -> None:
    address = {"endpoint": "http://127.0.0.1:9/callback"}
    place = made(messaging.SetWebhookEndpointRequest, address)
    await sdk("MessagingApi", "set_webhook_endpoint", place)
    found = await sdk("MessagingApi", "get_webhook_endpoint")
    assert (found.endpoint, found.active) == (address["endpoint"], True)
    assert (await sdk("MessagingApi", "test_webhook_endpoint")).success is False


async def _audiences(line: LocalLine, sdk: Sdk) -> None:
    ann = line.somebody()
    facts: Json = {"description": "常客", "audiences": [{"id": ann.chat_id}]}
    group = await sdk(
        "ManageAudience", "create_audience_group", made(audience.CreateAudienceGroupRequest, facts)
    )
    number = group.audience_group_id
    more: Json = {"audienceGroupId": number, "audiences": [{"id": line.somebody().chat_id}]}
    add = made(audience.AddAudienceToAudienceGroupRequest, more)
    await sdk("ManageAudience", "add_audience_to_audience_group", add)
    group = (await sdk("ManageAudience", "get_audience_data", number)).audience_group
    assert (group.audience_count, group.status) == (2, "READY")
    name = made(audience.UpdateAudienceGroupDescriptionRequest, {"description": "熟客"})
    await sdk("ManageAudience", "update_audience_group_description", number, name)
    assert (await sdk("ManageAudience", "get_audience_groups", 1)).total_count == 1
    assert (await sdk("ManageAudience", "get_shared_audience_groups", 1)).total_count == 0
    shared = await sdk("ManageAudience", "get_shared_audience_data", number)
    assert shared.audience_group.description == "熟客"
    await _audiences_by_file(line, sdk)
    await _audiences_of_messages(line, sdk)
    await sdk("ManageAudience", "delete_audience_group", number)
    assert await sdk.status("ManageAudience", "get_audience_data", number) == 400


async def _audiences_by_file(line: LocalLine, sdk: Sdk) -> None:
    with tempfile.NamedTemporaryFile(suffix=".txt") as listed:
        listed.write(f"{line.somebody().chat_id}\n{line.somebody().chat_id}\n".encode())
        listed.flush()
        made = await sdk(
            "ManageAudienceBlob", "create_audience_for_uploading_user_ids", listed.name,
            description="檔案",
        )  # fmt: skip
        number = made.audience_group_id
        name = "add_user_ids_to_audience"
        await sdk("ManageAudienceBlob", name, listed.name, audience_group_id=number)
    found = await sdk("ManageAudience", "get_audience_data", number)
    assert found.audience_group.audience_count == 2 and len(found.jobs) == 2


async def _audiences_of_messages(line: LocalLine, sdk: Sdk) -> None:
    all_of_them = made(messaging.BroadcastRequest, {"messages": HELLO})
    await sdk("MessagingApi", "broadcast", all_of_them)
    facts = {"description": "看過", "requestId": line.calls[-1].request_id}
    seen = made(audience.CreateImpBasedAudienceGroupRequest, facts)
    made_of = await sdk("ManageAudience", "create_imp_based_audience_group", seen)
    assert line.audiences.members(made_of.audience_group_id) == set(line.accounts.friends())
    click = made(audience.CreateClickBasedAudienceGroupRequest, facts)
    assert (await sdk("ManageAudience", "create_click_based_audience_group", click)).created


async def _insight(line: LocalLine, sdk: Sdk) -> None:
    assert (await sdk("Insight", "get_friends_demographics")).available is False
    friends = await sdk("Insight", "get_number_of_followers", var_date="20260101")
    assert (friends.status, friends.blocks) == ("ready", 1)
    sent = await sdk("Insight", "get_number_of_message_deliveries", "20260101")
    assert (sent.status, sent.api_push) == ("ready", 0)
    event = await sdk("Insight", "get_message_event", line.calls[-1].request_id)
    assert event.messages == []
    unit = await sdk("Insight", "get_statistics_per_unit", "may_sale", "20260101", "20260131")
    assert unit.clicks == []
    menu = line.menus.all()[0]["richMenuId"]
    for name in ("get_rich_menu_insight_summary", "get_rich_menu_insight_daily"):
        assert (await sdk("Insight", name, menu, "20260101", "20260131")).rich_menu_id == menu


async def _liff(line: LocalLine, sdk: Sdk) -> None:
    assert await sdk.status("Liff", "get_all_liff_apps") == 404
    view = {"type": "tall", "url": "https://example.com/a"}
    new = made(liff.AddLiffAppRequest, {"view": view})
    number = (await sdk("Liff", "add_liff_app", new)).liff_id
    change = made(liff.UpdateLiffAppRequest, {"view": {"type": "full"}})
    await sdk("Liff", "update_liff_app", number, change)
    app = (await sdk("Liff", "get_all_liff_apps")).apps[0]
    assert (app.view.type, app.view.url) == ("full", view["url"])
    await sdk("Liff", "delete_liff_app", number)


async def _tokens(line: LocalLine, sdk: Sdk) -> None:
    grant = "client_credentials"
    short = await sdk("ChannelAccessToken", "issue_channel_token", grant, "1234567890", SECRET)
    assert (await Sdk(line, short.access_token)("MessagingApi", "get_bot_info")).user_id
    known = await sdk("ChannelAccessToken", "verify_channel_token", short.access_token)
    assert known.client_id == "1234567890"
    await sdk("ChannelAccessToken", "revoke_channel_token", short.access_token)
    assert await Sdk(line, short.access_token).status("MessagingApi", "get_bot_info") == 401
    wrong = await sdk.status(
        "ChannelAccessToken", "issue_channel_token", grant, "1234567890", "not the secret"
    )
    assert wrong == 400
    stateless = await sdk(
        "ChannelAccessToken", "issue_stateless_channel_token", grant, client_id="1234567890",
        client_secret=SECRET, client_assertion="", client_assertion_type="",
    )  # fmt: skip
    assert stateless.expires_in == 900
    await _tokens_by_jwt(sdk)


async def _tokens_by_jwt(sdk: Sdk) -> None:
    kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    claims = base64.urlsafe_b64encode(json.dumps({"iss": "1234567890"}).encode()).decode()
    assertion = f"e30.{claims.rstrip('=')}.c2lnbmF0dXJl"
    token = await sdk(
        "ChannelAccessToken", "issue_channel_token_by_jwt", "client_credentials", kind, assertion
    )
    name = "gets_all_valid_channel_access_token_key_ids"
    assert (await sdk("ChannelAccessToken", name, kind, assertion)).kids == [token.key_id]
    good = await sdk("ChannelAccessToken", "verify_channel_token_by_jwt", token.access_token)
    assert good.expires_in > 0
    name = "revoke_channel_token_by_jwt"
    await sdk("ChannelAccessToken", name, "1234567890", SECRET, token.access_token)
    name = "verify_channel_token_by_jwt"
    assert await sdk.status("ChannelAccessToken", name, token.access_token) == 400


async def _not_for_everybody(line: LocalLine, sdk: Sdk) -> None:
    """LINE gives leave for these to few accounts, and answers the others 403."""
    ann = line.somebody()
    name = "acquire_chat_control"
    assert await sdk.status("LineModule", name, ann.chat_id) == 403
    assert await sdk.status("LineModule", "release_chat_control", ann.chat_id) == 403
    assert await sdk.status("LineModule", "detach_module") == 403
    assert await sdk.status("LineModule", "get_modules") == 403
    assert await sdk.status(
        "LineModuleAttach", "attach_module", "authorization_code", "code", "https://example.com"
    ) == 403  # fmt: skip
    sticker = {"to": ann.chat_id, "productId": "1", "productType": "STICKER",
               "sendPresentMessage": False}  # fmt: skip
    mission = made(shop.MissionStickerRequest, sticker)
    assert await sdk.status("Shop", "mission_sticker_v3", mission) == 403


STORIES: list[Callable[[LocalLine, Sdk], Any]] = [
    _messages, _counts, _phones, _content, _people, _groups, _menus, _coupons, _webhook, _audiences,
    _insight, _liff, _tokens, _not_for_everybody,
]  # fmt: skip
