"""Examining servers in tests, and applying the fixes that are named."""

import shlex

import redis

from dibs.doctor.command import gather
from dibs.doctor.facts import Finding, TargetFacts
from dibs.doctor.report import findings
from dibs.testing import Server

PATIENT = 30.0
"""A budget that a busy machine keeps."""
_BUSY = 20.0
"""What a busy machine may add to a time that is promised, in seconds."""


def look(url: str, *, namespace: str = "", budget: float = PATIENT) -> TargetFacts:
    """The facts, within the time that is promised."""
    facts = gather(url, namespace=namespace, budget=budget)
    assert facts.seconds < 3 + _BUSY
    return facts


def examine(url: str, *, namespace: str = "", budget: float = PATIENT) -> dict[str, Finding]:
    """The findings by their codes; each code occurs once."""
    found = findings(look(url, namespace=namespace, budget=budget))
    assert len({each.code for each in found}) == len(found)
    return {each.code: each for each in found}


def apply(finding: Finding, server: Server, **words: str) -> None:
    """Run the commands of a fix as an administrator; *words*: what the reader has to fill in."""
    assert finding.commands
    client = redis.Redis(port=server.port, socket_timeout=5, protocol=2)
    for command in finding.commands:
        for name, value in words.items():
            command = command.replace(name, value)
        client.execute_command(*shlex.split(command))
    client.close()
