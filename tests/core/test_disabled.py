"""DIBS_DISABLED: what its value means."""

import pytest

from dibs import UsageError
from dibs._core.lease import (
    is_disabled,
)


def test_what_the_switch_in_the_environment_says() -> None:
    """DIBS_DISABLED: the usual words for yes and no."""
    assert all(is_disabled(setting) for setting in ("1", "true", " YES ", "on"))
    assert not any(is_disabled(setting) for setting in ("", "0", "false", "No", "off"))


def test_a_switch_that_says_neither_is_a_mistake() -> None:
    """A typing error must not decide whether anything is guarded."""
    with pytest.raises(UsageError, match="DIBS_DISABLED"):
        is_disabled("ture")
