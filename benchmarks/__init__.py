"""How fast dibs is, and against whom: ``python -m benchmarks``.

Everything a table shows was measured in the same run, on the same private Valkey, in rounds that
visit the systems in a new order each time. Trust the ratios; the digits belong to the machine.

Where to look:

==============  ==========================================================================
``hold``        acquire + release pairs per second, and what a pair costs the client's CPU
``many``        a hundred cached values in one call, ten of them cold
``refusal``     what "somebody here already has it" costs
``handoff``     from one holder's release to the next holder's start
``waiting``     the commands that waiting sends to the server
``hits``        cached values read per second, and what a hit costs the client's CPU
``stampede``    200 callers, one cold key: loads, commands, the slowest follower
``imports``     what ``import dibs`` adds to ``import redis``
``outage``      a server that hangs, and comes back
``aims``        what we set out to reach, and whether this run reached it
``systems/``    one file for each system measured
==============  ==========================================================================

The rest supports them: ``servers`` (a private Valkey), ``worker`` (a measured client in its own
process), ``concurrent_callers`` (n callers at once), ``values`` (what the caches keep), ``measure``
(rounds, medians, spreads), ``table``.
"""
