"""Orders as the API shows them. These names are public: clients in the app stores read them."""

from orders import pricing
from orders.models import LineItem, Order


def order(order: Order) -> dict:
    return {
        "order_id": order.number,
        "customer_ref": order.customer,
        "created_at": order.created_at,
        "currency": order.currency,
        "line_items": [line(item) for item in order.items],
        "subtotal_cents": pricing.subtotal(order.items),
        "tax_cents": pricing.tax(order.items, order.tax_rate),
        "total_cents": pricing.total(order.items, order.tax_rate),
        "note": order.note,
    }


def line(item: LineItem) -> dict:
    return {
        "sku": item.sku,
        "qty": item.quantity,
        "unit_price_cents": item.unit_price,
        "discount_percent": item.discount,
        "line_total_cents": pricing.line_total(item),
    }
