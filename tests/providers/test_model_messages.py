"""Requests in pydantic-ai's own messages: custom models, and providers without a codec."""

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
    Media,
    Output,
    PromptMessage,
    Reasoning,
    Result,
    Text,
    ToolDeclaration,
    ToolMessage,
    UserMessage,
)
from foldmark.providers.calls import ProviderModel
from foldmark.providers.requests import model_messages
from foldmark.summary.protocol import ModelFailure, ModelReply, ModelRequest

PIXEL = "data:image/png;base64,iVBORw0KGgo="
SIGNED = {"anthropic": {"signature": "sig"}, "google": {"thoughtSignature": "c2ln"}}


def user(*blocks: Text | Media) -> UserMessage:
    return UserMessage(content=blocks)


def result(kind: str = "text", *files: Media) -> ToolMessage:
    output = Output(type=kind, value="out")
    return ToolMessage(
        content=(Result(tool_call_id="t1", tool_name="bash", output=output, attachments=files),)
    )


def only(message: PromptMessage, system: str = "openai") -> ModelMessage:
    (converted,) = model_messages(ModelRequest(messages=(message,)), system)
    return converted


def content(message: UserMessage) -> object:
    converted = only(message)
    assert isinstance(converted, ProviderRequest)
    (part,) = converted.parts
    assert isinstance(part, UserPromptPart)
    return part.content


def parts(message: AssistantMessage, system: str = "openai") -> list[object]:
    converted = only(message, system)
    assert isinstance(converted, ModelResponse)
    return list(converted.parts)


def tool_return(message: ToolMessage, system: str) -> ToolReturnPart:
    converted = only(message, system)
    assert isinstance(converted, ProviderRequest)
    part = converted.parts[0]
    assert isinstance(part, ToolReturnPart)
    return part


def test_text_stays_text_and_supported_files_stay_files() -> None:
    assert content(user(Text(text="hi"))) == "hi"
    inline = Media(data=PIXEL, media_type="image/png")
    linked = Media(data="https://example.org/a.png", media_type="image/png")
    assert content(user(Text(text="see"), inline, linked)) == [
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
def test_unsupported_files_become_notes(data: str, kind: str) -> None:
    file = Media(data=data, media_type=kind, filename="a.x")
    assert content(user(file)) == f"[A file of type {kind}: a.x]"


def test_reasoning_returns_only_to_the_provider_that_signed_it() -> None:
    thought = AssistantMessage(content=(Reasoning(text="hm", provider_options=SIGNED),))
    (signed,) = parts(thought, "anthropic")
    assert isinstance(signed, ThinkingPart)
    assert (signed.content, signed.signature) == ("hm", "sig")
    (note,) = parts(thought, "openai")
    assert isinstance(note, TextPart)
    (note,) = parts(AssistantMessage(content=(Reasoning(text="hm"),)), "anthropic")
    assert isinstance(note, TextPart)


def test_calls_have_valid_names_and_googles_signature() -> None:
    call = Call(
        tool_call_id="x" * 90, tool_name="odd.name", input={"a": 1}, provider_options=SIGNED
    )
    (signed,) = parts(AssistantMessage(content=(call,)), "google")
    assert isinstance(signed, ToolCallPart)
    assert signed.args == {"a": 1}
    assert signed.tool_name.startswith("odd_name_")
    assert len(signed.tool_call_id) == 64
    assert signed.provider_details == {"thought_signature": "c2ln"}
    (other,) = parts(AssistantMessage(content=(call,)), "mistral")
    assert isinstance(other, ToolCallPart)
    assert other.provider_details is None


def test_error_results_are_marked_as_each_provider_expects() -> None:
    assert tool_return(result(), "anthropic").outcome == "success"
    assert tool_return(result("error-text"), "anthropic").outcome == "failed"
    assert tool_return(result("error-text"), "groq").content == "out"
    assert tool_return(result("error-text"), "google").content == {"error": "out"}
    assert tool_return(result(), "google-cloud").content == {"output": "out"}


def test_files_of_a_result_follow_it() -> None:
    message = only(result("text", Media(data=PIXEL, media_type="image/png")))
    assert [type(part) for part in message.parts] == [ToolReturnPart, UserPromptPart]


# --- custom models --------------------------------------------------------------------------------


def test_a_custom_model_gets_the_system_prompt_tools_and_token_limit() -> None:
    requests: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def talk(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        requests.append((messages, info))
        yield "All "
        yield "done."

    tool = ToolDeclaration(name="bash", description="Runs", schema={"type": "object"})
    ask = ModelRequest(
        messages=(user(Text(text="Sum up")),), system="Be short.", tools=(tool,), max_tokens=77
    )
    pieces: list[str] = []
    model = ProviderModel(lambda: FunctionModel(stream_function=talk), "function:talk")
    answer = asyncio.run(model.ask(ask, pieces.append))
    assert isinstance(answer, ModelReply)
    assert (answer.text, answer.finish, pieces) == ("All done.", "stop", ["All ", "done."])
    ((messages, info),) = requests
    assert isinstance(messages[-1], ProviderRequest)
    assert messages[-1].instructions == "Be short."
    assert [tool.name for tool in info.function_tools] == ["bash"]
    settings = cast("dict[str, object]", info.model_settings)
    assert (settings["max_tokens"], settings["max_retries"]) == (77, 0)
    assert settings["tool_choice"] == "none"


def test_the_last_error_of_a_fallback_model_counts() -> None:
    async def unavailable(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        raise ModelHTTPError(500, "first")
        yield ""

    async def long(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        raise ModelHTTPError(400, "second", {"message": "prompt is too long"})
        yield ""

    both = FallbackModel(
        FunctionModel(stream_function=unavailable), FunctionModel(stream_function=long)
    )
    request = ModelRequest(messages=(user(Text(text="x")),))
    outcome = asyncio.run(ProviderModel(lambda: both, "both").ask(request, lambda _: None))
    assert outcome == ModelFailure(cause="overflow", message="400 prompt is too long")
