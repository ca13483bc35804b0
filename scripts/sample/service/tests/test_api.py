import unittest

from tests.client import Client

FIELDS = [
    "order_id", "customer_ref", "created_at", "currency", "line_items",
    "subtotal_cents", "tax_cents", "total_cents", "note",
]


class Api(unittest.TestCase):
    def setUp(self):
        self.client = Client()

    def test_an_order_is_made_and_read(self):
        status, made = self.client.order(("pen", 2, 250, 0))
        self.assertEqual(status, 201)
        status, read = self.client.call("GET", f"/orders/{made['order_id']}")
        self.assertEqual((status, read), (200, made))

    def test_the_public_fields_are_these(self):
        _, made = self.client.order()
        self.assertEqual(list(made), FIELDS)

    def test_another_customer_does_not_see_it(self):
        _, made = self.client.order()
        status, _ = self.client.call("GET", f"/orders/{made['order_id']}", token="secret-b")
        self.assertEqual(status, 404)

    def test_a_token_is_needed(self):
        status, body = self.client.call("GET", "/orders", token="wrong")
        self.assertEqual((status, body["error"]["code"]), (401, "unauthorized"))

    def test_the_same_key_makes_one_order(self):
        first = self.client.order(idempotency_key="k1")
        again = self.client.order(idempotency_key="k1")
        self.assertEqual((first[0], again[0]), (201, 200))
        self.assertEqual(first[1], again[1])


if __name__ == "__main__":
    unittest.main()
