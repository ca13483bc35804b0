"""Serve the API: python -m orders [PORT]."""

import os
import sys
from wsgiref.simple_server import make_server

from orders.app import Application
from orders.repository import Repository


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    tokens = dict(pair.split("=") for pair in os.environ.get("ORDERS_TOKENS", "").split(",") if pair)
    app = Application(Repository(os.environ.get("ORDERS_DB", "orders.sqlite")), tokens)
    with make_server("127.0.0.1", port, app) as server:
        print(f"orders on http://127.0.0.1:{port}")
        server.serve_forever()


if __name__ == "__main__":
    main()
