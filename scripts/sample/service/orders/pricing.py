"""Totals of an order, in cents.

Discounts are per line and in percent; the tax is on the sum of all discounted lines.
"""

from orders.models import LineItem


def line_total(item: LineItem) -> int:
    """What a line costs after its discount."""
    price = item.unit_price * (1 - item.discount / 100)
    return int(price) * item.quantity


def subtotal(items: tuple[LineItem, ...]) -> int:
    """All lines together, before tax."""
    return sum(line_total(item) for item in items)


def tax(items: tuple[LineItem, ...], rate: float) -> int:
    """The tax on an order."""
    return int(subtotal(items) * rate / 100)


def total(items: tuple[LineItem, ...], rate: float) -> int:
    """What the customer pays."""
    return subtotal(items) + tax(items, rate)
