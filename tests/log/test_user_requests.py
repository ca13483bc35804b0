"""The user's own words across a pivot: first request, standing instructions, open request."""

from typing import Any

import pytest
from msgspec import UNSET

from foldmark.compaction.situation import CompactionRequest
from foldmark.log.carryover import HEADING, REPEATED
from foldmark.log.log import Log, ordinal_of
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    CompactionPart,
    Completed,
    FilePart,
    Message,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.model.prompt_messages import Media, Text, UserMessage
from foldmark.policy import FOLDMARK, PRESETS, Policy
from foldmark.session.in_memory import fit_view
from foldmark.tokens.counters import by_classes, counter, truncate_middle
from foldmark.tokens.limits import Limit

ASKED = "What did we do so far?"


def user(text: str, name: str = "u", **more: Any) -> Message:
    return Message(info=UserInfo(id=name), parts=(TextPart(text=text, **more),))


def said(text: str, name: str = "a", finish: str = "stop", **info: Any) -> Message:
    info |= {"id": name, "finish": finish}
    return Message(info=AssistantInfo(**info), parts=(TextPart(text=text),))


def worked(name: str = "a") -> Message:
    """An answer that is a call, so that more must follow."""
    part = ToolPart(tool="bash", call_id=name, state=Completed(input={}, output="done"))
    return Message(info=AssistantInfo(id=name, finish="tool-calls"), parts=(part,))


def pivot(tail: str | None = None, name: str = "m") -> list[Message]:
    part = CompactionPart(auto=True, tail_start_id=tail or UNSET)
    info = AssistantInfo(id=f"s-{name}", parent_id=name, summary=True, finish="stop")
    return [
        Message(info=UserInfo(id=name), parts=(part,)),
        Message(info=info, parts=(TextPart(text="SUMMARY"),)),
    ]


def shown(*messages: Message, policy: Policy = FOLDMARK, usable: int = 0) -> list[str]:
    """The texts of the view; those of the user in one message are joined by a bar."""
    view = Viewer(Log(counter(policy.estimate), messages), policy, usable=usable).view()
    return [
        " | ".join(block.text for block in message.content if isinstance(block, Text))
        for message in view.messages
    ]


def of_tokens(tokens: int) -> str:
    """A text of exactly so many tokens."""
    text = ""
    while by_classes(text) < tokens:
        text += "word " * max(1, (tokens - by_classes(text)) // 2)
    while by_classes(text) > tokens:
        text = text[:-1]
    assert by_classes(text) == tokens
    return text


def carried(text: str) -> str:
    """A section of the marker's message with the user's words in it."""
    return f"{HEADING}\n\n{text}\n\n{ASKED}"


# --- the first request ----------------------------------------------------------------------


def test_the_first_request_is_carried_along_and_marked_as_answered() -> None:
    lines = shown(user("Fix it."), said("Fixed."), *pivot(), user("Thanks."))
    assert lines == [carried("First request (answered):\nFix it."), "SUMMARY", "Thanks."]


def test_a_first_request_that_was_never_answered_is_marked_as_open() -> None:
    turns = (user("Fix it."), worked(), user("Fix this first."), said("Fixed."))
    assert shown(*turns, *pivot())[0] == carried("First request (open):\nFix it.")


@pytest.mark.parametrize("finish", ["tool-calls", "length", "error", ""])
def test_an_answer_that_was_cut_short_answers_nothing(finish: str) -> None:
    turns = (user("Fix it."), said("I am", finish=finish), user("And?"), said("Done."))
    assert "First request (open):" in shown(*turns, *pivot())[0]


def test_a_failed_answer_or_a_summary_answers_nothing() -> None:
    failed = said("I am", error={"name": "APIError"})
    turns = (user("Fix it."), failed, *pivot(name="m1"), user("And?"), said("Done."))
    assert "First request (open):" in shown(*turns, *pivot())[0]


def test_an_answer_after_the_marker_does_not_change_what_the_marker_says() -> None:
    turns = [user("Fix it."), worked(), user("And?"), worked(), *pivot()]
    log = Log(by_classes, turns)
    viewer = Viewer(log, FOLDMARK)
    before = viewer.view().messages
    log.append(said("Both are done."))
    assert viewer.view().messages[: len(before)] == before


def test_the_first_request_is_carried_over_every_later_pivot() -> None:
    later = (user("More."), said("Done."), *pivot(name="m2"), user("And more."), said("Done."))
    lines = shown(user("Fix it."), said("Fixed."), *pivot(name="m1"), *later, *pivot(name="m3"))
    assert lines == [carried("First request (answered):\nFix it."), "SUMMARY"]


def test_a_first_request_within_the_tail_is_not_repeated() -> None:
    lines = shown(said("Hello."), user("Fix it.", "u1"), said("Fixed."), *pivot("u1"))
    assert lines == [ASKED, "SUMMARY", "Fix it.", "Fixed."]


def test_what_the_program_wrote_in_the_users_place_is_no_request() -> None:
    turns = (user("Go on.", synthetic=True), said("Ok."), user("Fix it."), said("Fixed."))
    assert shown(*turns, *pivot())[0] == carried("First request (answered):\nFix it.")
    assert shown(user("Go on.", synthetic=True), said("Ok."), *pivot()) == [ASKED, "SUMMARY"]


def test_a_first_request_longer_than_its_room_is_cut_and_names_its_handle() -> None:
    request = "begin " + "word " * 20_000 + "end"
    turns = (said("Hello."), user(request), said("Fixed."), *pivot())
    text = shown(*turns)[0]
    assert "First request (answered):\nbegin word" in text
    assert f"word end\n\n{ASKED}" in text
    assert by_classes(text) < 8_000 // 3 + 100
    log = Log(by_classes, turns)
    ordinal = ordinal_of(text.partition("recall ")[2].split()[0])
    assert ordinal is not None
    found = log.part_at(ordinal)
    assert found is not None
    assert found[0].message.parts[found[1]] == TextPart(text=request)


def test_in_a_small_window_the_words_have_a_quarter_of_the_room() -> None:
    request = "word " * 2_000
    turns = (user(request), said("Fixed."), *pivot())
    assert request in shown(*turns)[0]
    assert request not in shown(*turns, usable=4_000)[0]
    assert by_classes(shown(*turns, usable=4_000)[0]) < 1_000


@pytest.mark.parametrize(("usable", "room"), [(0, 2_666), (40_000, 2_666), (4_000, 333)])
def test_the_first_request_has_a_third_of_the_room_for_words(usable: int, room: int) -> None:
    def first(tokens: int) -> str:
        return shown(user(of_tokens(tokens)), said("Fixed."), *pivot(), usable=usable)[0]

    assert of_tokens(room) in first(room)
    assert of_tokens(room + 1) not in first(room + 1)


def test_what_is_cut_fits_the_room_and_says_how_much_is_left_out() -> None:
    request = of_tokens(5_000)
    cut = truncate_middle(request, 600, by_classes, "h7")
    head, note, tail = cut.partition("\n[… ")[0], cut.partition("[… ")[2], cut.partition("…]\n")[2]
    assert 500 < by_classes(cut) <= 600
    assert request.startswith(head)
    assert request.endswith(tail)
    left_out = len(request) - len(head) - len(tail)
    assert note.startswith(f"{left_out} characters left out; recall h7 …]")
    assert truncate_middle(request, 5_000, by_classes, "h7") == request


def test_a_request_is_what_the_user_wrote_of_a_message_and_its_handle_leads_there() -> None:
    parts = (TextPart(text="note", synthetic=True), TextPart(text=" "))
    asked = Message(info=UserInfo(id="u"), parts=(*parts, TextPart(text="word " * 20_000)))
    text = shown(asked, said("Fixed."), *pivot())[0]
    assert "recall h2 " in text
    assert "note" not in text
    both = Message(info=UserInfo(id="u"), parts=(TextPart(text="One."), TextPart(text="Two.")))
    assert "(answered):\nOne.\n\nTwo." in shown(both, said("Fixed."), *pivot())[0]


# --- standing instructions ------------------------------------------------------------------


def test_standing_instructions_are_carried_along_in_their_order() -> None:
    turns = (
        *(user("Fix it."), said("Fixed.")),
        *(user("Never touch main.\nWhat is next?"), said("This.")),
        *(user("From now on, use tabs."), said("Ok.")),
    )
    assert shown(*turns, *pivot())[0] == carried(
        "First request (answered):\nFix it.\n\n"
        "Standing instructions:\n- Never touch main.\n- From now on, use tabs."
    )


def test_a_pinned_message_is_a_standing_instruction_whatever_it_says() -> None:
    turns = (user("Fix it."), said("Ok."), user("The port is 80.", metadata={"pin": True}))
    assert "Standing instructions:\n- The port is 80." in shown(*turns, said("Ok."), *pivot())[0]
    plain = (user("Fix it."), said("Ok."), user("The port is 80."))
    assert "Standing" not in shown(*plain, said("Ok."), *pivot())[0]


def test_an_instruction_is_said_once() -> None:
    again = [message for _ in range(3) for message in (user("Always test."), said("Ok."))]
    text = shown(user("Fix it."), said("Ok."), *again, *pivot())[0]
    assert text.count("Always test.") == 1
    text = shown(user("Fix it. Always test."), said("Ok."), *pivot())[0]
    assert text.count("Always test.") == 1


def test_an_instruction_within_the_tail_is_not_repeated() -> None:
    turns = (user("Fix it."), said("Ok."), user("Always test.", "u2"), said("Ok."))
    assert "Standing" not in shown(*turns, *pivot("u2"))[0]


def test_of_too_many_instructions_the_newest_stay() -> None:
    many = [
        message
        for number in range(400)
        for message in (user(f"Always do number {number} {'of it ' * 8}."), said("Ok."))
    ]
    text = shown(user("Fix it."), said("Ok."), *many, *pivot())[0]
    assert "number 399 " in text
    assert "number 0 " not in text
    assert text.index("number 398 ") < text.index("number 399 ")
    assert by_classes(text) < 8_000


# --- the open request -----------------------------------------------------------------------


def test_an_open_request_stands_after_the_summary_whole() -> None:
    request = "Now write the documentation. " * 3_000
    turns = (user("Fix it."), said("Fixed."), user(request), worked())
    lines = shown(*turns, *pivot())
    assert lines == [
        *(carried("First request (answered):\nFix it."), "SUMMARY"),
        f"{REPEATED}\n{request}",
    ]


def test_an_open_first_request_stands_after_the_summary_only() -> None:
    assert shown(user("Fix it."), worked(), *pivot()) == [
        *(ASKED, "SUMMARY"),
        f"{REPEATED}\nFix it.",
    ]


def test_where_all_is_answered_nothing_is_repeated() -> None:
    lines = shown(user("Fix it."), said("Fixed."), *pivot(), user("Thanks."))
    assert not any(REPEATED in text for text in lines)


def test_the_request_of_a_split_turn_is_repeated_before_the_rest_of_it() -> None:
    turns = (
        user("Fix it."),
        worked("a1"),
        said("Nearly.", "a2", finish="tool-calls"),
        worked("a3"),
    )
    lines = shown(*turns, *pivot("a2"))
    assert lines[:4] == [ASKED, "SUMMARY", f"{REPEATED}\nFix it.", "Nearly."]


def test_the_request_of_a_split_turn_is_repeated_even_if_it_was_answered() -> None:
    turns = (user("Hi."), said("Hello."), user("Fix it."), worked(), said("Fixed.", "a2"))
    lines = shown(*turns, *pivot("a2"))
    assert lines[2:] == [f"{REPEATED}\nFix it.", "Fixed."]


def test_a_request_of_a_split_turn_that_was_answered_is_cut_to_its_room() -> None:
    request = of_tokens(2_667)
    turns = (user("Hi."), said("Hello."), user(request), worked(), said("Fixed.", "a2"))
    text = shown(*turns, *pivot("a2"))[2]
    assert text.startswith(f"{REPEATED}\nword word")
    assert request not in text
    turns = (user("Hi."), said("Hello."), user(of_tokens(2_666)), worked(), said("Fixed.", "a2"))
    assert of_tokens(2_666) in shown(*turns, *pivot("a2"))[2]


def test_a_tail_that_begins_with_a_request_needs_no_repetition() -> None:
    turns = (user("Hi."), said("Hello."), user("Fix it.", "u2"), worked())
    assert shown(*turns, *pivot("u2"))[2] == "Fix it."


def test_an_open_request_is_repeated_before_a_tail_that_the_program_began() -> None:
    turns = (user("Fix it."), worked(), user("Go on.", "u2", synthetic=True), worked("a2"))
    assert shown(*turns, *pivot("u2"))[2] == f"{REPEATED}\nFix it. | Go on."


def test_an_open_request_keeps_the_roles_alternating_after_the_summary() -> None:
    log = Log(by_classes, [user("Fix it."), worked(), *pivot(), worked("a2")])
    roles = [isinstance(message, UserMessage) for message in Viewer(log, FOLDMARK).view().messages]
    assert roles[:4] == [True, False, True, False]


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "foldmark"])
def test_the_presets_of_the_spec_carry_no_words_along(name: str) -> None:
    turns = (user("Fix it. Never push."), said("Fixed."), user("And this."), worked())
    lines = shown(*turns, *pivot(), policy=PRESETS[name])
    assert lines == [ASKED, "SUMMARY"]


# --- not so yet -----------------------------------------------------------------------------


def test_an_instruction_within_what_is_cut_of_the_first_request_survives() -> None:
    filler = "word " * 10_000
    request = f"Fix it.\n{filler}\nAlways run the tests.\n{filler}"
    assert "Always run the tests." in shown(user(request), said("Fixed."), *pivot())[0]


def test_what_is_cut_fits_the_room_though_its_ends_are_dense() -> None:
    request = "A1B2" * 1_250 + "word " * 20_000 + "A1B2" * 1_250
    assert by_classes(truncate_middle(request, 666, by_classes, "h7")) <= 666


# --- its files ------------------------------------------------------------------------------

# One pixel; what it costs is told by its size.
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


def with_files(text: str, *names: str, mime: str = "image/png", url: str = PICTURE) -> Message:
    files = [FilePart(mime=mime, filename=name, url=url) for name in names]
    said_too = (TextPart(text=text),) if text else ()
    return Message(info=UserInfo(id="u"), parts=(*said_too, *files))


def shown_files(*messages: Message, usable: int = 0) -> list[str | None]:
    log = Log(counter(FOLDMARK.estimate), messages)
    view = Viewer(log, FOLDMARK, usable=usable).view()
    blocks = [block for message in view.messages for block in message.content]
    return [block.filename for block in blocks if isinstance(block, Media)]


def test_pictures_stay_with_the_open_request_that_asks_about_them() -> None:
    turns = (with_files("What is wrong here?", "a.png", "b.png"), worked(), *pivot())
    assert shown_files(*turns) == ["a.png", "b.png"]
    assert f"{REPEATED}\nWhat is wrong here?" in shown(*turns)


def test_pictures_of_an_answered_request_go_with_it() -> None:
    turns = (with_files("What is wrong here?", "a.png"), said("The wheel."), *pivot())
    assert shown_files(*turns) == []


def test_a_picture_that_is_too_large_is_named_with_its_handle() -> None:
    turns = (with_files("What is wrong here?", "a.png"), worked(), *pivot())
    assert shown_files(*turns, usable=400) == []
    bridged = shown(*turns, usable=400)[2]
    assert bridged == f"{REPEATED}\nWhat is wrong here?\n[Attached image/png: a.png; recall h1]"


def test_a_picture_alone_is_a_request() -> None:
    turns = (user("First."), said("Done."), with_files("", "a.png"), worked(), *pivot())
    assert shown_files(*turns) == ["a.png"]
    assert f"{REPEATED}\n[Attached image/png: a.png]" in shown(*turns)


def test_what_is_remembered_keeps_the_files_of_the_newest_request_alone() -> None:
    turns = (with_files("One", "a.png"), said("Done."), with_files("Two", "b.png"), worked())
    kept = Log(by_classes, turns).requests.memory(len(turns)).requests
    assert [(request.text, len(request.files)) for request in kept] == [("One", 0), ("Two", 1)]


def test_text_files_that_were_expanded_are_no_files_of_a_request() -> None:
    turns = (with_files("Read it", "a.txt", mime="text/plain", url="data:,x"), worked(), *pivot())
    assert shown_files(*turns) == []
    assert "a.txt" not in "\n".join(shown(*turns))


# --- in a view of a size that was asked for -------------------------------------------------


def test_an_open_request_that_is_larger_than_the_view_asked_for_is_cut_with_its_handle() -> None:
    asked = "Look at this: " + "the wheel turns. " * 2_000
    turns = [user(asked), *(worked(f"a{number}") for number in range(9))]
    log = Log(counter(FOLDMARK.estimate), turns)
    viewer = Viewer(log, FOLDMARK, usable=100_000)
    fit_view(CompactionRequest(viewer=viewer, limit=Limit(context=120_000), target=2_000))
    text = str(viewer.view().messages)
    assert viewer.tokens <= 2_000
    assert "Look at this: the wheel turns." in text
    assert "characters left out; recall h0" in text
    assert asked not in text
