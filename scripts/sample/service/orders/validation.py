"""What clients send, checked."""

from orders.errors import Invalid
from orders.models import Draft, LineItem

CURRENCIES = ("EUR", "USD", "GBP")
MOST_ITEMS = 200


def order(data) -> Draft:
    """A draft from the body of a request."""
    if not isinstance(data, dict):
        raise Invalid("the body is an object")
    items = data.get("line_items")
    if not isinstance(items, list) or not items:
        raise Invalid("line_items is a list with one item at least")
    if len(items) > MOST_ITEMS:
        raise Invalid(f"line_items has {MOST_ITEMS} items at most")
    currency = data.get("currency", "EUR")
    if currency not in CURRENCIES:
        raise Invalid(f"currency is one of {', '.join(CURRENCIES)}")
    return Draft(
        items=tuple(line(item) for item in items),
        currency=currency,
        tax_rate=float(data.get("tax_rate", 19.0)),
        note=str(data.get("note", "")),
    )


def line(data) -> LineItem:
    """One line of an order."""
    if not isinstance(data, dict):
        raise Invalid("a line item is an object")
    for name in ("sku", "qty", "unit_price_cents"):
        if name not in data:
            raise Invalid(f"a line item has {name}")
    return LineItem(
        sku=data["sku"],
        quantity=int(data["qty"]),
        unit_price=int(data["unit_price_cents"]),
        discount=float(data.get("discount_percent", 0)),
    )
