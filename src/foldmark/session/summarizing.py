"""Who summarises a session: the model that is set, else the session's own; nobody for a digest."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from foldmark.errors import BadPolicy
from foldmark.model import events
from foldmark.model.operations import Operation
from foldmark.providers.models import summarizer
from foldmark.summary.protocol import Delta, Summarizer
from foldmark.summary.redaction import masked

from .folding import Folding
from .means import DIGEST

_log = logging.getLogger("foldmark")


class Summarizing(Folding):
    """Finds the model that is asked, and tells of what it says."""

    @property
    def asks_model(self) -> bool:
        """Whether a compaction asks a model; else it costs nothing."""
        return self._summarizer() is not None

    def _summarizer(self) -> Summarizer | None:
        """The model that summarises: the one that is set, else the session's; None for none."""
        if self._given_summarizer is not None:
            return self._given_summarizer
        if self._settings.summarizer is None and self._usual_summarizer is not None:
            return self._usual_summarizer
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

    @contextmanager
    def _at_it(self) -> Generator[None]:
        """Note that this thread makes a compaction, or tells of one."""
        self._here.depth = getattr(self._here, "depth", 0) + 1
        try:
            yield
        finally:
            self._here.depth -= 1

    def _telling(self, act: Operation) -> "Telling":
        """Tells subscribers of each piece of an answer; these events are not kept."""

        def told(piece: str) -> None:
            with self._at_it():  # who is told here must not wait for the compaction's end
                self.tell(events.DELTA, act=act.number, text=piece)

        return Telling(told, masked if self.policy.compact.mask else str)


class Telling:
    """Passes an answer on word by word, so that a secret is whole when it is masked."""

    def __init__(self, told: Delta, mask: Callable[[str], str]) -> None:
        """Take who is told, and what is done to each piece."""
        self._told = told
        self._mask = mask
        self._rest = ""

    def __call__(self, piece: str) -> None:
        """Take a piece; what is after its last space waits for more."""
        text = self._rest + piece
        end = max(text.rfind(" "), text.rfind("\n")) + 1
        self._rest = text[end:]
        if end:
            self._told(self._mask(text[:end]))

    def end(self) -> None:
        """Tell what still waits."""
        rest, self._rest = self._rest, ""
        if rest:
            self._told(self._mask(rest))
