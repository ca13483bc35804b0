import unittest

from orders import pricing
from orders.models import LineItem


class Pricing(unittest.TestCase):
    def test_a_line_without_a_discount(self):
        self.assertEqual(pricing.line_total(LineItem("pen", 3, 250)), 750)

    def test_the_tax_is_on_the_sum_of_the_lines(self):
        items = (LineItem("pen", 2, 250), LineItem("pad", 1, 499))
        self.assertEqual(pricing.subtotal(items), 999)
        self.assertEqual(pricing.tax(items, 19.0), 190)

    def test_a_discount_is_rounded_once_per_line(self):
        # 3 x 9.99 less 15 % is 25.4745, so 25.47
        self.assertEqual(pricing.line_total(LineItem("ink", 3, 999, 15.0)), 2547)

    def test_a_third_of_a_cent_is_rounded_half_even(self):
        self.assertEqual(pricing.line_total(LineItem("clip", 1, 5, 50.0)), 2)
        self.assertEqual(pricing.line_total(LineItem("clip", 3, 5, 50.0)), 8)

    def test_the_total_of_a_discounted_order(self):
        items = (LineItem("ink", 3, 999, 15.0), LineItem("pad", 7, 129, 33.0))
        self.assertEqual(pricing.subtotal(items), 2547 + 605)
        self.assertEqual(pricing.total(items, 19.0), 3152 + 599)


if __name__ == "__main__":
    unittest.main()
