"""A server that answers oddly: what a broken server or proxy could send, or a hostile one.

    python -m tests.odd_replies 600 [SEED]      # for 600 seconds: every verb, both halves

The handshake is answered as it should be, then every command as the test says; `MutatingLine`
passes the replies of a real server on, with some of their bytes changed. Whatever comes, a verb
ends: with a result or an error of dibs, in time, with bounded memory.
"""

from __future__ import annotations

import asyncio
import logging
import random
import resource
import socket
import socketserver
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from dibs import AsyncDibs, Dibs, DibsError
from dibs.testing import CommandFilter, Server
from dibs.testing.faults import WireCommand, _commands_of  # pyright: ignore[reportPrivateUsage]

_HELLO = b"%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n"


def bulk(data: bytes) -> bytes:
    """A string, as the wire wants it."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


TOKEN = b"5a1f00112233445566778899aabbccdd-2c"
ANSWERS = {
    "null": b"_\r\n", "null string": b"$-1\r\n", "int": b":7\r\n", "negative": b":-5\r\n",
    "largest int": b":9223372036854775807\r\n", "string": bulk(b"\xff\xfe"), "empty": bulk(b""),
    "OK": b"+OK\r\n", "error": b"-ERR x\r\n", "binary error": b"-\xff\xfe\x1b[2J\r\n",
    "moved": b"-MOVED 1 127.0.0.1:1\r\n", "odd moved": b"-MOVED\r\n",
    "noscript": b"-NOSCRIPT x\r\n",
    "empty array": b"*0\r\n", "array of 1": b"*1\r\n:1\r\n",
    "array of 3": b"*3\r\n:1\r\n:1\r\n:1\r\n",
    "array of errors": b"*3\r\n-ERR a\r\n-ERR b\r\n-ERR c\r\n",
    "array of nulls": b"*3\r\n$-1\r\n$-1\r\n$-1\r\n", "nested": b"*3\r\n*1\r\n:1\r\n$-1\r\n%0\r\n",
    "deep": b"*1\r\n" * 2000 + b":1\r\n", "bool": b"#t\r\n", "nan": b",nan\r\n", "inf": b",inf\r\n",
    "big number": b"(" + b"9" * 900 + b"\r\n", "verbatim": b"=5\r\ntxt:x\r\n",
    "map": b"%1\r\n+a\r\n:1\r\n", "set": b"~1\r\n:1\r\n", "two": b"+OK\r\n+OK\r\n",
    "garbage": b"\x00\x01HTTP/1.1 200 OK\r\n\r\n", "negative length": b"$-7\r\nx\r\n",
    "odd pushes": b">2\r\n+invalidate\r\n:5\r\n>0\r\n>1\r\n:1\r\n:1\r\n",
    "a lease": bulk(TOKEN + b"@h:1"), "a mark": bulk(b"dibs1 ~ x abc\n{}"),
    "a failure": bulk(b"dibs1 ! - 1 1\n\xff"),
    "a claim": bulk(b"dibs1 done " + TOKEN + b" \xff 9b\nx"),
    "a scan": b"*2\r\n$1\r\n7\r\n*0\r\n", "a script's": b"*3\r\n$1\r\nx\r\n:5\r\n:9\r\n",
}  # fmt: skip
"""What every command after the handshake is answered."""


class OddServer:
    """Answers every command after the handshake with what `answer` returns."""

    def __init__(self, answer: Callable[[WireCommand], bytes], hello: bytes = _HELLO) -> None:
        """*hello*: the reply to HELLO."""
        self.answer, self._hello = answer, hello
        serve, self._open = self._serve, set[socket.socket]()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                serve(self.request)

        class Threads(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Threads(("127.0.0.1", 0), Handler)
        self.url = f"redis://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        try:
            for words in _commands_of(client):
                client.sendall(self._reply(words))
        except (OSError, ValueError):
            pass
        finally:
            self._open.discard(client)
            client.close()

    def _reply(self, words: WireCommand) -> bytes:
        name, *rest = [word.upper() for word in words[:2]]
        if name == b"HELLO":
            return self._hello
        if name in (b"AUTH", b"SELECT") or rest in ([b"SETINFO"], [b"SETNAME"]):
            return b"+OK\r\n"
        return self.answer(words)

    def close(self) -> None:
        """Close all connections and end."""
        self._server.shutdown()
        self._server.server_close()
        for client in list(self._open):
            client.close()

    def __enter__(self) -> OddServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MutatingLine(CommandFilter):
    """Passes replies on, some of them with other bytes than the server sent."""

    def __init__(self, target: int, chance: random.Random) -> None:
        self.chance, self.share = chance, 0.0
        super().__init__(target)

    def _forward_replies(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                client.sendall(self._changed(data))
        except OSError:
            pass

    def _changed(self, data: bytes) -> bytes:
        return mutated(data, self.chance) if self.chance.random() < self.share else data


_WORDS = (
    b"9" * 5000, b"-1", b"1e999", b"nan", b"\xff", b"\r\n", b" ", b"@", b"\x1b[2J", b"%ff",
    b"dibs1 ", b"~", b"!", b"done ", b"[" * 3000, b"\0", b"*1\r\n", b":1\r\n", b"$-1\r\n", b"_\r\n",
)  # fmt: skip


def mutated(data: bytes, chance: random.Random) -> bytes:
    """*data* with one or a few bytes changed, inserted or removed."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0 if changed:
                changed[at % len(changed)] = chance.randrange(256)
            case 1:
                changed[at:at] = chance.choice(_WORDS)
            case 2:
                del changed[at : at + chance.randrange(1, 12)]
            case 3:
                changed[at : at + chance.randrange(1, 20)] = chance.choice(_WORDS)
            case _:
                changed[at:at] = changed[: chance.randrange(40)]
    return bytes(changed)


# ---- the long run

_LONGEST = 4.0
"""Seconds; connect, budget and every wait of the verbs together are less."""


def random_answer(chance: random.Random) -> Callable[[WireCommand], bytes]:
    """An answer for every command, some of them mutated."""
    known = list(ANSWERS.values())

    def answer(_: WireCommand) -> bytes:
        data = chance.choice(known)
        return mutated(data, chance) if chance.random() < 0.3 else data

    return answer


async def _ask(url: str, ended: Counter[str], seconds: float) -> None:
    from tests.behaviour._async.odd_verbs import VERBS, options

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, verb in VERBS.items():
            dibs = AsyncDibs(url, **options(name))
            try:
                await asyncio.wait_for(verb(dibs), _LONGEST)
                ended["ok"] += 1
            except DibsError as error:
                ended[type(error).__name__] += 1
            except BaseException as error:
                raise AssertionError(f"async {name}: {type(error).__name__}: {error}") from error
            await asyncio.wait_for(dibs.aclose(), _LONGEST)


def _ask_in_a_loop(url: str, ended: Counter[str], seconds: float) -> None:
    asyncio.run(_ask(url, ended, seconds))


def _ask_in_threads(url: str, ended: Counter[str], seconds: float) -> None:
    from tests.behaviour._sync.odd_verbs import VERBS, options

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, verb in VERBS.items():
            began = time.monotonic()
            with Dibs(url, **options(name)) as dibs:
                try:
                    verb(dibs)
                    ended["ok"] += 1
                except DibsError as error:
                    ended[type(error).__name__] += 1
                except BaseException as error:
                    raise AssertionError(f"threads {name}: {type(error).__name__}") from error
            assert time.monotonic() - began < 2 * _LONGEST, f"threads {name} took too long"


def main(seconds: float, seed: int) -> None:
    """Run for so many seconds; AssertionError: a verb did not end as it should."""
    logging.disable(logging.CRITICAL)
    chance, ended = random.Random(seed), Counter[str]()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.monotonic(), time.process_time()
    with Server.start("valkey") as server:
        while time.monotonic() - began < seconds:
            for ask in (_ask_in_a_loop, _ask_in_threads):
                with OddServer(random_answer(chance)) as odd:
                    ask(odd.url, ended, 5)
                with MutatingLine(server.port, chance) as line:
                    line.share = 0.2
                    ask(line.url, ended, 5)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) // 1024
    cpu = time.process_time() - cpu
    print(f"{ended.total()} calls: {dict(ended)}; +{grown} MB, {cpu:.0f} s of CPU")
    assert grown < 300, "memory grew"


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns())
