"""Going on with another model, whose window may be smaller."""

from msgspec.structs import replace

from foldmark.acts import Act
from foldmark.errors import WindowTooSmall
from foldmark.limits import Limit
from foldmark.overflow import exceeds, usable
from foldmark.plan import tokens_used
from foldmark.view import Viewer

from .compacting import Compacting, Wanted

_PASSES = 4  # in which a session is brought into a smaller window


class Switching(Compacting):
    """Brings a session from one window into another."""

    def switch(
        self, model: str | None = None, *, window: int | None = None, output: int | None = None
    ) -> list[Act]:
        """Go on with another model; where its window is too small, the old one compacts first."""
        settings = replace(
            self._settings,
            model=model or self._settings.model,
            window=window,
            output=output,
            input=None,
        )
        limit, name = settings.limit(), settings.model or ""
        done: list[Act] = []
        while limit is not None and self._is_too_large_for(limit, name):
            if len(done) == _PASSES:
                room = usable(self.policy, limit, name)
                raise WindowTooSmall(usable=room, fixed=self.tokens, largest="the view")
            wanted = Wanted(seen=self._newest_pivot(), into=(limit, name))
            made = self._compacted(wanted)
            if made is None:
                break
            done.append(made)
        with self._lock:
            self._settings, self.limit, self.model = settings, limit, name
            self._viewer = self._viewing(self._log)
        return done

    def _is_too_large_for(self, limit: Limit, model: str) -> bool:
        """Whether the view, as another model would be shown it, exceeds that one's window."""
        with self._lock:
            self._fresh()
            room = usable(self.policy, limit, model)
            viewer = Viewer(self._log, self.policy, model=model, usable=room)
            return exceeds(self.policy, tokens_used(viewer, fixed=self.fixed), limit, model)
