"""Claims on a real server against a simple model: whatever users do, in whatever order."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dibs import Dibs, Duplicate, Mismatch
from dibs.claims import open_claims
from dibs.testing import Server

KEYS = st.sampled_from(["a:1", "a:2"])
USERS = st.sampled_from([0, 1])
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
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.server.flush()
        self.users = [Dibs(self.server.url, budget=5), Dibs(self.server.url, budget=5)]
        self.records: dict[str, Record] = {}
        self.open: set[Mine] = set()

    # ---- submitting

    @rule(target=claims, key=KEYS, user=USERS, after=AFTER, on_error=ON_ERROR, payload=PAYLOADS)
    def submit(self, key: str, user: int, after: Any, on_error: Any, payload: Any) -> Any:
        claiming = self.users[user].claim(
            key, window=WINDOW, lease=LEASE, after=after, on_error=on_error, payload=payload
        )
        there = self.records.get(key)
        if there is None:
            mine = Mine(claiming.__enter__(), key, after, on_error, payload)
            assert not mine.claim.replayed and mine.claim.guarded
            self.records[key] = Record(mine, payload)
            self.open.add(mine)
            return mine
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
        return None

    # ---- while it runs

    @rule(mine=claims, result=RESULTS)
    def say_what_came_of_it(self, mine: Mine | None, result: Any) -> None:
        if mine is not None:
            mine.claim.complete(result)
            mine.result, mine.released = result, False

    @rule(mine=claims)
    def change_its_mind(self, mine: Mine | None) -> None:
        if mine is not None:
            mine.claim.release()
            mine.released = True

    # ---- the end of it

    @rule(mine=consumes(claims))
    def end_well(self, mine: Mine | None) -> None:
        self._end(mine, well=True)

    @rule(mine=consumes(claims))
    def end_badly(self, mine: Mine | None) -> None:
        self._end(mine, well=False)

    @rule(mine=claims, well=st.booleans())
    def end_and_keep(self, mine: Mine | None, well: bool) -> None:
        self._end(mine, well=well)

    def _end(self, mine: Mine | None, *, well: bool) -> None:
        if mine is None:
            return
        there = self.records.get(mine.key)
        is_mine = mine in self.open and there is not None and there.by is mine
        assert (mine.claim.finish() if well else mine.claim.fail()) is is_mine
        self.open.discard(mine)
        if is_mine and there is not None:
            if mine.released or (mine.after if well else mine.on_error) == "release":
                del self.records[mine.key]
            else:
                there.by, there.is_done = None, True
                there.result = mine.result if well and mine.after == "replay" else NOTHING

    # ---- what nobody wants

    @rule(mine=consumes(claims))
    def leak(self, mine: Mine | None) -> None:
        if mine in self.open:
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


@pytest.mark.timeout(240)
def test_whatever_users_submit(valkey: Server) -> None:
    """Claim, complete, change one's mind, fail, leak, expire, overwrite, flush scripts, by two
    processes and another program, in any order: the model agrees."""
    machine = type("Machine", (Model,), {"server": valkey})
    machine.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
    test = machine.TestCase()
    test.runTest()
