"""The preset `opencode` gives the same results as OpenCode's own code, which were recorded."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from foldmark.compaction.fold import session_fold
from foldmark.compaction.prune import prune_plan
from foldmark.compaction.tail import Fold
from foldmark.log.log import Log
from foldmark.log.view import Viewer, view_indexes
from foldmark.model.messages import Message, Tokens
from foldmark.model.values import from_plain
from foldmark.policy import OPENCODE, Policy
from foldmark.tokens.budget import is_overflow, usable, used
from foldmark.tokens.counters import round4
from foldmark.tokens.limits import Limit
from tests.support.messages import marker, said, user

Vectors = Callable[[str], Any]


def log_of(messages: list[Any]) -> Log:
    return Log(round4, [from_plain(message, Message) for message in messages])


def test_tokens_are_estimated_as_opencode_does(vectors: Vectors) -> None:
    for case in vectors("token_estimate"):
        assert round4(case["s"]) == case["tokens"]


def test_usable_and_overflow_are_opencodes(vectors: Vectors) -> None:
    for case in vectors("overflow"):
        own = case["cfg"].get("compaction", {})
        policy = OPENCODE.adjusted(
            auto=own.get("auto"), reserved=own.get("reserved"), output_cap=case["outputTokenMax"]
        )
        limit = Limit(**case["limit"])
        count = used(from_plain(case["tokens"], Tokens), policy.window)
        assert usable(policy, limit) == case["usable"], case
        assert is_overflow(policy, count, limit) is case["isOverflow"], case


def visible_ids(log: Log, policy: Policy) -> list[str]:
    return [log.entries[index].message.id for index in view_indexes(log, policy.view)]


def test_the_filtered_history_is_opencodes(vectors: Vectors) -> None:
    for case in vectors("filter_compacted"):
        assert visible_ids(log_of(case["history"]), OPENCODE) == case["filtered"], case


def test_the_newest_finished_answer_is_opencodes(vectors: Vectors) -> None:
    for case in vectors("filter_compacted"):
        log = log_of(case["history"])
        is_visible = log.finished in view_indexes(log, OPENCODE.view)
        finished = log.entries[log.finished or 0].message.id if is_visible else None
        assert finished == case["latest"].get("finished"), case


def test_pruned_parts_are_opencodes(vectors: Vectors) -> None:
    pruned_any = False
    for case in vectors("prune"):
        log = log_of([_with_tools(message) for message in case["messages"]])
        plan = prune_plan(log, OPENCODE.prune)
        assert {decision.part for decision in plan.prune} == set(case["pruned"]), case
        pruned_any |= bool(case["pruned"])
    assert pruned_any


def test_tails_and_replays_are_opencodes(vectors: Vectors) -> None:
    tails = 0
    for case in vectors("process"):
        policy = OPENCODE.adjusted(tail_tokens=case["config"].get("preserve_recent_tokens"))
        for step in case["steps"]:
            before, marker = step["input"][:-1], step["input"][-1]
            assert marker["info"]["id"] == step["parentID"]
            messages = [from_plain(message, Message) for message in before]
            fold = _fold(messages, policy, overflow=bool(step["overflow"]))
            assert fold.tail_start == step.get("tail_start_id"), step
            tails += fold.tail_start is not None
    assert tails


def test_the_view_after_a_pivot_is_opencodes(vectors: Vectors) -> None:
    replays = 0
    for case in vectors("process"):
        policy = OPENCODE.adjusted(tail_tokens=case["config"].get("preserve_recent_tokens"))
        stream: list[Message] = []
        for step in case["steps"]:
            ids = {message.id for message in stream}
            messages = [from_plain(message, Message) for message in step["input"]]
            stream += [message for message in messages if message.id not in ids]
            fold = _fold(stream[:-1], policy, overflow=bool(step["overflow"]))
            if fold.replay is not None:
                replays += 1
                assert fold.replay not in list(fold.history)
            summary_id, last = step["filtered"][1], step["filtered"][-1]
            stream[-1:] = [
                marker(step["parentID"], tail_start_id=fold.tail_start or UNSET),
                said("Done.", summary_id, summary=True, parent_id=step["parentID"]),
                user("Go on", name=last),
            ]
            assert visible_ids(Log(round4, stream), policy) == step["filtered"]
    assert replays


def _fold(messages: list[Message], policy: Policy, *, overflow: bool) -> Fold:
    log = Log(round4, messages)
    return session_fold(Viewer(log, policy), 0, overflow=overflow)


def _with_tools(message: dict[str, Any]) -> dict[str, Any]:
    info = {"id": message["id"], "role": message["role"]}
    if message.get("summary"):
        info["summary"] = True
    return {"info": info, "parts": [_tool(tool) for tool in message.get("tools", [])]}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = {"status": tool["status"], "input": {}, "time": {"start": 1}}
    if tool["status"] == "completed":
        state |= {"output": "x" * tool["size"], "title": "", "metadata": {}}
        state["time"] |= {"end": 2} | ({"compacted": 3} if tool["compacted"] else {})
    if tool["status"] == "error":
        state["error"] = "x" * tool["size"]
    names = {"id": tool["id"], "callID": tool["id"], "tool": tool["tool"]}
    return {"type": "tool", "state": state, **names}
