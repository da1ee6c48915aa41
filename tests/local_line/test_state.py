"""`--state FILE`: what survives a restart, an end without a warning, and a damaged file."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from local_line import LocalLine, Source
from local_line.__main__ import main
from local_line.contents import sample_picture
from local_line.state import read

from .test_command import TIMEOUT, base_in, command

GROUP = Source.group("C" + "a" * 32)
COUPON = {
    "title": "coffee", "acquisitionCondition": {"type": "normal"}, "startTimestamp": 0,
    "endTimestamp": 1, "maxUseCountPerTicket": 1, "visibility": "PUBLIC", "timezone": "ASIA_TAIPEI",
}  # fmt: skip
MENU = {
    "size": {"width": 2500, "height": 1686}, "selected": True, "name": "n", "chatBarText": "bar",
    "areas": [],
}  # fmt: skip


async def quiet(scope: Any, receive: Any, send: Any) -> None:
    """A bot that takes every webhook."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Client:
    """The bot's calls."""

    def __init__(self, line: LocalLine) -> None:
        self._line = line

    async def __call__(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        headers = {"Authorization": f"Bearer {self._line.channel.access_token}"}
        how["headers"] = headers | how.get("headers", {})
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT) as api:
            answer = await api.request(method, self._line.api_base + path, json=body, **how)
        assert answer.is_success, answer.text
        return answer.json() if "json" in answer.headers["content-type"] else answer.content


async def test_all_that_a_bot_has_made_is_there_after_a_restart(tmp_path: Path) -> None:
    """The ids, people, a group, chats, a menu with its picture, an audience, a coupon, an app."""
    file, picture = tmp_path / "line.json", sample_picture((2500, 1686))
    async with LocalLine(state=file, webhook_timeout=TIMEOUT) as line:
        before, call = line.channel, Client(line)
        await line.connect(quiet)
        ann = line.somebody("Ann")
        await line.say("哈囉 👋", source=ann)
        await line.unfollow(source=line.somebody("Ben"))
        await line.join(source=GROUP)
        text = {"type": "text", "text": "hi"}
        await call("POST", "/v2/bot/message/push", {"to": ann.chat_id, "messages": [text]})
        menu = (await call("POST", "/v2/bot/richmenu", MENU))["richMenuId"]
        how = {"content": picture.data, "headers": {"Content-Type": "image/jpeg"}}
        await call("POST", f"/v2/bot/richmenu/{menu}/content", **how)
        await call("POST", f"/v2/bot/user/all/richmenu/{menu}")
        alias = {"richMenuAliasId": "tab", "richMenuId": menu}
        await call("POST", "/v2/bot/richmenu/alias", alias)
        audience = {"description": "friends", "audiences": [{"id": ann.chat_id}]}
        await call("POST", "/v2/bot/audienceGroup/upload", audience)
        await call("POST", "/v2/bot/coupon", COUPON)
        app = {"view": {"type": "full", "url": "https://example.com/"}}
        await call("POST", "/liff/v1/apps", app)
        asked = [
            "/v2/bot/info", "/v2/bot/followers/ids", f"/v2/bot/profile/{ann.chat_id}",
            "/v2/bot/richmenu/list", "/v2/bot/richmenu/alias/list", "/v2/bot/user/all/richmenu",
            f"/v2/bot/richmenu/{menu}/content", "/v2/bot/audienceGroup/list?page=1",
            "/v2/bot/coupon", "/liff/v1/apps", "/v2/bot/message/quota/consumption",
            f"/v2/bot/group/{GROUP.chat_id}/summary",
        ]  # fmt: skip
        answers = [await call("GET", path) for path in asked]
        entries, me = list(line.chat(ann).entries), line.me
    async with LocalLine(state=file, webhook_timeout=TIMEOUT) as line:
        call = Client(line)
        assert line.channel == before and line.me == me
        assert [await call("GET", path) for path in asked] == answers
        assert list(line.chat(ann).entries) == entries
        await line.connect(quiet)
        await line.say("again", source=ann)
        ids = [entry.id for entry in line.chat(ann).entries]
        assert len(set(ids)) == len(entries) + 1
        more = await call("POST", "/v2/bot/audienceGroup/upload", audience)
        known = await call("GET", "/v2/bot/audienceGroup/list?page=1")
        assert len({each["audienceGroupId"] for each in known["audienceGroups"]}) == 2
        assert more["description"] == "friends"


@pytest.mark.only_on("linux", "darwin")
def test_what_was_said_survives_a_kill(tmp_path: Path) -> None:
    """It is in the file soon after, also without an orderly end; other users cannot read the
    file."""
    file = tmp_path / "line.json"
    options = ["--state", str(file), "--port", "0", "--webhook", "http://127.0.0.1:9/"]
    with command(*options) as (process, said):
        with httpx.Client(base_url=base_in(said), trust_env=False, timeout=TIMEOUT) as phone:
            phone.get("/chat/")
            phone.post("/chat/api/say", json={"text": "remember me"}).raise_for_status()
        while "remember me" not in file.read_text():
            time.sleep(0.05)
        process.kill()
        process.wait(TIMEOUT)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["line.json"]
    with command(*options) as (_, again):
        facts = [line for line in again.splitlines() if "LINE_CHANNEL" in line]
        assert facts == [line for line in said.splitlines() if "LINE_CHANNEL" in line]
        assert f"Made up for {file}" in again


async def test_options_come_before_the_file(tmp_path: Path) -> None:
    """A secret that is given is that of the channel, and is kept; so is the token, given once."""
    file = tmp_path / "line.json"
    for secret in ("first", "second"):
        async with LocalLine(state=file, secret=secret, access_token="t") as line:
            assert line.channel.secret == secret
    later = LocalLine(state=file).channel
    assert (later.secret, later.access_token) == ("second", "t")


async def test_a_run_that_cannot_start_leaves_the_file_alone(tmp_path: Path) -> None:
    """The port is taken by the run whose state it is."""
    file = tmp_path / "line.json"
    async with LocalLine(state=file) as line:
        written = file.read_bytes()
        line.somebody("Ann")
        port = int(line.api_base.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            async with LocalLine(state=file, port=port, secret="another"):
                pass
        assert file.read_bytes() == written


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"version": 99}', '{"version": 1}', '{"channel": null}', '{"channel": {"a": 1}}'],
)
def test_a_file_that_is_something_else(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence and exit code 1; the file stays as it was."""
    file = tmp_path / "line.json"
    file.write_text(text)
    assert main(["--state", str(file), "--port", "0"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert file.read_text() == text


@pytest.mark.only_on("linux", "darwin")
async def test_two_runs_with_one_file(tmp_path: Path) -> None:
    """The later one does not start, and takes nothing from the first; after its end it does."""
    file = tmp_path / "line.json"
    async with LocalLine(state=file) as line:
        line.somebody("Ann")
        with pytest.raises(OSError, match="in use by another local-line"):
            await LocalLine(state=file).__aenter__()
    async with LocalLine(state=file) as line:
        assert line.channel.secret in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["line.json"]


async def test_half_of_an_emoji_is_kept(tmp_path: Path) -> None:
    """As bots send it that cut a text by UTF-16 units."""
    file = tmp_path / "line.json"
    async with LocalLine(state=file) as line:
        message = {"type": "text", "text": "half \ud83d"}
        body = json.dumps({"to": line.me.chat_id, "messages": [message]}).encode()
        headers = {"Content-Type": "application/json"}
        await line.connect(quiet)
        await line.follow()
        await Client(line)("POST", "/v2/bot/message/push", content=body, headers=headers)
    assert LocalLine(state=file).chat().texts == ["half \ud83d"]


@pytest.mark.only_on("linux")
def test_a_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence that names the file; what was there stays."""
    assert main(["run", "--state", str(tmp_path / "line.json"), "--port", "0", "--", "true"]) == 0
    before = (tmp_path / "line.json").read_bytes()
    (tmp_path / "line.json.new").symlink_to("/dev/full")
    assert main(["run", "--state", str(tmp_path / "line.json"), "--port", "0", "--", "true"]) == 1
    assert "line.json: No space left on device" in capsys.readouterr().err
    assert (tmp_path / "line.json").read_bytes() == before


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence and exit code 1."""
    assert main(["--state", str(tmp_path / "no" / "line.json"), "--port", "0"]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_an_empty_file_is_a_new_state(tmp_path: Path) -> None:
    """As `mktemp` and editors leave them."""
    file = tmp_path / "line.json"
    file.touch()
    assert read(file) == {}
    assert json.dumps(read(tmp_path / "none.json")) == "{}"
