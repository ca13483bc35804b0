"""Files inside messages: data URLs, taken apart and put together."""


def data_url(mime: str, data: str) -> str:
    """A file that is inline, as an address."""
    return f"data:{mime};base64,{data}"


def url_parts(url: str) -> tuple[str, str | None]:
    """The kind and the base64 text of an inline file; no text where the address is elsewhere."""
    head, found, data = url.partition(";base64,")
    if not found or not head.startswith("data:"):
        return "", None
    return head.removeprefix("data:"), data
