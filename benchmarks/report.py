"""What each part found, as tables. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import hits, hold, limit, listeners, measure, table
from .systems import BARE, CASHEWS, CASHEWS_LOCAL, DIBS, FLOOR, GET, LOCK


def hold_table(result: dict[str, Any]) -> str:
    """Pairs per second by number of callers, each system beside the Lock and the floor."""
    headings = (
        "acquire + release",
        "pairs/s",
        "(min–max)",
        "× Lock",
        "× floor",
        "CPU µs/pair",
        "(min–max)",
    )
    return f"hold, {_where(result)}\n" + table.aligned(
        headings, list(_hold_rows(hold.cells_of(result)))
    )


def _where(result: dict[str, Any]) -> str:
    core = result["core"]
    return "not pinned" if core is None else f"server and client pinned to core {core}"


def _hold_rows(cells: list[hold.Cell]) -> Iterator[tuple[str, ...]]:
    for column in dict.fromkeys(cell.column for cell in cells):
        yield (column,)
        for cell in (cell for cell in cells if cell.column == column):
            yield _hold_row(cell, hold.find(cells, LOCK, column), hold.find(cells, FLOOR, column))


def _hold_row(cell: hold.Cell, lock: hold.Cell | None, floor: hold.Cell | None) -> tuple[str, ...]:
    rate, cpu = measure.Spread.of(cell.rates), measure.Spread.of(cell.cpu_us)
    if rate is None or cpu is None:
        return (f"  {cell.system}: {cell.broken}",)
    return (
        f"  {cell.system}",
        table.whole(rate.middle),
        table.between(rate.least, rate.most),
        table.short(hold.ratio(cell, lock)),
        table.short(hold.ratio(cell, floor)),
        table.short(cpu.middle),
        table.between(cpu.least, cpu.most),
    )


def limit_table(result: dict[str, Any]) -> str:
    """Pairs per second with and without a limit, and what a pair costs client and server."""
    headings = (
        "acquire + release",
        "pairs/s",
        "(min–max)",
        "× dibs",
        "CPU µs/pair",
        "server µs/pair",
        "both × dibs",
    )
    cells = limit.cells_of(result)
    rows: list[tuple[str, ...]] = []
    for column in dict.fromkeys(cell.column for cell in cells):
        rows.append((column,))
        plain = limit.find(cells, DIBS, column)
        rows += [_limit_row(cell, plain) for cell in cells if cell.column == column]
    return f"limit, {_where(result)}\n" + table.aligned(headings, rows)


def _limit_row(cell: limit.Cell, plain: limit.Cell | None) -> tuple[str, ...]:
    rate, cpu = measure.Spread.of(cell.rates), measure.Spread.of(cell.cpu_us)
    server = measure.Spread.of(cell.server_us)
    if rate is None or cpu is None or server is None:
        return (f"  {cell.system}: {cell.broken}",)
    return (
        f"  {cell.system}",
        table.whole(rate.middle),
        table.between(rate.least, rate.most),
        table.short(measure.ratio(cell.rates, plain.rates) if plain else None),
        table.short(cpu.middle),
        table.short(server.middle),
        table.short(measure.ratio(_both(cell), _both(plain)) if plain else None),
    )


def _both(cell: limit.Cell) -> list[float]:
    return [mine + its for mine, its in zip(cell.cpu_us, cell.server_us, strict=True)]


def listeners_table(result: dict[str, Any]) -> str:
    """CPU of a pair with each listener, beside the same without any in the same process."""
    headings = ("acquire + release", "CPU µs/pair", "without", "more µs", "more", "(min–max)")
    rows = [_listeners_row(cell) for cell in listeners.cells_of(result)]
    return f"listeners, asyncio 50, {_where(result)}\n" + table.aligned(headings, rows)


def _listeners_row(cell: listeners.Cell) -> tuple[str, ...]:
    cpu, plain = measure.Spread.of(cell.cpu_us), measure.Spread.of(cell.plain_us)
    if cpu is None or plain is None:
        return (f"{cell.system}: {cell.broken}",)
    rounds = zip(cell.cpu_us, cell.plain_us, strict=True)
    parts = measure.Spread(tuple(100 * (mine / none - 1) for mine, none in rounds))
    return (
        cell.system,
        table.short(cpu.middle),
        table.short(plain.middle),
        f"{cell.more_us:.2f}",
        f"{parts.middle:.1f} %",
        f"{parts.least:.1f}–{parts.most:.1f}",
    )


def hits_table(result: dict[str, Any]) -> str:
    """Hits per second by number of callers and keys, each system beside GET and cashews."""
    headings = (
        "cached values read",
        "hits/s",
        "(min–max)",
        "× GET",
        "× cashews",
        "× client-side",
        "CPU µs/hit",
        "(min–max)",
    )
    return f"hits, {_where(result)}\n" + table.aligned(
        headings, list(_hits_rows(hits.cells_of(result)))
    )


def _hits_rows(cells: list[hits.Cell]) -> Iterator[tuple[str, ...]]:
    for column in dict.fromkeys(cell.column for cell in cells):
        yield (column,)
        others = [hits.find(cells, other, column) for other in (GET, CASHEWS, CASHEWS_LOCAL)]
        for cell in (cell for cell in cells if cell.column == column):
            yield _hits_row(cell, others)


def _hits_row(cell: hits.Cell, others: list[hits.Cell | None]) -> tuple[str, ...]:
    rate, cpu = measure.Spread.of(cell.rates), measure.Spread.of(cell.cpu_us)
    if rate is None or cpu is None:
        return (f"  {cell.system}: {cell.broken}",)
    return (
        f"  {cell.system}",
        table.whole(rate.middle),
        table.between(rate.least, rate.most),
        *(table.short(hits.ratio(cell, other)) for other in others),
        table.short(cpu.middle),
        table.between(cpu.least, cpu.most),
    )


def many_table(result: dict[str, Any]) -> str:
    """Microseconds of a call for many values, and who was asked."""
    headings = ("100 values, 10 cold", "CPU µs", "(min–max)", "wall µs", "loads", "commands")

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        cpu, wall = measure.Spread(tuple(found["cpu_us"])), measure.Spread(tuple(found["us"]))
        return (
            label,
            table.whole(cpu.middle),
            table.between(cpu.least, cpu.most),
            table.whole(wall.middle),
            _commands(found["loads"]),
            _commands(found["commands"]),
        )

    return f"many, {_where(result)}\n" + table.aligned(headings, list(_rows(result, row)))


def stampede_table(result: dict[str, Any]) -> str:
    """Loads, commands, and how long the slowest follower waits after the leader."""
    headings = (
        f"{result['processes']} processes × {result['tasks']} tasks, one cold key",
        "loads",
        "commands",
        "(min–max)",
        "last behind first, ms",
        "(min–max)",
    )

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        loads, commands, behind = (
            measure.Spread(tuple(found[name])) for name in ("loads", "commands", "behind_ms")
        )
        few, many = table.whole(loads.least), table.whole(loads.most)
        return (
            label,
            few if few == many else f"{few}–{many}",
            table.whole(commands.middle),
            f"{table.whole(commands.least)}–{table.whole(commands.most)}",
            table.short(behind.middle),
            table.between(behind.least, behind.most),
        )

    return table.aligned(headings, list(_rows(result, row)))


def guard_table(result: dict[str, Any]) -> str:
    """Microseconds of a request, new and repeated, and what of it the guard has added."""
    headings = (
        "an endpoint that does nothing",
        "µs/request",
        "(min–max)",
        "added",
        "repeated µs",
        "trips",
        "50 at once, µs each",
        "50 repeated, CPU µs",
    )
    bare = result["rows"].get(BARE, {}).get("new", [])

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        new, again = measure.Spread(tuple(found["new"])), measure.Spread.of(found["again"])
        added = [mine - floor for mine, floor in zip(found["new"], bare, strict=False)]
        at_once = measure.Spread(tuple(found["at_once"]))
        again_cpu = measure.Spread.of(found["again_cpu"])
        return (
            label,
            table.short(new.middle),
            table.between(new.least, new.most),
            table.short(measure.Spread(tuple(added)).middle) if added else table.NOTHING,
            table.short(again.middle) if again else table.NOTHING,
            _commands(found["trips"]),
            table.short(at_once.middle),
            table.short(again_cpu.middle) if again_cpu else table.NOTHING,
        )

    return f"guard, {_where(result)}\n" + table.aligned(headings, list(_rows(result, row)))


def refusal_table(result: dict[str, Any]) -> str:
    """Microseconds and commands for one refusal."""
    headings = ("refused in the process that holds it", "µs", "min", "max", "commands")

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        us = measure.Spread(tuple(found["us"]))
        return (
            label,
            *map(table.short, (us.middle, us.least, us.most)),
            _commands(found["commands"]),
        )

    return table.aligned(headings, list(_rows(result, row)))


def handoff_table(result: dict[str, Any]) -> str:
    """Milliseconds from a release to the next holder."""
    headings = (
        f"{result['waiters']} waiters, release → next holder",
        "ms",
        "max",
        "all served ms",
        "commands each",
    )

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        ms, served = measure.Spread(tuple(found["ms"])), measure.Spread(tuple(found["served_ms"]))
        return (
            label,
            *map(table.short, (ms.middle, ms.most, served.middle)),
            _commands(found["commands"]),
        )

    return table.aligned(headings, list(_rows(result, row)))


def waiting_table(result: dict[str, Any]) -> str:
    """Commands that waiting in vain costs."""
    headings = (f"{result['waiters']} waiters, {result['seconds']} s, in vain", "commands")
    return table.aligned(
        headings, list(_rows(result, lambda label, found: (label, table.whole(found["commands"]))))
    )


def imports_table(result: dict[str, Any]) -> str:
    """Milliseconds of each import."""

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        ms = measure.Spread(tuple(found["ms"]))
        return (label, *map(table.short, (ms.middle, ms.least, ms.most)))

    return table.aligned(("fresh interpreter", "ms", "min", "max"), list(_rows(result, row)))


def throttle_table(result: dict[str, Any]) -> str:
    """Microseconds of CPU for one call, and for one request."""

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        micros = measure.Spread(tuple(found["us"]))
        return (label, *map(table.short, (micros.middle, micros.least, micros.most)))

    return table.aligned(("throttle", "CPU µs", "min", "max"), list(_rows(result, row)))


def codec_table(result: dict[str, Any]) -> str:
    """Microseconds of CPU from and to JSON."""

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        decode, encode = (measure.Spread(tuple(found[way])) for way in ("decode", "encode"))
        return (label, *map(table.short, (decode.middle, decode.least, encode.middle)))

    headings = ("a menu of 70 dishes", "decode CPU µs", "least", "encode CPU µs")
    return table.aligned(headings, list(_rows(result, row)))


def outage_table(result: dict[str, Any]) -> str:
    """Milliseconds of calls while the server hangs, and of the way back."""

    def row(label: str, found: dict[str, Any]) -> tuple[str, ...]:
        return (
            label,
            _capped(found["first"]),
            _capped(found["next"]),
            str(found["calls"]),
            _capped(found["back"]),
        )

    headings = (
        "server hangs (SIGSTOP)",
        "first call",
        "slowest after",
        "calls after",
        "back again",
    )
    return table.aligned(headings, list(_rows(result, row)))


Row = Callable[[str, dict[str, Any]], tuple[str, ...]]


def _rows(result: dict[str, Any], row: Row) -> Iterator[tuple[str, ...]]:
    for label, found in result["rows"].items():
        yield (f"{label}: {found['broken']}",) if "broken" in found else row(label, found)


def _commands(counts: list[float]) -> str:
    return f"{measure.Spread(tuple(counts)).middle:.1f}"


def _capped(ms: float | None) -> str:
    return ">10 s" if ms is None else f"{table.short(ms)} ms"


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "pinned": hold_table,
    "hold": hold_table,
    "ladder": hold_table,
    "limit": limit_table,
    "listeners": listeners_table,
    "refusal": refusal_table,
    "handoff": handoff_table,
    "waiting": waiting_table,
    "hits": hits_table,
    "many": many_table,
    "stampede": stampede_table,
    "guard": guard_table,
    "codec": codec_table,
    "imports": imports_table,
    "throttle": throttle_table,
    "outage": outage_table,
}
