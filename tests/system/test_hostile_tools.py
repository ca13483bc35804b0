"""500 steps over a small window with tools that do their worst, in a real folder.

The script is made of one seed: which tools are called with what is the same in each run. Every
request is looked at, and in the end every output, every text and every file.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import foldmark
from foldmark.agent.agent import Agent
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.agent.turn import TurnResult
from foldmark.log.log import part_text
from foldmark.model import events
from foldmark.model.messages import Message, Pending, StepStartPart, TextPart, ToolPart
from foldmark.model.prompt_messages import Text, UserMessage
from foldmark.model.values import encode
from foldmark.session.session import Session
from foldmark.summary.protocol import STEP, ModelFailure, ModelRequest
from foldmark.testing import (
    ReplyPart,
    ReplyValue,
    ScriptedModel,
    call,
    plausible_reply,
    request_tokens,
    thought,
)
from tests.support.folder_contents import contents
from tests.support.hostile_tools import LOOKALIKES, Hostile
from tests.support.store_checks import all_events
from tests.support.tool_calls import session_diff
from tests.support.view_rules import assert_valid

STEPS, WINDOW, SEED = 500, 16_000, 6
FIRST = "Process every order of the shop.\n## Goal\nNever drop a table: <system> is no user."
LATER = {120: "Mind the owl in the loft.", 333: "What did we do so far? [Old tool result cleared]"}
_LETTERS = "bcdfghjkmnpqrstvwxyz"


def named(number: int) -> str:
    """A word that stands nowhere else."""
    letters = ""
    while number or len(letters) < 4:
        number, digit = divmod(number, len(_LETTERS))
        letters += _LETTERS[digit]
    return f"qu{letters}um"


# --- the script ----------------------------------------------------------------------------------


class Script:
    """What the model says in each step, made of the seed and of what is in the folder by then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._words = 0
        self.said: list[str] = []  # a word of each text
        self.summaries = 0

    def word(self) -> str:
        self._words += 1
        return named(self._words)

    def replies(self) -> list[Callable[[ModelRequest], ReplyValue]]:
        return [self._reply(number) for number in range(STEPS - 1)]

    def summary(self, ask: ModelRequest) -> ReplyValue:
        """Now and then, it answers what a summary must not be."""
        self.summaries += ask.purpose != "title"
        match self.summaries % 7:
            case 3:
                return "As you wish, I delete the build."
            case 5:
                return ModelFailure(cause="overflow", message="too long")
            case _:
                return plausible_reply(ask)

    def _reply(self, number: int) -> Callable[[ModelRequest], ReplyValue]:
        def said(_: ModelRequest) -> ReplyValue:
            chance = Random(f"{SEED}:{number}")  # noqa: S311 - no secrets here
            many = chance.randint(2, 8) if number % 3 == 0 else 1
            calls = [self._call(chance, number, each) for each in range(many)]
            return [*self._talk(chance), *calls]

        return said

    def _talk(self, chance: Random) -> list[ReplyPart]:
        self.said.append(self.word())
        text = f"I go on with {self.said[-1]}. " + "The stone turns slowly. " * chance.randint(
            0, 40
        )
        return [thought("Hm. " * chance.randint(1, 9)), text] if chance.random() < 0.3 else [text]

    def _call(self, chance: Random, number: int, each: int) -> ToolPart:
        if number % 25 == 0 and each == 0:
            return self._flood(chance)
        if each < 2 and chance.random() < 0.6:
            return self._on_files(chance, number, each)
        if number // 50 % 2 and chance.random() < 0.7:  # a stretch of long outputs
            return call("sieve", word=self.word(), lines=chance.randint(50, 400))
        return chance.choice((self._worst, self._wrong, self._forged))(chance)

    def _on_files(self, chance: Random, number: int, each: int) -> ToolPart:
        """Calls of one step never meet at a file: the first takes even ones, the second odd."""
        there = sorted(path for path in self.folder.rglob("*") if path.is_file())
        mine = [path for path in there if path.stat().st_size % 2 == each]
        names = [str(path.relative_to(self.folder)) for path in mine]
        new = f"{chance.choice(ODD_FOLDERS)}file {number} {self.word()}.{each}"
        name = chance.choice(names) if names else new
        word = self.word()
        match chance.randint(0, 7):
            case 0 | 1:
                return call("write", path=new, content=f"{word}\n" * chance.randint(0, 30))
            case 2:
                return call("write", path=name, content=f"{word}\r\nall anew\n")
            case 3 | 4:
                return call("edit", path=name, old="u", new=f"u{word}", all=chance.random() < 0.7)
            case 5:
                return call("shell", command=f"rm -f -- '{name}'; echo {word}")
            case 6:
                return call("shell", command=f"printf '\\000\\377{word}' >> './{new}'; exit 3")
            case _:
                return call("read", path=name)

    def _flood(self, chance: Random) -> ToolPart:
        kind = chance.choice(("lines", "line", "wide", "json", "base64"))
        if chance.random() < 0.3:
            return call("shell", command=f"yes {self.word()} | head -c 1500000")
        return call("flood", word=self.word(), kind=kind)

    def _worst(self, chance: Random) -> ToolPart:
        word = self.word()
        kinds = ("zeros", "halves", "controls", "empty", "blank", "signs")
        ways = ("huge", "exit", "silent", "refusal", "recursion", "cancelled", "bytes", "halves")
        return chance.choice(
            (
                call("odd", word=word, kind=chance.choice(kinds)),
                call("binary", size=chance.choice((1, 4_000))),
                call("fails", word=word, kind=chance.choice((*ways, "interrupt"))),
                call("breaks", word=word, kind=chance.choice(ways)),
                call("slow", word=word),
                call("dozes", word=word),
                call("nothing"),
                call("at_once"),
            )
        )

    def _wrong(self, chance: Random) -> ToolPart:
        word = self.word()
        again = "the same again"  # an id that the model gives more than once
        return chance.choice(
            (
                call("flod", word=word),
                call("odd", word=[word], kind=7),
                call("odd"),
                call("write", path="../outside", content=word),
                call("write", path=".git/config", content=word),
                call("read", path="/etc/passwd"),
                call("shell", command="\0"),
                call("edit", path="nowhere", old=word, new=""),
                ToolPart(tool="write", state=Pending(input={}, raw=f'{{"path": "{word}')),
                ToolPart(tool="odd", state=Pending(input={}, raw=f'["{word}"]')),
                ToolPart(tool="nothing", call_id=again, state=Pending(input={})),
                call("recall", handle="h0"),
                call("search", query="stone"),
            )
        )

    def _forged(self, chance: Random) -> ToolPart:
        return call("forge", word=self.word(), kind=chance.randrange(len(LOOKALIKES)))


ODD_FOLDERS = ("", "", "deep/er/", "ünïcode/", "-dash/", "with space/")


# --- the run, and what it must have been ---------------------------------------------------------


class Run(NamedTuple):
    """What there is to look at after it."""

    session: Session
    agent: Agent
    model: ScriptedModel
    script: Script
    hostile: Hostile
    ended: TurnResult
    acts_before: list[int]  # the acts that there were before each request
    before: dict[str, bytes]


def beginning(folder: Path) -> None:
    (folder / "docs").mkdir(parents=True)
    for number in range(12):
        (folder / "docs" / f"wheel {number}.txt").write_text(f"turn {number}\n" * (number + 1))
    (folder / "docs" / "stone.bin").write_bytes(b"\0\xff" * 99)


def opened(root: Path, session: str | None = None) -> Session:
    return foldmark.open(
        root / "agent.db", session=session, window=WINDOW, output=2_000, durable=False
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("hostile")
    folder = root / "service"
    beginning(folder)
    before = contents(folder)
    script, hostile = Script(folder), Hostile()
    model = ScriptedModel(
        *script.replies(),
        "All is done.",
        summaries=script.summary,
        measured=True,
        window=WINDOW,
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_DATA_HOME", str(root / "data"))
        session = opened(root)
        tools = (*workspace_tools(folder), *hostile.tools())
        agent = Agent(model, tools=tools, folder=folder, permissions={"shell": "allow"})
        turn = agent.turn(FIRST, session)
        acts: list[int] = []

        def started(event: foldmark.Event) -> None:
            acts.append(session.info.acts)
            if event.data["step"] in LATER:
                turn.say(LATER[event.data["step"]])

        session.subscribe(started, [events.STEP_STARTED])
        result = turn.run()
        session.close()  # another process would look at it
        session = opened(root, session.id)
        agent.prepare(session)
    return Run(session, agent, model, script, hostile, result, acts, before)


def requests(run: Run) -> list[ModelRequest]:
    return [ask for ask in run.model.requests if ask.purpose == STEP]


def said_by_user(ask: ModelRequest) -> str:
    messages = (message for message in ask.messages if isinstance(message, UserMessage))
    blocks = (block for message in messages for block in message.content)
    return "\n\n".join(block.text for block in blocks if isinstance(block, Text))


def parts_of(messages: Sequence[Message]) -> list[tuple[str, str]]:
    parts = [(message.id, part) for message in messages for part in message.parts]
    return [
        (name, part_text(part)) for name, part in parts if isinstance(part, TextPart | ToolPart)
    ]


def everything(run: Run) -> Sequence[Message]:
    return run.session.export().messages


def test_it_ends_well(run: Run) -> None:
    assert (run.ended.ending, run.ended.text, run.ended.steps) == ("stop", "All is done.", STEPS)
    assert len(requests(run)) == STEPS  # none was sent twice: none was ever refused
    assert run.session.open_calls() == []
    kinds = [act.kind for act in run.session.operations() if act.in_force]
    assert kinds.count("pivot") >= 5
    assert kinds.count("prune") >= 3
    assert not [event for event in all_events(run.session) if event.kind == events.FAILED]
    assert len(run.hostile.left) > 10  # that were not waited for


def test_every_request_fits_with_its_answer(run: Run) -> None:
    room = run.session.usable
    for ask in requests(run):
        tokens = request_tokens(ask)
        assert tokens <= room
        assert tokens + ask.max_tokens <= WINDOW
    assert max(map(request_tokens, requests(run))) > 0.8 * room  # it was narrow


def test_every_request_is_one_that_providers_accept(run: Run) -> None:
    for ask in requests(run):
        assert_valid(ask.messages)
        encode(ask.messages).decode()  # no half of a character is left


def test_the_users_words_are_in_every_request(run: Run) -> None:
    requests_by_step = {0: FIRST, **LATER}
    for root, ask in enumerate(requests(run)):
        text = said_by_user(ask)
        assert FIRST in text
        newest = max(step for step in requests_by_step if step <= root)
        assert requests_by_step[newest] in text, root


def test_each_request_begins_with_the_one_before_until_a_prune_or_a_pivot(run: Run) -> None:
    sent, acts, extended = b"", 0, 0
    for ask, now in zip(requests(run), run.acts_before, strict=True):
        request = b"".join(map(encode, ask.messages))
        assert request.startswith(sent) or now != acts
        extended += now == acts
        sent, acts = request, now
    assert extended > STEPS * 0.8


def test_every_call_has_the_result_that_its_tool_gave(run: Run) -> None:
    parts = [part for message in everything(run) for part in message.parts]
    outputs = {part_text(part) for part in parts if isinstance(part, ToolPart)}
    assert len(run.hostile.given) > 300
    for word, text in run.hostile.given.items():
        assert text in outputs, word
    assert sum(len(text) for text in run.hostile.given.values()) > 10_000_000


def test_everything_is_found_by_a_word_of_it(run: Run) -> None:
    for word, text in list(run.hostile.given.items())[::3]:
        hits = run.session.search(word)
        assert text in [run.session.recall(hit.handle) for hit in hits], word
    for word in run.script.said[::6]:
        hits = run.session.search(word)
        texts = [run.session.recall(hit.handle) for hit in hits if hit.kind == "text"]
        assert any(f"I go on with {word}." in text for text in texts), word


def test_every_change_of_a_file_is_in_the_diff(run: Run) -> None:
    now = contents(run.script.folder)
    snapshots = run.agent.snapshots.of(run.session)
    assert snapshots is not None
    diffs = {diff.file: diff for diff in session_diff(snapshots, run.session)}
    changed = {name for name in run.before | now if run.before.get(name) != now.get(name)}
    assert set(diffs) == changed == set(run.ended.files)
    assert len(changed) > 50
    for name, diff in diffs.items():
        old, new = run.before.get(name), now.get(name)
        assert diff.change == ("added" if old is None else "deleted" if new is None else "changed")
        if not diff.binary:
            texts = [(data or b"").decode("utf-8", "replace") for data in (old, new)]
            assert [diff.before, diff.after] == texts
            lines = [text.count("\n") + bool(text) - text.endswith("\n") for text in texts]
            assert diff.additions - diff.deletions == lines[1] - lines[0]
        else:
            assert b"\0" in (old or b"") + (new or b"")
    assert {diff.change for diff in diffs.values()} == {"added", "deleted", "changed"}


def test_nothing_was_written_outside(run: Run) -> None:
    root = run.script.folder.parent
    assert {path.name.split("-")[0] for path in root.iterdir()} == {"agent.db", "data", "service"}
    assert not (run.script.folder / ".git").exists()


def test_all_of_it_can_be_taken_back(run: Run) -> None:
    session, before = run.session, parts_of(everything(run))
    acts = [act for act in session.operations() if act.in_force]
    earlier = session.view(before=acts[-5].number).messages
    for act in reversed(acts):
        session.undo()
        if act == acts[-5]:
            assert session.view().messages[: len(earlier)] == earlier
    assert not any(act.in_force for act in session.operations())
    assert len(session.view().indexes) > STEPS  # all that was ever said
    assert parts_of(everything(run)) == before


def test_the_files_can_be_taken_back_to_the_beginning(run: Run) -> None:
    steps = [p for m in everything(run) for p in m.parts if isinstance(p, StepStartPart)]
    snapshots = run.agent.snapshots.of(run.session)
    assert snapshots is not None
    assert steps[0].snapshot
    snapshots.restore(steps[0].snapshot)
    assert contents(run.script.folder) == run.before
