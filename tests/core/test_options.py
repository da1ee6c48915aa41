"""Options: declared once, checked where they enter, remembered."""

import inspect
from typing import Any, Required, get_origin, get_type_hints

import pytest

from dibs import AsyncDibs, Dibs, UsageError
from dibs._core.options import (
    CacheKeywords,
    CacheOptions,
    ClaimKeywords,
    ClaimOptions,
    HoldKeywords,
    HoldOptions,
    Remembered,
    Settings,
    TryHoldKeywords,
    is_disabled,
)
from dibs._core.schedule import ScheduleKeywords, ScheduleOptions
from dibs._core.throttle import ThrottleKeywords, ThrottleOptions

NOWHERE = "redis://127.0.0.1:1"
SETTINGS = Settings(namespace="", on_outage="open")


@pytest.mark.parametrize(
    ("keywords", "options"),
    [
        (HoldKeywords, HoldOptions),
        (ClaimKeywords, ClaimOptions),
        (CacheKeywords, CacheOptions),
        (ScheduleKeywords, ScheduleOptions),
        (ThrottleKeywords, ThrottleOptions),
    ],
    ids=lambda each: each.__name__,
)
def test_what_may_be_written_is_what_is_checked(keywords: Any, options: Any) -> None:
    """The TypedDict of a verb and the class that checks it have the same names and types."""
    parameters = inspect.signature(options).parameters
    hints = get_type_hints(options.__init__)
    known = {name for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}
    assert known == set(keywords.__annotations__)
    for name, kind in get_type_hints(keywords).items():
        assert hints[name] == kind, name
        assert (parameters[name].default is inspect.Parameter.empty) == (
            get_origin(keywords.__annotations__[name]) is Required
        ), name


def test_every_verb_shows_its_options_and_their_defaults() -> None:
    """`help()` and `inspect.signature` show each option, for both clients."""
    for client in (Dibs, AsyncDibs):
        shown = inspect.signature(client.hold).parameters
        assert list(shown)[:3] == ["self", "key", "ttl"]
        assert shown["ttl"].default is inspect.Parameter.empty
        assert shown["wait"].default == 0 and shown["on_late"].default is None
        assert set(inspect.signature(client.try_hold).parameters) == {
            "self", "key", "name", *TryHoldKeywords.__annotations__,
        }  # fmt: skip
        assert inspect.signature(client.cached).parameters["poll"].default == 0.08


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda dibs: dibs.hold("k"),
            "hold() missing 1 required keyword-only argument: 'ttl'",
        ),
        (
            lambda dibs: dibs.hold("k", ttl=1, timeout=2),
            "hold() got an unexpected keyword argument 'timeout'",
        ),
        (
            lambda dibs: dibs.try_hold("k", ttl=1, renew=True),
            "try_hold() got an unexpected keyword argument 'renew'",
        ),
        (
            lambda dibs: dibs.once("k:{a}"),
            "once() missing 1 required keyword-only argument: 'window'",
        ),
    ],
)
def test_a_keyword_too_many_or_too_few_is_pythons_own_error(call: Any, words: str) -> None:
    """A TypeError in the words of Python, naming the verb."""
    with Dibs(NOWHERE) as dibs, pytest.raises(TypeError) as caught:
        call(dibs)
    assert str(caught.value) == words


def test_options_are_made_once_for_each_combination() -> None:
    """The second call with the same keywords gets the same object."""
    remembered = Remembered(Dibs.hold, lambda **options: HoldOptions(SETTINGS, **options))
    assert remembered({"ttl": 5}) is remembered({"ttl": 5})
    assert remembered({"ttl": 5}) is not remembered({"ttl": 5, "wait": 1})


@pytest.mark.filterwarnings("ignore:.* not entered:RuntimeWarning")
def test_what_is_remembered_does_not_let_a_mistake_through() -> None:
    """True equals 1, and a list cannot be remembered at all: both are refused as ever."""
    with Dibs(NOWHERE) as dibs:
        dibs.hold("k", ttl=1)
        for mistake in (True, [1], {}):
            with pytest.raises(UsageError, match="ttl must be seconds"):
                dibs.hold("k", ttl=mistake)  # type: ignore[arg-type]


def test_a_codec_that_cannot_be_remembered_is_used_all_the_same() -> None:
    """An object without a hash is a codec like any other."""

    class Codec:
        name, fingerprint = "mine", "-"
        __hash__ = None  # type: ignore[assignment]

        def encode(self, value: Any) -> bytes:
            return repr(value).encode()

        def decode(self, data: bytes) -> Any:
            return data

    mine = Codec()
    with Dibs(NOWHERE) as dibs:
        assert dibs._claim_options({"window": 5, "codec": mine}).codec is mine


def test_what_the_switch_in_the_environment_says() -> None:
    """DIBS_DISABLED: the usual words for yes and no."""
    assert all(is_disabled(setting) for setting in ("1", "true", " YES ", "on"))
    assert not any(is_disabled(setting) for setting in ("", "0", "false", "No", "off"))


def test_a_switch_that_says_neither_is_a_mistake() -> None:
    """A typing error must not decide whether anything is guarded."""
    with pytest.raises(UsageError, match="DIBS_DISABLED"):
        is_disabled("ture")
