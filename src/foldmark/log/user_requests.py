"""The user's requests, their answers, and standing instructions.

They are collected as messages are appended, so that a view across a pivot can show the user's own
text without reading the folded messages.
"""

import re
from bisect import bisect_left

from msgspec.structs import replace

from foldmark.model.messages import AssistantInfo, FilePart, Message, TextPart, file_placeholder
from foldmark.model.values import Frozen
from foldmark.tokens.sizes import EXPANDED

# Matches standing instructions. It matches too much rather than too little: a line costs little.
STANDING = re.compile(
    r"\b(always|never|from now on|every time|whenever|at all times|no matter what"
    r"|keep in mind|remember (?:to|that)|(?:do not|don't) (?:ever|use|touch|change|commit)"
    r"|must not|only use|for the rest of)\b",
    re.IGNORECASE,
)
_MAX_LINE = 500
# Characters of rules in a memory; a view shows only a fraction of them.
_MAX_REMEMBERED = 200_000
# Finish reasons of an answer; steps that end with calls, at a limit or in an error are none.
_ANSWERS = frozenset({"stop", "end_turn", "end-turn", "stop_sequence", "completed"})


class AttachedFile(Frozen):
    """A file of a request, with its ordinal."""

    ordinal: int
    part: FilePart

    @property
    def placeholder(self) -> str:
        """The text that stands for the file if it is not shown."""
        return file_placeholder(self.part)


class UserRequest(Frozen):
    """A request of the user, with its position in the log."""

    index: int
    ordinal: int
    text: str
    files: tuple[AttachedFile, ...] = ()


class Rule(Frozen, gc=False):
    """A standing instruction: a line of the user that applies to the whole session."""

    index: int
    text: str


class RequestMemory(Frozen):
    """The data of folded requests that a view across a pivot needs."""

    requests: tuple[UserRequest, ...] = ()  # the first, and the newest
    answers: tuple[tuple[int, int], ...] = ()  # indexes of requests and of their answers
    rules: tuple[Rule, ...] = ()


class Requests:
    """The user's requests and standing instructions so far."""

    def __init__(self, memory: RequestMemory = RequestMemory()) -> None:  # noqa: B008 - it is frozen
        """Start from the memory of the messages before the log."""
        self.all: list[UserRequest] = list(memory.requests)
        self.rules: list[Rule] = list(memory.rules)
        # Texts of the rules, to ignore repetitions.
        self._rule_texts: set[str] = {rule.text for rule in memory.rules}
        self._answers: dict[int, int] = dict(memory.answers)  # request index → answer index

    def memory(self, before: int) -> RequestMemory:
        """What to remember of the messages before an index."""
        end = bisect_left(self.all, before, key=lambda request: request.index)
        # Only the newest request may be open; the files of others are not shown again.
        first = [replace(request, files=()) for request in self.all[: max(0, min(end - 1, 1))]]
        requests = (*first, *self.all[max(end - 1, 0) : end])
        answers = ((r.index, self._answers[r.index]) for r in requests if r.index in self._answers)
        rules: list[Rule] = []
        budget = _MAX_REMEMBERED
        for rule in reversed(self.rules):
            if rule.index < before:
                budget -= len(rule.text)
                if budget < 0:
                    break
                rules.append(rule)
        return RequestMemory(requests=requests, answers=tuple(answers), rules=tuple(rules[::-1]))

    def add_message(self, index: int, ordinal: int, message: Message) -> None:
        """Record the request, rules or answer in a message."""
        if isinstance(message.info, AssistantInfo):
            info, answers = message.info, message.info.finish in _ANSWERS
            if self.all and answers and not info.summary and not info.error:
                self._answers.setdefault(self.all[-1].index, index)
        else:
            self._add_request(index, ordinal, message)

    def is_answered(self, request: UserRequest, before: int) -> bool:
        """Whether a request was answered before an index in the log."""
        answer = self._answers.get(request.index)
        return answer is not None and answer < before

    def is_request(self, index: int) -> bool:
        """Whether the message at this index is a request."""
        newest = self.newest(index + 1)
        return newest is not None and newest.index == index

    def newest(self, before: int) -> UserRequest | None:
        """The newest request before an index in the log."""
        number = bisect_left(self.all, before, key=lambda request: request.index)
        return self.all[number - 1] if number else None

    def _add_request(self, index: int, ordinal: int, message: Message) -> None:
        texts: list[tuple[int, str]] = []
        files: list[AttachedFile] = []
        for number, part in enumerate(message.parts, ordinal):
            if isinstance(part, FilePart) and part.mime not in EXPANDED:
                files.append(AttachedFile(ordinal=number, part=part))
            elif isinstance(part, TextPart) and _is_user_text(part):
                texts.append((number, part.text))
                self._add_rules(index, part)
        if not texts:  # an image alone may be a request
            texts = [(file.ordinal, file.placeholder) for file in files]
        if texts:
            text = "\n\n".join(text for _, text in texts)
            request = UserRequest(index=index, ordinal=texts[0][0], text=text, files=tuple(files))
            self.all.append(request)

    def _add_rules(self, index: int, part: TextPart) -> None:
        lines = part.text.splitlines()
        texts = [line.strip() for line in lines if len(line) <= _MAX_LINE]
        # A question may contain "always" without being an instruction.
        texts = [line for line in texts if STANDING.search(line) and not line.endswith("?")]
        if part.metadata and part.metadata.get("pin"):
            texts = [part.text]
        for text in texts:
            if text not in self._rule_texts:
                self._rule_texts.add(text)
                self.rules.append(Rule(index=index, text=text))


def _is_user_text(part: TextPart) -> bool:
    return bool(part.text.strip()) and not part.synthetic and not part.ignored
