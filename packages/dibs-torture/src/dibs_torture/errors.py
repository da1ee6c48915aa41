"""What a user of the suite did wrong."""


class UsageError(ValueError):
    """An adapter, a case or a target that is not valid. The message says which, and why."""
