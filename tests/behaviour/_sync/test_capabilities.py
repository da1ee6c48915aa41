# Generated from tests/behaviour/_async/test_capabilities.py by unasync.py – do not edit.
"""Servers, services and proxies that lack something: it costs a feature, never the guard."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import Dibs, Event, UsageError
from dibs.testing import CommandFilter, Engine, FaultProxy, Server
from tests.conditions import stand_in

from .._threads import Background, eventually
from ..events import kinds

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "targets.md"


class Ran:
    """The run of a verb: whether a body or a load was begun, and what happened."""

    def __init__(self, url: str, namespace: str = "shop:") -> None:
        self.begun = False
        self.events: list[Event] = []
        self._url = url
        self._namespace = namespace

    def client(self) -> Dibs:
        """One of the clients that use the same keys."""
        listeners = [self.events.append]
        return Dibs(self._url, namespace=self._namespace, budget=5, listeners=listeners)


def hold(dibs: Dibs, ran: Ran) -> None:
    with dibs.hold("job:1", ttl=5) as lease:
        ran.begun = True
        assert lease.guarded
        assert dibs.try_hold("job:1", ttl=5) is None
    other = dibs.try_hold("job:1", ttl=5)
    assert other is not None and other.guarded and other.release()


def hold_waiting(dibs: Dibs, ran: Ran) -> None:
    hold(dibs, ran)
    with ran.client() as other:
        with dibs.hold("job:1", ttl=0.2):
            pass
        lease = dibs.try_hold("job:1", ttl=0.2)
        assert lease is not None and lease.guarded
        with other.hold("job:1", ttl=5, wait=5) as mine:
            assert mine.guarded


def hold_renewed(dibs: Dibs, ran: Ran) -> None:
    with dibs.hold("job:1", ttl=1.5, renew=True) as lease:
        ran.begun = True
        end = time.monotonic() + lease.remaining
        eventually(lambda: time.monotonic() + lease.remaining > end + 0.2)
        assert lease.guarded and not lease.lost
        assert lease.extend(1)


def hold_fenced(dibs: Dibs, ran: Ran) -> None:
    with dibs.hold("job:1", ttl=5, fence=True) as lease:
        ran.begun = True
        assert lease.guarded and lease.fence


def hold_limited(dibs: Dibs, ran: Ran) -> None:
    with dibs.hold("pool:1", ttl=5, limit=2, renew=True) as lease:
        ran.begun = True
        assert lease.guarded
        second = dibs.try_hold("pool:1", ttl=5, limit=2)
        assert second is not None and second.guarded and second.extend(5)
        assert dibs.try_hold("pool:1", ttl=5, limit=2) is None
        assert second.release()


def peek(dibs: Dibs, ran: Ran) -> None:
    assert dibs.peek("job:1") is None


def once(dibs: Dibs, ran: Ran) -> None:
    with dibs.claim("order:1", window=5, lease=1.2, after="replay") as claim:
        ran.begun = True
        assert claim.guarded and not claim.replayed
        eventually(lambda: "renewed" in kinds(ran.events))
        claim.complete({"number": 17})
    with dibs.claim("order:1", window=5, after="replay") as again:
        assert again.replayed and again.result == {"number": 17}
    with dibs.claim("order:2", window=5, after="release") as other:
        assert other.guarded


def cached(dibs: Dibs, ran: Ran, **options: bool) -> None:
    loads: list[str] = []

    @dibs.cached("menu:{branch}", ttl=60, **options)  # type: ignore[arg-type]
    def menu(branch: str) -> str:
        ran.begun = True
        loads.append(branch)
        return branch.upper()

    assert [menu("b1") for _ in range(3)] == ["B1"] * 3
    with ran.client() as other:
        assert other.get_or_load("menu:b1", lambda: menu("never"), ttl=60) == "B1"
    assert loads == ["b1"]
    assert menu.invalidate("b1")
    assert menu("b1") == "B1" and loads == ["b1", "b1"]
    assert menu.invalidate("b1")


def cached_locally(dibs: Dibs, ran: Ran) -> None:
    cached(dibs, ran, local=True)


def cached_with_tags(dibs: Dibs, ran: Ran) -> None:
    loads: list[str] = []

    @dibs.cached("menu:{branch}", ttl=60, tags=["menus"])
    def menu(branch: str) -> str:
        loads.append(branch)
        return branch.upper()

    assert [menu("b1") for _ in range(2)] == ["B1"] * 2 and loads == ["b1"]
    assert dibs.invalidate_tag("menus")
    assert menu("b1") == "B1" and loads == ["b1", "b1"]
    assert menu.invalidate("b1")


def lead(dibs: Dibs, ran: Ran) -> None:
    with dibs.leader("indexer", ttl=5) as leader:
        assert leader.fence


def schedule(dibs: Dibs, ran: Ran) -> None:
    @dibs.scheduled(every=1, key="totals", ttl=5)
    def totals(run: Any) -> None:
        ran.begun = run.lease.guarded and bool(run.lease.fence)

    with dibs.scheduler():
        eventually(lambda: ran.begun)


Verb = Callable[[Dibs, Ran], None]


def lead_and_schedule(dibs: Dibs, ran: Ran) -> None:
    lead(dibs, ran)
    schedule(dibs, ran)


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


def run(verb: Verb, url: str, namespace: str = "shop:") -> None:
    """Run a verb. AssertionError: an outage, or a grant without a guard."""
    ran = Ran(url, namespace)
    with ran.client() as dibs:
        verb(dibs, ran)
    bad = [(each.kind, each.cause, each.detail) for each in ran.events if each.kind == "outage"]
    assert not bad, bad


def run_all(verbs: Iterable[Verb], url: str) -> None:
    """Run verbs side by side, each with its own keys: some wait until something is renewed."""
    running = [Background(run, verb, url, f"shop:{verb.__name__}:") for verb in verbs]
    for each in running:
        each.result()


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
def test_a_command_that_is_refused_costs_no_guard(
    filtered: CommandFilter, command: str
) -> None:
    """Every verb works and is guarded, without an outage."""
    filtered.refuse(command)
    run_all(VERBS.values(), filtered.url)


def test_without_pttl_nobody_knows_how_long_but_everybody_is_guarded(
    filtered: CommandFilter,
) -> None:
    """Leases and claims work; a cached value needs its remaining time, and says so at once."""
    filtered.refuse("PTTL")
    run_all((hold, hold_waiting, hold_renewed, hold_fenced, peek, once), filtered.url)
    said, begun = refusal(cached, filtered.url)
    assert "PTTL" in said and not begun


@pytest.mark.parametrize("command", ["HELLO", "CLIENT", "COMMAND", "CLIENT TRACKING", "DELIFEQ"])
def test_a_command_on_which_the_proxy_hangs_up_costs_no_guard(
    filtered: CommandFilter, command: str
) -> None:
    """As twemproxy does. The connection is begun again, without what the proxy may not know."""
    filtered.close_on(command)
    run_all(VERBS.values(), filtered.url)


@pytest.mark.parametrize(
    "instead",
    [
        ["LRANGE", "nothing", "0", "-1"],  # an empty list
        ["MGET", "a", "b", "c", "d", "e", "f", "g", "h"],  # nothing but nils
        ["PING"],  # something else
    ],
)
def test_a_service_that_does_not_list_its_commands_is_not_too_old(
    filtered: CommandFilter, instead: list[str]
) -> None:
    """It is found out by trying, and the oldest way is taken."""
    filtered.replace("COMMAND", *instead)
    run_all(VERBS.values(), filtered.url)


def test_a_proxy_that_forgets_scripts_gets_them_whole(filtered: CommandFilter) -> None:
    """NOSCRIPT every time: after a few, EVALSHA is no longer tried."""
    filtered.replace("EVALSHA", "EVALSHA", "0" * 40, "0")
    with Dibs(filtered.url, budget=5) as dibs:
        for _ in range(20):
            with dibs.hold("job:1", ttl=5, fence=True) as lease:
                assert lease.guarded and lease.fence
    assert 0 < filtered.seen.count("EVALSHA") < 8
    assert "SCRIPT LOAD" not in filtered.seen


def test_many_first_callers_at_once_do_not_make_scripts_whole(
    servers: Callable[[Engine], Server],
) -> None:
    """A server that has just started lacks the script for all of them."""
    server = servers("valkey")
    server.flush()
    with Dibs(server.url, budget=5) as dibs:

        def take(number: int) -> None:
            with dibs.hold(f"job:{number}", ttl=5, fence=True):
                pass

        for caller in [Background(take, number) for number in range(20)]:
            caller.result()
        before = server.commands("eval")
        take(20)
    assert server.commands("eval") == before


@pytest.mark.parametrize("end", ["refuse", "close_on"])
def test_without_a_way_to_release_nothing_is_taken(
    servers: Callable[[Engine], Server], end: str
) -> None:
    """No EVAL, and no native compare-and-delete: a sentence that names the command."""
    server = servers(stand_in("redis7"))
    server.flush()
    with CommandFilter(server.port) as proxy:
        getattr(proxy, end)("EVAL")
        running = [(name, Background(refusal, verb, proxy.url)) for name, verb in VERBS.items()]
        for name, each in running:
            said, begun = each.result()
            assert "EVAL" in said and not begun, name
    assert left_behind(server) == []


def test_without_eval_a_native_server_still_holds(
    servers: Callable[[Engine], Server],
) -> None:
    """DELIFEQ and SET IFEQ are enough for leases; what needs a script says so at once."""
    server = servers("valkey")
    server.flush()
    with CommandFilter(server.port) as proxy:
        proxy.refuse("EVAL", "EVALSHA")
        run_all((hold, hold_waiting, hold_renewed, peek), proxy.url)
        for verb, what in (
            (hold_fenced, "take a key with a fence"),
            (hold_limited, "take one of several permits of a key"),
            (cached, "cache a value"),
        ):
            said, begun = refusal(verb, proxy.url)
            assert re.search(f"dibs cannot {what}: .* run EVAL; see", said) and not begun
        with Dibs(proxy.url, budget=5) as dibs:
            with dibs.claim("order:1", window=5, after="replay") as claim:
                assert claim.guarded
                claim.complete(17)
            with dibs.claim("order:1", window=5, after="replay") as claim:
                assert claim.replayed and claim.result == 17


def test_a_proxy_that_learns_hello_is_spoken_to_as_before(
    servers: Callable[[Engine], Server],
) -> None:
    """A connection that closes once on HELLO is a crash, not a proxy: RESP3 is tried again."""
    server = servers("valkey")
    with CommandFilter(server.port) as proxy:
        proxy.close_on("HELLO")
        with (
            Dibs(proxy.url, budget=5) as dibs,
            dibs.hold("job:1", ttl=5) as lease,
        ):
            assert lease.guarded
        proxy.allow_all()
        before = len(proxy.seen)
        with (
            Dibs(proxy.url, budget=5) as dibs,
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


def test_the_documented_permissions_are_enough(
    permitted: tuple[Server, Verb, list[str]],
) -> None:
    """A user with exactly the row of a verb can use that verb."""
    server, verb, commands = permitted
    run(verb, allow(server, commands))
    assert [key for key in left_behind(server) if "menu" not in key] == []


@pytest.mark.parametrize("engine", COLUMNS)
def test_the_documented_permissions_are_enough_for_what_is_not_tried_beforehand(
    servers: Callable[[Engine], Server], engine: Engine
) -> None:
    """Leaders, schedules and tags, each with exactly the commands of its row."""
    server, rows = servers(engine), documented(COLUMNS[engine])
    for name, verb in LATER.items():
        server.flush()
        there = [word for word in rows[name] if engine != "valkey" or word != "delex"]
        run(verb, allow(server, there))
        kept = ("menu", "tag", "scheduled-last")
        assert not [key for key in left_behind(server) if not any(word in key for word in kept)]
    server.client().execute_command("ACL", "DELUSER", "app")


def test_a_missing_permission_is_told_before_the_body_or_costs_a_feature(
    permitted: tuple[Server, Verb, list[str]],
) -> None:
    """Without any one command of its row, a verb works or refuses; never after its body."""
    server, verb, commands = permitted
    for missing in commands:
        server.flush()
        url = allow(server, [command for command in commands if command != missing])
        said, begun = refusal(verb, url)
        assert not (said and begun), f"without {missing}: {said}"
        assert not said or missing.partition("|")[0].upper() in said or "ACL" in said, said
        assert [key for key in left_behind(server) if "menu" not in key] == [], missing


def refusal(verb: Verb, url: str) -> tuple[str, bool]:
    """What the UsageError says ("": there was none), and whether the body was begun."""
    ran = Ran(url)
    try:
        with ran.client() as dibs:
            verb(dibs, ran)
    except UsageError as error:
        return str(error), ran.begun
    return "", ran.begun


# ---- a server that must not be written


@pytest.mark.parametrize("engine", ["valkey", "redis7", "redis6"])
def test_a_read_only_replica_is_an_outage_also_inside_a_script(
    start_server: Callable[..., Server], engine: Engine
) -> None:
    """READONLY has its code wherever the server puts it, and leads to a new connection."""
    master, replica = start_server(engine), start_server(engine)
    replica.client().replicaof("127.0.0.1", master.port)
    events: list[Event] = []
    with Dibs(replica.url, budget=5, listeners=[events.append]) as dibs:
        with dibs.hold("job:1", ttl=5, fence=True) as lease:
            assert not lease.guarded
        with dibs.hold("job:1", ttl=5) as lease:
            assert not lease.guarded
    assert {event.cause for event in events if event.kind == "outage"} <= {"readonly", "masterdown"}
    assert "readonly" in {event.cause for event in events}


def test_a_server_that_refuses_pttl_is_not_hammered(own_server: Server) -> None:
    """A waiter who may not ask how long: it tries every now and then, it does not spin."""
    own_server.client().acl_setuser(
        "ann", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-pttl"]
    )
    own_server.client().set("user:1", "somebody", ex=60)
    with Dibs(f"redis://ann:secret@127.0.0.1:{own_server.port}", budget=5) as dibs:
        assert dibs.try_hold("warm:up", ttl=5) is not None
        before = own_server.commands()
        assert dibs.try_hold("user:1", ttl=5, wait=1) is None
        assert own_server.commands() - before < 100


@pytest.mark.parametrize(
    ("path", "command"), [("?client_name=shop", "CLIENT.SETNAME"), ("/1", "SELECT")]
)
def test_a_url_that_asks_for_a_command_that_is_not_allowed(
    own_server: Server, path: str, command: str
) -> None:
    """It never works, so it is an error that names the command, not an outage for ever."""
    own_server.client().acl_setuser(
        "ann", enabled=True, passwords=["+secret"], keys=["*"],
        commands=["+@all", "-client|setname", "-select"],
    )  # fmt: skip
    url = f"redis://ann:secret@127.0.0.1:{own_server.port}"
    with Dibs(url, budget=5) as dibs:
        assert dibs.try_hold("user:1", ttl=5) is not None
    with Dibs(url + path, budget=5) as dibs:
        with pytest.raises(UsageError, match=command):
            dibs.try_hold("user:2", ttl=5)


@pytest.mark.parametrize("times", [3, 5, 8])
def test_a_server_that_hangs_up_is_not_taken_for_one_without_scripts(
    line: FaultProxy, times: int
) -> None:
    """It restarts, or an operator closes connections: now and then one is closed at the script."""
    line.cut_after_request(times, match=b"eval")
    with (
        Dibs(line.url, budget=5) as dibs,
        dibs.hold("job:1", ttl=5) as lease,
    ):
        assert lease.guarded
    assert line.triggered == times
