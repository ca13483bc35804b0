"""What one digest told, the next ones carry on."""

from foldmark.digest.digest import digest
from foldmark.digest.previous import read_summary
from foldmark.log.log import Log
from foldmark.model.messages import Message
from foldmark.tokens.counters import by_classes
from tests.support.digest_sessions import answer, assistant, call, digested, section, user

FIRST = (
    user("Oil the wheel, and mind the gear_box"),
    assistant(
        "We use oil instead of grease because of the cold.",
        call("edit", "ok", filePath="src/mill/wheel.py", newString="gear_ratio = 2 # as asked for"),
        call("bash", "ValueError: no gear_box", status=1, command="python turn_wheel.py"),
        call("todowrite", todos=[{"content": "Oil the hinge_pin", "status": "pending"}]),
        call("grep", "src/door.py: the hinge_pin must be made of brass", pattern="hinge"),
    ),
)
SECOND = (answer("Oiled."), user("Paint the door"), assistant(call("bash", "ok", command="ls -la")))
THIRD = (answer("Painted."), user("Open the mill"), assistant("Opening the sluice_gate now."))


def chain(*rounds: tuple[Message, ...], room: int = 1_500) -> list[str]:
    """The digest after each round, made of the one before and what came since."""
    log = Log(by_classes)
    texts, since = [""], 0
    for messages in rounds:
        for message in messages:
            log.append(message)
        places = range(since, len(log))
        texts.append(digest(log, places, room, previous=texts[-1]))
        since = len(log)
    return texts[1:]


def test_every_account_is_still_there_after_three_pivots() -> None:
    first, _, third = chain(FIRST, SECOND, THIRD)
    assert section(first, "Requests") == ["- open (h0): Oil the wheel, and mind the gear_box"]
    assert section(third, "Requests") == [
        "- answered (h0): Oil the wheel, and mind the gear_box",
        "- answered (h7): Paint the door",
        "- open (ha): Open the mill",
    ]
    for line in (
        "- We use oil instead of grease because of the cold. (h1)",
        "- src/mill/wheel.py — changed (h2): gear_ratio = 2 # as asked for",
        "- failed (h3): python turn_wheel.py → ValueError: no gear_box",
        "- [ ] Oil the hinge_pin",
        "  src/door.py: the hinge_pin must be made of brass",
    ):
        assert line in first.split("\n")
        assert line in third.split("\n")
    assert "sluice_gate" in third


def test_accounts_go_on_where_they_were_left() -> None:
    again = (
        assistant(
            call("edit", "ok", filePath="src/mill/wheel.py", newString="gear_ratio = 4 # and more"),
            call("bash", "fine", command="python turn_wheel.py"),
        ),
    )
    _, second = chain(FIRST, again)
    assert "src/mill/wheel.py — changed 2 times (h6): gear_ratio = 4 # and more" in second
    assert "- failed, then ok (h7): python turn_wheel.py" in second


def test_reading_a_digest_back_gives_its_accounts() -> None:
    (text,) = chain(FIRST)
    told = read_summary(text)
    assert [held.path for held in told.files] == ["src/mill/wheel.py"]
    assert told.files[0].changes == 1
    assert [held.text for held in told.requests] == ["Oil the wheel, and mind the gear_box"]
    assert told.plan == ("[ ] Oil the hinge_pin",)
    assert {held.command: held.failed for held in told.runs}["python turn_wheel.py"]
    assert "## " not in "".join(held.text for held in told.passages)


def test_standing_instructions_are_carried_on() -> None:
    rule = "- Never open the sluice at night."
    previous = f"[Digest of 3 messages]\n\n## Standing instructions\n{rule}"
    again = digested(user("Go on"), previous=previous)
    assert rule in section(digested(user("Go on"), previous=again), "Standing instructions")


def test_the_summary_of_a_model_is_carried_on_as_lines() -> None:
    summary = (
        "# Summary\n\nThe mill runs on gear_box, which must be oiled daily.\n\n## Next\nNothing."
    )
    text = digested(user("Go on"), assistant("Yes."), previous=summary)
    assert "The mill runs on gear_box, which must be oiled daily." in text
    assert "Nothing." in text


def test_lines_under_a_heading_like_ours_are_kept_though_they_are_no_accounts() -> None:
    summary = (
        "## Files\n- gear_box.py holds the whole gear_box\n## Commands and searches\n- none ran"
    )
    text = digested(user("Go on"), assistant("Yes."), previous=summary)
    assert section(text, "Notes")[1:] == ["  gear_box.py holds the whole gear_box", "  none ran"]


def test_a_line_that_only_looks_like_an_account_is_harmless() -> None:
    odd = (
        "## Files\n- nonsense\n  turn_gear is what it says here\n## Requests\n- (h0) x\n## Plan\n- "
    )
    assert "[Digest of" in digested(user("Go on"), previous=odd)


def test_names_of_which_no_line_is_known_stay_names() -> None:
    text = digested(user("Go on"), previous="## Also named\n- gear_box, hinge_pin, sluice_gate")
    assert section(text, "Notes") == []
    assert sorted(section(text, "Also named")[0][2:].split(", ")) == [
        "gear_box",
        "hinge_pin",
        "sluice_gate",
    ]
