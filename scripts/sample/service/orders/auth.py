"""Bearer tokens, each of one customer."""

import hmac

from orders.errors import Unauthorized


def customer(environ, tokens: dict[str, str]) -> str:
    """The customer whose token the request has."""
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("a bearer token is needed")
    for known, name in tokens.items():
        if hmac.compare_digest(known, token):
            return name
    raise Unauthorized("the token is not known")
