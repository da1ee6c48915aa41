"""Fences for SQLAlchemy: a late holder cannot overwrite what a later one has written.

class Account(Base):
    fence: Mapped[int] = mapped_column(BigInteger, default=0)

with dibs.hold("account:7", ttl=30, fence=True) as lease, sessions.begin() as session:
    fenced(session, Account, 7, lease, balance=100)
"""

from typing import TYPE_CHECKING, Any, cast

from . import needs

with needs("sqlalchemy"):
    from sqlalchemy import inspect, select, update
    from sqlalchemy.orm import Session

from .._internal_api import checked_fence
from ..errors import LeaseLost

if TYPE_CHECKING:
    from .. import AsyncLease, Lease

__all__ = ["fenced"]


def fenced(
    session: Session, model: type[Any], id: object, lease: "Lease | AsyncLease", **values: object
) -> None:
    """Set *values* in the row *id* of *model*, in one statement, unless a later holder has written.

    Its column `fence` gets the fence of *lease*. With an AsyncSession: `await
    session.run_sync(fenced, Account, 7, lease, balance=100)`.

    Raises:
        LeaseLost: A later holder has written; nothing was changed.
        LookupError: There is no such row.
        UsageError: *lease* has no fence.
    """
    fence = checked_fence(lease)
    mapper: Any = inspect(cast("Any", model))
    key: Any = mapper.primary_key[0]
    change = update(model).where(key == id, model.fence <= fence).values(fence=fence, **values)
    result: Any = session.execute(change)
    if result.rowcount == 1:
        return
    if session.execute(select(key).where(key == id)).first() is None:
        raise LookupError(f"there is no {model.__name__} with this id")
    raise LeaseLost(lease.key, fence)
