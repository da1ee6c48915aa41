"""One mutant: a fork of this process in which a function, or a script, has other code."""

import functools
import gc
import os
import select
import signal
import time
import types
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .mutants import Mutant, mutated_code, mutated_script

Functions = dict[str, list[types.FunctionType]]
"""Those of the library, by their file."""
Begin = Callable[[str], None]
"""Says which test begins."""

LEAST_LIMIT = 30.0
"""Seconds that a test may have at least before it hangs."""
SLOWER = 8
"""How many times as long as before a test may take."""
SURVIVED, KILLED, UNCHANGED = range(3)
_OUTCOMES = {SURVIVED: "survived", KILLED: "killed", UNCHANGED: "unchanged"}


class Tried(NamedTuple):
    """The outcome of a mutant."""

    outcome: str
    """killed, hangs, died; survived; unchanged: it could not be put into the running code."""
    test: str
    """The last one that was begun."""


def library_functions() -> Functions:
    """Every function that is loaded now."""
    gc.unfreeze()  # type(): frameworks have objects that cannot say yet what they are
    functions: Functions = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is types.FunctionType and "dibs/" in each.__code__.co_filename:
            functions[os.path.relpath(each.__code__.co_filename)].append(each)
    gc.freeze()
    return functions


def cpu_seconds() -> float:
    """Of this process, and of those that it has started and that have ended."""
    return sum(os.times()[:4])


# ---- in the process that has forks


def try_mutant(
    mutant: Mutant,
    functions: Functions,
    notices: Callable[[Begin], bool],
    usual: Callable[[str], float] = lambda _: 0.0,
    limit: float = LEAST_LIMIT,
) -> Tried:
    """Whether *notices* returns True where the code is changed.

    *usual*: how long a test lasts. *limit*: what it may take beyond that, of the time in which it
    ran or slept; while it waited for a processor it could not do better.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _as_mutant(mutant, functions, notices, writing)
    os.close(writing)
    test, is_over = _follow(child, reading, lambda test: limit + SLOWER * usual(test))
    os.close(reading)
    if not is_over:
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Tried(_OUTCOMES.get(code, "died") if is_over else "hangs", test)


def _follow(child: int, reading: int, limit: Callable[[str], float]) -> tuple[str, bool]:
    """The last test that was begun, and whether the fork has ended."""
    test, since = "", _own_time(child)
    while _own_time(child) - since < limit(test):
        if not select.select([reading], [], [], 1.0)[0]:
            continue
        if not (chunk := os.read(reading, 65536)):
            return test, True
        test, since = chunk.decode().strip().rpartition("\n")[2], _own_time(child)
    return test, False


def _own_time(process: int) -> float:
    """Seconds of its life in which it did not wait for a processor (Linux; else all)."""
    try:
        waited = int(Path(f"/proc/{process}/schedstat").read_text("ascii").split()[1])
    except OSError:
        waited = 0
    return time.monotonic() - waited / 1e9


# ---- in the fork


def _as_mutant(
    mutant: Mutant, functions: Functions, notices: Callable[[Begin], bool], writing: int
) -> None:
    """Change the code, run the tests, leave."""
    code = -1
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        if not _change(mutant, functions):
            code = UNCHANGED
        else:
            noticed = notices(lambda test: _write_line(writing, test))
            code = KILLED if noticed else SURVIVED
    finally:
        os._exit(code)


def _write_line(writing: int, text: str) -> None:
    os.write(writing, f"{text}\n".encode())


def _change(mutant: Mutant, functions: Functions) -> bool:
    if mutant.file.endswith(".lua"):
        _change_script(mutant)
        return True
    codes = mutated_code(mutant)
    changed = False
    for function in functions.get(mutant.file, []):
        name = function.__code__.co_qualname, function.__code__.co_firstlineno
        if name in codes:
            changed |= _put(function, codes[name], mutant)
    _forget_results(mutant.file)
    return changed


def _put(function: types.FunctionType, code: types.CodeType, mutant: Mutant) -> bool:
    """Whether it is the function that was changed."""
    try:
        function.__code__ = code
    except ValueError:  # a closure that needs fewer variables now: what made it gets the code
        return False
    return mutant.function.startswith(code.co_qualname)


def _forget_results(file: str) -> None:
    """What a cached function has answered before it was changed."""
    for each in gc.get_objects():
        if type(each) is functools._lru_cache_wrapper:
            code = getattr(each.__wrapped__, "__code__", None)
            if code is not None and os.path.relpath(code.co_filename) == file:
                each.cache_clear()


def _change_script(mutant: Mutant) -> None:
    from dibs._core import capabilities

    original, changed = capabilities._script_source.__wrapped__, mutated_script(mutant)
    capabilities._script_source = functools.cache(
        lambda name: changed if name == mutant.function else original(name)
    )
    capabilities._script_digest.cache_clear()
    capabilities._names_by_digest.cache_clear()
