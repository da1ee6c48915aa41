"""The data of a button: `action=weather&type=home`. What comes back is not trusted."""

from urllib.parse import parse_qsl, urlencode

LONGEST = 300
"""LINE's own limit for the data of a button."""


def parse_postback(data: str | None) -> dict[str, str]:
    """The fields of *data*, the first of each name; empty: it is not ours."""
    if not data or len(data) > LONGEST:
        return {}
    try:
        pairs = parse_qsl(data, max_num_fields=10)
    except ValueError:
        return {}
    return dict(reversed(pairs))


def postback_data(action: str, **fields: str | int) -> str:
    """The data of a button. ValueError: it is longer than LINE allows."""
    data = urlencode({"action": action, **fields})
    if len(data) > LONGEST:
        raise ValueError(f"the data of a button must not have more than {LONGEST} characters")
    return data
