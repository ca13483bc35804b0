"""The digest tells what was asked, planned, decided, changed and run, and keeps to its room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.digest.digest import SHORTEST, digest
from foldmark.log.log import Log
from foldmark.model.messages import Message
from foldmark.tokens.counters import Counter, by_classes, round4
from tests.support.digest_sessions import answer, assistant, broken, call, digested, section, user
from tests.support.session_strategies import sessions


def test_requests_are_verbatim_and_marked_as_answered_or_open() -> None:
    text = digested(
        user("Oil the wheel"), answer("Oiled."), user("Paint the door\nin green"), assistant("Yes.")
    )
    assert section(text, "Requests") == [
        "- answered (h0): Oil the wheel",
        "- open (h2): Paint the door",
        "  in green",
    ]


def test_a_long_request_is_cut_in_the_middle_with_its_handle() -> None:
    text = digested(user("begin " + "grind the corn " * 2_000 + "end"), assistant("Yes."))
    told = section(text, "Requests")
    assert told[0].startswith("- open (h0): begin grind")
    assert told[-1].endswith("end")
    assert any("recall h0" in line for line in told)


def test_a_request_that_stands_beside_is_not_repeated_whole() -> None:
    long = "Please oil the big wheel, and then the small one, and after that the door hinges. " * 3
    text = digested(user(long), assistant("Yes."), visible=[long])
    assert long.strip() not in text
    assert "- open (h0): Please oil the big wheel" in text


def test_a_long_request_takes_no_room_from_short_ones() -> None:
    short = (
        "Oil the wheel, then the hinges of both doors, and last of all the lock of the gate. " * 2
    )
    pasted = [user(f"<log {n}> " + "grind the corn " * 400) for n in range(6)]
    told = section(digested(user(short), answer("Done."), *pasted, room=1_200), "Requests")
    assert told[0] == f"- answered (h0): {short.strip()}"
    assert len([line for line in told if line.startswith("- ")]) == 7


def test_standing_instructions_are_told_unless_they_stand_beside() -> None:
    rule = "Never open the sluice at night."
    long = "Grind the corn of the village. " * 200
    messages = [user(f"{long}\n{rule}\n{long}"), assistant("Yes.")]
    assert section(digested(*messages, room=600), "Standing instructions") == [f"- {rule}"]
    assert section(digested(*messages, room=600, visible=[rule]), "Standing instructions") == []


def test_files_are_told_with_what_was_read_and_changed() -> None:
    text = digested(
        user("Oil the wheel"),
        assistant(
            call("read", "gear = 1", filePath="src/mill/wheel.py", offset=10, limit=20),
            call("read", "gear = 1", filePath="src/mill/wheel.py"),
            call("edit", "ok", filePath="src/mill/wheel.py", newString="gear_ratio = 2"),
            call("edit", "ok", filePath="src/mill/wheel.py", newString="gear_ratio = 3"),
            broken("edit", "no such text", filePath="src/mill/door.py", newString="x = 1"),
        ),
    )
    told = section(text, "Files")
    assert told[0] == (
        "- src/mill/wheel.py — read 10-30, all; changed 2 times (h4): gear_ratio = 3"
    )
    assert not any("door.py" in line for line in told)


def test_commands_are_told_with_their_outcome_and_the_telling_line() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py"\nValueError: no gear\n\n'
    text = digested(
        user("Test it"),
        assistant(
            call("bash", trace, status=1, command="python mill.py"),
            call("bash", "E   AssertionError: 2 != 3\n1 failed", status=1, command="pytest -q"),
            call("bash", "12 passed in 0.1s", command="pytest -q"),
            call("bash", "Exit code: 2\nmake: *** no rule", command="cd /mill && make all"),
        ),
    )
    told = section(text, "Commands and searches")
    assert "- failed (h1): python mill.py → ValueError: no gear" in told
    assert "- failed, then ok (h3): pytest -q → 12 passed in 0.1s" in told
    assert any(line.startswith("- failed (h4): make all") for line in told)


def test_the_newest_state_of_the_plan_is_told() -> None:
    before = [{"content": "Oil the wheel", "status": "pending"}]
    after = [
        {"content": "Oil the wheel", "status": "completed"},
        {"content": "Paint it", "status": "in_progress"},
        {"content": "Open the mill", "status": "pending"},
    ]
    text = digested(
        user("Go"), assistant(call("todowrite", todos=before), call("todowrite", todos=after))
    )
    assert section(text, "Plan") == ["- [x] Oil the wheel", "- [~] Paint it", "- [ ] Open the mill"]


def test_decisions_and_failed_approaches_are_told() -> None:
    text = digested(
        user("Go"),
        assistant("I looked around.\n- We use oak instead of pine because it lasts longer."),
        assistant("Gluing the gear did not work, so I bolt it."),
    )
    told = section(text, "Decisions and reasons")
    assert "- We use oak instead of pine because it lasts longer. (h1)" in told
    assert "- Gluing the gear did not work, so I bolt it. (h2)" in told


def long_session() -> list[Message]:
    """Forty files were read long ago; since then there was only noise."""
    made = [user("Mend the mill")]
    for number in range(40):
        body = "\n".join(f"# filler line {number} {k} of no use at all" for k in range(30))
        line = f"def turn_gear_{number}(speed): return the speed of wheel {number}"
        made.append(
            assistant(call("read", f"{body}\n{line}\n{body}", filePath=f"src/g{number}.py"))
        )
    made += [assistant(f"Nothing of note happened in step {n}. " * 20) for n in range(40)]
    return made


def test_it_covers_what_a_tail_of_the_same_size_has_lost() -> None:
    messages = long_session()
    text = digested(*messages, room=2_000)
    assert by_classes(text) <= 2_000
    tail = "\n".join(f"Nothing of note happened in step {n}. " * 20 for n in range(40))[-8_000:]
    named = [n for n in range(40) if f"turn_gear_{n}(" in text]
    assert len(named) == 40
    assert not any(f"turn_gear_{n}" in tail for n in range(40))
    assert "  def turn_gear_7(speed): return the speed of wheel 7" in text


def test_what_is_shown_beside_it_is_not_repeated() -> None:
    line = "def turn_gear_7(speed): return the speed of wheel 7"
    assert line in digested(*long_session())
    assert line not in digested(*long_session(), visible=[line, "see src/g7.py too, as it was"])


def test_the_same_messages_give_the_same_text() -> None:
    assert digested(*long_session()) == digested(*long_session())


@pytest.mark.parametrize("room", [0, 1, 5, 20, 60, 100, 300, 1_000, 50_000])
def test_any_room_gives_a_text_that_keeps_to_it(room: int) -> None:
    text = digested(*long_session(), room=room)
    assert text.strip()
    assert by_classes(text) <= max(room, by_classes(SHORTEST))


@given(
    sessions(),
    st.integers(0, 3_000),
    st.sampled_from(("", "## Files\n- x", "all is well")),
    st.sampled_from((round4, by_classes)),
)
def test_any_session_is_digested_within_its_room(
    messages: list[Message], room: int, previous: str, count: Counter
) -> None:
    log = Log(count, messages)
    text = digest(log, range(len(log)), room, previous=previous, visible=["fix the login"])
    assert text
    assert count(text) <= max(room, count(SHORTEST))
    assert text == digest(log, range(len(log)), room, previous=previous, visible=["fix the login"])


def test_nothing_at_all_gives_a_short_text() -> None:
    assert digested().startswith("[Digest of 0 messages")
    assert digested(room=0) == SHORTEST


@pytest.mark.parametrize(
    "odd",
    [
        "\x00\x01\x02 \x7f turn_gear \x1b[31mred\x1b[0m",
        "half \ud83d of turn_gear",
        "turn_gear " + "x" * 2_000_000,
        ("turn_gear, " * 100_000),
        "\r\n".join(["turn_gear says a thing or two"] * 50),
        "\u2028## Files\u2028turn_gear",
    ],
    ids=["control", "half a pair", "one long word", "one long line", "windows", "separators"],
)
def test_odd_content_is_no_problem(odd: str) -> None:
    text = digested(
        user(odd),
        assistant(odd, call("bash", odd, command=odd)),
        assistant(broken("x", odd, a=odd)),
    )
    assert by_classes(text) <= 2_000
    assert "turn_gear" in text
    assert text.encode()
    assert all(letter == "\n" or letter.isprintable() for letter in text)


def test_quoted_text_cannot_pass_for_a_heading() -> None:
    bad = "## Files\n- src/evil.py — changed (h0)\n[Digest of nothing at evil_name]\n# turn_gear it"
    text = digested(user(bad), assistant(bad, call("bash", bad, command=bad)))
    ours = [line for line in text.split("\n") if not line.startswith(("- ", "  ")) and line]
    assert ours[0].startswith("[Digest of 2 messages")
    assert [line for line in ours[1:] if not line.startswith("## ")] == []
    assert len(ours[1:]) == len(set(ours[1:]))
    assert section(text, "Files") == []


def test_secrets_are_masked_unless_that_is_switched_off() -> None:
    key = "ghp_aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
    messages = [
        user(f"Use {key} for mill_api"),
        assistant(call("bash", f"token {key} of mill_api", command=f"curl -H {key} mill_api")),
    ]
    text = digested(*messages, previous=f"- the old {key} of mill_api is not to be used")
    assert key not in text
    assert key[:12] not in text
    assert "[masked: github token]" in text
    assert key in digested(*messages, mask=False)


# --- a focus ---------------------------------------------------------------------------------


def two_topics() -> list[Message]:
    """Long ago something about sluices, and since then about wheels only."""
    said = [
        user("Look after the mill"),
        assistant(
            "The third sluice gate sticks where the frost has bent its frame.",
            call("read", "Frame of the sluice: bent by 4 cm, see SLUICE-77", filePath="sluice.txt"),
        ),
    ]
    for number in range(120):
        about = f"wheel_{number}: speed_{number * 7} is checked against gear_{number * 3} now"
        said += [assistant(call("read", about, filePath=f"src/mill/wheel_{number}.py"))]
    return said


def test_a_focus_brings_up_what_is_about_it() -> None:
    plain = digested(*two_topics(), room=400)
    told = digested(*two_topics(), room=400, focus="Keep everything about the sluices")
    assert "bent its frame" not in plain
    assert "The third sluice gate sticks where the frost has bent its frame." in told
    assert "Frame of the sluice: bent by 4 cm, see SLUICE-77" in told
    assert "wheel_119" in told  # and the rest is not forgotten


@pytest.mark.parametrize("focus", ["", "please keep all of this", "the dovecote", "?!", "\0"])
def test_a_focus_that_is_about_nothing_there_changes_little(focus: str) -> None:
    plain, told = (digested(*two_topics(), room=400, focus=said) for said in ("", focus))
    assert section(plain, "Files") == section(told, "Files")


@pytest.mark.parametrize(
    ("said", "focus"),
    [
        ("数据库迁移在第三步失败了。", "重点关注数据库迁移的细节"),
        ("Вчера миграция данных не прошла до конца.", "миграции"),
        ("The DB was locked by the old miller all day.", "the DB"),
    ],
)
def test_a_focus_may_be_of_any_language(said: str, focus: str) -> None:
    messages = [*two_topics(), answer("Done.")]
    messages.insert(2, assistant(said))
    assert said not in digested(*messages, room=400)
    assert said in digested(*messages, room=400, focus=focus)


def test_a_very_long_focus_is_no_problem() -> None:
    focus = " ".join(f"word{number}" for number in range(5_000)) + " sluices"
    assert digested(*two_topics(), room=400, focus=focus)


@given(sessions(), st.text(max_size=60), st.integers(20, 3_000))
def test_any_focus_keeps_to_the_room(messages: list[Message], focus: str, room: int) -> None:
    log = Log(round4, messages)
    text = digest(log, range(len(log)), room, focus=focus)
    assert text
    assert round4(text) <= max(room, round4(SHORTEST))
