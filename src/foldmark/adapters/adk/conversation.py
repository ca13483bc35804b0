"""One agent's conversation in ADK, followed by a session; from whichever thread it is called.

What ADK calls a session has one of ours for each agent, branch and scope in it, as each is shown a
history of its own. How contents are read and written is told in `contents`.
"""

from collections.abc import Sequence

from google.genai import types

from foldmark.adapters.conversations import Conversation, with_passing
from foldmark.refusals import is_context_overflow
from foldmark.session.session import Session

from .contents import AdkDialect, ContentRead, ContentReader, has_results, with_joined_results
from .requests import AgentRequest


class AgentConversation(Conversation[ContentRead]):
    """What one agent is shown of one conversation."""

    def __init__(self, name: str, session: Session) -> None:
        """Take the session, under the name by which it is asked for."""
        super().__init__(name, session, AdkDialect())
        self._reader = ContentReader()

    def view(self, request: AgentRequest) -> list[types.Content]:
        """What to send in place of the contents."""
        with self.turn():
            self._take_request(request)
            return self._written(self.mirror.view(), request)

    def tell(self, request: AgentRequest) -> None:
        """Take the contents of a request, with what came after it.

        The next request tells it again, if there is one, and if ADK has not forgotten it by then.
        """
        with self.turn():
            self._take_request(request)

    def shorter(self, request: AgentRequest, error: Exception) -> list[types.Content] | None:
        """What to send after a refusal for length; None where it is another error."""
        if not is_context_overflow(error):
            return None
        with self.turn():
            if not self.mirror.can_shrink(error):
                return None
            self._take_request(request)  # another may have written meanwhile
            return self._written(self.mirror.shrunk(error), request)

    def _take_request(self, request: AgentRequest) -> None:
        passing = [self._reader.read_alone(content) for content, _ in request.passing]
        self.count_beside(request.system, request.tools, passing=passing)
        history = self._reader.read(request.contents, request.measured)
        self.take(history, whole=not request.goes_on)

    def _written(self, view: Sequence[ContentRead], request: AgentRequest) -> list[types.Content]:
        contents = with_joined_results([turn.content for turn in view])
        known = {id(content): place for place, content in enumerate(contents)}
        places = [known.get(id(content)) for content in request.contents]
        return with_passing(contents, places, request.passing, has_results)
