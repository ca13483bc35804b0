"""`foldmark search` and `recall`: what was said in a session, shown to the model or not."""

import sys
from typing import Annotated

import typer

from foldmark.errors import BadInput
from foldmark.store.search import words as split_words

from ..groups import argument
from ..layout import Row, answer, listing, section, show_json, words, write_bytes
from ..options import SessionName, StoreOptions
from ..text import harmless_text, number, plain

_MOST = 20

Query = Annotated[
    list[str],
    argument("QUERY", "Words that must all be there; each may be a beginning."),
]
Most = Annotated[int, typer.Option("--most", min=1, max=1_000, help="Show so many at most.")]
Handle = Annotated[str, argument("HANDLE", "As placeholders and search results tell it: h3f.")]


def search(
    session: SessionName, query: Query, *, most: Most = _MOST, options: StoreOptions
) -> None:
    """Find where words were said: exact matches first, then the newest.

    Example: foldmark search latest broken wheel --most 5
    """
    text = " ".join(query)
    wanted = split_words(text)
    if not wanted:
        raise BadInput(f"{plain(text)!r} has no word to look for: give letters or digits")
    with options.session(session) as (opened, _, row):
        found = opened.search(text, most=most)
    piece = words(f"Nothing in session {row.id} holds: {text}")
    if found:
        title = f"{number(len(found), 'part')} of session {plain(row.id)}"
        note = f"Read one whole: foldmark recall {plain(row.id)} HANDLE"
        rows: list[Row] = []
        for hit in found:
            snippet = words(hit.snippet, most=400)
            snippet.highlight_words(wanted, "bold yellow", case_sensitive=False)
            rows.append((hit.handle, hit.state, hit.tool or hit.kind, snippet))
        piece = section(title, listing("handle state what snippet", rows), note=note)
    answer({"id": row.id, "query": text, "found": found}, piece, json=options.json)


def recall(session: SessionName, handle: Handle, *, options: StoreOptions) -> None:
    """Print the content behind a handle: its very bytes, where no terminal reads them.

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
