"""The tables of docs/how-to/payments.md, in memory: what its later examples need."""

from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import StaticPool


def shop() -> tuple[Engine, sessionmaker[Session], type[Any]]:
    """An engine, its sessions, and the model of an order."""

    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)
        customer: Mapped[str]
        amount: Mapped[int]

    options = {"check_same_thread": False}
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args=options)
    Base.metadata.create_all(engine)
    return engine, sessionmaker(engine), Order
