"""Who summarises a session: the model that is set, else the session's own; nobody for a digest."""

import logging

from foldmark import events
from foldmark.acts import Act
from foldmark.asking import Delta, Summarizer
from foldmark.errors import BadPolicy
from foldmark.events import Event
from foldmark.io.models import summarizer

from .folding import Folding
from .means import DIGEST

_log = logging.getLogger("foldmark")


class Summarizing(Folding):
    """Finds the model that is asked, and tells of what it says."""

    def _summarizer(self) -> Summarizer | None:
        """The model that summarises: the one that is set, else the session's; None for none."""
        if self._given_summarizer is not None:
            return self._given_summarizer
        name = self._settings.summarizer or self.model
        if name in {"", DIGEST}:
            return None
        if self._reached is None or self._reached[0] != name:
            self._reached = (name, self._reach(name))
        return self._reached[1]

    def _reach(self, name: str) -> Summarizer | None:
        try:
            return summarizer(name, base_url=self._settings.base_url)
        except BadPolicy as error:
            _log.warning("summaries will be digests, as no model can be asked: %s", error)
            return None

    def _telling(self, act: Act) -> Delta:
        """Tells subscribers of each piece of an answer; these events are not kept."""

        def told(piece: str) -> None:
            event = Event(
                number=0,
                session=self.id,
                kind=events.DELTA,
                at=self.maker.now(),
                data={"act": act.number, "text": piece},
            )
            self._bus.publish([event])

        return told
