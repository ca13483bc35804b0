"""OpenCode's own answers, recorded from its real code, under the preset `opencode`."""

from collections.abc import Callable
from typing import Any

from foldmark.compaction.fold import session_fold
from foldmark.compaction.pivot import MessageIds, marker_message, summary_message
from foldmark.compaction.prune import prune_plan
from foldmark.compaction.tail import Fold
from foldmark.log.log import Log
from foldmark.log.view import Viewer, view_indexes
from foldmark.model.messages import Message, TextPart, Tokens, UserInfo
from foldmark.model.values import from_plain
from foldmark.policy import OPENCODE, Policy
from foldmark.tokens.budget import is_overflow, usable, used
from foldmark.tokens.counters import round4
from foldmark.tokens.limits import Limit

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


def test_the_filtered_history_is_opencodes(vectors: Vectors) -> None:
    for case in vectors("filter_compacted"):
        log = log_of(case["history"])
        places = view_indexes(log, OPENCODE.view)
        assert [log.entries[place].message.id for place in places] == case["filtered"], case


def test_the_newest_finished_answer_is_opencodes(vectors: Vectors) -> None:
    for case in vectors("filter_compacted"):
        log = log_of(case["history"])
        shown = view_indexes(log, OPENCODE.view)
        finished = None if log.finished is None else log.entries[log.finished].message.id
        assert (finished if log.finished in shown else None) == case["latest"].get("finished"), case


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
            found = _folded(messages, policy, overflow=bool(step["overflow"]))
            assert found.tail_start == step.get("tail_start_id"), step
            tails += found.tail_start is not None
    assert tails


def test_the_view_after_a_pivot_is_opencodes(vectors: Vectors) -> None:
    replays = 0
    for case in vectors("process"):
        policy = OPENCODE.adjusted(tail_tokens=case["config"].get("preserve_recent_tokens"))
        stream: list[Message] = []
        for step in case["steps"]:
            known = {message.id for message in stream}
            stream += [
                from_plain(m, Message) for m in step["input"] if m["info"]["id"] not in known
            ]
            found = _folded(stream[:-1], policy, overflow=bool(step["overflow"]))
            replays += found.replay is not None
            if found.replay is not None:
                assert found.replay not in list(found.history)
            made = MessageIds(session="s", message=step["filtered"][1], part="p", at=1)
            last = Message(info=UserInfo(id=step["filtered"][-1]), parts=(TextPart(text="Go on"),))
            marker = marker_message(
                MessageIds(session="s", message=step["parentID"], part="p", at=1),
                auto=True,
                tail_start=found.tail_start,
            )
            stream = [*stream[:-1], marker, summary_message(made, "Done.", marker=marker.id), last]
            log = Log(round4, stream)
            shown = [log.entries[place].message.id for place in view_indexes(log, policy.view)]
            assert shown == step["filtered"]
    assert replays


def _folded(messages: list[Message], policy: Policy, *, overflow: bool) -> Fold:
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
    return {
        "id": tool["id"],
        "type": "tool",
        "tool": tool["tool"],
        "callID": tool["id"],
        "state": state,
    }
