"""Rules about the keys of the database: who else uses it."""

from collections.abc import Iterator

from .facts import Facts
from .finding import Finding

_SAME_KEY = "Two programs may use the same key for different things: one is refused for no reason."


def without_namespace(facts: Facts) -> Iterator[Finding]:
    """Of several clients of one database, one has no namespace."""
    if facts.keys is None:
        return
    mine, others = facts.asked.namespace, facts.keys.namespaces - {facts.asked.namespace}
    if mine == "" and others:
        yield Finding(
            "namespace-empty",
            "warning",
            f"There is no namespace, and this database has keys of {len(others)} namespaces of"
            " dibs.",
            _SAME_KEY,
            "Give each application its own: Dibs(url, namespace='shop:'), here --namespace shop:",
        )
    elif mine and "" in others:
        yield Finding(
            "namespace-empty",
            "warning",
            "Another client of dibs uses this database without a namespace.",
            _SAME_KEY,
            "Give it a namespace of its own: Dibs(url, namespace='shop:').",
        )


def prefixes(facts: Facts) -> Iterator[Finding]:
    """A namespace that begins with another one."""
    mine = facts.asked.namespace
    if facts.keys is None or not mine:
        return
    others = [each for each in facts.keys.namespaces if each and each != mine]
    near = sorted(each for each in others if each.startswith(mine) or mine.startswith(each))
    if near:
        yield Finding(
            "namespace-prefix",
            "warning",
            f"The namespace {mine!r} and {near[0][:40]!r} begin alike"
            + (f" (and {len(near) - 1} more)." if len(near) > 1 else "."),
            f"{_SAME_KEY} An ACL pattern for the shorter one covers both.",
            "Choose namespaces of which none is the beginning of another, and end each with a"
            " separator: 'shop:' and 'shop2:', not 'shop' and 'shop2'.",
        )


def foreign_types(facts: Facts) -> Iterator[Finding]:
    """Keys of other types under the namespace."""
    keys = facts.keys
    if keys is None or not keys.foreign:
        return
    listed = ", ".join(f"{count} {name}" for name, count in sorted(keys.foreign.items()))
    where = f"under {facts.asked.namespace!r}" if facts.asked.namespace else "in this database"
    yield Finding(
        "keys-foreign",
        "warning" if facts.asked.namespace else "note",
        f"Other programs have keys {where}: {listed}, of {keys.mine} that were looked at.",
        "A call for a key of another type raises a UsageError; these programs may delete leases.",
        "Choose a namespace that nobody else uses: Dibs(url, namespace=…), here --namespace.",
    )


RULES = (without_namespace, prefixes, foreign_types)
