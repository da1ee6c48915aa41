"""The processes of the runs: `python -m tools.diagrams.actors ROLE URL DATABASE`.

Each writes a line of JSON for what it does, with the time of the clock that all of them share.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing

from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session, sessionmaker

from dibs import Busy, Dibs, Duplicate

WORK = 0.6
LEASE = 2.0


def say(what: str, **facts: object) -> None:
    """Write that something happens now."""
    sys.stdout.write(json.dumps({"what": what, "at": time.monotonic(), **facts}) + "\n")
    sys.stdout.flush()


def click(dibs: Dibs, database: str) -> None:
    """Place an order once; a duplicate waits and gets the first answer."""

    @dibs.once("order:{cart}", window=60, after="replay", wait=5)
    def place_order(cart: int) -> str:
        say("works")
        time.sleep(WORK)
        say("done")
        return "order 1"

    say("asks")
    place_order(7)
    say("answer")


def guest(dibs: Dibs, database: str) -> None:
    """Ask for a menu that is not there; one of all loads it."""

    @dibs.cached("menu:{branch}", ttl=60)
    def menu(branch: str) -> str:
        say("works")
        time.sleep(WORK)
        say("done")
        return "beef noodles"

    say("asks")
    menu("b1")
    say("answer")
    time.sleep(0.3)
    say("asks")
    menu("b1")
    say("answer")


def buyer(dibs: Dibs, database: str) -> None:
    """Place an order whose record commits with it; asks again until it is answered."""
    sessions = sessionmaker(create_engine(f"sqlite:///{database}"))
    inserted: list[str] = []

    def committed(session: Session) -> None:
        if inserted:
            say("committed")
            sys.stdin.readline()  # it is killed here

    event.listen(sessions, "after_commit", committed)

    @dibs.once("order:{cart}", window=60, after="replay", lease=LEASE, within=sessions.begin)
    def place_order(session: Session, cart: int) -> str:
        say("works")
        session.execute(text("insert into orders (name) values ('c7')"))
        time.sleep(WORK / 2)
        inserted.append("order 1")
        return inserted[0]

    say("asks")
    while True:
        try:
            place_order(cart=7)
        except Duplicate as duplicate:
            say("refused", again=duplicate.retry_after)
            time.sleep(0.2)
        else:
            say("answer")
            return


def writer(dibs: Dibs, database: str) -> None:
    """Take a lease with a fence, and write with it, also when its time is over."""
    say("asks")
    while True:
        try:
            lease = dibs.hold("report", ttl=1, wait=5, fence=True).__enter__()
        except Busy:
            continue
        break
    say("works", fence=lease.fence)
    sys.stdin.readline()  # the first is stopped while it waits here
    with closing(sqlite3.connect(database)) as connection:
        changed = connection.execute(
            "update report set fence = ?, author = ? where fence <= ?",
            (lease.fence, "me", lease.fence),
        ).rowcount
        connection.commit()
    say("written" if changed else "rejected")
    lease.release()


ROLES: dict[str, Callable[[Dibs, str], None]] = {
    "click": click,
    "guest": guest,
    "buyer": buyer,
    "writer": writer,
}


def main() -> None:
    """Play a role, once told to begin."""
    role, url, database = sys.argv[1:]
    with Dibs(url) as dibs:
        dibs.peek("nothing")  # connected before the clock counts
        say("ready")
        sys.stdin.readline()
        ROLES[role](dibs, database)


if __name__ == "__main__":
    main()
