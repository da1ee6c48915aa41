"""`local-line run -- python app.py`: an unmodified bot, in front of the local LINE.

Its environment leads LINE's hosts here; nothing outside of that process and its children changes.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from .certificates import HOSTS, issue
from .local import LocalLine
from .proxy import Ports, proxied

PATHS = ("/callback", "/webhook", "/", "/linewebhook", "/line/webhook", "/api/webhook", "/line",
         "/api/line/webhook", "/bot", "/webhooks/line")  # fmt: skip
"""Where bots listen; the first that takes a signed webhook without events is it."""
SECRETS = ("LINE_CHANNEL_SECRET", "CHANNEL_SECRET", "LINE_SECRET")
TOKENS = ("LINE_CHANNEL_ACCESS_TOKEN", "CHANNEL_ACCESS_TOKEN", "LINE_ACCESS_TOKEN")
_HOOKS = Path(__file__).parent / "hooks"
_LOOK = 0.3
"""Seconds between two looks at the ports of the program."""


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
    made |= {"PORT": str(_free_port())}
    node = f'--require "{_HOOKS / "node.cjs"}"'
    changed = {
        "HTTPS_PROXY": proxy, "https_proxy": proxy, "SSL_CERT_FILE": bundle,
        "REQUESTS_CA_BUNDLE": bundle, "CURL_CA_BUNDLE": bundle,
        "NODE_EXTRA_CA_CERTS": str(folder / "ca.pem"), "LOCAL_LINE_CA": str(folder / "ca.pem"),
        "LOCAL_LINE_HOSTS": " ".join(HOSTS), "LOCAL_LINE_TLS_PORT": str(ports.tls),
        "NODE_OPTIONS": f"{usual.get('NODE_OPTIONS', '')} {node}".strip(),
        "PYTHONPATH": os.pathsep.join(
            [str(_HOOKS / "python"), *filter(None, [usual.get("PYTHONPATH")])]
        ),
    }  # fmt: skip
    return made | dict(usual) | changed


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
            process.terminate()
            await process.wait()


async def _follow(line: LocalLine, pid: int, usual: int) -> None:
    """The webhook is where the program listens, also after it has restarted itself."""
    current: int | None = None
    while True:
        ports = await asyncio.to_thread(listening, pid, usual)
        if current not in ports:
            current = None
            for port in ports:
                if url := await _webhook_at(line, port):
                    current, line.webhook_url = port, url
                    print(f"local-line: the bot is at {url}", file=sys.stderr, flush=True)
                    break
        await asyncio.sleep(_LOOK)


async def _webhook_at(line: LocalLine, port: int) -> str | None:
    for path in PATHS:
        url = f"http://127.0.0.1:{port}{path}"
        if (await line.verify(url)).is_ok:
            return url
    return None


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


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
