"""`foldmark search` and `recall`: what was said in a session, shown to the model or not."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from foldmark.errors import BadInput
from foldmark.session.reader import Found
from foldmark.store.search import words as split_words

from ..layout import Row, answer, listing, section, show_json, words
from ..options import SessionName, StoreOptions
from ..output import write_bytes
from ..text import harmless_line, number, plain

_MOST = 20

Query = Annotated[
    list[str],
    typer.Argument(metavar="QUERY", help="Words that must all be there; each may be a beginning."),
]
Most = Annotated[int, typer.Option("--most", min=1, max=1_000, help="Show so many at most.")]
Handle = Annotated[
    str, typer.Argument(metavar="HANDLE", help="As placeholders and search results tell it: h3f.")
]


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
        table = listing("handle state what snippet", _rows(found, wanted))
        piece = section(title, table, note=note)
    answer({"id": row.id, "query": text, "found": found}, piece, json=options.json)


def _rows(found: Iterable[Found], wanted: list[str]) -> Iterable[Row]:
    for hit in found:
        snippet = words(hit.snippet, most=400)
        snippet.highlight_words(wanted, "bold yellow", case_sensitive=False)
        yield hit.handle, hit.state, hit.tool or hit.kind, snippet


def recall(session: SessionName, handle: Handle, *, options: StoreOptions) -> None:
    """Print the content behind a handle: its very bytes, where no terminal reads them.

    Example: foldmark recall latest h3f > output.txt
    """
    with options.session(session) as (opened, _, row):
        content = opened.recall(handle)
    if options.json:
        show_json({"id": row.id, "handle": handle, "content": content})
    elif sys.stdout.isatty():
        for line in content.splitlines():
            sys.stdout.write(f"{harmless_line(line)}\n")
    else:
        write_bytes(content.encode("utf-8", "surrogatepass"))
