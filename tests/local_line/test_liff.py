"""LIFF pages and LINE Login, as a page's author tries them: in a real browser, on two origins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from local_line import BlockingLine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

pytestmark = pytest.mark.only_on("linux", "darwin")
TIMEOUT = 20.0
CHANNEL = "1234567890"
LIFF_ID = f"{CHANNEL}-abcdefgh"
PAGE = """<!doctype html><title>mine</title><p id="who">…</p>
<script src="{sdk}"></script>
<script type="module">
  const who = document.querySelector("#who");
  try {{
    await liff.init({{ liffId: "{liff_id}" }});
    if (liff.isLoggedIn()) who.textContent = (await liff.getProfile()).displayName;
    else who.textContent = "nobody";
  }} catch (error) {{ who.textContent = error.code; }}
</script>"""


@pytest.fixture
def local_line_options() -> dict[str, Any]:
    return {"channel_id": CHANNEL}


@pytest.fixture
def address(local_line: BlockingLine) -> str:
    """A bot's page with LIFF, at an origin that is not LINE's."""
    html = PAGE.format(sdk=f"{local_line.api_base}/liff/edge/2/sdk.js", liff_id=LIFF_ID)

    async def show(request: Request) -> Response:
        return HTMLResponse(html)

    app = Starlette(routes=[Route("/page", show)])
    return local_line.connect(app, path="/page") + "?keep=1"


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """That page in a browser."""
    context = browser.new_context(locale="en-US", viewport={"width": 390, "height": 740})
    context.set_default_timeout(TIMEOUT * 1000)
    page = context.new_page()
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.goto(address)
    yield page
    context.close()
    assert not mistakes


def who(page: Any, name: str) -> None:
    """The page shows that name."""
    from playwright.sync_api import expect

    expect(page.locator("#who")).to_have_text(name)


def test_a_liff_page_logs_in(page: Any, local_line: BlockingLine) -> None:
    """A person is chosen at LINE's page; then the page has profile, tokens and context."""
    who(page, "nobody")
    assert page.evaluate("[liff.getAccessToken(), liff.isInClient(), liff.getOS()]") == [
        None, False, "web",
    ]  # fmt: skip
    page.evaluate("liff.login()")
    page.get_by_role("link", name="Ben").click()
    who(page, "Ben")
    assert re.fullmatch(r".*/page\?keep=1", page.url)
    claims = page.evaluate("liff.getDecodedIDToken()")
    context = page.evaluate("liff.getContext()")
    assert (claims["aud"], claims["name"]) == (CHANNEL, "Ben")
    assert (context["type"], context["userId"]) == ("external", claims["sub"])
    form = {"id_token": page.evaluate("liff.getIDToken()"), "client_id": CHANNEL}
    url = f"{local_line.api_base}/oauth2/v2.1/verify"
    assert httpx.post(url, data=form, trust_env=False).json()["sub"] == claims["sub"]
    assert page.evaluate("liff.getFriendship()") == {"friendFlag": False}


def test_a_login_lasts_until_the_logout(page: Any) -> None:
    """Also over a reload."""
    who(page, "nobody")
    page.evaluate("liff.login()")
    page.get_by_role("link", name="Ann").click()
    who(page, "Ann")
    page.reload()
    who(page, "Ann")
    page.evaluate("liff.logout()")
    page.reload()
    who(page, "nobody")


def test_who_does_not_want_to_log_in(page: Any) -> None:
    """The page gets it from `liff.init`, as LINE's SDK says it."""
    who(page, "nobody")
    page.evaluate("liff.login()")
    page.get_by_role("link", name="Cancel").click()
    who(page, "UNAUTHORIZED")


@pytest.mark.parametrize("name", ["sendMessages", "shareTargetPicker", "scanCodeV2"])
def test_what_only_lines_app_can_do(page: Any, name: str) -> None:
    """FORBIDDEN, and `isApiAvailable` says so before."""
    who(page, "nobody")
    code = page.evaluate(f"liff.{name}([]).catch((error) => error.code)")
    assert code == "FORBIDDEN"
    assert page.evaluate(f"liff.isApiAvailable('{name}')") is False


def test_a_button_in_the_chat_opens_the_page(page: Any, local_line: BlockingLine) -> None:
    """`https://liff.line.me/…` is the page of that LIFF app, if local-line knows it."""
    headers = {"Authorization": f"Bearer {local_line.access_token}"}
    view = {"type": "full", "url": page.url}
    with httpx.Client(base_url=local_line.api_base, headers=headers, trust_env=False) as http:
        made = http.post("/liff/v1/apps", json={"view": view}).json()["liffId"]
        page.goto(local_line.page_url)
        page.get_by_label("Group", exact=True).check()
        expect_number = "() => document.querySelectorAll('#wire li').length > 1"
        page.wait_for_function(expect_number)
        [group] = [each.events[0]["source"]["groupId"] for each in local_line.deliveries]
        actions = [
            {"type": "uri", "label": label, "uri": f"https://liff.line.me/{id}"}
            for label, id in (("Settings", f"{made}#top"), ("Other", "1-x"))
        ]
        template = {"type": "buttons", "text": "t", "actions": actions}
        message = {"type": "template", "altText": "a", "template": template}
        sent = http.post("/v2/bot/message/push", json={"to": group, "messages": [message]})
        assert sent.status_code == 200, sent.text
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Settings").click()
    assert opened.value.url == f"{view['url']}#top"
    page.get_by_role("button", name="Other").click()
    page.locator("#note", has_text="--liff 1-x=URL").wait_for()


# ---- LINE Login, by a web server


def test_line_login_with_a_code(local_line: BlockingLine) -> None:
    """The code is worth tokens once, for its own page and with the channel's secret."""
    uri = "http://127.0.0.1:1/back?x=1"
    query = {"response_type": "code", "client_id": CHANNEL, "redirect_uri": uri}
    query |= {"state": "s&1", "scope": "openid profile", "nonce": "n1"}
    with httpx.Client(base_url=local_line.api_base, trust_env=False) as http:
        assert http.get("/oauth2/v2.1/authorize", params=query).status_code == 200
        chosen = http.get("/oauth2/v2.1/authorize", params=query | {"as": "cleo"})
        back = httpx.URL(chosen.headers["location"])
        assert chosen.status_code == 302 and back.path == "/back"
        assert (back.params["x"], back.params["state"]) == ("1", "s&1")
        form = {"grant_type": "authorization_code", "code": back.params["code"]}
        form |= {"redirect_uri": uri, "client_id": CHANNEL, "client_secret": local_line.secret}
        token = http.post("/oauth2/v2.1/token", data=form).json()
        again = http.post("/oauth2/v2.1/token", data=form)
        asked = {"id_token": token["id_token"], "client_id": CHANNEL, "nonce": "n1"}
        claims = http.post("/oauth2/v2.1/verify", data=asked).json()
    assert again.status_code == 400 and again.json()["error"] == "invalid_grant"
    assert (claims["name"], token["token_type"]) == ("Cleo", "Bearer")


@pytest.mark.parametrize(
    "wrong",
    [
        {"redirect_uri": "javascript:alert(1)"},
        {"redirect_uri": "http://[half"},
        {"client_id": "999"},
        {"response_type": "token"},
        {"state": ""},
    ],
)
def test_a_login_that_cannot_be_asked_for(local_line: BlockingLine, wrong: dict[str, str]) -> None:
    """400, with a sentence, and no redirect."""
    query = {"response_type": "code", "client_id": CHANNEL, "state": "s"}
    query |= {"redirect_uri": "http://127.0.0.1:1/back"} | wrong
    url = f"{local_line.api_base}/oauth2/v2.1/authorize"
    answer = httpx.get(url, params=query, trust_env=False)
    assert answer.status_code == 400 and answer.json()["error"]


def test_a_code_without_the_secret(local_line: BlockingLine) -> None:
    """A code of LINE Login is useless without the secret."""
    uri = "http://127.0.0.1:1/back"
    query = {"response_type": "code", "client_id": CHANNEL, "redirect_uri": uri, "state": "s"}
    with httpx.Client(base_url=local_line.api_base, trust_env=False) as http:
        http.get("/oauth2/v2.1/authorize", params=query)
        chosen = http.get("/oauth2/v2.1/authorize", params=query | {"as": "ann"})
        form = {"grant_type": "authorization_code", "redirect_uri": uri, "client_id": CHANNEL}
        form |= {"code": httpx.URL(chosen.headers["location"]).params["code"]}
        answer = http.post("/oauth2/v2.1/token", data=form)
    assert answer.status_code == 400 and answer.json()["error"] == "invalid_client"
