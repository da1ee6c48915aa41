"""Keys, names, templates and times."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from dibs._core.keys import LONGEST_KEY, Template, beside, expand, public_name, seconds
from dibs.errors import UsageError


@given(st.floats(min_value=0.001, max_value=1e8))
def test_a_good_time_comes_back_as_it_went_in(value: float) -> None:
    """Seconds stay seconds."""
    assert seconds(value, "ttl") == value


@given(st.one_of(st.floats(max_value=0.0009), st.just(float("nan")), st.just(float("inf"))))
def test_a_bad_time_is_refused(value: float) -> None:
    """Zero, negative, tiny, NaN, endless."""
    with pytest.raises(UsageError, match="ttl"):
        seconds(value, "ttl")


@given(st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(days=3000)))
def test_timedeltas_are_times(value: timedelta) -> None:
    """A timedelta is its seconds."""
    assert seconds(value, "ttl") == value.total_seconds()


@given(st.text(min_size=1, max_size=200), st.text(max_size=50))
def test_a_key_is_namespace_and_key(key: str, namespace: str) -> None:
    """Whatever can be written as UTF-8 and is not too long."""
    try:
        data = f"{namespace}{key}".encode()
    except UnicodeEncodeError:
        return
    if len(data) <= LONGEST_KEY:
        assert expand(namespace, key) == data


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="}"), min_size=1))
def test_a_companion_lives_in_the_same_slot(key: str) -> None:
    """`fence:{key}` hashes like `key`, whatever braces the key has."""
    assert key_slot(beside(b"fence:", key.encode())) == key_slot(key.encode())


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_companion_of_a_tagged_key_shares_its_tag(tag: str, rest: str) -> None:
    """`a{tag}b` and its companion hash by the tag."""
    if "}" in tag or "{" in rest:
        return
    try:
        key = f"{rest}{{{tag}}}".encode()
    except UnicodeEncodeError:
        return
    assert key_slot(beside(b"fence:", key)) == key_slot(key)


def test_a_key_that_cannot_be_tagged_is_refused() -> None:
    """A closing brace without a tag would end ours too early."""
    with pytest.raises(UsageError, match="tag"):
        beside(b"fence:", b"a}b")


@given(st.text(min_size=1))
def test_a_public_name_shows_the_first_word_at_most(key: str) -> None:
    """Nothing behind the first colon, and nothing at all without one."""
    name = public_name(key)
    assert name == (f"{key.split(':')[0]}:*" if ":" in key else "*")


def test_a_template_walks_attributes_and_mappings() -> None:
    """Dotted paths, defaults, literal braces."""

    def handler(event: object, kind: str = "all") -> None: ...

    template = Template("a:{event.source.user}:{kind}:{{x}}", handler)
    source = {"source": {"user": "u1"}}
    assert template((source,), {}) == "a:u1:all:{x}"
    assert template((source,), {"kind": "new"}) == "a:u1:new:{x}"
