"""Errors carry facts, show no key, and can be sent to another process."""

import pickle

from dibs import Busy, LeaseLost, Unavailable


def test_errors_carry_facts_and_survive_pickling() -> None:
    """Facts as attributes, a sentence without the key, the same after a trip to another process."""
    busy = Busy("user:42", 3.21, "web-1:7", "user:{id}")
    lost = LeaseLost("user:42", 7, "user:{id}")
    out = Unavailable("refused", "user:{id}")
    failed = Unavailable("the last load failed", "user:{id}", "NotFound")
    assert out.failure is None and failed.failure == "NotFound"
    for error in (busy, lost, out, failed):
        twin = pickle.loads(pickle.dumps(error))
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
        assert "42" not in str(error)
    assert "web-1:7" in str(busy)
    assert "3.21" in str(busy)
