"""Who may see the console: nothing is served without a decision of the application."""

from typing import Any

import pytest

from dibs import UsageError
from dibs.console.http import Rules, asked, checked_rules, decided


@pytest.mark.parametrize("rule", [None, True, False, "everybody", 1, {}])
def test_a_rule_is_a_function_or_names_the_host(rule: Any) -> None:
    """`allow=True` is not a decision that a reader would find again."""
    with pytest.raises(UsageError, match="allow must be a function"):
        checked_rules(rule, None, None)


def test_releasing_and_whole_keys_are_rights_of_their_own() -> None:
    """Who may read may do neither, unless the application says so."""
    rules = checked_rules("host", None, None)
    assert rules == Rules("host", None, None)
    assert [decided(asked(rule, {})) for rule in rules] == [True, False, False]
    with pytest.raises(UsageError, match="allow_release must be"):
        checked_rules("host", True, None)


@pytest.mark.parametrize("answer", [object(), "yes", 1, None, []])
def test_an_object_is_not_taken_for_a_yes(answer: object) -> None:
    """An anonymous user is an object, too: a rule says True or False."""
    with pytest.raises(UsageError, match="must return True or False"):
        decided(answer)
