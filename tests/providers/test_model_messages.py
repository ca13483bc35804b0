"""Models that a program brings along: what they are asked in pydantic-ai's own messages."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from pydantic_ai import ModelMessage, ModelResponse
from pydantic_ai import ModelRequest as ProviderRequest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    ToolDeclaration,
    Media,
    Output,
    PromptMessage,
    Reasoning,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.providers.calls import ProviderModel
from foldmark.providers.requests import model_messages
from foldmark.summary.protocol import ModelFailure, ModelReply, ModelRequest

PIXEL = "data:image/png;base64,iVBORw0KGgo="
SIGNED = {"anthropic": {"signature": "sig"}, "google": {"thoughtSignature": "c2ln"}}


def said(*blocks: Text | Media) -> UserMessage:
    return UserMessage(content=blocks)


def result(kind: str = "text", *files: Media) -> ToolMessage:
    output = Output(type=kind, value="out")
    return ToolMessage(
        content=(Result(tool_call_id="t1", tool_name="bash", output=output, attachments=files),)
    )


def only(message: PromptMessage, system: str = "openai") -> ModelMessage:
    (found,) = model_messages(ModelRequest(messages=(message,)), system)
    return found


def content(message: UserMessage) -> object:
    found = only(message)
    assert isinstance(found, ProviderRequest)
    (part,) = found.parts
    assert isinstance(part, UserPromptPart)
    return part.content


def parts(message: AssistantMessage, system: str = "openai") -> list[object]:
    found = only(message, system)
    assert isinstance(found, ModelResponse)
    return list(found.parts)


def returned(message: ToolMessage, system: str) -> ToolReturnPart:
    found = only(message, system)
    assert isinstance(found, ProviderRequest)
    part = found.parts[0]
    assert isinstance(part, ToolReturnPart)
    return part


def test_words_are_a_text_and_files_that_can_be_read_are_files() -> None:
    assert content(said(Text(text="hi"))) == "hi"
    inline = Media(data=PIXEL, media_type="image/png")
    linked = Media(data="https://example.org/a.png", media_type="image/png")
    assert content(said(Text(text="see"), inline, linked)) == [
        "see",
        BinaryContent(data=b"\x89PNG\r\n\x1a\n",
                      media_type="image/png"),
        ImageUrl(url="https://example.org/a.png"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("data:video/x;base64,AAAA", "video/x"),
        ("data:image/png;base64,&&&", "image/png"),
        ("/home/me/a.pdf", "application/pdf"),
        ("", "image/png"),
    ],
)
def test_files_that_cannot_be_read_are_notes(data: str, kind: str) -> None:
    file = Media(data=data, media_type=kind, filename="a.x")
    assert content(said(file)) == f"[A file of type {kind}: a.x]"


def test_thinking_goes_back_to_who_signed_it_and_to_nobody_else() -> None:
    thought = AssistantMessage(content=(Reasoning(text="hm", provider_options=SIGNED),))
    (signed,) = parts(thought, "anthropic")
    assert isinstance(signed, ThinkingPart)
    assert (signed.content, signed.signature) == ("hm", "sig")
    (note,) = parts(thought, "openai")
    assert isinstance(note, TextPart)
    (note,) = parts(AssistantMessage(content=(Reasoning(text="hm"),)), "anthropic")
    assert isinstance(note, TextPart)


def test_calls_have_names_that_providers_take_and_the_signature_of_google() -> None:
    call = Call(
        tool_call_id="x" * 90, tool_name="odd.name", input={"a": 1}, provider_options=SIGNED
    )
    (made,) = parts(AssistantMessage(content=(call,)), "google")
    assert isinstance(made, ToolCallPart)
    assert made.args == {"a": 1}
    assert made.tool_name.startswith("odd_name_")
    assert len(made.tool_call_id) == 64
    assert made.provider_details == {"thought_signature": "c2ln"}
    (other,) = parts(AssistantMessage(content=(call,)), "mistral")
    assert isinstance(other, ToolCallPart)
    assert other.provider_details is None


def test_results_say_that_they_are_errors_as_each_provider_is_told() -> None:
    assert returned(result(), "anthropic").outcome == "success"
    assert returned(result("error-text"), "anthropic").outcome == "failed"
    assert returned(result("error-text"), "groq").content == "out"
    assert returned(result("error-text"), "google").content == {"error": "out"}
    assert returned(result(), "google-cloud").content == {"output": "out"}


def test_files_of_a_result_follow_it() -> None:
    found = only(result("text", Media(data=PIXEL, media_type="image/png")))
    assert [type(part) for part in found.parts] == [ToolReturnPart, UserPromptPart]


# --- a program's own model ------------------------------------------------------------------------


def test_a_model_of_a_programs_own_is_asked_with_system_prompt_tools_and_a_limit() -> None:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def talk(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append((messages, info))
        yield "All "
        yield "done."

    tool = ToolDeclaration(name="bash", description="Runs", schema={"type": "object"})
    ask = ModelRequest(
        messages=(said(Text(text="Sum up")),), system="Be short.", tools=(tool,), max_tokens=77
    )
    pieces: list[str] = []
    model = ProviderModel(lambda: FunctionModel(stream_function=talk), "function:talk")
    answer = asyncio.run(model.ask(ask, pieces.append))
    assert isinstance(answer, ModelReply)
    assert (answer.text, answer.finish, pieces) == ("All done.", "stop", ["All ", "done."])
    ((messages, info),) = seen
    assert isinstance(messages[-1], ProviderRequest)
    assert messages[-1].instructions == "Be short."
    assert [declared.name for declared in info.function_tools] == ["bash"]
    settings = cast("dict[str, object]", info.model_settings)
    assert (settings["max_tokens"], settings["max_retries"]) == (77, 0)
    assert settings["tool_choice"] == "none"


def test_of_models_that_are_tried_one_after_the_other_the_last_error_counts() -> None:
    async def gone(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        raise ModelHTTPError(500, "first")
        yield ""

    async def long(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        raise ModelHTTPError(400, "second", {"message": "prompt is too long"})
        yield ""

    both = FallbackModel(FunctionModel(stream_function=gone), FunctionModel(stream_function=long))
    outcome = asyncio.run(
        ProviderModel(lambda: both, "both").ask(
            ModelRequest(messages=(said(Text(text="x")),)), lambda _: None
        )
    )
    assert outcome == ModelFailure(cause="overflow", message="400 prompt is too long")
