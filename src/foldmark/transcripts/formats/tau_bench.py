"""τ-bench: the results of a run, one list of episodes.

Facts of this format: an episode's `traj` is a list of OpenAI's chat messages, the policy first as
the system prompt; the user is simulated; `task_id` and `trial` name the episode.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, Struct

from foldmark.model.messages import SessionInfo
from foldmark.model.values import Extra, Json
from foldmark.transcripts.api_lists import told_list
from foldmark.transcripts.build import Opened, Step, Tally
from foldmark.transcripts.format import Format, decoder
from foldmark.transcripts.source import Head
from foldmark.wire.codec import options
from foldmark.wire.openai_chat import OpenAIChat

_NAME = "tau-bench"
_LONGEST_TITLE = 80
_wire = OpenAIChat()


class Episode(Struct, gc=False):
    """One conversation and what came of it."""

    traj: list[Json]
    task_id: Any = None
    trial: Any = None
    reward: Any = None
    info: Json | None = None


class TauBench:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, which names the sessions together with their tasks."""
        self.decode = decoder(list[Episode])
        self.tally = Tally()
        self._stem = Path(name).stem
        self._names: set[str] = set()

    def take(self, record: list[Episode], line: int) -> Iterator[Step]:
        """All episodes, each a session."""
        del line
        for episode in record:
            told = told_list(_wire, episode.traj, self.tally)
            info = SessionInfo(
                id=self._session(episode), title=_title(episode) or UNSET, origin=told.origin
            )
            facts = {"task_id": episode.task_id, "trial": episode.trial, "reward": episode.reward}
            yield Opened(info=info, extra=Extra({_NAME: facts}))
            yield from told.messages

    def end(self) -> Iterator[Step]:
        """Nothing more."""
        return iter(())

    def _session(self, episode: Episode) -> str:
        name = f"{self._stem}-{short(episode.task_id)}-{short(episode.trial)}"
        if name in self._names:
            name = f"{name}-{len(self._names) + 1}"
        self._names.add(name)
        return name


def short(held: object) -> str:
    """The name of a task or the number of a trial."""
    return str(held)[:_LONGEST_TITLE] if isinstance(held, int | str) else "x"


def shortened(text: object) -> str:
    """The beginning of a text as a title."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TITLE else f"{line[: _LONGEST_TITLE - 1]}…"


def _title(episode: Episode) -> str:
    return shortened(options(episode.info, "task").get("instruction"))


def _recognises(head: Head) -> bool:
    first = cast("object", head.item(0))
    episode = cast("Json", first) if isinstance(first, dict) else {}
    return "task_id" in episode and isinstance(episode.get("traj"), list)


FORMAT = Format(
    name=_NAME,
    about="τ-bench, the results of a run",
    recognises=_recognises,
    importer=TauBench,
)
