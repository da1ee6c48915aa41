"""Errors carry facts, show no key, and can be sent to another process."""

import copy
import pickle

import pytest

from dibs import Busy, DibsError, Duplicate, LeaseLost, Mismatch, Unavailable


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


@pytest.mark.parametrize(
    "error",
    [
        Busy("user:42", 3.21, "web-1:7", "user:{id}", is_here=True, limit=3, waited=2.0),
        Duplicate("user:42", 3.21, "done", "text", "user:{id}", "job-17", "table"),
        Mismatch("user:42", "user:{id}"),
        LeaseLost("user:42", 7, "user:{id}", "released"),
        LeaseLost("user:42"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_reporters_collect_of_an_error_has_no_key(error: DibsError) -> None:
    """`args` and the dictionary are sent and stored by others; a copy has the key nevertheless."""
    error.add_note("seen")
    assert "42" not in repr(error.args) + repr(vars(error)) + repr(error)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (twin.key, twin.args, vars(twin)) == ("user:42", error.args, vars(error))
    # As a result backend that keeps them as JSON: all but the key.
    assert vars(type(error)(*error.args)) == {
        name: value for name, value in vars(error).items() if name != "__notes__"
    }
