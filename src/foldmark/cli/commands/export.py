"""`foldmark export` and `foldmark convert`: write a session or transcript in another format."""

from dataclasses import dataclass

from foldmark.errors import BadInput
from foldmark.files import size_text
from foldmark.log.view import Viewer
from foldmark.model.messages import Transcript
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.transcripts.write_api import request_body, whole_view, wire_messages, wire_view
from foldmark.transcripts.write_markdown import markdown
from foldmark.wire.codec import WIRES, codec_named

from ..groups import flag, option
from ..layout import (
    FORCE,
    STANDARD_OUTPUT,
    answer,
    check_output,
    safe_text,
    write_file,
    write_json,
    write_text,
)
from ..options import POLICY, AsJson, File, ReadOptions, SessionName, StoreOptions, policy_named
from ..text import number

OPENCODE, MARKDOWN = "opencode", "markdown"
_KINDS = (OPENCODE, *WIRES, MARKDOWN)


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The format of the output, and where to write it."""

    to: str = option("--to FORMAT", f"Output format: {', '.join(_KINDS)}.", default=OPENCODE)
    view: bool = flag("--view", "API formats only: write what the model sees, not everything.")
    request: bool = flag(
        "--request",
        "API formats only: write a request body, with the system prompt and the tools if known.",
    )
    output: str = option(
        "-o --output FILE",
        "Write to a file that only you can read; - writes to standard output.",
        default=STANDARD_OUTPUT,
    )
    force: bool = flag(*FORCE)

    def kind(self) -> str:
        """The name of the output format. Raises BadInput if it or the output file is unusable."""
        kind = {"md": MARKDOWN}.get(self.to, self.to)
        if kind not in (OPENCODE, MARKDOWN):
            try:
                kind = codec_named(self.to).name
            except BadInput:
                cause = f"cannot write the format {self.to!r}; choose one of {', '.join(_KINDS)}"
                raise BadInput(cause) from None
        elif self.view or self.request:
            choices = ", ".join(WIRES)
            raise BadInput(f"--view and --request need an API format; give --to with {choices}")
        if self.output != STANDARD_OUTPUT:
            check_output(self.output, force=self.force)
        return kind


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(WriteOptions):
    """The format of the output, and the policy for --view."""

    policy: str = option(*POLICY, default=FOLDMARK.name)


def export(session: SessionName, *, writing: WriteOptions, options: StoreOptions) -> None:
    """Write a whole session in the format of `opencode export`, in an API format, or as Markdown.

    Example: foldmark export latest --to anthropic -o messages.json
    """
    kind = writing.kind()
    with options.session(session) as (opened, _, _):
        transcript = opened.export(reverted=kind == OPENCODE)
        view = opened.view().messages if writing.view else None
    _write(transcript, view, kind, writing, json=options.json)


def convert(
    file: File, *, writing: ConvertOptions, reading: ReadOptions, json: AsJson = False
) -> None:
    """Write a transcript in another format, without a store.

    Example: foldmark convert session.jsonl --to openai-chat
    """
    kind = writing.kind()
    rules = policy_named(writing.policy)
    transcript, log = reading.open(file, rules)
    view = Viewer(log, rules).view().messages if writing.view else None
    _write(transcript, view, kind, writing, json=json)


def _write(
    transcript: Transcript,
    view: tuple[PromptMessage, ...] | None,
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
        whole = whole_view(transcript.messages) if view is None else view
        data = encode(request_body(whole, info, kind))
    elif view is None:
        data = encode(wire_messages(transcript, kind))
    else:
        data = encode(wire_view(view, info, kind))
    if writing.output == STANDARD_OUTPUT:
        (write_text if kind == MARKDOWN else write_json)(data)
        return
    write_file(writing.output, data)
    messages = len(transcript.messages)
    figures = {"id": info.id, "path": writing.output, "messages": messages, "size": len(data)}
    amount = f"{number(messages, 'message')}, {size_text(len(data))}"
    line = safe_text(f"Wrote session {info.id} to {writing.output}: {amount}.", limit=1_000)
    answer(figures, line, json=json)
