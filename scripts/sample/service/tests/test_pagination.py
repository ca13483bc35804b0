import unittest

from tests.client import Client


class Pagination(unittest.TestCase):
    def setUp(self):
        self.client = Client()

    def pages(self, size):
        seen, path = [], f"/orders?size={size}"
        while path:
            status, body = self.client.call("GET", path)
            self.assertEqual(status, 200, body)
            seen.append([order["order_id"] for order in body["orders"]])
            following = body["next_page"]
            path = f"/orders?size={size}&page={following}" if following else None
        return seen

    def test_all_orders_come_once(self):
        made = set()
        for _ in range(7):
            made.add(self.client.order()[1]["order_id"])
            self.client.clock.advance(60)
        flat = [name for page in self.pages(3) for name in page]
        self.assertEqual(sorted(flat), sorted(made))

    def test_an_order_that_comes_between_two_pages_moves_nothing(self):
        for _ in range(6):
            self.client.order()
            self.client.clock.advance(60)
        _, first = self.client.call("GET", "/orders?size=3")
        self.client.order()
        _, second = self.client.call("GET", f"/orders?size=3&page={first['next_page']}")
        names = [order["order_id"] for page in (first, second) for order in page["orders"]]
        self.assertEqual(len(names), len(set(names)), "an order came twice")

    def test_orders_of_the_same_second_keep_their_order(self):
        for _ in range(5):
            self.client.order()
        self.assertEqual(self.pages(2), self.pages(2))


if __name__ == "__main__":
    unittest.main()
