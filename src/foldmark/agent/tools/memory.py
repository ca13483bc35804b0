"""The tools with which a model finds and reads again what its session no longer shows it."""

from functools import cache
from typing import Annotated

from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Context, Tool, ToolOutput, ToolRefusal
from foldmark.model.messages import FilePart
from foldmark.store.search import Found, is_data
from foldmark.tokens.counters import counter

PAGE = 4_000  # tokens of what is recalled at once
_SHOWN = 2 * PAGE  # estimates differ: a page is never cut in its middle
_LONGEST = 24_000  # characters of a page, however few tokens they are
_MOST = 50
_OWN = ("recall", "search")

_count = counter("classes")


@cache
def memory_tools() -> tuple[Tool, Tool]:
    """The tools `recall` and `search` over the session of whoever calls; always the same two."""

    @tool(changes=False, shown=_SHOWN)
    def recall(
        handle: Annotated[str, "As it stands in the placeholder, or as search tells it: h1f"],
        context: Context,
        offset: Annotated[int, "The first character wanted; they count from 0."] = 0,
        length: Annotated[int, "How many characters; a page, if it is not given."] = _LONGEST,
    ) -> ToolOutput:
        """Read what was hidden or folded, by its handle; a long one page by page."""
        if offset < 0 or length < 1:
            raise ToolRefusal("offset is at least 0, length at least 1")
        text = context.session.recall(handle)
        if is_data(text):
            return _file(text, handle)
        return ToolOutput(text=_page(text, handle, offset, length), title=handle)

    @tool(changes=False)
    def search(
        query: Annotated[str, "Words that must all be there."],
        context: Context,
        most: Annotated[int, "How many finds are told."] = 10,
    ) -> ToolOutput:
        """Find what was said, read or written earlier in this session, shown or not."""
        wanted = max(1, min(most, _MOST))
        hits = context.session.search(query, most=2 * wanted)
        # What was looked for and read again is found where it was said first.
        found = [hit for hit in hits if hit.tool not in _OWN][:wanted]
        return ToolOutput(text="\n".join(map(_line, found)) or "nothing found", title=query[:80])

    return recall, search


def _line(found: Found) -> str:
    what = f"{found.kind} {found.tool}" if found.tool else found.kind
    return f"{found.handle} ({what}, {found.state}): {found.snippet}"


def _page(text: str, handle: str, offset: int, length: int) -> str:
    if offset >= len(text) > 0:
        raise ToolRefusal(f"offset: there are only {len(text)} characters behind {handle}")
    page = text[offset : offset + min(length, _LONGEST)]
    while (tokens := _count(page)) > PAGE and len(page) > 1:
        page = page[: max(1, min(len(page) * 9 // 10, len(page) * PAGE // tokens))]
    end = offset + len(page)
    if not offset and end == len(text):
        return page or "[it is empty]"
    note = f"[characters {offset} to {end - 1} of {len(text)}"
    more = f"; the next page: handle={handle!r}, offset={end}" if end < len(text) else ""
    return f"{page}\n{note}{more}]"


def _file(url: str, handle: str) -> ToolOutput:
    """A file that was attached, attached again: its bytes as letters help nobody."""
    mime = url[len("data:") :].partition(",")[0].partition(";")[0]
    return ToolOutput(text=f"[{mime}]", title=handle, files=(FilePart(mime=mime, url=url),))
