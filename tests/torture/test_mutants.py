"""The torture suite sees a guard that is nearly right: which case catches which mutant."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from dibs_torture import CASES, Adapter, Report, torture
from dibs_torture.cases import identity, store
from dibs_torture.targets import fill, stored_in

from dibs import AsyncDibs
from dibs.testing import Server
from tests.torture.mutants import LEASE, MUTANTS, WINDOW, Mutant, altered

THEMES = [*vars(store).values(), *vars(identity).values()]
MORE = {"replay_can_be_read", "body_in_pieces", "big_body_cut_otherwise", "other_payload"}
MORE |= {"big_body_with_another_end", "replay_drops_the_personal", "quoted_key"}
MORE |= {"replay_keeps_repeated_headers", "replay_drops_cors", "replay_of_nothing"}
MORE |= {"refusal_says_when", "refusal_is_not_cached", "guarded_twice"}
MORE |= {"later_is_no_result", "login_is_no_result", "invalid_is_no_result"}
SLOW = {"work_outlasts_its_lease", "work_that_blocks_its_loop", "full_store"}
TRIED = [case for case in CASES if case in THEMES or case.name in MORE]
SOUND = Mutant("nothing", set())


def tried(mutant: Mutant, server: Server, *, slow: bool = False) -> Report:
    """What the suite says about it, in the cases about identity, the store and bodies."""
    opened: list[AsyncDibs] = []

    async def shutdown() -> None:
        while opened:
            await opened.pop().aclose()

    wrap = mutant.wrap(server, opened)
    options: dict[str, Any] = {"lease": LEASE, "window": WINDOW} | mutant.adapter
    adapter = Adapter(
        also_guarded="POST /guarded/also",
        also_method="PUT /guarded",
        compares="content",
        full=functools.partial(fill, server),
        store=server,
        contents=functools.partial(stored_in, server),
        other_service=functools.partial(wrap, service="another"),
        shutdown=shutdown,
        within=90,
        **options,
    )
    names = {case.name for case in TRIED} - (set() if slow else SLOW - mutant.caught_by)
    cases = [case for case in CASES if case.name in names]
    with altered(mutant):
        return asyncio.run(torture(wrap, adapter=adapter, cases=cases))


def test_the_guard_itself_passes(valkey: Server) -> None:
    """What is not altered keeps every promise that a mutant breaks."""
    report = tried(SOUND, valkey, slow=True)
    assert not report.failed, report


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_where_it_is_wrong(name: str, valkey: Server) -> None:
    """Each is caught by the cases that it names, and by no other."""
    mutant = MUTANTS[name]
    report = tried(mutant, valkey)
    assert {verdict.case for verdict in report.failed} == mutant.caught_by, report


def test_every_case_about_identity_and_the_store_has_its_mutant() -> None:
    """A case that no mutant fails might see nothing."""
    caught = set[str]().union(*(mutant.caught_by for mutant in MUTANTS.values()))
    cases = {case.name for case in CASES if case in THEMES}
    assert cases <= caught
