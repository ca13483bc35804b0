"""The user's own text across a pivot: first request, standing instructions, open request."""

import pytest
from msgspec import UNSET

from foldmark.compaction.situation import CompactionRequest
from foldmark.log.carryover import HEADING, REPEATED
from foldmark.log.log import Log, ordinal_of
from foldmark.log.view import Viewer
from foldmark.model.messages import FilePart, Message, TextPart, UserInfo
from foldmark.model.prompt_messages import Media, Text
from foldmark.policy import FOLDMARK, PRESETS, Policy
from foldmark.session.in_memory import fit_view
from foldmark.tokens.counters import by_classes, counter, truncate_middle
from foldmark.tokens.limits import Limit
from tests.support.messages import marker, ran, reply, said, summary, user

ASKED = "What did we do so far?"
PIN = {"pin": True}


def worked(name: str = "a") -> Message:
    """A reply that is a call, so that the request stays open."""
    return reply(ran("done", name), name=name, finish="tool-calls")


def pivot(tail: str = "", name: str = "m") -> tuple[Message, Message]:
    return marker(name, tail_start_id=tail or UNSET), summary("SUMMARY", name)


def view_texts(*messages: Message, policy: Policy = FOLDMARK, usable: int = 0) -> list[str]:
    """The texts of the view; texts of one message are joined by a bar."""
    view = Viewer(Log(counter(policy.estimate), messages), policy, usable=usable).view()
    return [
        " | ".join(block.text for block in message.content if isinstance(block, Text))
        for message in view.messages
    ]


def of_tokens(tokens: int) -> str:
    """A text of exactly this many tokens."""
    text = ""
    while by_classes(text) < tokens:
        text += "word " * max(1, (tokens - by_classes(text)) // 2)
    while by_classes(text) > tokens:
        text = text[:-1]
    assert by_classes(text) == tokens
    return text


def carried(text: str) -> str:
    """The text of a marker with this section of the user's own text."""
    return f"{HEADING}\n\n{text}\n\n{ASKED}"


FIRST = carried("First request (answered):\nFix it.")
OPEN = carried("First request (open):\nFix it.")
HI = carried("First request (answered):\nHi.")
RULES = (
    f"{FIRST.removesuffix(ASKED)}Standing instructions:\n- Never push.\n- Always test.\n\n{ASKED}"
)
AGAIN = f"{REPEATED}\nFix it."
LONG = "Write docs. " * 3_000
FIX, FIXED = user("Fix it."), (user("Fix it."), said("Fixed."))
FIX_2, WORK = user("Fix it.", name="u2"), worked()
SYNTHETIC = user("Go on.", name="u2", synthetic=True)
HELLO = (user("Hi."), said("Hello."))
INSTRUCTIONS = (user("Never push.\nWhat is next?"), said(), user("Always test."), said())
TWICE = (*pivot(name="m1"), *HELLO, *pivot(name="m2"), *HELLO)
REPEATS = [message for _ in range(3) for message in (user("Always test."), said())]
# Messages before a pivot, the start of its tail, and the texts of the view around the summary.
VIEWS: dict[str, tuple[list[Message], str, str, list[str]]] = {
    "an answered first request": ([*FIXED], "", FIRST, []),
    "an open request before the last": ([FIX, WORK, *HELLO], "", OPEN, []),
    "a first request before three pivots": ([*FIXED, *TWICE], "", FIRST, []),
    "a first request in the tail": ([said(), FIX_2, said("Yes")], "u2", ASKED, ["Fix it.", "Yes"]),
    "a synthetic message first": ([SYNTHETIC, said(), *FIXED], "", FIRST, []),
    "a synthetic message alone": ([SYNTHETIC, said()], "", ASKED, []),
    "an open request": ([*FIXED, user(LONG), WORK], "", FIRST, [f"{REPEATED}\n{LONG}"]),
    "an open first request": ([FIX, WORK], "", ASKED, [AGAIN]),
    "a split turn": ([FIX, WORK, said("So", "a2", finish="")], "a2", ASKED, [AGAIN, "So"]),
    "an answered split turn": ([*HELLO, FIX, WORK, said("So", "a2")], "a2", HI, [AGAIN, "So"]),
    "a tail that is a turn": ([*HELLO, FIX_2, WORK], "u2", HI, ["Fix it.", "", ""]),
    "a synthetic tail": ([FIX, WORK, SYNTHETIC], "u2", ASKED, [f"{AGAIN} | Go on."]),
    "standing instructions": ([*FIXED, *INSTRUCTIONS], "", RULES, []),
}


@pytest.mark.parametrize(("messages", "tail", "first", "rest"), VIEWS.values(), ids=VIEWS)
def test_a_view_across_a_pivot_has_the_users_own_text(
    messages: list[Message], tail: str, first: str, rest: list[str]
) -> None:
    assert view_texts(*messages, *pivot(tail)) == [first, "SUMMARY", *rest]


# --- the first request ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "unanswered",
    [
        *([said("I am", finish=finish)] for finish in ("tool-calls", "length", "error", "")),
        [said("I am", error={"name": "APIError"}), *pivot(name="m1")],
    ],
)
def test_an_incomplete_or_failed_reply_or_a_summary_is_no_answer(unanswered: list[Message]) -> None:
    turns = (user("Fix it."), *unanswered, user("And?"), said("Done."))
    assert "First request (open):" in view_texts(*turns, *pivot())[0]


def test_an_answer_after_the_marker_does_not_change_the_text_before_it() -> None:
    log = Log(by_classes, [user("Fix it."), worked(), user("And?"), worked(), *pivot()])
    viewer = Viewer(log, FOLDMARK)
    before = viewer.view().messages
    log.append(said("Both are done."))
    assert viewer.view().messages[: len(before)] == before


def test_a_first_request_above_its_budget_is_truncated_and_names_its_handle() -> None:
    request = "begin " + "word " * 20_000 + "end"
    turns = (said("Hello."), user(request), said("Fixed."), *pivot())
    text = view_texts(*turns)[0]
    assert "First request (answered):\nbegin word" in text
    assert f"word end\n\n{ASKED}" in text
    assert by_classes(text) < 8_000 // 3 + 100
    ordinal = ordinal_of(text.partition("recall ")[2].split()[0])
    assert ordinal is not None
    position = Log(by_classes, turns).part_at(ordinal)
    assert position is not None
    assert position[0].message.parts[position[1]] == TextPart(text=request)


def test_in_a_small_window_the_users_text_has_a_quarter_of_the_budget() -> None:
    request = "word " * 2_000
    turns = (user(request), said("Fixed."), *pivot())
    assert request in view_texts(*turns)[0]
    assert request not in view_texts(*turns, usable=4_000)[0]
    assert by_classes(view_texts(*turns, usable=4_000)[0]) < 1_000


@pytest.mark.parametrize(("usable", "budget"), [(0, 2_666), (40_000, 2_666), (4_000, 333)])
def test_the_first_request_has_a_third_of_the_budget(usable: int, budget: int) -> None:
    def first(tokens: int) -> str:
        return view_texts(user(of_tokens(tokens)), said("Fixed."), *pivot(), usable=usable)[0]

    assert of_tokens(budget) in first(budget)
    assert of_tokens(budget + 1) not in first(budget + 1)


def test_a_truncated_text_fits_the_budget_and_says_how_much_is_left_out() -> None:
    request = of_tokens(5_000)
    text = truncate_middle(request, 600, by_classes, "h7")
    assert 500 < by_classes(text) <= 600
    head, _, rest = text.partition("\n[… ")
    note, _, tail = rest.partition(" …]\n")
    assert request.startswith(head)
    assert request.endswith(tail)
    assert note == f"{len(request) - len(head) - len(tail)} characters left out; recall h7"
    assert truncate_middle(request, 5_000, by_classes, "h7") == request
    dense = "A1B2" * 1_250 + "word " * 20_000 + "A1B2" * 1_250
    assert by_classes(truncate_middle(dense, 666, by_classes, "h7")) <= 666


def test_a_request_has_only_the_users_own_text_and_its_handle() -> None:
    parts = (TextPart(text="note", synthetic=True), TextPart(text=" "))
    request = Message(info=UserInfo(id="u"), parts=(*parts, TextPart(text="word " * 20_000)))
    text = view_texts(request, said("Fixed."), *pivot())[0]
    assert "recall h2 " in text
    assert "note" not in text
    both = Message(info=UserInfo(id="u"), parts=(TextPart(text="One."), TextPart(text="Two.")))
    assert "(answered):\nOne.\n\nTwo." in view_texts(both, said("Fixed."), *pivot())[0]


# --- standing instructions ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "text", "count"),
    [
        ([*FIXED, user("The port is 80.", metadata=PIN), said(), *pivot()], "- The port is 80.", 1),
        ([*FIXED, user("The port is 80."), said(), *pivot()], "Standing", 0),
        ([*FIXED, *REPEATS, *pivot()], "Always test.", 1),
        ([user("Fix it. Always test."), said(), *pivot()], "Always test.", 1),
        ([*FIXED, user("Always test.", name="u2"), said(), *pivot("u2")], "Standing", 0),
    ],
    ids=["pinned", "not pinned", "repeated", "in the first request", "in the tail"],
)
def test_a_standing_instruction_is_shown_once(
    messages: list[Message], text: str, count: int
) -> None:
    assert view_texts(*messages)[0].count(text) == count


def test_of_too_many_instructions_the_newest_stay() -> None:
    texts = (f"Always do number {number} {'of it ' * 8}." for number in range(400))
    many = [message for text in texts for message in (user(text), said())]
    text = view_texts(*FIXED, *many, *pivot())[0]
    assert "number 399 " in text
    assert "number 0 " not in text
    assert text.index("number 398 ") < text.index("number 399 ")
    assert by_classes(text) < 8_000


# --- the open request -----------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "is_whole"), [(2_666, True), (2_667, False)])
def test_the_answered_request_of_a_split_turn_is_truncated_to_its_budget(
    tokens: int, *, is_whole: bool
) -> None:
    turns = (*HELLO, user(of_tokens(tokens)), worked(), said("Fixed.", "a2"))
    text = view_texts(*turns, *pivot("a2"))[2]
    assert text.startswith(f"{REPEATED}\nword word")
    assert (of_tokens(tokens) in text) is is_whole


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "foldmark"])
def test_the_presets_of_the_spec_carry_no_user_text(name: str) -> None:
    turns = (user("Fix it. Never push."), said("Fixed."), user("And this."), worked())
    assert view_texts(*turns, *pivot(), policy=PRESETS[name]) == [ASKED, "SUMMARY"]


def test_an_instruction_in_the_omitted_middle_of_the_first_request_is_kept() -> None:
    filler = "word " * 10_000
    request = f"Fix it.\n{filler}\nAlways run the tests.\n{filler}"
    assert "Always run the tests." in view_texts(user(request), said("Fixed."), *pivot())[0]


# --- files of the open request --------------------------------------------------------------

# One pixel; its tokens depend on its size.
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


def with_files(text: str, *names: str, mime: str = "image/png", url: str = PIXEL) -> Message:
    files = [FilePart(mime=mime, filename=name, url=url) for name in names]
    texts = (TextPart(text=text),) if text else ()
    return Message(info=UserInfo(id="u"), parts=(*texts, *files))


def file_names(*messages: Message, usable: int = 0) -> list[str | None]:
    log = Log(counter(FOLDMARK.estimate), messages)
    view = Viewer(log, FOLDMARK, usable=usable).view()
    blocks = [block for message in view.messages for block in message.content]
    return [block.filename for block in blocks if isinstance(block, Media)]


def test_images_stay_with_the_open_request() -> None:
    turns = (with_files("What is wrong here?", "a.png", "b.png"), worked(), *pivot())
    assert file_names(*turns) == ["a.png", "b.png"]
    assert f"{REPEATED}\nWhat is wrong here?" in view_texts(*turns)


def test_images_of_an_answered_request_are_not_shown() -> None:
    turns = (with_files("What is wrong here?", "a.png"), said("The login."), *pivot())
    assert file_names(*turns) == []


def test_an_image_above_the_budget_is_named_with_its_handle() -> None:
    turns = (with_files("What is wrong here?", "a.png"), worked(), *pivot())
    assert file_names(*turns, usable=400) == []
    repeated = view_texts(*turns, usable=400)[2]
    assert repeated == f"{REPEATED}\nWhat is wrong here?\n[Attached image/png: a.png; recall h1]"


def test_an_image_alone_is_a_request() -> None:
    turns = (user("First."), said("Done."), with_files("", "a.png"), worked(), *pivot())
    assert file_names(*turns) == ["a.png"]
    assert f"{REPEATED}\n[Attached image/png: a.png]" in view_texts(*turns)


def test_a_memory_has_the_files_of_the_newest_request_only() -> None:
    turns = (with_files("One", "a.png"), said("Done."), with_files("Two", "b.png"), worked())
    requests = Log(by_classes, turns).requests.memory(len(turns)).requests
    assert [(request.text, len(request.files)) for request in requests] == [("One", 0), ("Two", 1)]


def test_expanded_text_files_are_not_files_of_a_request() -> None:
    turns = (with_files("Read it", "a.txt", mime="text/plain", url="data:,x"), worked(), *pivot())
    assert file_names(*turns) == []
    assert "a.txt" not in "\n".join(view_texts(*turns))


def test_an_open_request_larger_than_the_requested_view_is_truncated() -> None:
    request = "Look at this: " + "the test fails. " * 2_000
    turns = [user(request), *(worked(f"a{number}") for number in range(9))]
    log = Log(counter(FOLDMARK.estimate), turns)
    viewer = Viewer(log, FOLDMARK, usable=100_000)
    fit_view(CompactionRequest(viewer=viewer, limit=Limit(context=120_000), target=2_000))
    text = str(viewer.view().messages)
    assert viewer.tokens <= 2_000
    assert "Look at this: the test fails." in text
    assert "characters left out; recall h0" in text
    assert request not in text
