"""The seeds that every test run has."""

FIRST_WITH_MORE = 1000
"""From this seed on a full server and wrong clocks are faults of every workload."""
ON_REDIS8 = range(5_000_000, 6_000_000)
"""These have Redis 8.4, with DELEX, in the place of Valkey."""
FIXED = (*ON_REDIS8[:3], *range(FIRST_WITH_MORE, FIRST_WITH_MORE + 60))
"""These of each workload; `make test` has the first of them."""

KNOWN: dict[str, tuple[int, ...]] = {}
"""Seeds among them that show a known defect; they are left out until it is fixed."""

ONCE_FAILED: dict[str, tuple[int, ...]] = {
    # Late copies: a key taken without an owner, a lease shortened, a permit's fence given twice.
    "late": (78, 80, 93, 95, 115),
    # And a release that was repeated after its caller had gone, and was not served.
    "limit": (84, 108, 600177, 600705),
    # And retries of two runs of one attempt, both of which ran; a job whose key was not kept for
    # the queue in an outage, dropped for an equal one that ran.
    "jobs": (78, 79, 80, 100261, 4240087, 4240187),
    # A record that lasted from the beginning of the work; an end after the lease had run out; the
    # same while a call that was not answered had the key, which the checker did not know.
    # And a window whose last millisecond the simulated server cut off.
    "claims": (72, 76, 78, 95, 100, 346, 3000029, 555000210),
    # A load that began in an outage; an older value over a newer one; a simulated server that
    # forgot the client with the id of one from before its restart.
    "cached": (142, 148, 555000227),
    # An invalidation that a failover undid before its reply came: the checker had forgotten that.
    "cached_many": (410078,),
    # A release that was delivered after its slot had moved; one that was to be delivered later on
    # a connection that broke before; one behind ASKING, whose slot moved back meanwhile.
    "cluster": (1028, 1053, 1079, 400316, 2000234),
    # The address of the old master with the epoch of the new one, read by two commands. A grant of
    # an old master that still served its clients: the checker did not know that it will be lost.
    # An idle connection to a sentinel that had gone silent with the one in use.
    "sentinel": (601117, 3000408, 555000238),
    # A job that was dropped for one that was just being sent: the checker did not know that one.
    # One whose process stood still between its turn and its run, or before it got the claim on it.
    "alone": (400305, 410122, 1000414),
    # A job that was replaced by one that ran, and dropped for a third one: also the checker.
    "again": (3000378,),
    # Runs by a wrong clock; a clock that was set while a schedule began. A run that had finished,
    # and whose record had not arrived when its lease ran out: also the checker.
    "scheduled": (60, 70, 92, 107, 116, 810307, 811778, 1000309, 122141017, 122141045),
}
"""Seeds that have shown a defect which was mended."""
