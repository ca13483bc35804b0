"""Going on with another model, whose window may be smaller."""

from msgspec.structs import replace

from foldmark.compaction.breaker import stopped
from foldmark.compaction.plan import tokens_used
from foldmark.errors import WindowTooSmall
from foldmark.log.view import Viewer
from foldmark.model.operations import Operation
from foldmark.refusals import is_context_overflow, stated_window
from foldmark.tokens.budget import exceeds, usable
from foldmark.tokens.limits import Limit

from .compacting import Compacting, Wanted
from .settings import Settings

_LESS = 0.9  # of a window, after a refusal that states no smaller one
_PASSES = 4  # in which a session is brought into a smaller window


class Switching(Compacting):
    """Brings a session from one window into another."""

    def switch(
        self, model: str | None = None, *, window: int | None = None, output: int | None = None
    ) -> list[Operation]:
        """Go on with another model; where its window is too small, the old one compacts first."""
        settings = self._switched(model, window, output)
        limit, name = settings.limit(), settings.model or ""
        done: list[Operation] = []
        while limit is not None and self._is_too_large_for(limit, name):
            if len(done) == _PASSES:
                room = usable(self.policy, limit, name)
                raise WindowTooSmall(usable=room, fixed=self.tokens, largest="the view")
            wanted = Wanted(seen=self._newest_pivot(), into=(limit, name))
            made = self._compacted(wanted)
            if made is None:
                reason = "a hook forbids the compaction that another window needs"
                raise stopped(reason, self._viewer, usable=self.room, fixed=self.fixed)
            done.append(made)
        with self._lock:
            self._settings, self.limit, self.model = settings, limit, name
            self._viewer = self._viewing(self._log)
        return done

    def recover(self, error: str | BaseException) -> bool:
        """Make the view shorter after a refusal for length; False where the error is another.

        The window that the refusal states holds from now on; where it states none, or none that
        is smaller, the provider counts more tokens than we do, and a smaller one is believed in.
        Raises what `compact` raises where nothing can be folded any more.
        """
        if not self.policy.auto or not is_context_overflow(error):
            return False
        window = self._smaller_window(error)
        if window is None or not self.switch(window=window):
            self.compact(auto=True, overflow=True)
        return True

    def _smaller_window(self, error: str | BaseException) -> int | None:
        stated, limit = stated_window(error), self.limit
        if limit is None or not limit.context or (stated and stated < limit.context):
            return stated
        return int(limit.context * _LESS)

    def _switched(self, model: str | None, window: int | None, output: int | None) -> Settings:
        """The settings with another model, or another window of the same."""
        now = self._settings
        if model is None or model == now.model:
            kept = {"window": window or now.window, "output": output or now.output}
            return replace(now, **kept, input=None if window else now.input)
        # What was set for the old model's server and window does not hold for the new one.
        same = (now.model or "").partition(":")[0] == model.partition(":")[0]
        base_url = now.base_url if same or now.summarizer else None
        return replace(
            now, model=model, window=window, output=output, input=None, base_url=base_url
        )

    def _is_too_large_for(self, limit: Limit, model: str) -> bool:
        """Whether the view, as another model would be shown it, exceeds that one's window."""
        with self._lock:
            self._fresh()
            room = usable(self.policy, limit, model)
            viewer = Viewer(self._log, self.policy, model=model, usable=room)
            return exceeds(self.policy, tokens_used(viewer, fixed=self.fixed), limit, model)
