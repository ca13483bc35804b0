"""Orders in SQLite. One connection per repository; the caller serializes writes."""

import json
import sqlite3
from dataclasses import asdict
from datetime import UTC, datetime
from uuid import uuid4

from orders.models import Draft, LineItem, Order

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    number TEXT PRIMARY KEY,
    customer TEXT NOT NULL,
    created_at TEXT NOT NULL,
    currency TEXT NOT NULL,
    tax_rate REAL NOT NULL,
    note TEXT NOT NULL,
    items TEXT NOT NULL,
    idempotency_key TEXT
);
CREATE INDEX IF NOT EXISTS orders_by_customer ON orders (customer, created_at);
"""


class Repository:
    """Reads and writes orders."""

    def __init__(self, path: str = ":memory:", clock=None) -> None:
        self.connection = sqlite3.connect(path)
        self.connection.row_factory = sqlite3.Row
        self.connection.executescript(SCHEMA)
        self.clock = clock or (lambda: datetime.now(UTC))

    def add(self, customer: str, draft: Draft, key: str | None = None) -> Order:
        """Write a new order."""
        order = Order(
            number=uuid4().hex[:12],
            customer=customer,
            created_at=self.clock().isoformat(timespec="seconds"),
            items=draft.items,
            currency=draft.currency,
            tax_rate=draft.tax_rate,
            note=draft.note,
        )
        self.connection.execute(
            "INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                order.number,
                order.customer,
                order.created_at,
                order.currency,
                order.tax_rate,
                order.note,
                json.dumps([asdict(item) for item in order.items]),
                key,
            ),
        )
        self.connection.commit()
        return order

    def get(self, customer: str, number: str) -> Order | None:
        """One order of a customer."""
        row = self.connection.execute(
            "SELECT * FROM orders WHERE customer = ? AND number = ?", (customer, number)
        ).fetchone()
        return _order(row) if row else None

    def by_key(self, customer: str, key: str) -> Order | None:
        """The order that a customer made with an idempotency key."""
        row = self.connection.execute(
            "SELECT * FROM orders WHERE idempotency_key = ?", (key,)
        ).fetchone()
        return _order(row) if row else None

    def newest(self, customer: str, limit: int, offset: int = 0) -> list[Order]:
        """The newest orders of a customer."""
        rows = self.connection.execute(
            "SELECT * FROM orders WHERE customer = ? "
            "ORDER BY created_at DESC LIMIT ? OFFSET ?",
            (customer, limit, offset),
        ).fetchall()
        return [_order(row) for row in rows]


def _order(row: sqlite3.Row) -> Order:
    return Order(
        number=row["number"],
        customer=row["customer"],
        created_at=row["created_at"],
        items=tuple(LineItem(**item) for item in json.loads(row["items"])),
        currency=row["currency"],
        tax_rate=row["tax_rate"],
        note=row["note"],
    )
