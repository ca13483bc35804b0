"""`foldmark search` and `recall`: find messages in a session, and print hidden content."""

import sys
from typing import Annotated

import typer

from foldmark.errors import BadInput
from foldmark.store.search import words as split_words

from ..groups import argument
from ..layout import Row, answer, listing, safe_text, section, show_json, write_bytes
from ..options import SessionName, StoreOptions
from ..text import harmless_text, number, plain

_HITS = 20

Query = Annotated[
    list[str],
    argument("QUERY", "Words that must all occur; the start of a word is enough."),
]
_LIMIT = typer.Option("-n", "--limit", metavar="N", min=1, max=1_000, help="Hits to print at most.")
Limit = Annotated[int, _LIMIT]
Handle = Annotated[str, argument("HANDLE", "Handle from a placeholder or search result: h3f.")]


def search(
    session: SessionName, query: Query, *, limit: Limit = _HITS, options: StoreOptions
) -> None:
    """Search a session, including hidden messages: exact matches first, then the newest.

    Example: foldmark search latest flaky test --limit 5
    """
    text = " ".join(query)
    terms = split_words(text)
    if not terms:
        raise BadInput(f"{plain(text)!r} has no word to search for; give letters or digits")
    with options.session(session) as (opened, _, row):
        hits = opened.search(text, limit=limit)
    piece = safe_text(f"No matches in session {row.id}: {text}")
    if hits:
        title = f"{number(len(hits), 'part')} of session {plain(row.id)}"
        note = f"Print one in full: foldmark recall {plain(row.id)} HANDLE"
        rows: list[Row] = []
        for hit in hits:
            snippet = safe_text(hit.snippet, limit=400)
            snippet.highlight_words(terms, "bold yellow", case_sensitive=False)
            rows.append((hit.handle, hit.state, hit.tool or hit.kind, snippet))
        piece = section(title, listing("handle state what snippet", rows), note=note)
    answer({"id": row.id, "query": text, "found": hits}, piece, json=options.json)


def recall(session: SessionName, handle: Handle, *, options: StoreOptions) -> None:
    """Print the content behind a handle, byte for byte unless printed on a terminal.

    Example: foldmark recall latest h3f > output.txt
    """
    with options.session(session) as (opened, _, row):
        content = opened.recall(handle)
    if options.json:
        show_json({"id": row.id, "handle": handle, "content": content})
    elif sys.stdout.isatty():
        sys.stdout.write(harmless_text(content).removesuffix("\n") + "\n")
    else:
        write_bytes(content.encode("utf-8", "surrogatepass"))
