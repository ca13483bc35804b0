"""The turns of the recorded sample that fix totals, pages and answers with 500."""

from foldmark.testing import call

from .steps import SHOW, VERBOSE, Step, edit, grep, plan, read, run_python, shell, write

# --- 1: totals -----------------------------------------------------------------------------

TOTALS: list[Step] = [
    ("I look at the project first.", call("glob", pattern="*.py"), call("read", path="README.md")),
    read("orders/app.py"),
    read("orders/pricing.py", "Totals come from here."),
    read("orders/serialize.py"),
    read("orders/models.py"),
    read("docs/api.md", "The document says how rounding is meant."),
    grep(r"line_total|subtotal|pricing\.", "Who else calculates with money?"),
    read("tests/test_pricing.py"),
    shell(VERBOSE, "Now the tests as they are."),
    run_python(
        "from orders.models import LineItem",
        "from orders import pricing",
        "for qty, price, discount in ((3, 999, 15.0), (7, 129, 33.0), (1, 5, 50.0), (3, 5, 50.0)):",
        "    item = LineItem('x', qty, price, discount)",
        "    exact = qty * price * (100 - discount) / 100",
        "    print(f'{qty} x {price} less {discount} %: {pricing.line_total(item)}, exact {exact:.4f}')",
        said="`int(price) * quantity` cuts off each unit before it is multiplied. I compare.",
    ),
    plan(
        ("round each line once, half to even", "in_progress"),
        ("round the tax once", "pending"),
        ("second page of GET /orders", "pending"),
    ),
    edit(
        "orders/pricing.py",
        "    price = item.unit_price * (1 - item.discount / 100)\n    return int(price) * item.quantity\n",
        "    return round(item.unit_price * item.quantity * (1 - item.discount / 100))\n",
        "First the smallest change: round the line, not the unit.",
    ),
    shell("python3 -m unittest tests.test_pricing -v"),
    run_python(
        "print(repr(2675 * (1 - 10 / 100)), round(2675 * (1 - 10 / 100)))",
        "print(repr(1 * 5 * (1 - 50 / 100)), round(1 * 5 * (1 - 50 / 100)))",
        "print(repr(45 * (1 - 30 / 100)), round(45 * (1 - 30 / 100)), 'exact 31.5')",
        said="Floats are not exact here: 45 less 30 % is 31.5 and must become 32.",
    ),
    shell(
        "python3 -c 'import decimal; help(decimal.Decimal.quantize)' | head -40",
        "Decimal has the rounding that the document asks for.",
    ),
    write(
        "orders/pricing.py",
        '"""Totals of an order, in cents.\n\nDiscounts are per line and in percent; the tax is on the sum of all discounted lines. Each line and\nthe tax are rounded once, half to even, on exact decimals: floats would lose half cents.\n"""\n\n'
        "from decimal import ROUND_HALF_EVEN, Decimal\n\nfrom orders.models import LineItem\n\n\n"
        "def line_total(item: LineItem) -> int:\n"
        '    """What a line costs after its discount."""\n'
        "    kept = 100 - Decimal(str(item.discount))\n"
        "    return _rounded(item.unit_price * item.quantity * kept / 100)\n\n\n"
        "def subtotal(items: tuple[LineItem, ...]) -> int:\n"
        '    """All lines together, before tax."""\n'
        "    return sum(line_total(item) for item in items)\n\n\n"
        "def tax(items: tuple[LineItem, ...], rate: float) -> int:\n"
        '    """The tax on an order."""\n'
        "    return _rounded(subtotal(items) * Decimal(str(rate)) / 100)\n\n\n"
        "def total(items: tuple[LineItem, ...], rate: float) -> int:\n"
        '    """What the customer pays."""\n'
        "    return subtotal(items) + tax(items, rate)\n\n\n"
        "def _rounded(cents: Decimal) -> int:\n"
        "    return int(cents.quantize(Decimal(1), rounding=ROUND_HALF_EVEN))\n",
    ),
    shell("python3 -m unittest tests.test_pricing -v"),
    edit(
        "tests/test_pricing.py",
        "    def test_the_total_of_a_discounted_order(self):",
        "    def test_half_a_cent_that_floats_do_not_have(self):\n"
        "        # 0.45 less 30 % is 0.315; as floats it is 0.31499999\n"
        '        self.assertEqual(pricing.line_total(LineItem("tape", 1, 45, 30.0)), 32)\n'
        '        self.assertEqual(pricing.line_total(LineItem("tape", 3, 45, 30.0)), 94)\n\n'
        "    def test_the_total_of_a_discounted_order(self):",
        "A test for the case that rounding floats gets wrong.",
    ),
    shell("python3 -m unittest tests.test_pricing -v"),
    shell(VERBOSE, "And all tests."),
    (
        "The totals are right now: each line and the tax are rounded once, half to even, on exact decimals. The cause was "
        "`int(price)`, which cut every unit price before it was multiplied. No field name was touched. One test still "
        "fails, `test_an_order_that_comes_between_two_pages_moves_nothing`: that is the second page, which is next.",
    ),
]

# --- 2: pages, by an approach that the user rejects ------------------------------------------

_CACHE = '''"""Lists of order numbers that were begun to be read, by the cursor that the client holds."""

import itertools

_lists: dict[str, list[str]] = {}
_names = itertools.count(1)


def begin(numbers: list[str]) -> str:
    """Keep a list; its name."""
    name = f"list-{next(_names)}"
    _lists[name] = numbers
    return name


def numbers(name: str) -> list[str]:
    """A list that was kept."""
    return _lists.get(name, [])
'''

CACHED: list[Step] = [
    read("orders/pagination.py"),
    read("tests/test_pagination.py"),
    read("orders/repository.py", "What `newest` sorts by decides what a page holds."),
    shell("python3 -m unittest tests.test_pagination", "The failing one alone."),
    run_python(
        *SHOW,
        "for number in range(6):",
        "    client.order(('sku-%d' % number, 1, 100, 0)); client.clock.advance(60)",
        "show = lambda path: print(path, [o['line_items'][0]['sku'] for o in client.call('GET', path)[1]['orders']])",
        "show('/orders?size=3')",
        "client.order(('sku-new', 1, 100, 0))",
        "show('/orders?size=3&page=2')",
        said="With an offset, every new order pushes the others one place on:",
    ),
    grep(r"next_page|page=", "Where the page number is used:"),
    grep(r"OFFSET|offset"),
    write(
        "orders/listings.py", _CACHE, "I keep the list of numbers while a client pages through it."
    ),
    edit(
        "orders/pagination.py",
        "    offset = (page.number - 1) * page.size\n"
        "    orders = repository.newest(customer, limit=page.size + 1, offset=offset)\n"
        "    following = page.number + 1 if len(orders) > page.size else None\n"
        "    return orders[: page.size], following\n",
        "    if page.listing is None:\n"
        "        listing = listings.begin([order.number for order in repository.newest(customer, -1)])\n"
        "    else:\n"
        "        listing = page.listing\n"
        "    offset = (page.number - 1) * page.size\n"
        "    wanted = listings.numbers(listing)[offset : offset + page.size + 1]\n"
        "    orders = [repository.get(customer, number) for number in wanted]\n"
        '    following = f"{listing}.{page.number + 1}" if len(orders) > page.size else None\n'
        "    return orders[: page.size], following\n",
    ),
    edit(
        "orders/pagination.py",
        '        number = int(given.get("page", ["1"])[0])\n',
        '        listing, _, last = given.get("page", ["1"])[0].rpartition(".")\n        number = int(last)\n',
    ),
    edit(
        "orders/pagination.py",
        "    return Page(number, size)\n",
        "    return Page(number, size, listing or None)\n",
    ),
    edit(
        "orders/pagination.py",
        "    size: int = DEFAULT_SIZE\n",
        "    size: int = DEFAULT_SIZE\n    listing: str | None = None\n",
    ),
    edit(
        "orders/pagination.py",
        "from orders.errors import Invalid\n",
        "from orders import listings\nfrom orders.errors import Invalid\n",
    ),
    read("orders/pagination.py", "The whole module once more."),
    shell("python3 -m unittest tests.test_pagination -v"),
    shell(VERBOSE),
    shell("git diff --stat; git diff orders/pagination.py", "What it comes to:"),
    (
        "Pages no longer repeat an order. The numbers of a customer's orders are kept in `orders/listings.py` when the first page is "
        "read; `next_page` names that list, and later pages are cut from it. All tests pass.",
    ),
]

# --- 3: the same by a keyset -----------------------------------------------------------------

KEYSET: list[Step] = [
    shell(
        "git checkout -q orders/pagination.py && rm orders/listings.py && git status --short",
        "You are right, the README says so as well. I take the cached lists back.",
    ),
    read("orders/pagination.py"),
    read(
        "orders/repository.py",
        "The keyset needs an order that is total: (created_at, number).",
        75,
        30,
    ),
    shell(
        "python3 - <<'END'\nfrom orders.repository import Repository\n"
        "plan = Repository().connection.execute(\"EXPLAIN QUERY PLAN SELECT * FROM orders WHERE customer = 'a' "
        "AND (created_at, number) < ('2025', 'x') ORDER BY created_at DESC, number DESC LIMIT 3\")\n"
        "for row in plan: print(tuple(row))\nEND",
        "Does the index serve it?",
    ),
    edit(
        "orders/repository.py",
        "ON orders (customer, created_at);",
        "ON orders (customer, created_at, number);",
    ),
    edit(
        "orders/repository.py",
        "    def newest(self, customer: str, limit: int, offset: int = 0) -> list[Order]:\n"
        '        """The newest orders of a customer."""\n'
        "        rows = self.connection.execute(\n"
        '            "SELECT * FROM orders WHERE customer = ? "\n'
        '            "ORDER BY created_at DESC LIMIT ? OFFSET ?",\n'
        "            (customer, limit, offset),\n"
        "        ).fetchall()\n",
        "    def newest(\n"
        "        self, customer: str, limit: int, before: tuple[str, str] | None = None\n"
        "    ) -> list[Order]:\n"
        '        """The newest orders of a customer; those before a (created_at, number), if given."""\n'
        "        created, number = before or (LAST, LAST)\n"
        "        rows = self.connection.execute(\n"
        '            "SELECT * FROM orders WHERE customer = ? AND (created_at, number) < (?, ?) "\n'
        '            "ORDER BY created_at DESC, number DESC LIMIT ?",\n'
        "            (customer, created, number, limit),\n"
        "        ).fetchall()\n",
    ),
    edit(
        "orders/repository.py",
        "\n\nclass Repository:",
        '\nLAST = "~"  # sorts after every time and every number\n\n\nclass Repository:',
    ),
    shell(
        "python3 -m unittest tests.test_pagination 2>&1 | tail -25",
        "Now the callers fail, as they should.",
    ),
    write(
        "orders/pagination.py",
        '"""Pages of a customer\'s orders, newest first.\n\nA page begins after the last order of the page before: `next_page` is that order\'s time and number.\n'
        'Nothing is kept between two requests, so any process can answer the next one.\n"""\n\n'
        "from dataclasses import dataclass\nfrom urllib.parse import parse_qs, quote\n\nfrom orders.errors import Invalid\n\n"
        "DEFAULT_SIZE, LARGEST = 20, 100\n\n\n@dataclass(frozen=True)\nclass Page:\n"
        "    size: int = DEFAULT_SIZE\n    before: tuple[str, str] | None = None\n\n\n"
        "def parse(query: str) -> Page:\n"
        '    """The page that a query string asks for."""\n'
        "    given = parse_qs(query)\n    try:\n"
        '        size = int(given.get("size", [str(DEFAULT_SIZE)])[0])\n'
        "    except ValueError:\n"
        '        raise Invalid("size is a whole number") from None\n'
        "    if not 1 <= size <= LARGEST:\n"
        '        raise Invalid(f"size is 1 to {LARGEST}")\n'
        '    created, found, number = given.get("page", [""])[0].rpartition("_")\n'
        '    if "page" in given and not (created and number):\n'
        '        raise Invalid("page is what next_page said")\n'
        "    return Page(size, (created, number) if found else None)\n\n\n"
        "def page_of(repository, customer: str, page: Page):\n"
        '    """The orders of a page, and the name of the next one if there is one."""\n'
        "    orders = repository.newest(customer, page.size + 1, page.before)\n"
        "    if len(orders) <= page.size:\n        return orders, None\n"
        "    last = orders[page.size - 1]\n"
        '    return orders[: page.size], quote(f"{last.created_at}_{last.number}")\n',
    ),
    shell("python3 -m unittest tests.test_pagination -v"),
    run_python(
        *SHOW,
        "for number in range(4):",
        "    client.order(('sku-%d' % number, 1, 100, 0))",
        "status, body = client.call('GET', '/orders?size=2')",
        "print(status, body['next_page'].rpartition('_')[0], [list(o) for o in body['orders']][:1])",
        "print(client.call('GET', '/orders?size=2&page=7'))",
        "print(client.call('GET', '/orders?size=0'))",
        said="The body by hand: the field is still `next_page`, and the old page numbers are refused.",
    ),
    grep(r"next_page", "No name has changed; only what stands in it has."),
    shell(VERBOSE),
    shell("git diff --stat && git diff orders/repository.py"),
    (
        "Done by a keyset on (created_at, number): nothing is kept in memory, `next_page` keeps its name and holds where the next page "
        "begins. The index has the number now as well. All tests pass.",
    ),
]

# --- 4: answers with 500 ---------------------------------------------------------------------

_BODIES = (
    'bodies = [b\'{\', b\'[]\', b\'{"line_items": [1]}\', b\'{"line_items": [{"sku": 1, "qty": "two", "unit_price_cents": 5}]}\',',
    '  b\'{"line_items": [{"sku": "a", "qty": -1, "unit_price_cents": 5}]}\',',
    '  b\'{"line_items": [{"sku": "a", "qty": 1, "unit_price_cents": 5, "discount_percent": 250}]}\',',
    '  b\'{"line_items": [{"sku": "a", "qty": 1, "unit_price_cents": 5}], "tax_rate": "high"}\']',
    "import io",
    "for body in bodies:",
    "    seen = []",
    "    environ = {'REQUEST_METHOD': 'POST', 'PATH_INFO': '/orders', 'CONTENT_LENGTH': str(len(body)),",
    "               'wsgi.input': io.BytesIO(body), 'HTTP_AUTHORIZATION': 'Bearer secret-a'}",
    "    out = b''.join(client.app(environ, lambda status, headers: seen.append(status)))",
    "    print(seen[0], body[:60], out[:110])",
)

INVALID: list[Step] = [
    read("orders/validation.py"),
    read("orders/errors.py"),
    run_python(*SHOW, *_BODIES, said="I send what clients should not send."),
    grep(r"int\(|float\(|json\.loads", "Every conversion of what a client sends:", "orders"),
    read("tests/test_api.py"),
    read("tests/client.py"),
    plan(
        ("malformed JSON is 400", "in_progress"),
        ("numbers are checked before they are converted", "pending"),
        ("a test per case", "pending"),
    ),
    edit(
        "orders/app.py",
        '        data = json.loads(environ["wsgi.input"].read(size) or b"{}")\n',
        '        data = _body(environ["wsgi.input"].read(size))\n',
    ),
    edit(
        "orders/app.py",
        '            raise NotFound(f"no order {number}")\n        return HTTPStatus.OK, serialize.order(order)\n',
        '            raise NotFound(f"no order {number}")\n        return HTTPStatus.OK, serialize.order(order)\n\n\n'
        'def _body(data: bytes):\n    try:\n        return json.loads(data or b"{}")\n    except ValueError:\n'
        '        raise ApiError("the body is not JSON") from None\n',
    ),
    shell("python3 -m unittest tests.test_api"),
    edit(
        "orders/validation.py",
        '    return LineItem(\n        sku=data["sku"],\n        quantity=int(data["qty"]),\n'
        '        unit_price=int(data["unit_price_cents"]),\n        discount=float(data.get("discount_percent", 0)),\n    )\n',
        '    return LineItem(\n        sku=_text(data, "sku"),\n        quantity=_whole(data, "qty", 1, 10_000),\n'
        '        unit_price=_whole(data, "unit_price_cents", 0, 10_000_000),\n'
        '        discount=_percent(data, "discount_percent", 0.0),\n    )\n\n\n'
        "def _text(data: dict, name: str) -> str:\n    value = data[name]\n"
        '    if not isinstance(value, str) or not value:\n        raise Invalid(f"{name} is a text")\n    return value\n\n\n'
        "def _whole(data: dict, name: str, least: int, most: int) -> int:\n    value = data[name]\n"
        "    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:\n"
        '        raise Invalid(f"{name} is a whole number from {least} to {most}")\n    return value\n\n\n'
        "def _percent(data: dict, name: str, usual: float) -> float:\n    value = data.get(name, usual)\n"
        "    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 100:\n"
        '        raise Invalid(f"{name} is a number from 0 to 100")\n    return float(value)\n',
    ),
    edit(
        "orders/validation.py",
        '        tax_rate=float(data.get("tax_rate", 19.0)),\n',
        '        tax_rate=_percent(data, "tax_rate", 19.0),\n',
    ),
    run_python(*SHOW, *_BODIES, said="The same bodies again:"),
    write(
        "tests/test_validation.py",
        'import unittest\n\nfrom tests.client import Client\n\nLINE = {"sku": "pen", "qty": 1, "unit_price_cents": 250}\nWRONG = [\n'
        '    ("qty", "two"), ("qty", 0), ("qty", True), ("qty", 1.5), ("qty", None),\n'
        '    ("unit_price_cents", -1), ("unit_price_cents", "5"), ("sku", ""), ("sku", 7),\n'
        '    ("discount_percent", 101), ("discount_percent", "10"),\n]\n\n\n'
        "class Validation(unittest.TestCase):\n    def test_a_wrong_field_is_422_and_named(self):\n        client = Client()\n"
        "        for name, value in WRONG:\n            with self.subTest(name=name, value=value):\n"
        '                status, body = client.call("POST", "/orders", {"line_items": [{**LINE, name: value}]})\n'
        '                self.assertEqual(status, 422, body)\n                self.assertIn(name, body["error"]["message"])\n\n'
        "    def test_a_field_that_is_missing_is_named(self):\n        client = Client()\n        for name in LINE:\n"
        "            line = {key: value for key, value in LINE.items() if key != name}\n"
        '            status, body = client.call("POST", "/orders", {"line_items": [line]})\n'
        '            self.assertEqual((status, name in body["error"]["message"]), (422, True))\n\n\n'
        'if __name__ == "__main__":\n    unittest.main()\n',
    ),
    shell("python3 -m unittest tests.test_validation -v"),
    read("orders/app.py", "CONTENT_LENGTH is converted as well.", 55, 25),
    run_python(
        *SHOW,
        "seen = []",
        "environ = {'REQUEST_METHOD': 'POST', 'PATH_INFO': '/orders', 'CONTENT_LENGTH': 'many',",
        "           'HTTP_AUTHORIZATION': 'Bearer secret-a'}",
        "print(client.app(environ, lambda status, headers: print(status)))",
    ),
    edit(
        "orders/app.py",
        '        size = int(environ.get("CONTENT_LENGTH") or 0)\n',
        '        length = environ.get("CONTENT_LENGTH") or "0"\n        size = int(length) if length.isdecimal() else 0\n',
    ),
    shell(VERBOSE),
    shell("git diff --stat"),
    (
        "A request that is wrong is answered with 400 or 422 now, and the message names the field by its public name. "
        "The names themselves are as they were. `tests/test_validation.py` has a row per case.",
    ),
]
