"""A format of your own: the result files of τ-bench, each a list of episodes.

A package that installs this module with the entry point `tau-bench = "tau_bench_format:TauBench"`
in the group `foldmark.formats` lets every command of Foldmark read such files.

Facts of this format: an episode's `traj` is a list of OpenAI's chat messages, with the policy as
system prompt; the user is simulated; `task_id` and `trial` identify the episode.
"""

from typing import Any

from foldmark.model.messages import SessionInfo
from foldmark.model.values import Extra
from foldmark.transcripts.build import ConversationBuilder, FormatReader, as_object, read_each
from foldmark.transcripts.formats.api_lists import decode_list
from foldmark.transcripts.source import Head, Record
from foldmark.wire.codec import objects, subobject
from foldmark.wire.openai_chat import OpenAIChat

NAME = "tau-bench"
MAX_TITLE = 80
_wire = OpenAIChat()


class TauBench(FormatReader):
    """Reads a file; each episode becomes a session."""

    name = NAME
    about = "τ-bench, the results of a run"
    key = _wire.key

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is a list of episodes."""
        episodes = map(as_object, head.first_items("", 1))
        return any("task_id" in one and isinstance(one.get("traj"), list) for one in episodes)

    def decode(self, record: Record) -> Any:
        """Return the list of episodes."""
        return objects(record.value(), "the file")

    def read(self, record: list[dict[str, Any]]) -> None:
        """Add all episodes; an error names the episode by its index."""
        read_each(record, "episodes", self._add_episode)

    def _add_episode(self, episode: dict[str, Any], number: int) -> None:
        del number
        messages = objects(episode.get("traj"), "'traj'")
        decoded = decode_list(_wire, messages, self.tally)
        id = f"{self.stem}-{episode.get('task_id', 'x')}-{episode.get('trial', 'x')}"
        title = " ".join(str(subobject(episode.get("info"), "task").get("instruction")).split())
        info = SessionInfo(
            id=self.session_ids.claim(id), title=title[:MAX_TITLE], origin=decoded.origin
        )
        facts = {fact: episode.get(fact) for fact in ("task_id", "trial", "reward")}
        self.emit(ConversationBuilder(self, info, Extra({NAME: facts})), *decoded.messages)
