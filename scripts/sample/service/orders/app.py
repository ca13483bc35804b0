"""The WSGI application: routes requests to handlers and turns errors into JSON."""

import json
import logging
from http import HTTPStatus

from orders import auth, idempotency, pagination, serialize, validation
from orders.errors import ApiError, NotFound
from orders.repository import Repository

log = logging.getLogger("orders")


class Application:
    """GET and POST /orders, GET /orders/{id}, GET /health."""

    def __init__(self, repository: Repository, tokens: dict[str, str]) -> None:
        self.repository = repository
        self.tokens = tokens

    def __call__(self, environ, start_response):
        try:
            status, body = self.dispatch(environ)
        except ApiError as error:
            status, body = error.status, {"error": {"code": error.code, "message": str(error)}}
        except Exception:
            log.exception("unhandled error")
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            body = {"error": {"code": "internal", "message": "internal error"}}
        data = json.dumps(body).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
        start_response(f"{int(status)} {HTTPStatus(status).phrase}", headers)
        return [data]

    def dispatch(self, environ):
        method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO", "/")
        if path == "/health":
            return HTTPStatus.OK, {"status": "ok"}
        customer = auth.customer(environ, self.tokens)
        if path == "/orders" and method == "GET":
            return self.list_orders(environ, customer)
        if path == "/orders" and method == "POST":
            return self.create_order(environ, customer)
        if path.startswith("/orders/") and method == "GET":
            return self.get_order(path.removeprefix("/orders/"), customer)
        raise NotFound(f"no route for {method} {path}")

    def list_orders(self, environ, customer):
        page = pagination.parse(environ.get("QUERY_STRING", ""))
        orders, following = pagination.page_of(self.repository, customer, page)
        body = {"orders": [serialize.order(order) for order in orders]}
        body["next_page"] = following
        return HTTPStatus.OK, body

    def create_order(self, environ, customer):
        size = int(environ.get("CONTENT_LENGTH") or 0)
        data = json.loads(environ["wsgi.input"].read(size) or b"{}")
        draft = validation.order(data)
        key = idempotency.key_of(environ)
        if key and (earlier := self.repository.by_key(customer, key)):
            return HTTPStatus.OK, serialize.order(earlier)
        order = self.repository.add(customer, draft, key)
        return HTTPStatus.CREATED, serialize.order(order)

    def get_order(self, number, customer):
        order = self.repository.get(customer, number)
        if order is None:
            raise NotFound(f"no order {number}")
        return HTTPStatus.OK, serialize.order(order)
