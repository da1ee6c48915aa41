"""What the caches keep: a menu as a restaurant's guests see it, and something tiny."""

from __future__ import annotations

from typing import Any

TINY: dict[str, Any] = {"branchId": "b1", "version": 42, "open": True}

MENU: dict[str, Any] = {
    "menuVersionId": "mv-2024-11-15-lunch",
    "branchId": "b1",
    "categories": [
        {
            "id": f"c{category}",
            "name": ("Noodles", "Rice", "Drinks")[category],
            "items": [
                {
                    "id": f"c{category}i{item}",
                    "name": f"Number {item} of the house",
                    "price": 120 + 15 * item,
                    "soldOut": item == 2,
                }
                for item in range(4)
            ],
        }
        for category in range(3)
    ],
}

VALUES = {"menu": MENU, "tiny": TINY}
"""About 1 kB and about 50 bytes of JSON."""
