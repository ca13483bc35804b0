"""`foldmark export` and `foldmark convert`: a session, or a transcript, as others read it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from foldmark.errors import BadInput
from foldmark.files import MOST_BYTES, harmless, size_text, write_private
from foldmark.log.view import Viewer
from foldmark.model.messages import Transcript, encode_transcript
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import encode
from foldmark.transcripts.write_markdown import markdown
from foldmark.transcripts.write_wires import request_body, whole_view, wire_messages, wire_view
from foldmark.wire.codec import WIRES, wire_named

from .opening import opened_session
from .options import (
    DEFAULT_POLICY,
    AsJson,
    File,
    FormatName,
    Lenient,
    MaxSize,
    Pick,
    PolicyName,
    SessionName,
    StorePlace,
    Wanted,
    opened,
    policy_named,
)
from .tables import show, show_json, words
from .text import escaped, harmless_line, number

EXAMPLE = "Example: foldmark export latest --to anthropic -o messages.json"
CONVERT_EXAMPLE = "Example: foldmark convert session.jsonl --to openai-chat"
STANDARD_OUTPUT = "-"
OPENCODE, MARKDOWN = "opencode", "markdown"
_KINDS = (OPENCODE, *WIRES, MARKDOWN)

Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write it to a file that only you may read; - is standard output.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")]
To = Annotated[str, typer.Option("--to", metavar="KIND", help=f"One of {', '.join(_KINDS)}.")]
TheView = Annotated[
    bool, typer.Option("--view", help="On a wire: what the model is shown, not the whole session.")
]
Body = Annotated[
    bool,
    typer.Option(
        "--request",
        help="On a wire: a request's body, with the system prompt and the tools if they are known.",
    ),
]


def export(  # noqa: PLR0913 - each is an option of the command
    session: SessionName,
    *,
    to: To = OPENCODE,
    view: TheView = False,
    request: Body = False,
    output: Output = STANDARD_OUTPUT,
    force: Force = False,
    store: StorePlace = None,
    json: AsJson = False,
) -> None:
    """Write a session whole: as `opencode export` does, as a wire's messages, or as Markdown."""
    kind = _prepared(to, output, force=force, only_wire=view or request)
    with opened_session(store, session) as (held, _, _):
        transcript = held.export(reverted=kind == OPENCODE)
        shown = held.view().messages if view else None
    data = _data(transcript, kind, shown, request=request)
    _write(transcript, data, kind, output, json=json)


def convert(  # noqa: PLR0913 - each is an option of the command
    file: File,
    *,
    to: To = OPENCODE,
    view: TheView = False,
    request: Body = False,
    output: Output = STANDARD_OUTPUT,
    force: Force = False,
    policy: PolicyName = DEFAULT_POLICY,
    format: FormatName = None,
    pick: Pick = None,
    lenient: Lenient = False,
    max_size: MaxSize = MOST_BYTES,
    json: AsJson = False,
) -> None:
    """Write a transcript of any format in another one, without a store."""
    kind = _prepared(to, output, force=force, only_wire=view or request)
    rules = policy_named(policy)
    wanted = Wanted(format=format, pick=pick, lenient=lenient, max_size=max_size)
    transcript, log = opened(file, rules, wanted)
    shown = Viewer(log, rules).view().messages if view else None
    data = _data(transcript, kind, shown, request=request)
    _write(transcript, data, kind, output, json=json)


def _prepared(to: str, output: str, *, force: bool, only_wire: bool) -> str:
    """The kind that is meant; BadInput before any work is done."""
    kind = {"md": MARKDOWN}.get(to, to)
    if kind not in (OPENCODE, MARKDOWN):
        try:
            kind = wire_named(to).name
        except BadInput:
            cause = f"nothing can be written as {to!r}; there are: {', '.join(_KINDS)}"
            raise BadInput(cause) from None
    elif only_wire:
        raise BadInput(f"--view and --request are for a wire: --to {', '.join(WIRES)}")
    if output != STANDARD_OUTPUT:
        check_output(output, force=force)
    return kind


def _data(
    transcript: Transcript, kind: str, shown: tuple[PromptMessage, ...] | None, *, request: bool
) -> bytes:
    if kind == OPENCODE:
        return encode_transcript(transcript)
    if kind == MARKDOWN:
        return markdown(transcript).encode("utf-8", "replace")
    if request:
        whole = whole_view(transcript.messages) if shown is None else shown
        return encode(request_body(whole, transcript.info, kind))
    if shown is None:
        return encode(wire_messages(transcript, kind))
    return encode(wire_view(shown, transcript.info, kind))


def _write(transcript: Transcript, data: bytes, kind: str, output: str, *, json: bool) -> None:
    if output == STANDARD_OUTPUT:
        (write_text if kind == MARKDOWN else write_json)(data)
        return
    write_file(output, data)
    name, messages = transcript.info.id, len(transcript.messages)
    if json:
        show_json({"id": name, "path": output, "messages": messages, "size": len(data)})
    else:
        told = f"{number(messages, 'message')}, {size_text(len(data))}"
        show(words(f"Wrote session {name} to {output}: {told}.", most=1_000))


def write_text(data: bytes) -> None:
    """Print lines of text as they are; where a terminal reads them, without what steers it."""
    if sys.stdout.isatty():
        lines = data.decode().split("\n")
        data = "\n".join(harmless_line(line) for line in lines).encode("utf-8", "replace")
    write_bytes(data)


def write_json(data: bytes) -> None:
    """Print JSON as it is; what steers a terminal is escaped where one reads it."""
    if sys.stdout.isatty():
        data = escaped(data.decode()).encode()
    write_bytes(data + b"\n")


def write_bytes(data: bytes) -> None:
    """Print bytes unchanged."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_file(path: str, data: bytes) -> None:
    """Write a private file; BadInput names it where it cannot be written."""
    try:
        write_private(path, data)
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot be written: {cause}", source=harmless(path)) from None


def check_output(path: str, *, force: bool) -> None:
    """Refuse what is there, before any work is done."""
    if Path(path).is_dir():
        raise BadInput("this is a folder, not a file", source=harmless(path))
    if not force and os.path.lexists(path):
        cause = "the file is there already; give another one, or --force to overwrite it"
        raise BadInput(cause, source=harmless(path))
