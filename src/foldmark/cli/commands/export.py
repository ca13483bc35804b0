"""`foldmark export` and `foldmark convert`: a session, or a transcript, as others read it."""

from dataclasses import dataclass

from foldmark.errors import BadInput
from foldmark.files import size_text
from foldmark.log.view import Viewer
from foldmark.model.messages import Transcript
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import encode
from foldmark.policy import PRESETS
from foldmark.transcripts.write_markdown import markdown
from foldmark.transcripts.write_wires import request_body, whole_view, wire_messages, wire_view
from foldmark.wire.codec import WIRES, wire_named

from ..groups import flag, option
from ..layout import (
    FORCE,
    STANDARD_OUTPUT,
    answer,
    check_output,
    words,
    write_file,
    write_json,
    write_text,
)
from ..options import (
    DEFAULT_POLICY,
    AsJson,
    File,
    ReadOptions,
    SessionName,
    StoreOptions,
    policy_named,
)
from ..text import number

OPENCODE, MARKDOWN = "opencode", "markdown"
_KINDS = (OPENCODE, *WIRES, MARKDOWN)


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """As what a session is written, and where."""

    to: str = option("--to KIND", f"One of {', '.join(_KINDS)}.", default=OPENCODE)
    view: bool = flag("--view", "On a wire: what the model is shown, not the whole session.")
    request: bool = flag(
        "--request",
        "On a wire: a request's body, with the system prompt and the tools if they are known.",
    )
    output: str = option(
        "-o --output FILE",
        "Write it to a file that only you may read; - is standard output.",
        default=STANDARD_OUTPUT,
    )
    force: bool = flag(*FORCE)

    def kind(self) -> str:
        """The kind that is meant; BadInput before any work is done."""
        kind = {"md": MARKDOWN}.get(self.to, self.to)
        if kind not in (OPENCODE, MARKDOWN):
            try:
                kind = wire_named(self.to).name
            except BadInput:
                cause = f"nothing can be written as {self.to!r}; there are: {', '.join(_KINDS)}"
                raise BadInput(cause) from None
        elif self.view or self.request:
            raise BadInput(f"--view and --request are for a wire: --to {', '.join(WIRES)}")
        if self.output != STANDARD_OUTPUT:
            check_output(self.output, force=self.force)
        return kind


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(WriteOptions):
    """As what a transcript is written, and by which policy it is shown."""

    policy: str = option("--policy NAME", f"One of {', '.join(PRESETS)}.", default=DEFAULT_POLICY)


def export(session: SessionName, *, writing: WriteOptions, options: StoreOptions) -> None:
    """Write a session whole: as `opencode export` does, as a wire's messages, or as Markdown.

    Example: foldmark export latest --to anthropic -o messages.json
    """
    kind = writing.kind()
    with options.session(session) as (opened, _, _):
        transcript = opened.export(reverted=kind == OPENCODE)
        shown = opened.view().messages if writing.view else None
    _write(transcript, shown, kind, writing, json=options.json)


def convert(
    file: File,
    *,
    writing: ConvertOptions,
    reading: ReadOptions,
    json: AsJson = False,
) -> None:
    """Write a transcript of any format in another one, without a store.

    Example: foldmark convert session.jsonl --to openai-chat
    """
    kind = writing.kind()
    rules = policy_named(writing.policy)
    transcript, log = reading.open(file, rules)
    shown = Viewer(log, rules).view().messages if writing.view else None
    _write(transcript, shown, kind, writing, json=json)


def _write(
    transcript: Transcript,
    shown: tuple[PromptMessage, ...] | None,
    kind: str,
    writing: WriteOptions,
    *,
    json: bool,
) -> None:
    info = transcript.info
    if kind == MARKDOWN:
        data = markdown(transcript).encode("utf-8", "replace")
    elif kind == OPENCODE:
        data = encode(transcript)
    elif writing.request:
        whole = whole_view(transcript.messages) if shown is None else shown
        data = encode(request_body(whole, info, kind))
    elif shown is None:
        data = encode(wire_messages(transcript, kind))
    else:
        data = encode(wire_view(shown, info, kind))
    if writing.output == STANDARD_OUTPUT:
        (write_text if kind == MARKDOWN else write_json)(data)
        return
    write_file(writing.output, data)
    messages = len(transcript.messages)
    figures = {"id": info.id, "path": writing.output, "messages": messages, "size": len(data)}
    told = f"{number(messages, 'message')}, {size_text(len(data))}"
    line = words(f"Wrote session {info.id} to {writing.output}: {told}.", most=1_000)
    answer(figures, line, json=json)
