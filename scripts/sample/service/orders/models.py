"""Orders as the service keeps them. Money is in cents, rates in percent."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LineItem:
    sku: str
    quantity: int
    unit_price: int  # cents
    discount: float = 0.0  # percent


@dataclass(frozen=True)
class Draft:
    """An order before it has a number."""

    items: tuple[LineItem, ...]
    currency: str = "EUR"
    tax_rate: float = 19.0  # percent
    note: str = ""


@dataclass(frozen=True)
class Order:
    number: str
    customer: str
    created_at: str
    items: tuple[LineItem, ...] = field(default_factory=tuple)
    currency: str = "EUR"
    tax_rate: float = 19.0
    note: str = ""
