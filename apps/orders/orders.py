"""What an order is: as a client submits it, and as it was placed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

Sku = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Line(BaseModel):
    """A number of one item."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    sku: Sku
    quantity: Annotated[int, Field(ge=1, le=999)]


class NewOrder(BaseModel):
    """What a client submits."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    items: Annotated[list[Line], Field(min_length=1, max_length=50)]

    @field_validator("items")
    @classmethod
    def _each_once(cls, items: list[Line]) -> list[Line]:
        if len({line.sku for line in items}) < len(items):
            raise ValueError("each sku must be there once, with its whole quantity")
        return items


@dataclass(frozen=True, slots=True)
class Order:
    """An order that was placed."""

    order_id: str
    placed_at: datetime
    items: tuple[Line, ...]

    def printed(self) -> dict[str, Any]:
        """The JSON for clients; the same each time."""
        return {
            "orderId": self.order_id,
            "placedAt": self.placed_at.isoformat(timespec="microseconds"),
            "items": [line.model_dump() for line in self.items],
        }


class PlacedOrder(BaseModel):
    """The same, for the OpenAPI document."""

    orderId: str  # noqa: N815
    placedAt: datetime  # noqa: N815
    items: list[Line]
