"""The settings page within LINE, in a real browser; only LINE tells who a person is."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2 as httpx
import pytest
from local_line import BlockingLine
from local_line.local import served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from apps.weamind.core.config import SettingsError, read_settings
from apps.weamind.core.metrics import Metrics
from apps.weamind.liff.answers import BadToken, NoAnswer, seconds_left, user_id
from apps.weamind.liff.memory import TokenMemory
from apps.weamind.liff.page import SDK, SettingsPage
from apps.weamind.liff.tokens import Tokens
from apps.weamind.main import create_app
from apps.weamind.places import atlas
from apps.weamind.user.users import Users, UsersUnavailable
from tests.apps.browser import launched
from tests.apps.weamind.conftest import (
    ACCESS_TOKEN,
    BANQIAO,
    SECRET,
    XINYI,
    RunBot,
    settings_for,
)
from tests.conftest import Servers

pytestmark = pytest.mark.only_on("linux", "darwin")

CHANNEL, LIFF_ID = "1234", "1234-abcd"
LIFF = {"liff_id": LIFF_ID, "line_login_channel_id": CHANNEL}
ANN, BEN = "U" + "a" * 32, "U" + "b" * 32
ANNS, BENS = "a-token-of-ann", "a-token-of-ben"
TIMEOUT = 20.0

Json = dict[str, Any]


# ------------------------------------------------------------------------------- LINE Login


@dataclass
class Grant:
    """Whose a token is, and for which channel and how long it was made."""

    user_id: str
    client_id: str = CHANNEL
    expires_in: int = 3600


class LineLogin:
    """`verify` and `profile`, as LINE documents them, on a real port."""

    def __init__(self) -> None:
        self.grants = {ANNS: Grant(ANN), BENS: Grant(BEN)}
        self.status = 200
        """What it answers instead, if it is another one."""
        self.hangs_at = ""
        self.drips = False
        """It answers without an end, one byte after the other."""
        self.calls: list[str] = []
        self.app = Starlette(
            routes=[Route("/oauth2/v2.1/verify", self.verify), Route("/v2/profile", self.profile)]
        )

    async def verify(self, request: Request) -> Response:
        if refusal := await self._refusal("verify"):
            return refusal
        grant = self.grants.get(request.query_params["access_token"])
        if grant is None:
            words = {"error": "invalid_request", "error_description": "access token expired"}
            return JSONResponse(words, 400)
        facts = {"client_id": grant.client_id, "expires_in": grant.expires_in}
        return JSONResponse({"scope": "profile", **facts})

    async def profile(self, request: Request) -> Response:
        if refusal := await self._refusal("profile"):
            return refusal
        grant = self.grants.get(request.headers["Authorization"].removeprefix("Bearer "))
        if grant is None:
            return JSONResponse({"message": "invalid token"}, 401)
        return JSONResponse({"userId": grant.user_id, "displayName": "…"})

    async def _refusal(self, call: str) -> Response | None:
        self.calls.append(call)
        if self.hangs_at == call:
            await asyncio.Event().wait()  # until the client has left
        if self.drips:
            return StreamingResponse(_drops(), media_type="application/json")
        return JSONResponse({"message": "?"}, self.status) if self.status != 200 else None


async def _drops() -> AsyncIterator[str]:
    while True:
        yield " "
        await asyncio.sleep(0.02)


@asynccontextmanager
async def line_login() -> AsyncIterator[tuple[LineLogin, str]]:
    line = LineLogin()
    async with served(line.app) as url:
        yield line, url


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass
class Visit:
    """The app of a person's phone: HTTP to the bot, and LINE behind it."""

    http: httpx.AsyncClient
    line: LineLogin

    async def me(self, token: str = ANNS) -> httpx.Response:
        return await self.http.get("/users/me", headers=bearer(token))

    async def choose(self, kind: Any, place: Any, token: str = ANNS, **more: Any) -> httpx.Response:
        body = {"location_type": kind, "place": place, **more}
        return await self.http.post("/users/locations", json=body, headers=bearer(token))


@asynccontextmanager
async def visiting(run_bot: RunBot, **options: Any) -> AsyncIterator[Visit]:
    """The whole bot, with a page."""
    async with line_login() as (line, url):
        async with run_bot(line_api_base=url, **(LIFF | options)) as bot:
            yield Visit(bot.http, line)


@asynccontextmanager
async def visiting_page(
    database: str, *, memory: TokenMemory | None = None, longest: float = TIMEOUT, base: str = ""
) -> AsyncIterator[Visit]:
    """The page alone, where the test decides how long LINE may take."""
    async with AsyncExitStack() as stack:
        line, url = await stack.enter_async_context(line_login())
        users = await stack.enter_async_context(Users(database))
        remembered = TokenMemory() if memory is None else memory
        tokens = Tokens(base or url, channel_id=CHANNEL, longest=longest, memory=remembered)
        stack.push_async_callback(tokens.aclose)
        page = SettingsPage(LIFF_ID, tokens=tokens, users=users)
        app = Starlette(routes=[Mount("/liff", page.pages), Mount("/users", page.people)])
        at = await stack.enter_async_context(served(app))
        client = httpx.AsyncClient(base_url=at, timeout=TIMEOUT, trust_env=False)
        yield Visit(await stack.enter_async_context(client), line)


def is_problem(answer: httpx.Response, status: int) -> bool:
    body = answer.json()
    kind = answer.headers["Content-Type"]
    return answer.status_code == body["status"] == status and kind == "application/problem+json"


# ------------------------------------------------------------------------------- the calls


async def test_home_and_office_are_chosen_and_remembered(run_bot: RunBot) -> None:
    """Nothing at first; then what was saved, by its code and its name."""
    async with visiting(run_bot) as visit:
        assert (await visit.me()).json() == {"home": None, "office": None}
        saved = await visit.choose("home", XINYI)
        xinyi = {"code": XINYI, "name": "臺北市信義區"}
        assert saved.status_code == 200
        assert saved.json() == {"location_type": "home", "place": xinyi}
        assert (await visit.choose("office", "65000")).status_code == 200  # a whole county
        me = await visit.me()
        assert me.json() == {"home": xinyi, "office": {"code": "65000", "name": "新北市"}}
        assert me.headers["Cache-Control"] == "no-store"


async def test_work_is_the_office(run_bot: RunBot) -> None:
    """Some programs say work, the chat says office: it is the same place."""
    async with visiting(run_bot) as visit:
        assert (await visit.choose("work", BANQIAO)).json()["location_type"] == "office"
        assert (await visit.me()).json()["office"]["code"] == BANQIAO


async def test_the_places_are_the_map(run_bot: RunBot) -> None:
    """Every county with all of its townships, the same for all people, in the order of the map."""
    async with visiting(run_bot) as visit:
        answer = await visit.http.get("/liff/places")
        counties = answer.json()["counties"]
        assert [each["code"] for each in counties] == [each.code for each in atlas.counties()]
        towns = [town["code"] for county in counties for town in county["towns"]]
        assert sorted(towns) == sorted(town.code for town in atlas.atlas().towns)
        assert counties[0]["towns"][0].keys() == {"code", "name"} and not visit.line.calls


async def test_an_id_in_the_body_is_not_believed(run_bot: RunBot) -> None:
    """An id of another person in the body is ignored: the token says whose place is saved."""
    async with visiting(run_bot) as visit:
        for name in ("userId", "user_id", "line_user_id"):
            saved = await visit.choose("home", XINYI, BENS, **{name: ANN})
            assert saved.status_code == 200
        headers = bearer(BENS) | {"X-User-Id": ANN}
        mine = await visit.http.get("/users/me", params={"userId": ANN}, headers=headers)
        assert mine.json()["home"]["code"] == XINYI
        assert (await visit.me(ANNS)).json()["home"] is None


async def test_a_bad_token_is_nobodys(run_bot: RunBot) -> None:
    """401, and nothing is saved; no profile is requested."""
    bad = {
        "of-another-channel": Grant(ANN, client_id="4321"),
        "expired": Grant(ANN, expires_in=0),
        "long-expired": Grant(ANN, expires_in=-5),
    }
    async with visiting(run_bot) as visit:
        visit.line.grants |= bad
        for token in (*bad, "nobodys"):
            for answer in (await visit.me(token), await visit.choose("home", XINYI, token)):
                assert is_problem(answer, 401) and answer.headers["WWW-Authenticate"] == "Bearer"
        assert visit.line.calls == ["verify"] * 8
        assert (await visit.me()).json() == {"home": None, "office": None}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic QTpC", ANNS, "Bearer two words",
                                    "Bearer " + "x" * 2001, "Bearer wörd".encode()])  # fmt: skip
async def test_without_a_token_nobody_is_asked(sqlite: str, header: str | bytes | None) -> None:
    """401 at once; nor does what cannot be a token reach LINE."""
    async with visiting_page(sqlite) as visit:
        headers: Any = {} if header is None else {"Authorization": header}
        assert is_problem(await visit.http.get("/users/me", headers=headers), 401)
        body = {"location_type": "home", "place": XINYI}
        saved = await visit.http.post("/users/locations", json=body, headers=headers)
        assert is_problem(saved, 401) and not visit.line.calls


async def test_what_cannot_be_saved_is_told_before_line_is_asked(run_bot: RunBot) -> None:
    """422 for kinds and places that are none, 400 for what is no JSON, 413 for too much of it."""
    async with visiting(run_bot) as visit:
        for kind, place in [
            ("home", "99999999"), ("home", "信義區"), ("home", ""), ("home", None),
            ("home", 63000020), ("home", [XINYI]), ("garden", XINYI), ("HOME", XINYI),
            (None, XINYI), (["home"], XINYI),
        ]:  # fmt: skip
            answer = await visit.choose(kind, place)
            assert is_problem(answer, 422), (kind, place)
            assert answer.json()["detail"].startswith(("location_type:", "place:"))
        for body, status in [(b"{", 400), (b"\xff", 400), (b"[" * 4000, 400), (b"[]", 422),
                             (b" " * 5000, 413)]:  # fmt: skip
            answer = await visit.http.post("/users/locations", content=body, headers=bearer(ANNS))
            assert is_problem(answer, status), body[:9]
        assert not visit.line.calls


async def test_without_a_liff_app_there_is_no_page(run_bot: RunBot) -> None:
    """404 for all of it, and the rest is as it was; with a LIFF app, only for what there is not."""
    paths = ["/liff/settings", "/liff/settings.js", "/liff/places", "/users/me", "/users/locations"]
    async with run_bot() as bot:
        for path in paths:
            assert (await bot.http.get(path, headers=bearer(ANNS))).status_code == 404
        posted = await bot.http.post("/users/locations", json={}, headers=bearer(ANNS))
        assert posted.status_code == 404
        assert (await bot.http.get("/health")).status_code == 200
    async with visiting(run_bot) as visit:
        page = await visit.http.get("/liff/settings")
        assert page.status_code == 200
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none';")
        assert (await visit.http.get("/liff/../core/config.py")).status_code == 404
        assert (await visit.http.get("/users/locations")).status_code == 405


# ------------------------------------------------------------------------------- LINE is out


async def test_line_cannot_say_whose_it_is(sqlite: str) -> None:
    """503, and not 401: the token may be good, and the page says to try again."""
    async with visiting_page(sqlite) as visit:
        for status in (429, 500, 503, 204, 302):
            visit.line.status = status
            assert is_problem(await visit.me(), 503)
            refused = await visit.choose("home", XINYI)
            assert is_problem(refused, 503) and refused.headers["Retry-After"] == "1"
        visit.line.status = 200
        assert (await visit.me()).json() == {"home": None, "office": None}


@pytest.mark.parametrize("call", ["verify", "profile"])
async def test_while_line_hangs_the_page_gets_a_503(sqlite: str, call: str) -> None:
    """503 after the time that LINE may take; pending requests are dropped."""
    async with visiting_page(sqlite, longest=0.3) as visit:
        visit.line.hangs_at = call
        answers = await asyncio.gather(*(visit.me() for _ in range(20)))
        assert all(is_problem(answer, 503) for answer in answers)


async def test_an_answer_that_drips_is_a_503(sqlite: str) -> None:
    """503, too: each byte comes in time, and the answer does not."""
    async with visiting_page(sqlite, longest=0.3) as visit:
        visit.line.drips = True
        assert is_problem(await visit.me(), 503)


async def test_the_settings_page_without_line(sqlite: str) -> None:
    """503."""
    async with visiting_page(sqlite, base="http://127.0.0.1:1") as visit:
        assert is_problem(await visit.me(), 503)


async def test_the_settings_page_without_a_database(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503, too."""

    async def out(*_: object) -> None:
        raise UsersUnavailable("it is too slow")

    async with visiting_page(sqlite) as visit:
        monkeypatch.setattr(Users, "meet", out)
        monkeypatch.setattr(Users, "set_place", out)
        assert is_problem(await visit.me(), 503)
        assert is_problem(await visit.choose("home", XINYI), 503)


# ------------------------------------------------------------------------------- remembering


async def test_line_is_asked_once_for_a_while(run_bot: RunBot) -> None:
    """Opening the page and saving is one question to LINE; and one for each person."""
    async with visiting(run_bot) as visit:
        for token in (ANNS, BENS):
            await visit.me(token)
            await visit.choose("home", XINYI, token)
            await visit.me(token)
        assert visit.line.calls == ["verify", "profile"] * 2


async def test_a_refused_token_is_asked_about_again(sqlite: str) -> None:
    """Only what LINE vouched for is remembered."""
    async with visiting_page(sqlite) as visit:
        grant = visit.line.grants.pop(ANNS)
        assert is_problem(await visit.me(), 401)
        visit.line.grants[ANNS] = grant
        assert (await visit.me()).status_code == 200


async def test_a_withdrawn_token_works_no_more_after_a_while(sqlite: str) -> None:
    """After a while LINE is asked again: a token that was withdrawn works no more."""
    async with visiting_page(sqlite, memory=TokenMemory(longest=0.0)) as visit:
        assert (await visit.me()).status_code == 200
        del visit.line.grants[ANNS]
        assert is_problem(await visit.me(), 401)


def test_memory_is_short_small_and_hashed() -> None:
    """At most five minutes, at most until the token expires, the oldest goes, no token is kept."""
    memory = TokenMemory(most=2)
    memory.keep("long", ANN, 9999, now=0)
    memory.keep("short", BEN, 10, now=0)
    assert memory.user_of("long", 299.9) == ANN and memory.user_of("long", 300) is None
    assert memory.user_of("short", 9.9) == BEN and memory.user_of("short", 10) is None
    for number in range(5):
        memory.keep(f"token-{number}", f"user-{number}", 60, now=0)
    assert [memory.user_of(f"token-{number}", 1) for number in range(5)] == [
        None, None, None, "user-3", "user-4",
    ]  # fmt: skip
    assert "token-" not in repr(vars(memory)) and "user-" not in repr(memory)


async def test_many_people_at_once_are_not_mixed_up(sqlite: str) -> None:
    """Twenty people save at the same time, twice each: each one finds their own place."""
    towns = atlas.towns_of("高雄市")
    async with visiting_page(sqlite) as visit:
        for number in range(20):
            visit.line.grants[f"token-{number}"] = Grant(f"U{number:032x}")

        async def one(number: int) -> None:
            home, office = towns[number % 38].code, towns[(number + 7) % 38].code
            token = f"token-{number}"
            both = [visit.choose("home", home, token), visit.choose("work", office, token)]
            assert [each.status_code for each in await asyncio.gather(*both)] == [200, 200]
            me = (await visit.me(token)).json()
            assert (me["home"]["code"], me["office"]["code"]) == (home, office)

        await asyncio.gather(*(one(number) for number in range(20)))


@pytest.mark.parametrize(
    ("status", "answer", "outcome"),
    [
        (200, {"client_id": CHANNEL, "expires_in": 5, "new": 1}, 5),
        (200, {"client_id": "4321", "expires_in": 5}, BadToken),
        (200, {"client_id": CHANNEL, "expires_in": 0}, BadToken),
        (400, {"error": "invalid_request"}, BadToken),
        (401, None, BadToken),
        (200, {"client_id": 1234, "expires_in": 5}, NoAnswer),
        (200, {"client_id": CHANNEL, "expires_in": "5"}, NoAnswer),
        (200, {"client_id": CHANNEL}, NoAnswer),
        (200, [], NoAnswer),
        (200, None, NoAnswer),
        (429, {}, NoAnswer),
    ],
)
def test_what_line_says_about_a_token(status: int, answer: object, outcome: Any) -> None:
    """Only a plain yes for our channel is a yes."""
    if isinstance(outcome, int):
        assert seconds_left(status, answer, CHANNEL) == outcome
    else:
        with pytest.raises(outcome):
            seconds_left(status, answer, CHANNEL)


@pytest.mark.parametrize(
    ("status", "answer", "outcome"),
    [
        (200, {"userId": ANN}, ANN),
        (200, {"userId": "somebody"}, NoAnswer),
        (200, {"userId": ANN + "\n"}, NoAnswer),
        (200, {}, NoAnswer),
        (401, {}, BadToken),
        (403, {}, BadToken),
        (500, {}, NoAnswer),
    ],
)
def test_what_line_says_about_a_person(status: int, answer: object, outcome: Any) -> None:
    """An id of LINE's form, or none."""
    if isinstance(outcome, str):
        assert user_id(status, answer) == outcome
    else:
        with pytest.raises(outcome):
            user_id(status, answer)


# ------------------------------------------------------------------------------- discretion


async def test_logs_hold_neither_tokens_nor_ids(
    run_bot: RunBot, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at the lowest level either, where httpx tells every address that it asks."""
    caplog.set_level(logging.DEBUG)
    async with visiting(run_bot) as visit:
        await visit.me()
        await visit.choose("home", XINYI)
        visit.line.grants["a-token-of-elsewhere"] = Grant(BEN, client_id="4321")
        await visit.me("a-token-of-elsewhere")
        visit.line.status = 500
        await visit.me(BENS)
        metrics = (await visit.http.get("/metrics")).text
    said = caplog.text + metrics + "".join(repr(record.args) for record in caplog.records)
    assert "/oauth2/v2.1/verify" in said  # httpx did speak
    assert "LINE_LOGIN_CHANNEL_ID" in said and "status 500" in said
    for secret in (ANN, BEN, ANNS, BENS, "a-token-of", "access_token="):
        assert secret not in said


def test_a_liff_app_needs_its_channel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line says what is missing; a channel that is no number is another."""
    monkeypatch.chdir(tmp_path)
    for name, value in [("SECRET", "a-secret"), ("ACCESS_TOKEN", "a-token")]:
        monkeypatch.setenv(f"LINE_CHANNEL_{name}", value)
    monkeypatch.setenv("LIFF_ID", LIFF_ID)
    monkeypatch.delenv("LINE_LOGIN_CHANNEL_ID", raising=False)
    with pytest.raises(SettingsError) as raised:
        read_settings()
    assert raised.value.mistakes == ["LINE_LOGIN_CHANNEL_ID: is needed for LIFF_ID"]
    monkeypatch.setenv("LINE_LOGIN_CHANNEL_ID", "my channel")
    with pytest.raises(SettingsError) as raised:
        read_settings()
    [line] = raised.value.mistakes
    assert line.startswith("LINE_LOGIN_CHANNEL_ID: ") and "my channel" not in line
    monkeypatch.setenv("LINE_LOGIN_CHANNEL_ID", CHANNEL)
    assert read_settings().line_login_channel_id == CHANNEL


# ------------------------------------------------------------------------------- the page

SDK_STAND_IN = """
window.calls = [];
const options = JSON.parse(sessionStorage.getItem("liff") || "{}");
const recorded = (name, answer) => (...given) => { calls.push([name, ...given]); return answer; };
window.liff = {
  init: (given) => {
    calls.push(["init", given]);
    return options.fails ? Promise.reject(new Error("INIT_FAILED")) : Promise.resolve();
  },
  isLoggedIn: () => !options.loggedOut,
  isInClient: () => !options.outside,
  getAccessToken: () => options.token,
  login: recorded("login"), logout: recorded("logout"),
  closeWindow: recorded("closeWindow"), sendMessages: recorded("sendMessages", Promise.resolve()),
};
"""


class Stage:
    """The bot and LINE in a thread with a loop, so that the test can drive a browser."""

    line: LineLogin
    url: str

    def __init__(self, folder: Path, redis_url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._open = AsyncExitStack()
        self._thread.start()
        self.run(self._start(folder, redis_url))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT)

    async def _start(self, folder: Path, redis_url: str) -> None:
        self.line, base = await self._open.enter_async_context(line_login())
        settings = settings_for(folder, redis_url, line_api_base=base, **LIFF)
        app = create_app(settings, counted_in=Metrics())
        self.url = await self._open.enter_async_context(served(app, lifespan=True))

    def close(self) -> None:
        self.run(self._open.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Iterator[Stage]:
    """One for all tests: each has its own person."""
    stage = Stage(tmp_path_factory.mktemp("liff"), servers("valkey").url)
    yield stage
    stage.close()


@dataclass
class Phone:
    """A browser of 360 px on the page; all its errors are in `mistakes`."""

    page: Any
    stage: Stage
    mistakes: list[str]
    token: str

    def open(self, **options: Any) -> None:
        """*options*: what the stand-in for LINE's SDK is given."""
        given = json.dumps({"token": self.token} | options)
        script = f"sessionStorage.setItem('liff', {json.dumps(given)})"
        self.page.add_init_script(script)
        self.page.goto(f"{self.stage.url}/liff/settings")

    def me(self) -> Json:
        """What the bot has saved."""
        url, headers = f"{self.stage.url}/users/me", bearer(self.token)
        return httpx.get(url, headers=headers, trust_env=False).raise_for_status().json()

    def set(self, kind: str, place: str) -> None:
        """It was chosen before."""
        body = {"location_type": kind, "place": place}
        url, headers = f"{self.stage.url}/users/locations", bearer(self.token)
        httpx.post(url, json=body, headers=headers, trust_env=False).raise_for_status()

    def select(self, kind: str, part: str) -> Any:
        """By what a person, or a screen reader, calls it."""
        return self.page.get_by_role("group", name=kind).get_by_label(part)

    def choose(self, kind: str, county: str, town: str) -> None:
        self.select(kind, "縣市").select_option(label=county)
        self.select(kind, "鄉鎮市區").select_option(label=town)

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)

    def calls(self) -> list[str]:
        """What the page asked of LINE's SDK."""
        return [call[0] for call in self.page.evaluate("calls")]


@pytest.fixture
def phone(browser: Any, stage: Stage) -> Iterator[Phone]:
    context = browser.new_context(viewport={"width": 360, "height": 740}, locale="zh-TW")
    context.set_default_timeout(TIMEOUT * 1000)
    answer = {"body": SDK_STAND_IN, "content_type": "text/javascript"}
    context.route(SDK, lambda route: route.fulfill(**answer))
    page, mistakes = context.new_page(), []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("console", lambda said: mistakes.append(said.text) if is_mistake(said) else None)
    ours = (stage.url, SDK, "data:")
    page.on(
        "request", lambda asked: None if asked.url.startswith(ours) else mistakes.append("away")
    )
    number = len(stage.line.grants)
    token = f"a-token-of-{number}"
    stage.line.grants[token] = Grant(f"U{number:032x}")
    yield Phone(page, stage, mistakes, token)
    stage.line.status = 200
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    context.close()
    assert not mistakes and overflow <= 0


def is_mistake(said: Any) -> bool:
    """An error; not that the browser tells of every answer that is not 2xx."""
    return said.type == "error" and "the server responded with a status of" not in said.text


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    expect.set_options(timeout=TIMEOUT * 1000)
    return expect(locator)


def test_a_person_sets_home_and_office(phone: Phone) -> None:
    """Both at once; it is confirmed, and the page can be closed. Nothing is sent into the chat."""
    phone.open()
    expect(phone.button("儲存")).to_be_disabled()
    expect(phone.select("住家", "鄉鎮市區")).to_be_disabled()
    phone.choose("住家", "臺北市", "信義區")
    phone.select("公司", "縣市").select_option(label="新北市")
    expect(phone.button("儲存")).to_be_disabled()  # the town of the office is missing
    phone.select("公司", "鄉鎮市區").select_option(label="板橋區")
    phone.button("儲存").click()
    done = phone.page.locator("#done")
    expect(done).to_have_text("✅ 住家已設為臺北市信義區\n✅ 公司已設為新北市板橋區")
    expect(done).to_be_focused()
    expect(phone.button("儲存")).to_be_disabled()
    me = phone.me()
    assert (me["home"]["code"], me["office"]["code"]) == (XINYI, BANQIAO)
    phone.button("關閉").click()
    assert phone.calls() == ["init", "closeWindow"]
    assert phone.page.evaluate("calls[0][1]") == {"liffId": LIFF_ID}


def test_a_confirmation_does_not_outlive_a_change(phone: Phone) -> None:
    """A person who continues to choose does not read that it is saved."""
    phone.open()
    phone.choose("住家", "臺北市", "信義區")
    phone.button("儲存").click()
    expect(phone.page.locator("#done")).to_be_visible()
    phone.select("住家", "鄉鎮市區").select_option(label="大安區")
    expect(phone.page.locator("#done")).to_be_hidden()
    expect(phone.button("儲存")).to_be_enabled()


def test_what_is_set_is_shown(phone: Phone) -> None:
    """Also a whole county; another county empties the town, and only what changed is saved."""
    phone.set("home", XINYI)
    phone.set("office", "65000")
    phone.open()
    expect(phone.select("住家", "縣市")).to_have_value("63000")
    expect(phone.select("住家", "鄉鎮市區")).to_have_value(XINYI)
    expect(phone.select("公司", "鄉鎮市區")).to_have_value("65000")
    expect(phone.page.get_by_text("目前：臺北市信義區")).to_be_visible()
    phone.select("住家", "縣市").select_option(label="連江縣")
    expect(phone.select("住家", "鄉鎮市區")).to_have_value("")
    expect(phone.button("儲存")).to_be_disabled()
    phone.select("住家", "鄉鎮市區").select_option(label="整個連江縣")
    sent: list[str] = []
    phone.page.on("request", lambda asked: sent.append(asked.method))
    phone.button("儲存").click()
    expect(phone.page.locator("#done")).to_have_text("✅ 住家已設為連江縣")
    assert sent == ["POST"] and phone.me()["home"]["name"] == "連江縣"


def test_a_landmark_that_was_set_in_the_chat_is_shown(phone: Phone) -> None:
    """By its name; the lists have none of them, and ask for a choice."""
    place = next(each.place for each in atlas.landmarks() if each.place.name == "九份")
    phone.set("home", place.code)
    phone.open()
    expect(phone.page.get_by_text("目前：九份")).to_be_visible()
    chosen = "select => select.selectedOptions[0].textContent"
    assert phone.select("住家", "縣市").evaluate(chosen) == "請選擇縣市"
    expect(phone.button("儲存")).to_be_disabled()


def test_a_save_that_fails_is_told_and_can_be_repeated(phone: Phone) -> None:
    """What was chosen stays chosen; of two, what was saved is not said to have failed."""
    phone.open()
    phone.choose("住家", "臺北市", "信義區")
    phone.choose("公司", "新北市", "板橋區")
    path = "**/users/locations"
    phone.page.route(
        path, lambda r: r.abort() if '"office"' in r.request.post_data else r.continue_()
    )
    phone.button("儲存").click()
    problem = phone.page.get_by_role("alert")
    expect(problem).to_have_text("😥 公司沒有儲存成功，請稍後再試一次。")
    expect(phone.page.get_by_text("目前：臺北市信義區")).to_be_visible()
    assert phone.me()["office"] is None
    assert phone.mistakes == ["Failed to load resource: net::ERR_FAILED"]
    phone.mistakes.clear()
    phone.page.unroute(path)
    phone.button("儲存").click()
    expect(phone.page.locator("#done")).to_have_text("✅ 公司已設為新北市板橋區")
    expect(problem).to_be_hidden()


def test_line_is_out_and_comes_back(phone: Phone) -> None:
    """The page says so, and starts again when it is told to."""
    phone.stage.line.status = 500
    phone.open()
    expect(phone.page.get_by_role("alert")).to_contain_text("目前無法載入您的設定")
    phone.stage.line.status = 200
    phone.button("再試一次").click()
    expect(phone.select("住家", "縣市")).to_be_visible()


def test_the_sdk_does_not_come(phone: Phone) -> None:
    """Then the page can only say so."""
    phone.page.route(SDK, lambda route: route.abort())
    phone.open()
    expect(phone.page.get_by_role("alert")).to_contain_text("聊天室輸入「設定」")
    assert phone.mistakes == ["Failed to load resource: net::ERR_FAILED"]
    phone.mistakes.clear()


def test_a_login_that_has_expired(phone: Phone) -> None:
    """Within LINE the page can be closed; there is no redirect loop."""
    phone.open(token="nobodys")
    expect(phone.page.get_by_role("alert")).to_have_text("登入已過期，請關閉後再從聊天室開啟一次。")
    expect(phone.button("再試一次")).to_be_hidden()
    phone.button("關閉").click()
    assert phone.calls() == ["init", "closeWindow"]


def test_in_an_ordinary_browser(phone: Phone) -> None:
    """An expired login can be renewed; there is no button to close what cannot be closed."""
    phone.open(token="nobodys", outside=True)
    phone.button("重新登入").click()
    expect(phone.button("關閉")).to_be_hidden()
    assert phone.calls() == ["init", "logout", "login"]


def test_who_is_not_logged_in_is_sent_to_line(phone: Phone) -> None:
    """And nothing is asked about them before."""
    asked: list[str] = []
    phone.page.on("request", lambda request: asked.append(request.url))
    phone.open(loggedOut=True, outside=True)
    phone.page.wait_for_function("calls.length === 2")
    assert phone.calls() == ["init", "login"]
    assert not [url for url in asked if "/users/" in url]


def test_the_page_runs_no_other_scripts(phone: Phone) -> None:
    """Neither inline ones, nor other hosts', nor LINE's from another folder; and asks no others."""
    phone.open()
    expect(phone.button("儲存")).to_be_visible()
    other = SDK.replace("/liff/edge/2/sdk.js", "/other/x.js")
    sources = [{"src": "https://elsewhere.example/x.js"}, {"src": other}, {"text": "inline = 1"}]
    blocked = phone.page.evaluate(BLOCKED, sources)
    away = "https://elsewhere.example/"
    assert sorted(blocked) == sorted([f"{away}x.js", other, "inline", away])
    assert phone.page.evaluate("typeof inline") == "undefined"
    phone.mistakes.clear()  # the browser has reported each


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_and_hit(phone: Phone, scheme: str) -> None:
    """By day and by night: enough contrast, and nothing to tap that is lower than a thumb."""
    phone.page.emulate_media(color_scheme=scheme)
    phone.open()
    phone.choose("住家", "臺北市", "信義區")
    phone.button("儲存").click()
    expect(phone.page.locator("#done")).to_be_visible()
    for css in ("h1", ".lede", "label", ".now", "legend", "select", "#done", "#close"):
        assert phone.page.locator(css).first.evaluate(CONTRAST) >= 4.5, css
    heights = "all => all.filter(e => e.offsetParent).map(e => e.offsetHeight)"
    assert min(phone.page.locator("select, button").evaluate_all(heights)) >= 44


def test_the_page_on_local_line(browser: Any, tmp_path: Path, servers: Servers) -> None:
    """Its SDK and its login in the place of LINE's: Ben logs in, and the bot knows his home."""
    with BlockingLine(channel_id=CHANNEL, secret=SECRET, access_token=ACCESS_TOKEN) as line:
        base = line.api_base
        sdk = {"liff_sdk_url": f"{base}/liff/edge/2/sdk.js"}
        options = {"line_api_base": base, **LIFF, **sdk}
        settings = settings_for(tmp_path, servers("valkey").url, **options)
        app = create_app(settings, counted_in=Metrics())
        bot = line.connect(app, path="/line/webhook").removesuffix("/line/webhook")
        context = browser.new_context(viewport={"width": 390, "height": 740}, locale="zh-TW")
        context.set_default_timeout(TIMEOUT * 1000)
        page, mistakes = context.new_page(), []
        page.on("console", lambda said: mistakes.append(said.text) if is_mistake(said) else None)
        page.goto(f"{bot}/liff/settings")
        page.get_by_role("link", name="Ben").click()
        phone = Phone(page, cast(Stage, None), mistakes, "")
        phone.choose("住家", "臺北市", "信義區")
        phone.button("儲存").click()
        expect(page.locator("#done")).to_contain_text("✅ 住家已設為臺北市信義區")
        token = page.evaluate("liff.getAccessToken()")
        me = httpx.get(f"{bot}/users/me", headers=bearer(token), trust_env=False).json()
        context.close()
    assert me["home"]["code"] == XINYI and not mistakes


BLOCKED = """async (sources) => {
  const blocked = [];
  document.addEventListener("securitypolicyviolation", (e) => blocked.push(e.blockedURI));
  for (const source of sources)
    document.head.append(Object.assign(document.createElement("script"), source));
  await fetch("https://elsewhere.example/").catch(() => {});
  for (let look = 0; look < 500 && blocked.length <= sources.length; look++)
    await new Promise((done) => setTimeout(done, 10));
  return blocked;
}"""
CONTRAST = """element => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((each) => each / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let behind = element;
  const ground = (e) => getComputedStyle(e).backgroundColor;
  while (ground(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const two = [getComputedStyle(element).color, ground(behind)].map(light);
  const [low, high] = two.sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""
