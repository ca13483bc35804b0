"""The model of a run: by its name, which may be misspelt, or as its session tells."""

from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path

from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo
from foldmark.model.values import Frozen
from foldmark.providers.local import LOCAL, is_local, local_model
from foldmark.providers.models import model_named
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store
from foldmark.summary.steps import Model

from .run_lines import Line
from .tables import QUIET
from .text import plain

LOCAL_WINDOW = 8_192
NO_MODEL = (
    "no model is set: give --model PROVIDER:NAME, or set `model` in "
    "~/.config/foldmark/foldmark.toml; --model local runs a small one on this machine"
)
_WEIGHTS = ".gguf"
_NEAR = 0.75  # how alike a misspelt `local` must be
# Products that people name in place of who offers them.
_OTHERWISE = {
    "chatgpt": "openai",
    "claude": "anthropic",
    "gemini": "google",
    "gpt": "openai",
    "grok": "xai",
    "kimi": "moonshotai",
}


class Reached(Frozen):
    """A model, and its window where the limits do not tell it."""

    model: Model
    window: int | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name


def reached(
    stack: ExitStack, name: str | None, *, base_url: str | None, window: int | None
) -> Reached:
    """The model of a name; one of this machine runs until the stack is closed."""
    if not name:
        raise BadInput(NO_MODEL)
    if not is_local(name):
        if base_url is None:  # else a provider may have any name
            _check_name(name)
        return Reached(model=model_named(name, base_url=base_url), window=window)
    if base_url is not None:
        raise BadInput("--base-url is for a model that is elsewhere; leave it out for a local one")
    _check_weights(name.partition(":")[2])
    size = window or LOCAL_WINDOW
    return Reached(model=stack.enter_context(local_model(name, window=size)), window=size)


def _check_name(name: str) -> None:
    provider, colon, model = name.partition(":")
    better = _OTHERWISE.get(provider.lower()) if colon else None
    if better is None and get_close_matches(provider.lower(), [LOCAL], cutoff=_NEAR):
        better = LOCAL
    if better is not None:
        what = "model" if better == LOCAL else "provider"
        wrong = name if better == LOCAL else provider
        told = plain(f"{better}{colon}{model}")
        raise BadInput(f"there is no {what} {plain(wrong)!r}; did you mean {told}?")


def _check_weights(path: str) -> None:
    weights = Path(path).expanduser()
    if path and not weights.exists():
        raise BadInput(f"there is no file {plain(path)}; give --model local:FILE{_WEIGHTS}")
    if path and (not weights.is_file() or weights.suffix.lower() != _WEIGHTS):
        raise BadInput(f"{plain(path)} is no {_WEIGHTS} file; give --model local:FILE{_WEIGHTS}")


def about(found: Reached) -> Line | None:
    """A word on a model of this machine: who never saw one shall know what it is."""
    if not is_local(found.name):
        return None
    return Line(
        f"{found.name} runs on this machine, with a window of {found.window:,} tokens; "
        "nothing leaves it",
        QUIET,
    )


def model_of(store: Store, row: SessionRow) -> str | None:
    """The model that gave a session's newest answer, if one did."""
    for place in reversed(range(row.places)):
        held = store.message_at(row.key, place)
        info = held.message.info if held else None
        if not isinstance(info, AssistantInfo) or info.summary:
            continue
        if info.provider_id and info.model_id:
            # Weights are known to a session by their name, and not by where they lie.
            return LOCAL if info.provider_id == LOCAL else f"{info.provider_id}:{info.model_id}"
    return None
