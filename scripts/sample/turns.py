"""What the user and the scripted model say in the recorded sample, turn by turn.

The tools and their outputs are real; only the words and the choice of calls are written here.
"""

from .fixes import CACHED, INVALID, KEYSET, TOTALS
from .steps import (
    CONSTRAINT,
    SHOW,
    TEST,
    VERBOSE,
    Step,
    edit,
    grep,
    plan,
    read,
    run_python,
    shell,
    write,
)

# --- 5: idempotency --------------------------------------------------------------------------

KEYS: list[Step] = [
    read("orders/idempotency.py"),
    grep(r"idempotency|by_key"),
    read("orders/repository.py", "", 30, 60),
    run_python(
        *SHOW,
        "first = client.order(('secret-thing', 1, 100, 0), idempotency_key='k1')",
        "other = client.order(('pen', 1, 100, 0), idempotency_key='k1', token='secret-b')",
        "print(first[0], other[0], other[1]['customer_ref'], other[1]['line_items'])",
        said="`by_key` does not look at the customer. Does that leak?",
    ),
    edit(
        "orders/repository.py",
        '            "SELECT * FROM orders WHERE idempotency_key = ?", (key,)\n',
        '            "SELECT * FROM orders WHERE customer = ? AND idempotency_key = ?", (customer, key)\n',
        "It does: another customer's order was answered. First that.",
    ),
    shell("python3 -m unittest tests.test_api -v"),
    shell(
        "grep -n 'UNIQUE\\|INDEX\\|PRIMARY' orders/repository.py; python3 -c 'import sqlite3; print(sqlite3.threadsafety)'",
        "And two processes at once: nothing in the schema forbids two rows of one key.",
    ),
    edit(
        "orders/repository.py",
        "ON orders (customer, created_at, number);\n",
        "ON orders (customer, created_at, number);\n"
        "CREATE UNIQUE INDEX IF NOT EXISTS orders_by_key ON orders (customer, idempotency_key);\n",
    ),
    run_python(
        "from orders.models import Draft, LineItem",
        "from orders.repository import Repository",
        "repository, draft = Repository(), Draft((LineItem('pen', 1, 100),))",
        "print(repository.add('acme', draft, 'k1').number != '')",
        "print(repository.add('acme', draft).number != '', repository.add('acme', draft).number != '')",
        "repository.add('acme', draft, 'k1')",
        said="What the second writer gets now:",
    ),
    edit(
        "orders/repository.py",
        "        self.connection.commit()\n        return order\n",
        "        self.connection.commit()\n        return order\n\n"
        "    def add_once(self, customer: str, draft: Draft, key: str | None) -> tuple[Order, bool]:\n"
        '        """Write a new order, or find the one of its key; and whether it is new."""\n'
        "        if key and (earlier := self.by_key(customer, key)):\n            return earlier, False\n"
        "        try:\n            return self.add(customer, draft, key), True\n"
        "        except sqlite3.IntegrityError:  # another process was quicker\n"
        '            self.connection.rollback()\n            earlier = self.by_key(customer, key or "")\n'
        "            if earlier is None:\n                raise\n            return earlier, False\n",
    ),
    edit(
        "orders/app.py",
        "        if key and (earlier := self.repository.by_key(customer, key)):\n"
        "            return HTTPStatus.OK, serialize.order(earlier)\n"
        "        order = self.repository.add(customer, draft, key)\n"
        "        return HTTPStatus.CREATED, serialize.order(order)\n",
        "        order, is_new = self.repository.add_once(customer, draft, key)\n"
        "        return HTTPStatus.CREATED if is_new else HTTPStatus.OK, serialize.order(order)\n",
    ),
    shell("python3 -m unittest tests.test_api"),
    edit(
        "tests/test_api.py",
        '\n\nif __name__ == "__main__":',
        '\n    def test_a_key_is_of_one_customer(self):\n        first = self.client.order(idempotency_key="k1")\n'
        '        other = self.client.order(idempotency_key="k1", token="secret-b")\n'
        "        self.assertEqual((first[0], other[0]), (201, 201))\n"
        '        self.assertNotEqual(first[1]["order_id"], other[1]["order_id"])\n'
        '\n\nif __name__ == "__main__":',
    ),
    write(
        "tests/test_repository.py",
        "import os\nimport tempfile\nimport unittest\n\nfrom orders.models import Draft, LineItem\nfrom orders.repository import Repository\n\n"
        'DRAFT = Draft((LineItem("pen", 1, 100),))\n\n\nclass Keys(unittest.TestCase):\n'
        "    def test_two_processes_make_one_order(self):\n        with tempfile.TemporaryDirectory() as folder:\n"
        '            path = os.path.join(folder, "orders.sqlite")\n            one, other = Repository(path), Repository(path)\n'
        '            first, is_new = one.add_once("acme", DRAFT, "k1")\n            looks, real = [], other.by_key\n'
        "            # The second looked before the first wrote.\n"
        "            other.by_key = lambda *key: looks.append(key) or (real(*key) if len(looks) > 1 else None)\n"
        '            again, is_again_new = other.add_once("acme", DRAFT, "k1")\n'
        "            self.assertEqual((is_new, is_again_new), (True, False))\n"
        '            self.assertEqual(first.number, again.number)\n\n\nif __name__ == "__main__":\n    unittest.main()\n',
    ),
    shell("python3 -m unittest tests.test_repository tests.test_api -v"),
    read("orders/repository.py", "I read the module once more as a whole."),
    shell(VERBOSE),
    (
        "The key is looked up per customer (before, another customer's order was answered), and a unique index decides between two "
        "processes. No field of the API has changed.",
    ),
]

# --- 6: an export ----------------------------------------------------------------------------

_EXPORT = '''"""A customer's orders as CSV, one row per line item, with the public names of the API."""

import csv
import io

from orders import serialize

HEAD = ("order_id", "created_at", "currency", "sku", "qty", "unit_price_cents", "line_total_cents")


def as_csv(orders) -> str:
    """All orders as one text."""
    out = io.StringIO()
    writer = csv.DictWriter(out, HEAD, extrasaction="ignore", lineterminator="\\n")
    writer.writeheader()
    for order in orders:
        shown = serialize.order(order)
        for line in shown["line_items"]:
            writer.writerow({**shown, **{name: _harmless(value) for name, value in line.items()}})
    return out.getvalue()


def _harmless(value):
    """A text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" else value
'''

EXPORT: list[Step] = [
    grep(r"def dispatch", "Where routes are:", "orders/app.py"),
    read("orders/app.py"),
    read("orders/serialize.py"),
    read("orders/auth.py"),
    plan(
        ("orders/export.py", "in_progress"),
        ("the route", "pending"),
        ("tests", "pending"),
        ("docs/api.md", "pending"),
    ),
    write("orders/export.py", _EXPORT),
    run_python(
        *SHOW,
        "from orders.export import as_csv",
        "client.order(('pen', 2, 250, 0), ('=cmd()', 1, 99, 10))",
        "print(as_csv(client.app.repository.newest('acme', 10)))",
    ),
    edit(
        "orders/app.py",
        '        if path == "/orders" and method == "POST":\n',
        '        if path == "/orders.csv" and method == "GET":\n            return HTTPStatus.OK, self.export(customer)\n'
        '        if path == "/orders" and method == "POST":\n',
    ),
    edit(
        "orders/app.py",
        "    def create_order(self, environ, customer):\n",
        "    def export(self, customer) -> str:\n        found, before = [], None\n"
        "        while batch := self.repository.newest(customer, BATCH, before):\n            found += batch\n"
        "            before = (batch[-1].created_at, batch[-1].number)\n        return export.as_csv(found)\n\n"
        "    def create_order(self, environ, customer):\n",
    ),
    edit(
        "orders/app.py",
        'log = logging.getLogger("orders")\n',
        'BATCH = 500\nlog = logging.getLogger("orders")\n',
    ),
    edit(
        "orders/app.py",
        "from orders import auth, idempotency,",
        "from orders import auth, export, idempotency,",
    ),
    edit(
        "orders/app.py",
        "        data = json.dumps(body).encode()\n"
        '        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]\n',
        "        is_text = isinstance(body, str)\n        data = (body if is_text else json.dumps(body)).encode()\n"
        '        kind = "text/csv; charset=utf-8" if is_text else "application/json"\n'
        '        headers = [("Content-Type", kind), ("Content-Length", str(len(data)))]\n',
    ),
    shell("python3 -m unittest discover"),
    write(
        "tests/test_export.py",
        "import unittest\n\nfrom orders.export import HEAD, as_csv\nfrom tests.client import Client\n\n\nclass Export(unittest.TestCase):\n"
        "    def setUp(self):\n        self.client = Client()\n\n    def rows(self):\n"
        '        return as_csv(self.client.app.repository.newest("acme", 1000)).splitlines()\n\n'
        "    def test_the_names_are_those_of_the_api(self):\n        _, made = self.client.order()\n"
        '        known = {*made, *made["line_items"][0]}\n        self.assertLessEqual(set(HEAD), known)\n'
        '        self.assertEqual(self.rows()[0], ",".join(HEAD))\n\n'
        '    def test_a_row_per_line(self):\n        self.client.order(("pen", 2, 250, 0), ("ink", 3, 999, 15))\n'
        '        self.assertEqual([row.split(",")[3:] for row in self.rows()[1:]],\n'
        '                         [["pen", "2", "250", "500"], ["ink", "3", "999", "2547"]])\n\n'
        '    def test_no_cell_is_a_formula(self):\n        self.client.order(("=1+1", 1, 100, 0))\n'
        '        self.assertIn("\'=1+1", self.rows()[1])\n\n'
        "    def test_more_orders_than_one_batch(self):\n        for _ in range(1203):\n            self.client.order()\n"
        '        text = self.client.app.export("acme")\n        self.assertEqual(len(text.splitlines()), 1204)\n\n\n'
        'if __name__ == "__main__":\n    unittest.main()\n',
    ),
    shell("python3 -m unittest tests.test_export -v"),
    read("tests/test_export.py"),
    shell(VERBOSE),
    edit(
        "docs/api.md",
        "## POST /orders\n",
        "## GET /orders.csv\nAll orders of the customer as CSV, one row per line item, with the names of the fields above.\n\n## POST /orders\n",
    ),
    grep(r"`page`", "The document still tells of page numbers.", "docs"),
    edit(
        "docs/api.md",
        "`page` is what `next_page` of the page before said.",
        "`page` is what `next_page` of the page before said, unchanged: it names where the next page begins.",
    ),
    shell("git diff docs"),
    (
        "`GET /orders.csv` is there, in batches of 500, with the public field names as its heads and without formulas.",
    ),
]

# --- 7: request ids --------------------------------------------------------------------------

IDS: list[Step] = [
    grep(r"log\.|logging", "What is logged today:"),
    read("orders/app.py", "", 1, 45),
    grep(r"start_response", "Who looks at headers?"),
    edit(
        "orders/app.py",
        "        try:\n            status, body = self.dispatch(environ)\n",
        '        request_id = environ.get("HTTP_X_REQUEST_ID", "")[:64] or uuid4().hex\n'
        "        try:\n            status, body = self.dispatch(environ)\n",
    ),
    edit(
        "orders/app.py",
        '            log.exception("unhandled error")\n',
        '            log.exception("unhandled error in request %s", request_id)\n',
    ),
    edit(
        "orders/app.py",
        '("Content-Length", str(len(data)))]\n',
        '("Content-Length", str(len(data)))]\n        headers.append(("X-Request-Id", request_id))\n',
        "It goes into a header: the body has public names only, and none is added.",
    ),
    edit(
        "orders/app.py",
        "from http import HTTPStatus\n",
        "from http import HTTPStatus\nfrom uuid import uuid4\n",
    ),
    shell(TEST),
    run_python(
        *SHOW,
        "environ = {'REQUEST_METHOD': 'GET', 'PATH_INFO': '/health', 'HTTP_X_REQUEST_ID': 'abc\\r\\nSet-Cookie: x=1'}",
        "client.app(environ, lambda status, headers: print(status, headers))",
        said="What if a client sends a line break in it?",
    ),
    edit(
        "orders/app.py",
        '        request_id = environ.get("HTTP_X_REQUEST_ID", "")[:64] or uuid4().hex\n',
        '        given = environ.get("HTTP_X_REQUEST_ID", "")\n'
        "        request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex\n",
        "That would be a header of its own. Only plain ids are taken over.",
    ),
    edit(
        "orders/app.py",
        "BATCH = 500\n",
        'BATCH = 500\nREQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")\n',
    ),
    edit("orders/app.py", "import logging\n", "import logging\nimport re\n"),
    shell("python3 -m unittest discover -v"),
    (
        "Each answer has `X-Request-Id`, the client's own if it is plain, and an unhandled error is logged with it. The JSON is as it was.",
    ),
]

# --- 8: a limit ------------------------------------------------------------------------------

_LIMITS = '''"""Requests per customer and minute, counted in the database: all processes share it."""

from http import HTTPStatus

from orders.errors import ApiError

PER_MINUTE = 60


class TooMany(ApiError):
    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "too_many_requests"


def check(repository, customer: str) -> None:
    """Count a request; TooMany once there were as many in this minute as are allowed."""
    if repository.count_request(customer) > PER_MINUTE:
        raise TooMany(f"{PER_MINUTE} requests a minute are allowed")
'''

LIMITS: list[Step] = [
    read("orders/repository.py", "It must be in the database, as both processes count.", 1, 45),
    write("orders/limits.py", _LIMITS),
    edit(
        "orders/repository.py",
        '"""\n\nLAST',
        "CREATE TABLE IF NOT EXISTS requests (\n    customer TEXT NOT NULL,\n    minute TEXT NOT NULL,\n"
        "    count INTEGER NOT NULL,\n    PRIMARY KEY (customer, minute)\n);\n"
        '"""\n\nLAST',
    ),
    grep(
        r'^"""$|^LAST',
        "The text is another one; where does the schema end?",
        "orders/repository.py",
    ),
    edit(
        "orders/repository.py",
        '"""\nLAST',
        "CREATE TABLE IF NOT EXISTS requests (\n    customer TEXT NOT NULL,\n    minute TEXT NOT NULL,\n"
        "    count INTEGER NOT NULL,\n    PRIMARY KEY (customer, minute)\n);\n"
        '"""\nLAST',
    ),
    edit(
        "orders/repository.py",
        "    def get(self, customer: str, number: str)",
        "    def count_request(self, customer: str) -> int:\n"
        '        """Count a request of this minute; how many there were with it."""\n'
        '        minute = self.clock().isoformat(timespec="minutes")\n'
        "        row = self.connection.execute(\n"
        '            "INSERT INTO requests VALUES (?, ?, 1) "\n'
        '            "ON CONFLICT DO UPDATE SET count = count + 1 RETURNING count",\n'
        "            (customer, minute),\n        ).fetchone()\n        self.connection.commit()\n        return row[0]\n\n"
        "    def get(self, customer: str, number: str)",
    ),
    edit(
        "orders/app.py",
        "        customer = auth.customer(environ, self.tokens)\n",
        "        customer = auth.customer(environ, self.tokens)\n        limits.check(self.repository, customer)\n",
    ),
    edit("orders/app.py", "idempotency, pagination,", "idempotency, limits, pagination,"),
    shell(VERBOSE, "The test of the export makes 1,203 orders in one minute; does it still pass?"),
    edit(
        "tests/test_export.py",
        "        for _ in range(1203):\n            self.client.order()\n",
        "        for _ in range(1203):\n            self.client.order()\n            self.client.clock.advance(1)\n",
        "It does not, rightly. The test's clock must go on.",
    ),
    write(
        "tests/test_limits.py",
        "import unittest\n\nfrom orders.limits import PER_MINUTE\nfrom tests.client import Client\n\n\nclass Limits(unittest.TestCase):\n"
        "    def test_one_more_than_allowed_is_429_and_the_next_minute_is_free(self):\n        client = Client()\n"
        '        for _ in range(PER_MINUTE):\n            self.assertEqual(client.call("GET", "/orders")[0], 200)\n'
        '        status, body = client.call("GET", "/orders")\n'
        '        self.assertEqual((status, body["error"]["code"]), (429, "too_many_requests"))\n'
        '        self.assertEqual(client.call("GET", "/orders", token="secret-b")[0], 200)\n'
        '        client.clock.advance(60)\n        self.assertEqual(client.call("GET", "/orders")[0], 200)\n\n\n'
        'if __name__ == "__main__":\n    unittest.main()\n',
    ),
    shell(VERBOSE),
    edit(
        "docs/api.md",
        "with 400, 401, 404 or 422.",
        "with 400, 401, 404, 422 or, after 60 requests in a minute, 429.",
    ),
    (
        "The 61st request of a customer in a minute is answered with 429. The count is in the database, so both processes share it.",
    ),
]

# --- 9: a last look --------------------------------------------------------------------------

REVIEW: list[Step] = [
    shell("git status --short && git diff --stat"),
    shell(
        "git diff orders/serialize.py tests/test_api.py",
        "The public names first: `serialize.py` must not differ.",
    ),
    read("orders/serialize.py"),
    run_python(
        *SHOW,
        "_, made = client.order(('ink', 3, 999, 15))",
        "print(json.dumps(made, indent=1))",
        said="One order as a client sees it:",
    ),
    grep(r"TODO|FIXME|print\(", "Anything left behind?", "orders"),
    read("orders/app.py", "The application as it is now."),
    read("orders/validation.py"),
    read("orders/pagination.py"),
    shell("python3 -W error -m unittest discover -v", "All tests, with warnings as errors."),
    read("docs/api.md"),
    (
        "All tests pass. `orders/serialize.py` is byte for byte what it was, so no public JSON field name has changed; "
        "`next_page` holds a keyset now instead of a number, as the document says. Ready to be released.",
    ),
]

TURNS: list[tuple[str, list[Step]]] = [
    (
        "Customers report wrong totals for orders with a discount, and the second page of GET /orders sometimes repeats an order. "
        "Begin with the totals. One rule for everything in this session: "
        + CONSTRAINT
        + ", the mobile apps "
        "in the stores depend on them.",
        TOTALS,
    ),
    ("Good. Now the second page.", CACHED),
    (
        "No, not like this: two processes run behind the load balancer, so nothing that a request needs may live in memory. "
        "Take it back and use a keyset on (created_at, number).",
        KEYSET,
    ),
    (
        "Support sees 500s in the log for POST /orders. A wrong request must be a 400 or a 422 that names the field.",
        INVALID,
    ),
    (
        "A customer got an answer with somebody else's order after a retry. Look at the idempotency keys.",
        KEYS,
    ),
    (
        "Finance wants all orders of a customer as CSV: GET /orders.csv. Mind spreadsheets that run formulas.",
        EXPORT,
    ),
    ("We cannot match errors in the log to requests of clients. Add a request id.", IDS),
    ("One client polls far too often. Allow 60 requests a minute per customer.", LIMITS),
    ("Look over everything once more before I release it.", REVIEW),
]
