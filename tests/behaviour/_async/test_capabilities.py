"""Servers, services and proxies that lack something: it costs a feature, never the guard."""

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import AsyncDibs, Event, UsageError
from dibs.testing import CommandFilter, Engine, FaultProxy, Server
from tests.conditions import stand_in

from .._tasks import Background, eventually
from ..events import kinds

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "targets.md"


class Ran:
    """The run of a verb: whether a body or a load was begun, and what happened."""

    def __init__(self, url: str, namespace: str = "shop:") -> None:
        self.begun = False
        self.events: list[Event] = []
        self._url = url
        self._namespace = namespace

    def client(self) -> AsyncDibs:
        """One of the clients that use the same keys."""
        listeners = [self.events.append]
        return AsyncDibs(self._url, namespace=self._namespace, budget=5, listeners=listeners)


async def hold(dibs: AsyncDibs, ran: Ran) -> None:
    async with dibs.hold("job:1", ttl=5) as lease:
        ran.begun = True
        assert lease.guarded
        assert await dibs.try_hold("job:1", ttl=5) is None
    other = await dibs.try_hold("job:1", ttl=5)
    assert other is not None and other.guarded and await other.release()


async def hold_waiting(dibs: AsyncDibs, ran: Ran) -> None:
    await hold(dibs, ran)
    async with ran.client() as other:
        async with dibs.hold("job:1", ttl=0.2):
            pass
        lease = await dibs.try_hold("job:1", ttl=0.2)
        assert lease is not None and lease.guarded
        async with other.hold("job:1", ttl=5, wait=5) as mine:
            assert mine.guarded


async def hold_renewed(dibs: AsyncDibs, ran: Ran) -> None:
    async with dibs.hold("job:1", ttl=1.5, renew=True) as lease:
        ran.begun = True
        end = time.monotonic() + lease.remaining
        await eventually(lambda: time.monotonic() + lease.remaining > end + 0.2)
        assert lease.guarded and not lease.lost
        assert await lease.extend(1)


async def hold_fenced(dibs: AsyncDibs, ran: Ran) -> None:
    async with dibs.hold("job:1", ttl=5, fence=True) as lease:
        ran.begun = True
        assert lease.guarded and lease.fence


async def hold_limited(dibs: AsyncDibs, ran: Ran) -> None:
    async with dibs.hold("pool:1", ttl=5, limit=2, renew=True) as lease:
        ran.begun = True
        assert lease.guarded
        second = await dibs.try_hold("pool:1", ttl=5, limit=2)
        assert second is not None and second.guarded and await second.extend(5)
        assert await dibs.try_hold("pool:1", ttl=5, limit=2) is None
        assert await second.release()


async def peek(dibs: AsyncDibs, ran: Ran) -> None:
    assert await dibs.peek("job:1") is None


async def once(dibs: AsyncDibs, ran: Ran) -> None:
    async with dibs.claim("order:1", window=5, lease=1.2, after="replay") as claim:
        ran.begun = True
        assert claim.guarded and not claim.replayed
        await eventually(lambda: "renewed" in kinds(ran.events))
        claim.complete({"number": 17})
    async with dibs.claim("order:1", window=5, after="replay") as again:
        assert again.replayed and again.result == {"number": 17}
    async with dibs.claim("order:2", window=5, after="release") as other:
        assert other.guarded


async def cached(dibs: AsyncDibs, ran: Ran, **options: bool) -> None:
    loads: list[str] = []

    @dibs.cached("menu:{branch}", ttl=60, **options)  # type: ignore[arg-type]
    async def menu(branch: str) -> str:
        ran.begun = True
        loads.append(branch)
        return branch.upper()

    assert [await menu("b1") for _ in range(3)] == ["B1"] * 3
    async with ran.client() as other:
        assert await other.get_or_load("menu:b1", lambda: menu("never"), ttl=60) == "B1"
    assert loads == ["b1"]
    assert await menu.invalidate("b1")
    assert await menu("b1") == "B1" and loads == ["b1", "b1"]
    assert await menu.invalidate("b1")


async def cached_locally(dibs: AsyncDibs, ran: Ran) -> None:
    await cached(dibs, ran, local=True)


async def cached_with_tags(dibs: AsyncDibs, ran: Ran) -> None:
    loads: list[str] = []

    @dibs.cached("menu:{branch}", ttl=60, tags=["menus"])
    async def menu(branch: str) -> str:
        loads.append(branch)
        return branch.upper()

    assert [await menu("b1") for _ in range(2)] == ["B1"] * 2 and loads == ["b1"]
    assert await dibs.invalidate_tag("menus")
    assert await menu("b1") == "B1" and loads == ["b1", "b1"]
    assert await menu.invalidate("b1")


async def lead(dibs: AsyncDibs, ran: Ran) -> None:
    async with dibs.leader("indexer", ttl=5) as leader:
        assert leader.fence


async def schedule(dibs: AsyncDibs, ran: Ran) -> None:
    @dibs.scheduled(every=1, key="totals", ttl=5)
    async def totals(run: Any) -> None:
        ran.begun = run.lease.guarded and bool(run.lease.fence)

    async with dibs.scheduler():
        await eventually(lambda: ran.begun)


Verb = Callable[[AsyncDibs, Ran], Awaitable[None]]


async def lead_and_schedule(dibs: AsyncDibs, ran: Ran) -> None:
    await lead(dibs, ran)
    await schedule(dibs, ran)


VERBS: dict[str, Verb] = {
    "`hold`, `try_hold`, `exclusive`": hold,
    "`hold` with `wait`": hold_waiting,
    "`hold` with `renew`, `extend`": hold_renewed,
    "`hold` with `fence`": hold_fenced,
    "`hold` with `limit`": hold_limited,
    "`peek`": peek,
    "`once`, `claim`": once,
    "`cached`, `get_or_load`": cached,
    "`cached` with `local`": cached_locally,
}
LATER: dict[str, Verb] = {
    "`leader`, `scheduled`": lead_and_schedule,
    "`cached` with `tags`, `invalidate_tag`": cached_with_tags,
}
"""Some of their commands are not tried beforehand."""


async def run(verb: Verb, url: str, namespace: str = "shop:") -> None:
    """Run a verb. AssertionError: an outage, or a grant without a guard."""
    ran = Ran(url, namespace)
    async with ran.client() as dibs:
        await verb(dibs, ran)
    bad = [(each.kind, each.cause, each.detail) for each in ran.events if each.kind == "outage"]
    assert not bad, bad


async def run_all(verbs: Iterable[Verb], url: str) -> None:
    """Run verbs side by side, each with its own keys: some wait until something is renewed."""
    running = [Background(run, verb, url, f"shop:{verb.__name__}:") for verb in verbs]
    for each in running:
        await each.result()


def left_behind(server: Server) -> list[str]:
    """Locks, leases and claims that are still there; fences and results stay on purpose."""
    client = server.client()
    keys = [key.decode() for key in client.keys("*")]
    return [
        key for key in keys if "fence:" not in key and b"dibs1 done" not in (client.get(key) or b"")
    ]


# ---- proxies


@pytest.fixture(params=["valkey", "redis6"])
def filtered(
    request: pytest.FixtureRequest, servers: Callable[[Engine], Server]
) -> Iterator[CommandFilter]:
    """A proxy in front of a new and an old server."""
    server = servers(stand_in(request.param))
    server.flush()
    with CommandFilter(server.port) as proxy:
        yield proxy


NOT_NEEDED = [
    "HELLO", "CLIENT", "CLIENT TRACKING", "CLIENT CACHING", "COMMAND", "SCRIPT", "CONFIG", "ACL",
    "DELIFEQ", "DELEX", "EVALSHA", "EXISTS",
]  # fmt: skip


@pytest.mark.parametrize("command", NOT_NEEDED)
async def test_a_command_that_is_refused_costs_no_guard(
    filtered: CommandFilter, command: str
) -> None:
    """Every verb works and is guarded, without an outage."""
    filtered.refuse(command)
    await run_all(VERBS.values(), filtered.url)


async def test_without_pttl_nobody_knows_how_long_but_everybody_is_guarded(
    filtered: CommandFilter,
) -> None:
    """Leases and claims work; a cached value needs its remaining time, and says so at once."""
    filtered.refuse("PTTL")
    await run_all((hold, hold_waiting, hold_renewed, hold_fenced, peek, once), filtered.url)
    said, begun = await refusal(cached, filtered.url)
    assert "PTTL" in said and not begun


@pytest.mark.parametrize("command", ["HELLO", "CLIENT", "COMMAND", "CLIENT TRACKING", "DELIFEQ"])
async def test_a_command_on_which_the_proxy_hangs_up_costs_no_guard(
    filtered: CommandFilter, command: str
) -> None:
    """As twemproxy does. The connection is begun again, without what the proxy may not know."""
    filtered.close_on(command)
    await run_all(VERBS.values(), filtered.url)


@pytest.mark.parametrize(
    "instead",
    [
        ["LRANGE", "nothing", "0", "-1"],  # an empty list
        ["MGET", "a", "b", "c", "d", "e", "f", "g", "h"],  # nothing but nils
        ["PING"],  # something else
    ],
)
async def test_a_service_that_does_not_list_its_commands_is_not_too_old(
    filtered: CommandFilter, instead: list[str]
) -> None:
    """It is found out by trying, and the oldest way is taken."""
    filtered.replace("COMMAND", *instead)
    await run_all(VERBS.values(), filtered.url)


async def test_a_proxy_that_forgets_scripts_gets_them_whole(filtered: CommandFilter) -> None:
    """NOSCRIPT every time: after a few, EVALSHA is no longer tried."""
    filtered.replace("EVALSHA", "EVALSHA", "0" * 40, "0")
    async with AsyncDibs(filtered.url, budget=5) as dibs:
        for _ in range(20):
            async with dibs.hold("job:1", ttl=5, fence=True) as lease:
                assert lease.guarded and lease.fence
    assert 0 < filtered.seen.count("EVALSHA") < 8
    assert "SCRIPT LOAD" not in filtered.seen


async def test_many_first_callers_at_once_do_not_make_scripts_whole(
    servers: Callable[[Engine], Server],
) -> None:
    """A server that has just started lacks the script for all of them."""
    server = servers("valkey")
    server.flush()
    async with AsyncDibs(server.url, budget=5) as dibs:

        async def take(number: int) -> None:
            async with dibs.hold(f"job:{number}", ttl=5, fence=True):
                pass

        for caller in [Background(take, number) for number in range(20)]:
            await caller.result()
        before = server.commands("eval")
        await take(20)
    assert server.commands("eval") == before


@pytest.mark.parametrize("end", ["refuse", "close_on"])
async def test_without_a_way_to_release_nothing_is_taken(
    servers: Callable[[Engine], Server], end: str
) -> None:
    """No EVAL, and no native compare-and-delete: a sentence that names the command."""
    server = servers(stand_in("redis7"))
    server.flush()
    with CommandFilter(server.port) as proxy:
        getattr(proxy, end)("EVAL")
        running = [(name, Background(refusal, verb, proxy.url)) for name, verb in VERBS.items()]
        for name, each in running:
            said, begun = await each.result()
            assert "EVAL" in said and not begun, name
    assert left_behind(server) == []


async def test_without_eval_a_native_server_still_holds(
    servers: Callable[[Engine], Server],
) -> None:
    """DELIFEQ and SET IFEQ are enough for leases; what needs a script says so at once."""
    server = servers("valkey")
    server.flush()
    with CommandFilter(server.port) as proxy:
        proxy.refuse("EVAL", "EVALSHA")
        await run_all((hold, hold_waiting, hold_renewed, peek), proxy.url)
        for verb, what in (
            (hold_fenced, "take a key with a fence"),
            (hold_limited, "take one of several permits of a key"),
            (cached, "cache a value"),
        ):
            said, begun = await refusal(verb, proxy.url)
            assert re.search(f"dibs cannot {what}: .* run EVAL; see", said) and not begun
        async with AsyncDibs(proxy.url, budget=5) as dibs:
            async with dibs.claim("order:1", window=5, after="replay") as claim:
                assert claim.guarded
                claim.complete(17)
            async with dibs.claim("order:1", window=5, after="replay") as claim:
                assert claim.replayed and claim.result == 17


async def test_a_proxy_that_learns_hello_is_spoken_to_as_before(
    servers: Callable[[Engine], Server],
) -> None:
    """A connection that closes once on HELLO is a crash, not a proxy: RESP3 is tried again."""
    server = servers("valkey")
    with CommandFilter(server.port) as proxy:
        proxy.close_on("HELLO")
        async with (
            AsyncDibs(proxy.url, budget=5) as dibs,
            dibs.hold("job:1", ttl=5) as lease,
        ):
            assert lease.guarded
        proxy.allow_all()
        before = len(proxy.seen)
        async with (
            AsyncDibs(proxy.url, budget=5) as dibs,
            dibs.hold("job:1", ttl=5) as lease,
        ):
            assert lease.guarded
        assert "HELLO" in proxy.seen[before:] and "COMMAND INFO" in proxy.seen[before:]


# ---- permissions


def documented(column: int) -> dict[str, list[str]]:
    """The commands of each row, with those of the first, from the table in the documentation."""
    text = DOCS.read_text().partition("## What the server must allow")[2].replace("\\|", "/")
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    rows = {row[0].strip(): row for row in lines if len(row) == 3}

    def own(name: str) -> list[str]:
        cell = rows[name][1 if "the same" in rows[name][column] else column]
        return [word.replace("/", "|") for word in re.findall(r"`([^`]+)`", cell)]

    first, cached = next(iter(rows)), "`cached`, `get_or_load`"
    more = {"`cached` with `local`": own(cached)}
    return {name: [*dict.fromkeys(own(first) + more.get(name, []) + own(name))] for name in rows}


COLUMNS: dict[Engine, int] = {"valkey": 1, "redis7": 2, "redis6": 2}


@pytest.fixture(params=[(e, verb) for e in COLUMNS for verb in VERBS], ids=lambda p: "-".join(p))
def permitted(
    request: pytest.FixtureRequest, servers: Callable[[Engine], Server]
) -> Iterator[tuple[Server, Verb, list[str]]]:
    """A server, a verb, and the commands that its row names."""
    engine, name = request.param
    server = servers(engine)
    server.flush()
    other = "delex" if engine == "valkey" else ""  # of the two, Valkey has the first
    commands = documented(COLUMNS[engine])[name]
    yield server, VERBS[name], [word for word in commands if word != other]
    server.client().execute_command("ACL", "DELUSER", "app")


def allow(server: Server, commands: list[str]) -> str:
    """A user with these commands and no others; the URL with its name."""
    rules = ["on", ">secret", "~shop:*", "nocommands", *[f"+{command}" for command in commands]]
    server.client().execute_command("ACL", "SETUSER", "app", "reset", *rules)
    return server.url.replace("://", "://app:secret@")


async def test_the_documented_permissions_are_enough(
    permitted: tuple[Server, Verb, list[str]],
) -> None:
    """A user with exactly the row of a verb can use that verb."""
    server, verb, commands = permitted
    await run(verb, allow(server, commands))
    assert [key for key in left_behind(server) if "menu" not in key] == []


@pytest.mark.parametrize("engine", COLUMNS)
async def test_the_documented_permissions_are_enough_for_what_is_not_tried_beforehand(
    servers: Callable[[Engine], Server], engine: Engine
) -> None:
    """Leaders, schedules and tags, each with exactly the commands of its row."""
    server, rows = servers(engine), documented(COLUMNS[engine])
    for name, verb in LATER.items():
        server.flush()
        there = [word for word in rows[name] if engine != "valkey" or word != "delex"]
        await run(verb, allow(server, there))
        kept = ("menu", "tag", "scheduled-last")
        assert not [key for key in left_behind(server) if not any(word in key for word in kept)]
    server.client().execute_command("ACL", "DELUSER", "app")


async def test_a_missing_permission_is_told_before_the_body_or_costs_a_feature(
    permitted: tuple[Server, Verb, list[str]],
) -> None:
    """Without any one command of its row, a verb works or refuses; never after its body."""
    server, verb, commands = permitted
    for missing in commands:
        server.flush()
        url = allow(server, [command for command in commands if command != missing])
        said, begun = await refusal(verb, url)
        assert not (said and begun), f"without {missing}: {said}"
        assert not said or missing.partition("|")[0].upper() in said or "ACL" in said, said
        assert [key for key in left_behind(server) if "menu" not in key] == [], missing


async def refusal(verb: Verb, url: str) -> tuple[str, bool]:
    """What the UsageError says ("": there was none), and whether the body was begun."""
    ran = Ran(url)
    try:
        async with ran.client() as dibs:
            await verb(dibs, ran)
    except UsageError as error:
        return str(error), ran.begun
    return "", ran.begun


# ---- a server that must not be written


@pytest.mark.parametrize("engine", ["valkey", "redis7", "redis6"])
async def test_a_read_only_replica_is_an_outage_also_inside_a_script(
    start_server: Callable[..., Server], engine: Engine
) -> None:
    """READONLY has its code wherever the server puts it, and leads to a new connection."""
    master, replica = start_server(engine), start_server(engine)
    replica.client().replicaof("127.0.0.1", master.port)
    events: list[Event] = []
    async with AsyncDibs(replica.url, budget=5, listeners=[events.append]) as dibs:
        async with dibs.hold("job:1", ttl=5, fence=True) as lease:
            assert not lease.guarded
        async with dibs.hold("job:1", ttl=5) as lease:
            assert not lease.guarded
    assert {event.cause for event in events if event.kind == "outage"} <= {"readonly", "masterdown"}
    assert "readonly" in {event.cause for event in events}


async def test_a_server_that_refuses_pttl_is_not_hammered(own_server: Server) -> None:
    """A waiter who may not ask how long: it tries every now and then, it does not spin."""
    own_server.client().acl_setuser(
        "ann", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-pttl"]
    )
    own_server.client().set("user:1", "somebody", ex=60)
    async with AsyncDibs(f"redis://ann:secret@127.0.0.1:{own_server.port}", budget=5) as dibs:
        assert await dibs.try_hold("warm:up", ttl=5) is not None
        before = own_server.commands()
        assert await dibs.try_hold("user:1", ttl=5, wait=1) is None
        assert own_server.commands() - before < 100


@pytest.mark.parametrize(
    ("path", "command"), [("?client_name=shop", "CLIENT.SETNAME"), ("/1", "SELECT")]
)
async def test_a_url_that_asks_for_a_command_that_is_not_allowed(
    own_server: Server, path: str, command: str
) -> None:
    """It never works, so it is an error that names the command, not an outage for ever."""
    own_server.client().acl_setuser(
        "ann", enabled=True, passwords=["+secret"], keys=["*"],
        commands=["+@all", "-client|setname", "-select"],
    )  # fmt: skip
    url = f"redis://ann:secret@127.0.0.1:{own_server.port}"
    async with AsyncDibs(url, budget=5) as dibs:
        assert await dibs.try_hold("user:1", ttl=5) is not None
    async with AsyncDibs(url + path, budget=5) as dibs:
        with pytest.raises(UsageError, match=command):
            await dibs.try_hold("user:2", ttl=5)


@pytest.mark.parametrize("times", [3, 5, 8])
async def test_a_server_that_hangs_up_is_not_taken_for_one_without_scripts(
    line: FaultProxy, times: int
) -> None:
    """It restarts, or an operator closes connections: now and then one is closed at the script."""
    line.cut_after_request(times, match=b"eval")
    async with (
        AsyncDibs(line.url, budget=5) as dibs,
        dibs.hold("job:1", ttl=5) as lease,
    ):
        assert lease.guarded
    assert line.triggered == times
