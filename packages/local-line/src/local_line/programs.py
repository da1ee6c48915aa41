"""`local-line run -- python app.py`: an unmodified bot, in front of the local LINE.

Its environment leads LINE's hosts here; nothing outside of that process and its children changes.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from .certificates import HOSTS, issue
from .local import LocalLine
from .proxy import Ports, proxied

PATHS = ("/callback", "/webhook", "/", "/linewebhook", "/line/webhook", "/api/webhook", "/line",
         "/api/line/webhook", "/bot", "/webhooks/line", "/line/callback", "/api/callback",
         "/callback/", "/webhook/", "/callback.php", "/webhook.php", "/bot.php")  # fmt: skip
"""Where bots listen; the first that takes a signed webhook without events is it."""
_PREFIXES = ("LINE_", "", "LINE_BOT_", "LINEBOT_")
SECRETS = (*(f"{each}CHANNEL_SECRET" for each in _PREFIXES), "LINE_SECRET", "ChannelSecret")
TOKENS = (
    *(f"{each}CHANNEL_{kind}" for each in _PREFIXES for kind in ("ACCESS_TOKEN", "TOKEN")),
    "LINE_CHANNEL_ACCESSTOKEN", "LINE_ACCESS_TOKEN", "LINE_TOKEN", "ChannelAccessToken",
)  # fmt: skip
"""As LINE's examples in Go, PHP, Ruby, Node and Python call them, and published bots."""
_HOOKS = Path(__file__).parent / "hooks"
_LOOK = 0.3
"""Seconds between two looks at the ports of the program."""
_LONGEST_LOOK = 5.0
"""The same, while none of them takes a webhook: each look is in the bot's log."""
_GRACE = 5.0
"""Seconds that the program has to end, before it is killed."""


async def run_program(line: LocalLine, command: Sequence[str], *, finds_webhook: bool) -> int:
    """Its exit code. OSError: it cannot be started."""
    with TemporaryDirectory(prefix="local-line-") as name:
        context = issue(Path(name))
        port = int(line.api_base.rpartition(":")[2])
        upstream = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or ""
        async with proxied(port, context, upstream) as ports:
            facts = environment(line, Path(name), ports, os.environ)
            return await _watch(line, command, facts, finds_webhook=finds_webhook)


def environment(
    line: LocalLine, folder: Path, ports: Ports, usual: Mapping[str, str]
) -> dict[str, str]:
    """What the program gets; what it has already and needs not to change stays."""
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
        "NODE_EXTRA_CA_CERTS": str(folder / "ca.pem"), "LOCAL_LINE_CA": str(folder / "ca.pem"),
        "LOCAL_LINE_HOSTS": " ".join(HOSTS), "LOCAL_LINE_TLS_PORT": str(ports.tls),
    }  # fmt: skip
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
        return await process.wait()
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        if process.returncode is None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """That program, and what it has started: `go run` and reloaders do not end it themselves."""
    family = _family(process.pid) if sys.platform == "linux" else {process.pid}
    _signal(family, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _GRACE)
    except TimeoutError:
        _signal(family, signal.SIGKILL)
        await process.wait()


def _signal(pids: Collection[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def _follow(line: LocalLine, pid: int, usual: int) -> None:
    """The webhook is where the program listens, also after it has restarted itself.

    A bot that sets its webhook names its address on the internet: of that the path counts.
    """
    found, refused, pause = "", set[int](), _LOOK
    while True:
        ports = await asyncio.to_thread(listening, pid, usual)
        if line.webhook_url != found or urlsplit(found).port not in ports:
            found = await _first_webhook(line, ports)
            line.webhook_url = found or line.webhook_url
            _report(found, set(ports) - refused)
            refused |= set(ports)
        pause = _LOOK if found or not ports else min(2 * pause, _LONGEST_LOOK)
        await asyncio.sleep(pause)


async def _first_webhook(line: LocalLine, ports: Sequence[int]) -> str:
    """The address of the first that takes a signed webhook without events; or nothing."""
    path = urlsplit(line.webhook_url).path
    for port in ports:
        for each in dict.fromkeys([path or PATHS[0], *PATHS]):
            url = f"http://127.0.0.1:{port}{each}"
            if (await line.verify(url)).is_ok:
                return url
    return ""


def _report(found: str, refused: Collection[int]) -> None:
    if found:
        print(f"local-line: the bot is at {found}", file=sys.stderr, flush=True)
        return
    for port in sorted(refused):
        address = f"--webhook http://127.0.0.1:{port}/…"
        words = f"no webhook at the usual paths of port {port}; if it is the bot's, {address}"
        print(f"local-line: {words}", file=sys.stderr, flush=True)


def listening(pid: int, usual: int) -> list[int]:
    """The ports at which that process and its children listen; elsewhere than on Linux, *usual*."""
    if sys.platform != "linux":
        with closing(socket.socket()) as probe:
            probe.settimeout(1.0)
            return [usual] if probe.connect_ex(("127.0.0.1", usual)) == 0 else []
    inodes = {inode for each in _family(pid) for inode in _sockets(each)}
    return sorted(port for inode, port in _listeners() if inode in inodes)


def _family(pid: int) -> set[int]:
    """That process and all below it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _sockets(pid: int) -> set[str]:
    found: set[str] = set()
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(link)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:  # it has just ended, or a file was closed
        pass
    return found


def _listeners() -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for table in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        except OSError:  # no IPv6
            continue
        for row in rows:
            parts = row.split()
            if parts[3] == "0A":
                found.append((parts[9], int(parts[1].rpartition(":")[2], 16)))
    return found


def free_port() -> int:
    """One at which nothing listens now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
