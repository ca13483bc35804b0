"""One agent's conversation in ADK, mirrored in a session; safe to call from any thread.

An ADK session has one of our sessions per agent, branch and scope, as each of them has a history
of its own. `contents` reads and writes the contents.
"""

from collections.abc import Sequence

from google.genai import types

from foldmark.adapters.conversations import Conversation, insert_transient
from foldmark.refusals import is_context_overflow
from foldmark.session.session import Session

from .contents import AdkDialect, ContentReader, ReadContent, has_results, join_results
from .requests import AgentRequest


class AgentConversation(Conversation[ReadContent]):
    """The history of one agent in one conversation."""

    def __init__(self, name: str, session: Session) -> None:
        """Mirror into this session; `name` is its key in the pool."""
        super().__init__(name, session, AdkDialect())
        self._reader = ContentReader()

    def view(self, request: AgentRequest) -> list[types.Content]:
        """The contents to send for a request."""
        with self.turn():
            self._update(request)
            return self._written(self.mirror.view(), request)

    def store_request(self, request: AgentRequest) -> None:
        """Store the contents of a request and the events after it.

        The next request may not contain them: there may be none, or ADK may have dropped them.
        """
        with self.turn():
            self._update(request)

    def shorter(self, request: AgentRequest, error: Exception) -> list[types.Content] | None:
        """The contents to send after a refusal for length; None for other errors."""
        if not is_context_overflow(error):
            return None
        with self.turn():
            if not self.mirror.can_shrink(error):
                return None
            self._update(request)  # others may have written meanwhile
            return self._written(self.mirror.shorter_view(error), request)

    def _update(self, request: AgentRequest) -> None:
        transient = [self._reader.read_alone(content) for content, _ in request.transient]
        self.count_fixed(request.system, request.tools, transient=transient)
        history = self._reader.read(request.contents, request.measured)
        self.take(history, whole=not request.continues)

    def _written(self, view: Sequence[ReadContent], request: AgentRequest) -> list[types.Content]:
        contents = join_results([entry.content for entry in view])
        indexes_by_id = {id(content): index for index, content in enumerate(contents)}
        indexes = [indexes_by_id.get(id(content)) for content in request.contents]
        return insert_transient(contents, indexes, request.transient, has_results)
