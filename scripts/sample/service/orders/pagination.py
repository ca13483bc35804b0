"""Pages of a customer's orders, newest first."""

from dataclasses import dataclass
from urllib.parse import parse_qs

from orders.errors import Invalid

DEFAULT_SIZE, LARGEST = 20, 100


@dataclass(frozen=True)
class Page:
    number: int = 1
    size: int = DEFAULT_SIZE


def parse(query: str) -> Page:
    """The page that a query string asks for."""
    given = parse_qs(query)
    try:
        number = int(given.get("page", ["1"])[0])
        size = int(given.get("size", [str(DEFAULT_SIZE)])[0])
    except ValueError:
        raise Invalid("page and size are whole numbers") from None
    if number < 1 or not 1 <= size <= LARGEST:
        raise Invalid(f"page is 1 or more, size is 1 to {LARGEST}")
    return Page(number, size)


def page_of(repository, customer: str, page: Page):
    """The orders of a page, and the number of the next one if there is one."""
    offset = (page.number - 1) * page.size
    orders = repository.newest(customer, limit=page.size + 1, offset=offset)
    following = page.number + 1 if len(orders) > page.size else None
    return orders[: page.size], following
