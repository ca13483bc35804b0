"""A client for tests: calls the application without a server."""

import io
import json
from datetime import UTC, datetime, timedelta

from orders.app import Application
from orders.repository import Repository

TOKENS = {"secret-a": "acme", "secret-b": "borealis"}


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = datetime(2025, 3, 1, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)


class Client:
    def __init__(self, token: str = "secret-a") -> None:
        self.clock = Clock()
        self.app = Application(Repository(clock=self.clock), TOKENS)
        self.token = token

    def call(self, method: str, path: str, body=None, **headers):
        data = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_LENGTH": str(len(data)),
            "wsgi.input": io.BytesIO(data),
            "HTTP_AUTHORIZATION": f"Bearer {headers.pop('token', self.token)}",
        }
        for name, value in headers.items():
            environ[f"HTTP_{name.upper()}"] = value
        seen = {}

        def start_response(status, headers):
            seen["status"] = int(status.split()[0])

        chunks = self.app(environ, start_response)
        return seen["status"], json.loads(b"".join(chunks))

    def order(self, *lines, **headers):
        items = [
            {"sku": sku, "qty": qty, "unit_price_cents": price, "discount_percent": discount}
            for sku, qty, price, discount in lines or [("pen", 1, 250, 0)]
        ]
        return self.call("POST", "/orders", {"line_items": items}, **headers)
