"""`foldmark.fit`: any list in, one that fits out. FOLDMARK_EXAMPLES=10000 looks harder."""

import random
from typing import Any, cast

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
from tests.support.effort import examples
from tests.support.list_checks import check_pairs, size

EXAMPLES = examples(50, 200)
WORDS = ("the", "mill", "wheel", "turns", "slowly", "water", "runs", "under", "stone", "bridge")


def said(rng: random.Random, most: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))


def shown_step(rng: random.Random, number: int) -> list[Any]:
    """One to four calls, and their results."""
    names = [f"call_{number}_{place}" for place in range(rng.randint(1, 4))]
    given = {"path": f"mill/{number % 7}.py"}
    calls = [Call(tool_call_id=name, tool_name="read", input=given) for name in names]
    words = [Text(text=said(rng, 20))] if rng.random() < 0.5 else []
    results = [
        Result(
            tool_call_id=name,
            tool_name="read",
            output=Output(type="text", value=said(rng, rng.choice([5, 60, 400]))),
        )
        for name in names
    ]
    return [AssistantMessage(content=(*words, *calls)), ToolMessage(content=tuple(results))]


def talk(rng: random.Random, wire: str, steps: int) -> list[Any]:
    shown: list[Any] = []
    for number in range(steps):
        if not shown or rng.random() < 0.3:
            if shown:
                shown.append(AssistantMessage(content=(Text(text=said(rng, 30)),)))
            shown.append(UserMessage(content=(Text(text=f"Request {number}: {said(rng, 40)}"),)))
        shown += shown_step(rng, number)
    codec = codec_named(wire)
    prompt = codec.system("Be brief.") if rng.random() < 0.5 else []
    return [*prompt, *codec.write(shown, as_is=False)]


def room(window: int) -> int:
    return window - min(window // 4, 32_000)


@pytest.mark.parametrize("wire", WIRES)
def test_a_list_that_fits_comes_back_as_the_very_same(wire: str) -> None:
    messages = talk(random.Random(1), wire, 12)  # noqa: S311 - no secrets here
    assert foldmark.fit(messages, 200_000) is messages
    assert foldmark.fit(messages, 200_000, api=wire) is messages
    assert foldmark.fit([], 10) == []


@pytest.mark.parametrize("wire", WIRES)
def test_any_list_fits_and_its_calls_keep_their_results(wire: str) -> None:
    rng = random.Random(2)  # noqa: S311 - no secrets here
    shortened = 0
    for _ in range(EXAMPLES):
        messages = talk(rng, wire, int(80 ** rng.random()))
        window = int(1_500 * 20 ** rng.random())
        before = [dict(message) for message in messages]
        made = foldmark.fit(messages, window)
        assert messages == before
        assert size(made, wire) < room(window)
        check_pairs(made, wire)
        assert foldmark.fit(made, window) is made
        shortened += made is not messages
    assert shortened > EXAMPLES // 4


@pytest.mark.parametrize("wire", WIRES)
def test_what_stays_is_the_object_that_came(wire: str) -> None:
    messages = talk(random.Random(3), wire, 80)  # noqa: S311 - no secrets here
    made = foldmark.fit(messages, 16_000)
    kept = {id(message) for message in messages} & {id(message) for message in made}
    assert made[-1] is messages[-1]
    assert len(made) // 4 < len(kept) < len(messages)


def test_each_request_begins_with_the_one_before_until_it_must_be_cut_anew() -> None:
    messages = talk(random.Random(4), "openai-chat", 400)  # noqa: S311 - no secrets here
    roles = [message["role"] for message in messages]
    steps = [end for end in range(3, len(roles)) if roles[end - 1] == "tool" != roles[end]]
    cuts, before = 0, list[Any]()
    for end in steps:
        made = foldmark.fit(messages[:end], 16_000)
        cuts += made[: len(before)] != before
        before = made
    assert 0 < cuts < len(steps) / 6


def test_what_the_user_said_survives() -> None:
    rng = random.Random(5)  # noqa: S311 - no secrets here
    messages = [{"role": "user", "content": "Mend the sluice. Never touch the dam."}]
    messages += talk(rng, "openai-chat", 60)[1:]
    messages += [{"role": "assistant", "content": "Done."}]
    messages += [{"role": "user", "content": "Now oil all seventeen gears."}]
    codec = codec_named("openai-chat")
    for number in range(200, 260):
        messages += codec.write(shown_step(rng, number), as_is=False)
        told = str(foldmark.fit(messages, 8_000))
        assert "Mend the sluice. Never touch the dam." in told
        assert "Now oil all seventeen gears." in told


def test_a_huge_output_is_cut_in_its_middle() -> None:
    messages = talk(random.Random(6), "anthropic", 3)  # noqa: S311 - no secrets here
    codec = codec_named("anthropic")
    call = Call(tool_call_id="big", tool_name="read", input={})
    output = Output(type="text", value="BEGIN " + "mill " * 90_000 + " END")
    result = Result(tool_call_id="big", tool_name="read", output=output)
    step = (AssistantMessage(content=(call,)), ToolMessage(content=(result,)))
    messages += codec.write(step, as_is=False)
    made = foldmark.fit(messages, 10_000)
    assert size(made, "anthropic") < 7_500
    assert "BEGIN mill" in str(made[-1])
    assert "mill  END" in str(made[-1])
    check_pairs(made, "anthropic")


@pytest.mark.parametrize("wire", WIRES)
def test_lists_with_open_calls_and_lost_results_are_mended(wire: str) -> None:
    rng = random.Random(8)  # noqa: S311 - no secrets here
    for _ in range(EXAMPLES // 4):
        messages = talk(rng, wire, 40)
        for _ in range(rng.randint(1, 4)):
            del messages[rng.randrange(1, len(messages))]
        made = foldmark.fit(messages, 6_000, api=wire)
        assert made is not messages
        assert size(made, wire) < room(6_000)
        check_pairs(made, wire)


def test_the_window_is_known_by_the_models_name() -> None:
    messages = talk(random.Random(9), "openai-chat", 60)  # noqa: S311 - no secrets here
    assert foldmark.fit(messages, model="anthropic:claude-sonnet-4-5") is messages
    assert foldmark.fit(messages, 9_000, model="nobody:knows") is not messages
    with pytest.raises(foldmark.UnknownModel):
        foldmark.fit(messages, model="nobody:knows")
    with pytest.raises(foldmark.BadInput, match="pass window="):
        foldmark.fit(messages)


def test_the_system_prompt_and_the_tools_are_counted() -> None:
    messages = talk(random.Random(10), "anthropic", 8)  # noqa: S311 - no secrets here
    window = (size(messages, "anthropic") + 40) * 4 // 3
    assert foldmark.fit(messages, window) is messages
    assert foldmark.fit(messages, window, system="Be brief. " * 50) is not messages
    tool = {"name": "read", "description": "Reads. " * 60, "input_schema": {"type": "object"}}
    assert foldmark.fit(messages, window, tools=[tool]) is not messages


def test_what_cannot_fit_is_told_with_its_figures() -> None:
    with pytest.raises(foldmark.WindowTooSmall) as told:
        foldmark.fit([{"role": "user", "content": "mill " * 4_000}], 2_000)
    assert told.value.usable == 1_500
    assert told.value.fixed > 3_000


def test_a_tool_loop_in_the_middle_of_much_talk_keeps_its_pairs() -> None:
    said_so = [
        {"role": "user", "content": "mill " * 60},
        {"role": "assistant", "content": "so " * 60},
    ]
    for wire in WIRES[:3]:
        codec, rng = codec_named(wire), random.Random(11)  # noqa: S311 - no secrets here
        loop = [held for number in range(40) for held in shown_step(rng, number)]
        messages = [*said_so * 3, *codec.write(loop, as_is=False), *said_so * 15]
        for end in range(len(messages), len(messages) - 24, -2):
            made = foldmark.fit(messages[:end], 9_000)
            check_pairs(made, wire)
            assert size(made, wire) < room(9_000)


def test_a_result_that_leads_the_list_is_mended() -> None:
    for prompt in ([], [{"role": "system", "content": "Be brief."}]):
        lost = {"role": "tool", "tool_call_id": "z", "content": "mill " * 9_000}
        made = foldmark.fit([*prompt, lost, {"role": "user", "content": "a"}], 4_000)
        check_pairs(made, "openai-chat")
        assert size(made, "openai-chat") < 3_000


def test_objects_whose_role_is_their_kind_are_read_as_such() -> None:
    contents: list[Any] = []
    for number in range(60):
        call = types.FunctionCall(id=f"c{number}", name="read", args={})
        result = types.FunctionResponse(
            id=f"c{number}", name="read", response={"output": "mill " * 200}
        )
        contents.append(types.ModelContent(parts=[types.Part(function_call=call)]))
        contents.append(types.UserContent(parts=[types.Part(function_response=result)]))
    made = foldmark.fit(contents, 6_000)
    assert made[-1] is contents[-1]
    check_pairs(made, "gemini")
    assert (
        sum(
            bool(MessageScanner(made, codec_named("gemini"), by_classes).at(n).calls)
            for n in range(len(made))
        )
        > 2
    )


def test_instructions_in_between_and_long_open_requests_survive() -> None:
    rng = random.Random(12)  # noqa: S311 - no secrets here
    request = "\n".join(f"item {number} of the list" for number in range(600))
    messages: list[Any] = [{"role": "user", "content": "Begin."}]
    messages += [{"role": "assistant", "content": "I do."}]
    messages += [{"role": "system", "content": "From here on, speak as a miller."}]
    messages += [{"role": "user", "content": request}]
    for number in range(120):
        messages += codec_named("openai-chat").write(shown_step(rng, number), as_is=False)
    made = foldmark.fit(messages, 24_000)
    assert "speak as a miller" in str(made)
    assert all(f"item {number} of" in made[0]["content"] for number in range(600))
    assert size(made, "openai-chat") < room(24_000)


def test_the_newest_message_may_take_almost_all_of_the_room() -> None:
    old = [{"role": "user", "content": "mill " * 400}, {"role": "assistant", "content": "Yes."}]
    newest = {"role": "user", "content": "wheel " * 2_820}
    assert 2_800 < size([newest], "openai-chat") < 2_950
    made = foldmark.fit([*old, newest], 4_000)
    assert "left out" in made[0]["content"]
    assert "wheel wheel" in made[0]["content"]
    assert size(made, "openai-chat") < 3_000


def test_a_picture_that_is_left_out_is_told() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "x"},
    }
    steps: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Look."}, picture]}]
    for number in range(40):
        call: dict[str, Any] = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [picture]}
        steps += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    made = foldmark.fit(steps, 4_000)
    assert "[a file that is left out]" in str(made[0])
    assert "0 B" not in str(made)
    check_pairs(made, "anthropic")


def test_room_for_the_answer_is_what_is_asked_for() -> None:
    messages = talk(random.Random(13), "openai-chat", 200)  # noqa: S311 - no secrets here
    sizes = [
        size(foldmark.fit(messages, 30_000, output=output), "openai-chat")
        for output in (2_000, 20_000)
    ]
    assert sizes[1] < 10_000 < sizes[0] < 28_000


def test_mistakes_are_told_in_one_line() -> None:
    wrong: tuple[Any, ...] = ({}, None, "text", iter([]))
    for messages in wrong:
        with pytest.raises(foldmark.BadInput, match="messages must be a list"):
            foldmark.fit(messages, 100)
    with pytest.raises(foldmark.BadInput, match="window must be a positive number of tokens, not 'a'"):
        foldmark.fit([], window=cast("Any", "a"))
    with pytest.raises(foldmark.BadInput, match="window must be a positive number of tokens, not 0"):
        foldmark.fit([], 0)
    long = [
        {"role": "user", "content": "mill " * 900},
        {"role": "assistant", "content": "Yes."},
    ] * 8
    assert foldmark.fit(long, 4_000, tools=None, model=None, system=[{"text": "Be brief."}]) != long


def test_calls_of_another_kind_are_counted() -> None:
    def step(number: int) -> list[dict[str, Any]]:
        patch = f"*** change {number}: " + "wheel turns, " * 300
        custom = {"name": "apply_patch", "input": patch}
        call = {"id": f"c{number}", "type": "custom", "custom": custom}
        return [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "ok"},
        ]

    messages = [{"role": "user", "content": "Mend it"}, *(m for n in range(30) for m in step(n))]
    assert size(messages, "openai-chat") > 20_000
    fitted = foldmark.fit(messages, window=8_000, api="openai-chat")
    assert fitted is not messages
    assert size(fitted, "openai-chat") <= room(8_000)
    check_pairs(fitted, "openai-chat")


def test_objects_inside_of_calls_are_no_problem() -> None:
    messages: list[Any] = [{"role": "user", "content": "Mend it"}]
    for number in range(60):
        call = Function(name="read", arguments='{"path": "mill.py"}')
        made = {"id": f"c{number}", "type": "function", "function": call}
        messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
        said = "the wheel turns " * 100
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": said})
    fitted = foldmark.fit(messages, window=8_000)
    assert len(fitted) < len(messages)


def test_thoughts_that_only_their_provider_can_read_are_counted() -> None:
    items: list[Any] = [{"role": "user", "content": "Go."}]
    for number in range(40):
        thought: dict[str, Any] = {"type": "reasoning", "id": f"r{number}", "summary": []}
        items.append({**thought, "encrypted_content": "A" * 5_000})
        call = {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}
        items += [call, {"type": "function_call_output", "call_id": f"c{number}", "output": "ok"}]
    assert foldmark.fit(items, 20_000) is not items
    assert foldmark.fit(items, 80_000) is items


def test_what_is_known_by_its_head_is_what_all_of_it_says() -> None:
    rng = random.Random(14)  # noqa: S311 - no secrets here
    letters = ["a", "ab ", "Z9", " ", "\n", "\t", "{,}", "é", "漢", "\ud800", "word " * 3]
    by_head, sizes = 0, set[bool]()
    for _ in range(EXAMPLES * 10):
        chosen = rng.sample(letters, rng.randint(1, 3))
        text = "".join(rng.choices(chosen, k=int(4_000 ** rng.random())))
        text += rng.choice(["", " " * rng.randint(1, 20_000)])
        told, tokens = small_or_more(text), by_classes(text)
        assert told == tokens or 60 < told < tokens
        by_head += told != tokens
        sizes.add(tokens > 60)
    assert by_head > EXAMPLES
    assert sizes == {False, True}


@pytest.mark.parametrize("lines", [1, 4, 12, 60])
def test_old_outputs_are_left_out_only_where_they_are_long(lines: int) -> None:
    output = "\n".join(f"the wheel of mill {line} turns" for line in range(lines))
    messages: list[Any] = [{"role": "user", "content": "Look at all mills."}]
    for number in range(400):
        function = {"name": "read", "arguments": f'{{"path":"mill/{number}.py"}}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": output})
    made = foldmark.fit(messages, 16_000)
    told = {message["content"] for message in made if message["role"] == "tool"}
    note = f"[{len(output) / 1000:.1f} kB, {lines} lines of output left out]"
    short = f"[{len(output)} B, {lines} lines of output left out]"
    left_out = [note if len(output) >= 1_000 else short] if by_classes(output) > 60 else []
    assert told == {output, *left_out}
