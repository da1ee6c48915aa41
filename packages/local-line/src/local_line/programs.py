"""`local-line run -- python app.py`: an unmodified bot, in front of the local LINE.

Its environment leads LINE's hosts here; nothing outside of that process and its children changes.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from . import processes
from .certificates import issue
from .hosts import HOSTS
from .local import LocalLine
from .proxy import Ports, proxied

PATHS = ("/callback", "/webhook", "/", "/linewebhook", "/line/webhook", "/api/webhook", "/line",
         "/api/line/webhook", "/bot", "/webhooks/line", "/line/callback", "/api/callback",
         "/callback/", "/webhook/", "/callback.php", "/webhook.php", "/bot.php")  # fmt: skip
"""Where bots listen; the first path that accepts a signed webhook without events is used."""
_PREFIXES = ("LINE_", "", "LINE_BOT_", "LINEBOT_")
SECRETS = (*(f"{each}CHANNEL_SECRET" for each in _PREFIXES), "LINE_SECRET", "ChannelSecret")
TOKENS = (
    *(f"{each}CHANNEL_{kind}" for each in _PREFIXES for kind in ("ACCESS_TOKEN", "TOKEN")),
    "LINE_CHANNEL_ACCESSTOKEN", "LINE_ACCESS_TOKEN", "LINE_TOKEN", "ChannelAccessToken",
)  # fmt: skip
"""As LINE's examples in Go, PHP, Ruby, Node and Python call them, and published bots."""
_DIRECT = ("NO_PROXY", "no_proxy")
_HOOKS = Path(__file__).parent / "hooks"
_LOOK = 0.3
"""Seconds between two checks of the ports of the program."""
_LONGEST_LOOK = 5.0
"""The same, while none of them accepts a webhook: each check appears in the bot's log."""


async def run_program(line: LocalLine, command: Sequence[str], *, finds_webhook: bool) -> int:
    """Run the program and return its exit code. OSError: it cannot be started."""
    with TemporaryDirectory(prefix="local-line-") as name:
        context = issue(Path(name))
        port = int(line.api_base.rpartition(":")[2])
        async with proxied(port, context, _upstream(os.environ)) as ports:
            facts = environment(line, Path(name), ports, os.environ)
            return await _watch(line, command, facts, finds_webhook=finds_webhook)


def _upstream(usual: Mapping[str, str]) -> str:
    """The proxy by which the program would reach other hosts, if any."""
    if any(usual.get(name) == "*" for name in _DIRECT):
        return ""
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    return next(filter(None, map(usual.get, names)), "")


def _without_line(hosts: str) -> str:
    """The list of NO_PROXY, without what names LINE's hosts."""
    names = [each.strip() for each in hosts.split(",")]
    kept = [each for each in names if each != "*" and not _is_of_line(each.lstrip("*."))]
    return ",".join(kept)


def _is_of_line(name: str) -> bool:
    return bool(name) and any(f".{host}".endswith(f".{name}") for host in HOSTS)


def environment(
    line: LocalLine, folder: Path, ports: Ports, usual: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the program; only what must change is changed."""
    proxy, bundle = f"http://127.0.0.1:{ports.proxy}", str(folder / "bundle.pem")
    made = dict.fromkeys(SECRETS, line.channel.secret)
    made |= dict.fromkeys(TOKENS, line.channel.access_token)
    made |= {"PORT": str(free_port())}
    java = (
        f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={ports.proxy}"
        f" -Djavax.net.ssl.trustStore={folder}/bundle.jks -Djavax.net.ssl.trustStoreType=JKS"
    )
    changed = {
        "HTTPS_PROXY": proxy, "https_proxy": proxy, "SSL_CERT_FILE": bundle,
        "REQUESTS_CA_BUNDLE": bundle, "CURL_CA_BUNDLE": bundle,
        "NODE_EXTRA_CA_CERTS": str(folder / "node.pem"), "LOCAL_LINE_CA": str(folder / "ca.pem"),
        "LOCAL_LINE_HOSTS": " ".join(HOSTS), "LOCAL_LINE_TLS_PORT": str(ports.tls),
    }  # fmt: skip
    changed |= {name: _without_line(usual[name]) for name in _DIRECT if name in usual}
    added = {
        "NODE_OPTIONS": (" ", f'--require "{_HOOKS / "node.cjs"}"'),
        "PYTHONPATH": (os.pathsep, str(_HOOKS / "python")),
        "RUBYLIB": (os.pathsep, str(_HOOKS / "ruby")),
        "RUBYOPT": (" ", "-rlocal_line_hosts"),
        "JAVA_TOOL_OPTIONS": (" ", java),
    }
    joined = {
        name: between.join(filter(None, [text, usual.get(name)]))
        for name, (between, text) in added.items()
    }
    # An empty part is where PHP looks anyway.
    joined["PHP_INI_SCAN_DIR"] = os.pathsep.join([usual.get("PHP_INI_SCAN_DIR", ""), str(folder)])
    return made | dict(usual) | changed | joined


async def _watch(
    line: LocalLine, command: Sequence[str], facts: dict[str, str], *, finds_webhook: bool
) -> int:
    process = await asyncio.create_subprocess_exec(*command, env=facts)
    looking = asyncio.create_task(_follow(line, process.pid, int(facts["PORT"])))
    if not finds_webhook:
        looking.cancel()
    try:
        with processes.watched(process.pid, Path(facts["LOCAL_LINE_CA"]).parent):
            code = await process.wait()
        return code if code >= 0 else 128 - code  # killed by a signal: as a shell says it
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        if process.returncode is None:
            await asyncio.to_thread(processes.end, process.pid, processes.GRACE)
            await process.wait()


async def _follow(line: LocalLine, pid: int, usual: int) -> None:
    """The webhook is where the program listens, also after it has restarted itself.

    A bot that sets its webhook names its address on the internet: of that the path counts.
    """
    found, refused, pause = "", set[int](), _LOOK
    while True:
        ports = await asyncio.to_thread(_ports, pid, usual)
        if line.webhook_url != found or urlsplit(found).port not in ports:
            found = await first_webhook(line, ports)
            line.webhook_url = found or line.webhook_url
            _report(found, set(ports) - refused)
            refused |= set(ports)
        pause = _LOOK if found or not ports else min(2 * pause, _LONGEST_LOOK)
        await asyncio.sleep(pause)


async def first_webhook(line: LocalLine, ports: Sequence[int]) -> str:
    """The address of the first path that accepts a signed webhook without events, if any."""
    path = urlsplit(line.webhook_url).path
    for port in ports:
        for each in dict.fromkeys([path or PATHS[0], *PATHS]):
            url = f"http://127.0.0.1:{port}{each}"
            answer = await line.verify(url)
            if answer.is_ok:
                return url
            if answer.reason == "request_timeout":  # no server of HTTP, such as a debugger
                break
    return ""


def _report(found: str, refused: Collection[int]) -> None:
    if found:
        print(f"local-line: the bot is at {found}", file=sys.stderr, flush=True)
        return
    for port in sorted(refused):
        address = f"--webhook http://127.0.0.1:{port}/…"
        words = f"no webhook at the usual paths of port {port}; if it is the bot's, {address}"
        print(f"local-line: {words}", file=sys.stderr, flush=True)


def _ports(pid: int, usual: int) -> list[int]:
    """The ports on which it listens; on other systems than Linux, *usual*."""
    if sys.platform == "linux":
        return processes.listening(pid)
    with closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return [usual] if probe.connect_ex(("127.0.0.1", usual)) == 0 else []


def free_port() -> int:
    """A port on which nothing listens now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
