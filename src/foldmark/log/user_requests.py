"""What the user asked for: which requests there were, which are answered, what holds for good.

Found as messages come, so that a view across a pivot can show the user's own words without
reading what was folded.
"""

import re
from bisect import bisect_left

from msgspec.structs import replace

from foldmark.model.messages import AssistantInfo, FilePart, Message, TextPart, file_placeholder
from foldmark.model.values import Frozen
from foldmark.tokens.sizes import EXPANDED

# A line that asks for something for good. Wrong guesses cost a line, so it is rather too eager.
STANDING = re.compile(
    r"\b(always|never|from now on|every time|whenever|at all times|no matter what"
    r"|keep in mind|remember (?:to|that)|(?:do not|don't) (?:ever|use|touch|change|commit)"
    r"|must not|only use|for the rest of)\b",
    re.IGNORECASE,
)
_LONGEST_LINE = 500
# Characters of rules; a view has room for a fraction of it.
_MOST_REMEMBERED = 200_000
# A step that ends so has answered; one that ends for its calls, its length or an error has not.
_ANSWERS = frozenset({"stop", "end_turn", "end-turn", "stop_sequence", "completed"})


class AttachedFile(Frozen):
    """A file that came with a request, in its place."""

    ordinal: int
    part: FilePart

    @property
    def named(self) -> str:
        """The file by its name, where it is not shown."""
        return file_placeholder(self.part)


class UserRequest(Frozen):
    """A message of the user, in its place."""

    index: int
    ordinal: int
    text: str
    files: tuple[AttachedFile, ...] = ()


class Rule(Frozen, gc=False):
    """A line of the user that holds for good."""

    index: int
    text: str


class RequestMemory(Frozen):
    """What a view across a pivot needs of the requests that were folded."""

    requests: tuple[UserRequest, ...] = ()  # the first, and the newest
    answers: tuple[tuple[int, int], ...] = ()  # their places, and those of their answers
    rules: tuple[Rule, ...] = ()


class Requests:
    """The user's requests and rules so far."""

    def __init__(self, memory: RequestMemory = RequestMemory()) -> None:  # noqa: B008 - it is frozen
        """Begin with what is remembered of what came before."""
        self.all: list[UserRequest] = list(memory.requests)
        self.rules: list[Rule] = list(memory.rules)
        # The rules' texts: said again, a rule is the same rule.
        self._known: set[str] = {rule.text for rule in memory.rules}
        self._answers: dict[int, int] = dict(memory.answers)  # request → the answer's place

    def memory(self, before: int) -> RequestMemory:
        """What to remember of all that was said before a place."""
        end = bisect_left(self.all, before, key=lambda request: request.index)
        # Only the newest may be worked on still: no other one's files will be shown again.
        first = [replace(request, files=()) for request in self.all[: max(0, min(end - 1, 1))]]
        kept = (*first, *self.all[max(end - 1, 0) : end])
        answers = ((r.index, self._answers[r.index]) for r in kept if r.index in self._answers)
        rules: list[Rule] = []
        room = _MOST_REMEMBERED
        for rule in reversed(self.rules):
            if rule.index < before:
                room -= len(rule.text)
                if room < 0:
                    break
                rules.append(rule)
        return RequestMemory(requests=kept, answers=tuple(answers), rules=tuple(reversed(rules)))

    def take(self, index: int, ordinal: int, message: Message) -> None:
        """Note what a message asks for or answers."""
        if isinstance(message.info, AssistantInfo):
            info, answers = message.info, message.info.finish in _ANSWERS
            if self.all and answers and not info.summary and not info.error:
                self._answers.setdefault(self.all[-1].index, index)
        else:
            self._take_request(index, ordinal, message)

    def answered(self, request: UserRequest, before: int) -> bool:
        """Whether a request had its answer before a place in the log."""
        answer = self._answers.get(request.index)
        return answer is not None and answer < before

    def starts_at(self, place: int) -> bool:
        """Whether the message at this place is a request."""
        newest = self.newest(place + 1)
        return newest is not None and newest.index == place

    def newest(self, before: int) -> UserRequest | None:
        """The last request before a place in the log."""
        place = bisect_left(self.all, before, key=lambda request: request.index)
        return self.all[place - 1] if place else None

    def _take_request(self, index: int, ordinal: int, message: Message) -> None:
        texts: list[tuple[int, str]] = []
        files: list[AttachedFile] = []
        for place, part in enumerate(message.parts, ordinal):
            if isinstance(part, FilePart) and part.mime not in EXPANDED:
                files.append(AttachedFile(ordinal=place, part=part))
            elif isinstance(part, TextPart) and _says(part):
                texts.append((place, part.text))
                self._take_rules(index, part)
        if not texts:  # a picture alone may ask for something, too
            texts = [(held.ordinal, held.named) for held in files]
        if texts:
            said = "\n\n".join(text for _, text in texts)
            request = UserRequest(index=index, ordinal=texts[0][0], text=said, files=tuple(files))
            self.all.append(request)

    def _take_rules(self, index: int, part: TextPart) -> None:
        lines = part.text.splitlines()
        found = [line.strip() for line in lines if len(line) <= _LONGEST_LINE]
        # A question may be about what always holds; it asks for nothing to be so.
        found = [line for line in found if STANDING.search(line) and not line.endswith("?")]
        if part.metadata and part.metadata.get("pin"):
            found = [part.text]
        for text in found:
            if text not in self._known:
                self._known.add(text)
                self.rules.append(Rule(index=index, text=text))


def _says(part: TextPart) -> bool:
    return bool(part.text.strip()) and not part.synthetic and not part.ignored
