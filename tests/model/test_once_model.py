"""Claims on a real server against a simple model: any actions of users, in any order."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dibs import Dibs, Duplicate, Mismatch, Unavailable
from dibs.claims import open_claims
from dibs.testing import Server

KEYS = st.sampled_from(["a:1", "a:2"])
USERS = st.sampled_from([0, 1])
WHICH = st.integers(0, 3)
PAYLOADS = st.sampled_from([None, None, {"x": 1}, {"x": 2}])
RESULTS = st.sampled_from([None, 0, "", [], {}, {"order": 17}, "done"])
AFTER = st.sampled_from(["release", "hold", "replay"])
ON_ERROR = st.sampled_from(["release", "hold"])
NOTHING: Any = object()
FOREIGN: Any = object()
WINDOW, LEASE = 600, 300


@dataclass(eq=False)
class Mine:
    """A claim that was handed out, and what it will leave."""

    claim: Any
    key: str
    after: str
    on_error: str
    payload: Any
    result: Any = NOTHING
    released: bool = False


@dataclass
class Record:
    """What the store should hold under a key."""

    by: Any
    payload: Any
    is_done: bool = False
    result: Any = NOTHING


class Model(RuleBasedStateMachine):
    """Two processes, another program, and one server. The model: one record for each key."""

    server: Server
    met: set[tuple[str, bool]]
    """How the keys of claims were when they ended, and whether there was no memory."""

    def __init__(self) -> None:
        super().__init__()
        self.server.flush()
        self.users = [Dibs(self.server.url, budget=5), Dibs(self.server.url, budget=5)]
        self.records: dict[str, Record] = {}
        self.claims: list[Mine] = []
        """All that were handed out, the last ones first; some have ended."""
        self.open: set[Mine] = set()
        self.make_room()

    # ---- submitting

    @rule(key=KEYS, user=USERS, after=AFTER, on_error=ON_ERROR, payload=PAYLOADS)
    def submit(self, key: str, user: int, after: Any, on_error: Any, payload: Any) -> None:
        claiming = self.users[user].claim(
            key, window=WINDOW, lease=LEASE, after=after, on_error=on_error, payload=payload,
            on_outage="closed",
        )  # fmt: skip
        there = self.records.get(key)
        if self.is_full and (there is None or not self._is_known(there, user)):
            with pytest.raises(Unavailable, match="memory"):
                claiming.__enter__()
            return
        if there is None:
            mine = Mine(claiming.__enter__(), key, after, on_error, payload)
            assert not mine.claim.replayed and mine.claim.guarded
            self.records[key] = Record(mine, payload)
            self.claims.insert(0, mine)
            self.open.add(mine)
            return
        if None not in (payload, there.payload) and payload != there.payload:
            with pytest.raises(Mismatch):
                claiming.__enter__()
        elif after == "replay" and there.result is not NOTHING:
            replay = claiming.__enter__()
            assert replay.replayed and replay.result == there.result
            assert type(replay.result) is type(there.result)
            claiming.__exit__(None, None, None)
        else:
            with pytest.raises(Duplicate) as caught:
                claiming.__enter__()
            assert caught.value.state == ("done" if there.is_done else "running")
            longest = WINDOW if there.is_done or after == "hold" else LEASE
            assert there.by is FOREIGN or 0 < caught.value.retry_after <= longest

    def _is_known(self, there: Record, user: int) -> bool:
        """Whether the process of *user* itself has it, and makes no request."""
        return isinstance(there.by, Mine) and self._user_of(there.by) == user

    # ---- while it runs

    @precondition(lambda self: self.claims)
    @rule(which=WHICH, result=RESULTS)
    def say_what_came_of_it(self, which: int, result: Any) -> None:
        mine = self._one(which)
        mine.claim.complete(result)
        mine.result, mine.released = result, False

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def change_its_mind(self, which: int) -> None:
        mine = self._one(which)
        mine.claim.release()
        mine.released = True

    def _one(self, which: int) -> Mine:
        return self.claims[min(which, len(self.claims) - 1)]

    # ---- the end of it

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def end_well(self, which: int) -> None:
        self._end(self._one(which), well=True)

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def end_badly(self, which: int) -> None:
        self._end(self._one(which), well=False)

    @precondition(lambda self: self.open)
    @rule(fate=st.sampled_from(["free", "taken", "done"]), well=st.booleans(), full=st.booleans())
    def end_after_it_was_lost(self, fate: str, well: bool, full: bool) -> None:
        mine = next(each for each in self.claims if each in self.open)
        self.expire(mine.key)
        self.make_room()
        if fate != "free":
            self.submit(mine.key, 1 - self._user_of(mine), "hold", "release", None)
        if fate == "done":
            self._end(self.claims[0], well=True)
        if full:
            self.fill()
        self._end(mine, well=well)

    def _user_of(self, mine: Mine) -> int:
        return int(mine.claim._leases is self.users[1]._leases)

    def _end(self, mine: Mine, *, well: bool) -> None:
        there = self.records.get(mine.key)
        is_open, is_mine = mine in self.open, there is not None and there.by is mine
        if is_open:
            place = "ours" if is_mine else "free" if there is None else "another's"
            self.met.add((place, self.is_full))
        leaves = not mine.released and (mine.after if well else mine.on_error) != "release"
        is_written = is_open and (is_mine or (there is None and leaves))
        assert (mine.claim.finish() if well else mine.claim.fail()) is is_written
        self.open.discard(mine)
        if not is_written:
            return
        if not leaves:
            del self.records[mine.key]
            return
        has_result = well and mine.after == "replay" and not self.is_full
        result = mine.result if has_result else NOTHING
        self.records[mine.key] = Record(None, mine.payload, is_done=True, result=result)

    @rule()
    def fill(self) -> None:
        self.is_full = True
        self.server.client().config_set("maxmemory", 1)

    @rule()
    def make_room(self) -> None:
        self.is_full = False
        self.server.client().config_set("maxmemory", 0)

    # ---- faults

    @precondition(lambda self: self.open)
    @rule(which=WHICH)
    def leak(self, which: int) -> None:
        mine = self._one(which)
        mine.claim.leak("cleared")
        self.open.discard(mine)
        there = self.records.get(mine.key)
        if there is not None and there.by is mine:
            there.by = None  # it stays there, running, until its lease is over

    @rule(key=KEYS)
    def expire(self, key: str) -> None:
        self.server.client().delete(key)
        self._lose(self.records.pop(key, None))

    @rule(key=KEYS, value=st.sampled_from([b"1", b"a b c", b"dibs1 json - 1 1\n7"]))
    def overwrite(self, key: str, value: bytes) -> None:
        self.make_room()
        self.server.client().set(key, value, ex=WINDOW)
        self._lose(self.records.pop(key, None))
        self.records[key] = Record(FOREIGN, None)

    def _lose(self, record: Record | None) -> None:
        if record is not None and isinstance(record.by, Mine):
            # Its process learns it at the next word with the server.
            claim = record.by.claim
            assert claim._leases.extend(claim._lease, LEASE) is False
            assert claim.lost

    @rule()
    def forget_scripts(self) -> None:
        self.server.client().script_flush()

    # ---- what must be true at any time

    @invariant()
    def the_server_knows_what_the_model_knows(self) -> None:
        assert set(self.server.keys()) == set(self.records)
        for key, record in self.records.items():
            value = self.server.client().get(key)
            assert value is not None and 0 < self.server.client().pttl(key) <= WINDOW * 1000
            assert value.startswith(b"dibs1 done ") == record.is_done
            assert not isinstance(record.by, Mine) or value == record.by.claim._lease.token

    @invariant()
    def the_process_knows_what_is_open(self) -> None:
        assert open_claims() == len(self.open)
        assert all(mine.claim.is_open for mine in self.open)

    def teardown(self) -> None:
        for mine in self.open:
            mine.claim.leak("cleared")
        for user in self.users:
            user.close()
        self.make_room()


@pytest.mark.timeout(240)
def test_whatever_users_submit(valkey: Server) -> None:
    """Claim, complete, change one's mind, fail, leak, expire, overwrite, flush scripts, run out of
    memory, by two processes and another program, in any order: the model agrees. It meets keys that
    are ours, free and another's at the end, with memory and without; else it would say nothing."""
    met: set[tuple[str, bool]] = set()
    machine = type("Machine", (Model,), {"server": valkey, "met": met})
    machine.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
    test = machine.TestCase()
    test.runTest()
    assert met == {(place, full) for place in ("ours", "free", "another's") for full in (0, 1)}
