"""The tools `recall` and `search`, by which a model reads content hidden from its view."""

from functools import cache
from typing import Annotated

from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Context, Tool, ToolOutput, ToolRefusal
from foldmark.model.messages import FilePart
from foldmark.store.search import SearchHit, is_data
from foldmark.tokens.counters import counter

PAGE = 4_000  # tokens of one page of recalled content
_SHOWN = 2 * PAGE  # twice a page: estimates differ, and a page must not be truncated
_MAX_LENGTH = 24_000  # characters of a page
_MAX_HITS = 50
_OWN = ("recall", "search")

_count = counter("classes")


@cache
def memory_tools() -> tuple[Tool, Tool]:
    """The tools `recall` and `search` over the calling session; always the same two objects."""

    @tool(changes_files=False, visible_tokens=_SHOWN)
    def recall(
        handle: Annotated[str, "As it stands in the placeholder, or as search tells it: h1f"],
        context: Context,
        offset: Annotated[int, "The first character wanted; they count from 0."] = 0,
        length: Annotated[int, "How many characters; a page, if it is not given."] = _MAX_LENGTH,
    ) -> ToolOutput:
        """Read what was hidden or folded, by its handle; a long one page by page."""
        if offset < 0 or length < 1:
            raise ToolRefusal("offset is at least 0, length at least 1")
        text = context.session.recall(handle)
        if is_data(text):
            return _file(text, handle)
        return ToolOutput(text=_page(text, handle, offset, length), title=handle)

    @tool(changes_files=False)
    def search(
        query: Annotated[str, "Words that must all be there."],
        context: Context,
        most: Annotated[int, "How many finds are told."] = 10,
    ) -> ToolOutput:
        """Find what was said, read or written earlier in this session, shown or not."""
        limit = max(1, min(most, _MAX_HITS))
        hits = context.session.search(query, limit=2 * limit)
        # Outputs of these two tools only repeat other content.
        results = [hit for hit in hits if hit.tool not in _OWN][:limit]
        return ToolOutput(text="\n".join(map(_line, results)) or "nothing found", title=query[:80])

    return recall, search


def _line(hit: SearchHit) -> str:
    what = f"{hit.kind} {hit.tool}" if hit.tool else hit.kind
    return f"{hit.handle} ({what}, {hit.state}): {hit.snippet}"


def _page(text: str, handle: str, offset: int, length: int) -> str:
    if offset >= len(text) > 0:
        raise ToolRefusal(f"offset: there are only {len(text)} characters behind {handle}")
    page = text[offset : offset + min(length, _MAX_LENGTH)]
    while (tokens := _count(page)) > PAGE and len(page) > 1:
        page = page[: max(1, min(len(page) * 9 // 10, len(page) * PAGE // tokens))]
    end = offset + len(page)
    if not offset and end == len(text):
        return page or "[it is empty]"
    note = f"[characters {offset} to {end - 1} of {len(text)}"
    more = f"; the next page: handle={handle!r}, offset={end}" if end < len(text) else ""
    return f"{page}\n{note}{more}]"


def _file(url: str, handle: str) -> ToolOutput:
    """The recalled file as an attachment: base64 text would be useless to the model."""
    mime = url[len("data:") :].partition(",")[0].partition(";")[0]
    return ToolOutput(text=f"[{mime}]", title=handle, files=(FilePart(mime=mime, url=url),))
