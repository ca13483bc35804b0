"""The session that all are measured on: chat messages, ten a turn, results of 2 000 characters."""

from typing import Any

Message = dict[str, Any]

TURN = 10
RESULT = 2_000  # characters


def session(count: int) -> list[Message]:
    """A session of so many messages; no two of its results are equal."""
    messages: list[Message] = []
    for turn in range(-(-count // TURN)):
        messages.append({"role": "user", "content": f"Look at part {turn} and mend what is wrong."})
        for call in range(4):
            messages += step(turn * 4 + call)
        messages.append({"role": "assistant", "content": f"Part {turn} is mended, its tests pass."})
    return messages[:count]


def step(number: int) -> list[Message]:
    """One answer with one call, and the result of that."""
    call = f"call_{number:06d}"
    function = {"name": "read", "arguments": f'{{"path": "src/part_{number}.py", "limit": 40}}'}
    return [
        {
            "role": "assistant",
            "content": f"I read file {number}.",
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call, "content": _result(number)},
    ]


def _result(number: int) -> str:
    lines = [
        f"{line:3d}  def part_{number}_{line}(value): return value + {line}\n" for line in range(50)
    ]
    return "".join(lines)[:RESULT].ljust(RESULT, "#")
