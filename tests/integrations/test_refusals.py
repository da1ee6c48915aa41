"""Keys with parameters, and refusals that link to the documentation."""

import pytest

from dibs.testing import Server

from .edges import opened
from .every_edge import KEYED, REPLAY, every_edge

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


# ---- keys and refusals


@every_edge
async def test_parameters_of_a_key_are_legal_and_mean_nothing(valkey: Server, edge: str) -> None:
    """The header is a structured field: a string, with any parameters."""
    async with opened(edge, valkey, **REPLAY) as shop:
        for number, key in enumerate(("abc", '"abc"', '"abc";a=1', '"abc"; a=1;b="x,;y" ;c')):
            reply = await shop.post(headers={"idempotency-key": key})
            assert (reply.status, reply.is_replay) == (201, number > 0), key
        for key in ('"abc" x', '"abc";A', '"abc";', '"abc",a=1', '"a";b="'):
            assert (await shop.post(headers={"idempotency-key": key})).status == 400, key


@every_edge
async def test_a_refusal_links_to_the_documentation(valkey: Server, edge: str) -> None:
    """Where the application has some; a replay is the first answer and nothing else."""
    docs = "https://shop.example/docs#idempotency"
    async with opened(edge, valkey, docs=docs, **REPLAY) as shop:
        missing = await shop.post()
        await shop.post(headers=KEYED)
        other = await shop.post(body=b"[]", headers=KEYED)
        for refused in (missing, other):
            assert refused.headers["link"] == f'<{docs}>; rel="describedby"'
        assert "link" not in (await shop.post(headers=KEYED)).headers
