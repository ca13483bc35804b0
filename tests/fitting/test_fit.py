"""`foldmark.fit`: any list in, one that fits out. FOLDMARK_EXAMPLES=10000 tries more lists."""

from random import Random
from typing import Any

import pytest
from google.genai import types
from openai.types.chat.chat_completion_message_function_tool_call import Function

import foldmark
from foldmark.fitting.fit import small_or_more
from foldmark.fitting.scan import MessageScanner
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Output,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.tokens.counters import by_classes
from foldmark.wire.codec import WIRES, codec_named
from tests.support.chat_messages import call as chat_call
from tests.support.chat_messages import calling, said, tool, user
from tests.support.effort import examples
from tests.support.list_checks import check_pairs, size

EXAMPLES = examples(50, 200)
CHAT = "openai-chat"
WORDS = ("the", "test", "server", "fails", "slowly", "cache", "runs", "under", "heavy", "load")


def sentence(rng: Random, limit: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, limit)))


def random_step(rng: Random, number: int) -> list[Any]:
    """One to four calls, and their results."""
    names = [f"call_{number}_{offset}" for offset in range(rng.randint(1, 4))]
    path = {"path": f"src/{number % 7}.py"}
    calls = [Call(tool_call_id=name, tool_name="read", input=path) for name in names]
    texts = [Text(text=sentence(rng, 20))] if rng.random() < 0.5 else []
    outputs = [sentence(rng, rng.choice([5, 60, 400])) for _ in names]
    results = [
        Result(tool_call_id=name, tool_name="read", output=Output(type="text", value=output))
        for name, output in zip(names, outputs, strict=True)
    ]
    return [AssistantMessage(content=(*texts, *calls)), ToolMessage(content=tuple(results))]


def conversation(seed: int | Random, api: str, steps: int) -> list[Any]:
    rng = Random(seed) if isinstance(seed, int) else seed  # noqa: S311 - no secrets here
    messages: list[Any] = []
    for number in range(steps):
        if not messages or rng.random() < 0.3:
            if messages:
                messages.append(AssistantMessage(content=(Text(text=sentence(rng, 30)),)))
            text = f"Request {number}: {sentence(rng, 40)}"
            messages.append(UserMessage(content=(Text(text=text),)))
        messages += random_step(rng, number)
    codec = codec_named(api)
    prompt = codec.system("Be brief.") if rng.random() < 0.5 else []
    return [*prompt, *codec.write(messages, as_is=False)]


def check_fit(messages: list[Any], window: int, api: str) -> None:
    """The messages leave a quarter of the window free, and calls have their results."""
    assert size(messages, api) < window - min(window // 4, 32_000)
    check_pairs(messages, api)


@pytest.mark.parametrize("api", WIRES)
def test_a_list_that_fits_comes_back_as_the_very_same(api: str) -> None:
    messages = conversation(1, api, 12)
    assert foldmark.fit(messages, 200_000) is messages
    assert foldmark.fit(messages, 200_000, api=api) is messages
    assert foldmark.fit([], 10) == []


@pytest.mark.parametrize("api", WIRES)
def test_any_list_fits_and_its_calls_keep_their_results(api: str) -> None:
    rng = Random(2)  # noqa: S311 - no secrets here
    shortened = 0
    for _ in range(EXAMPLES):
        messages = conversation(rng, api, int(80 ** rng.random()))
        window = int(1_500 * 20 ** rng.random())
        before = [dict(message) for message in messages]
        fitted = foldmark.fit(messages, window)
        assert messages == before
        check_fit(fitted, window, api)
        assert foldmark.fit(fitted, window) is fitted
        shortened += fitted is not messages
    assert shortened > EXAMPLES // 4


@pytest.mark.parametrize("api", WIRES)
def test_messages_that_stay_are_the_same_objects(api: str) -> None:
    messages = conversation(3, api, 80)
    fitted = foldmark.fit(messages, 16_000)
    same = {id(message) for message in messages} & {id(message) for message in fitted}
    assert fitted[-1] is messages[-1]
    assert len(fitted) // 4 < len(same) < len(messages)


def test_each_request_begins_with_the_one_before_until_the_cut_moves() -> None:
    messages = conversation(4, CHAT, 400)
    roles = [message["role"] for message in messages]
    ends = [end for end in range(3, len(roles)) if roles[end - 1] == "tool" != roles[end]]
    cuts, before = 0, list[Any]()
    for end in ends:
        fitted = foldmark.fit(messages[:end], 16_000)
        cuts += fitted[: len(before)] != before
        before = fitted
    assert 0 < cuts < len(ends) / 6


def test_the_first_and_the_open_request_survive() -> None:
    rng = Random(5)  # noqa: S311 - no secrets here
    first, last = "Fix the login. Never touch main.", "Now rename all seventeen fields."
    messages = [user(first), *conversation(rng, CHAT, 60)[1:], said("Done."), user(last)]
    for number in range(200, 260):
        messages += codec_named(CHAT).write(random_step(rng, number), as_is=False)
        text = str(foldmark.fit(messages, 8_000))
        assert first in text
        assert last in text


def test_a_huge_output_is_truncated_in_the_middle() -> None:
    big = f"BEGIN {'line ' * 90_000} END"
    call: dict[str, Any] = {"type": "tool_use", "id": "big", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "big", "content": big}
    step = {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}
    messages = [*conversation(6, "anthropic", 3), *step]
    fitted = foldmark.fit(messages, 10_000)
    check_fit(fitted, 10_000, "anthropic")
    assert "BEGIN line" in str(fitted[-1])
    assert "line  END" in str(fitted[-1])


@pytest.mark.parametrize("api", WIRES)
def test_lists_with_open_calls_and_lost_results_are_repaired(api: str) -> None:
    rng = Random(8)  # noqa: S311 - no secrets here
    for _ in range(EXAMPLES // 4):
        messages = conversation(rng, api, 40)
        for _ in range(rng.randint(1, 4)):
            del messages[rng.randrange(1, len(messages))]
        fitted = foldmark.fit(messages, 6_000, api=api)
        assert fitted is not messages
        check_fit(fitted, 6_000, api)


def test_the_window_is_known_by_the_models_name() -> None:
    messages = conversation(9, CHAT, 60)
    assert foldmark.fit(messages, model="anthropic:claude-sonnet-4-5") is messages
    assert foldmark.fit(messages, 9_000, model="nobody:knows") is not messages
    with pytest.raises(foldmark.UnknownModel):
        foldmark.fit(messages, model="nobody:knows")


def test_the_system_prompt_and_the_tools_are_counted() -> None:
    messages = conversation(10, "anthropic", 8)
    window = (size(messages, "anthropic") + 40) * 4 // 3
    assert foldmark.fit(messages, window, model=None, tools=None) is messages
    prompt = "Be brief. " * 50
    for system in (prompt, [{"text": prompt}]):
        assert foldmark.fit(messages, window, system=system) is not messages
    read = {"name": "read", "description": "Reads. " * 60, "input_schema": {"type": "object"}}
    assert foldmark.fit(messages, window, tools=[read]) is not messages


def test_a_window_that_is_too_small_is_an_error_with_figures() -> None:
    with pytest.raises(foldmark.WindowTooSmall) as error:
        foldmark.fit([user("line " * 4_000)], 2_000)
    assert error.value.usable == 1_500
    assert error.value.fixed > 3_000


def test_a_tool_loop_in_the_middle_of_a_long_chat_keeps_its_pairs() -> None:
    chat = [user("line " * 60), said("so " * 60)]
    for api in WIRES[:3]:
        rng = Random(11)  # noqa: S311 - no secrets here
        loop = [message for number in range(40) for message in random_step(rng, number)]
        messages = [*chat * 3, *codec_named(api).write(loop, as_is=False), *chat * 15]
        for end in range(len(messages), len(messages) - 24, -2):
            check_fit(foldmark.fit(messages[:end], 9_000), 9_000, api)


@pytest.mark.parametrize("prompt", [[], [{"role": "system", "content": "Be brief."}]])
def test_a_result_at_the_start_of_the_list_is_repaired(prompt: list[Any]) -> None:
    lost = {"role": "tool", "tool_call_id": "z", "content": "line " * 9_000}
    check_fit(foldmark.fit([*prompt, lost, user("a")], 4_000), 4_000, CHAT)


def test_sdk_objects_with_a_class_for_each_role_are_read() -> None:
    contents: list[Any] = []
    for number in range(60):
        call = types.FunctionCall(id=f"c{number}", name="read", args={})
        output = {"output": "line " * 200}
        result = types.FunctionResponse(id=f"c{number}", name="read", response=output)
        contents.append(types.ModelContent(parts=[types.Part(function_call=call)]))
        contents.append(types.UserContent(parts=[types.Part(function_response=result)]))
    fitted = foldmark.fit(contents, 6_000)
    assert fitted[-1] is contents[-1]
    check_pairs(fitted, "gemini")
    scanner = MessageScanner(fitted, codec_named("gemini"), by_classes)
    assert sum(bool(scanner.at(index).calls) for index in range(len(fitted))) > 2


def test_system_prompts_in_between_and_long_open_requests_survive() -> None:
    rng = Random(12)  # noqa: S311 - no secrets here
    request = "\n".join(f"item {number} of the list" for number in range(600))
    instruction = {"role": "system", "content": "From here on, answer as a reviewer."}
    messages = [user("Begin."), said("I do."), instruction, user(request)]
    for number in range(120):
        messages += codec_named(CHAT).write(random_step(rng, number), as_is=False)
    fitted = foldmark.fit(messages, 24_000)
    assert "answer as a reviewer" in str(fitted)
    assert all(f"item {number} of" in fitted[0]["content"] for number in range(600))
    check_fit(fitted, 24_000, CHAT)


def test_the_newest_message_may_take_almost_the_whole_budget() -> None:
    newest = user("order " * 2_820)
    assert 2_800 < size([newest], CHAT) < 2_950
    fitted = foldmark.fit([user("line " * 400), said("Yes."), newest], 4_000)
    assert "left out" in fitted[0]["content"]
    assert "order order" in fitted[0]["content"]
    check_fit(fitted, 4_000, CHAT)


def test_an_omitted_image_leaves_a_note() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "x"}
    image = {"type": "image", "source": source}
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Look."}, image]}]
    for number in range(40):
        call: dict[str, Any] = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [image]}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    fitted = foldmark.fit(messages, 4_000)
    assert "[a file that is left out]" in str(fitted[0])
    assert "0 B" not in str(fitted)
    check_pairs(fitted, "anthropic")


def test_the_output_argument_reserves_tokens_for_the_said() -> None:
    messages = conversation(13, CHAT, 200)
    large, small = (
        size(foldmark.fit(messages, 30_000, output=output), CHAT) for output in (2_000, 20_000)
    )
    assert small < 10_000 < large < 28_000


WRONG_LISTS: tuple[Any, ...] = ({}, None, "text", iter([]))


@pytest.mark.parametrize(
    ("messages", "window", "message"),
    [
        *((wrong, 100, "messages must be a list") for wrong in WRONG_LISTS),
        ([], "a", "window must be a positive number of tokens, not 'a'"),
        ([], 0, "window must be a positive number of tokens, not 0"),
        ([], None, "pass window="),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(messages: Any, window: Any, message: str) -> None:
    with pytest.raises(foldmark.BadInput, match=message):
        foldmark.fit(messages, window)


def test_calls_of_custom_tools_are_counted() -> None:
    messages = [user("Fix it")]
    for number in range(30):
        patch = f"*** change {number}: " + "order moved, " * 300
        custom = {"name": "apply_patch", "input": patch}
        call = {"id": f"c{number}", "type": "custom", "custom": custom}
        messages += [calling(call), tool(f"c{number}", "ok")]
    assert size(messages, CHAT) > 20_000
    fitted = foldmark.fit(messages, window=8_000, api=CHAT)
    assert fitted is not messages
    check_fit(fitted, 8_000, CHAT)


def test_calls_may_contain_sdk_objects() -> None:
    function = Function(name="read", arguments='{"path": "app.py"}')
    messages = [user("Fix it")]
    for number in range(60):
        call = chat_call(f"c{number}", function=function)
        messages += [calling(call), tool(f"c{number}", "the test fails " * 100)]
    assert len(foldmark.fit(messages, window=8_000)) < len(messages)


def test_encrypted_reasoning_is_counted() -> None:
    items: list[Any] = [user("Go.")]
    for number in range(40):
        reasoning: dict[str, Any] = {"type": "reasoning", "id": f"r{number}", "summary": []}
        items.append({**reasoning, "encrypted_content": "A" * 5_000})
        call = {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}
        items += [call, {"type": "function_call_output", "call_id": f"c{number}", "output": "ok"}]
    assert foldmark.fit(items, 20_000) is not items
    assert foldmark.fit(items, 80_000) is items


def test_the_head_of_a_text_never_makes_it_larger_than_it_is() -> None:
    rng = Random(14)  # noqa: S311 - no secrets here
    letters = ["a", "ab ", "Z9", " ", "\n", "\t", "{,}", "é", "漢", "\ud800", "word " * 3]
    by_head, sizes = 0, set[bool]()
    for _ in range(EXAMPLES * 10):
        chosen = rng.sample(letters, rng.randint(1, 3))
        text = "".join(rng.choices(chosen, k=int(4_000 ** rng.random())))
        text += rng.choice(["", " " * rng.randint(1, 20_000)])
        rough, tokens = small_or_more(text), by_classes(text)
        assert rough == tokens or 60 < rough < tokens
        by_head += rough != tokens
        sizes.add(tokens > 60)
    assert by_head > EXAMPLES
    assert sizes == {False, True}


@pytest.mark.parametrize("lines", [1, 4, 12, 60])
def test_old_outputs_are_left_out_only_if_they_are_long(lines: int) -> None:
    output = "\n".join(f"the test of file {line} fails" for line in range(lines))
    messages = [user("Look at all files.")]
    for number in range(400):
        call = chat_call(f"c{number}", f'{{"path":"src/{number}.py"}}')
        messages += [calling(call), tool(f"c{number}", output)]
    fitted = foldmark.fit(messages, 16_000)
    outputs = {message["content"] for message in fitted if message["role"] == "tool"}
    length = f"{len(output) / 1000:.1f} kB" if len(output) >= 1_000 else f"{len(output)} B"
    note = f"[{length}, {lines} lines of output left out]"
    assert outputs == {output, *([note] if by_classes(output) > 60 else [])}
