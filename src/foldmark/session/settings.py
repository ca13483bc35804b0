"""What a user sets: in files, in the environment, as arguments; the later way beats the earlier.

A setting is a field of `Settings`. All ways know its name and type from there, so a new one needs
nothing more, unless a project's file may set it: `PROJECT_KEYS`. What is wrong is told with its
place: the line of the file, or the variable. What a setting does is told where it is used; a
store's password is never told at all.

There are two files, the later beats the earlier: the user's own, and the one that FOLDMARK_CONFIG
names, else the nearest one in or above the working folder. That one may come with a cloned
repository, so it may set only what does no harm.
"""

import os
import tomllib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from math import inf, nextafter
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from foldmark.errors import BadInput, BadPolicy, UnknownModel
from foldmark.files import explain_json_error, printable
from foldmark.model.values import Frozen, Json
from foldmark.policy import FOLDMARK, Policy, Threshold, WindowRules, changed, preset
from foldmark.providers.models import limits_name
from foldmark.store.address import PAIRS, masked_address
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import Limit, model_limits

OWN_FILE, SHARED_FILE = "foldmark.toml", "pyproject.toml"
PREFIX = "FOLDMARK_"
DIGEST = "digest"  # in place of a summarizer's name: nobody is asked

_ABOVE_ZERO, _DAY = nextafter(0, 1), 86_400.0  # clocks and locks do not take any number
_SECONDS = "more than 0 seconds, and a day at most"
# The least and the most of numbers, how that is told, and of which keys.
_BOUNDS = (
    (1, inf, "1 or more tokens", ("window", "input", "output", "summary_tokens")),
    (0, inf, "0 or more tokens", ("reserved", "tail_tokens", "output_cap")),
    (0, inf, "0 or more", ("compaction_calls",)),
    (_ABOVE_ZERO, nextafter(inf, 0), "more than 0", ("compaction_seconds", "compaction_cost")),
    (_ABOVE_ZERO, _DAY, _SECONDS, ("lease_seconds", "hook_seconds")),
    (0, _DAY, _SECONDS, ("wait_seconds",)),  # not to wait at all makes sense
)
# Variables that are no settings: two switches of the policy, this module's own, and the tests'.
_OTHERS = (
    "DISABLE_AUTOCOMPACT",
    "DISABLE_PRUNE",
    "CONFIG",
    "VECTORS",
    "CORPUS",
    "EXAMPLES",
    "WEIGHTS",
)
# Closer than difflib's own 0.6: FOLDMARK_TOKEN may be another program's, not a misspelt STORE.
_CUTOFF = 0.75
_SWITCHES = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

# What TOML calls otherwise than JSON, and what is meant where such a thing is expected.
_TOML_WORDS = {
    "expected a list": "expected a list of texts",
    "expected an object": "expected a number per model, like model=0.8",
    "an object": "a table",
}

# What the file of a project may set: figures and switches that only change when and how much of a
# session is shown. All else only the user may set: where data and keys go, what is asked, what it
# may cost, and what protects the data.
PROJECT_KEYS = frozenset(
    {
        *("policy", "window", "input", "output", "auto", "prune", "reserved", "threshold"),
        *("thresholds", "tail_tokens", "output_cap", "protected_tools", "estimate"),
        *("summary_tokens", "lease_seconds", "wait_seconds", "hook_seconds"),
    }
)


class Settings(Frozen):
    """Everything that a user can set."""

    store: str | None = None  # a path, or postgresql://…
    model: str | None = None  # provider:name
    policy: str = FOLDMARK.name
    window: int | None = None  # tokens of the model's context, whatever the snapshot says
    input: int | None = None  # what the model takes of that, where it takes less
    output: int | None = None
    auto: bool | None = None  # None, here and below: as the policy says
    prune: bool | None = None
    reserved: int | None = None
    threshold: Threshold | None = None
    thresholds: Mapping[str, Threshold] = {}  # by the name of a model, or a pattern
    tail_tokens: int | None = None
    output_cap: int | None = None
    protected_tools: tuple[str, ...] | None = None  # these are never pruned
    estimate: str | None = None  # the token counter
    summarizer: str | None = None  # `digest`, or provider:name; None: the session's own model
    base_url: str | None = None  # of a server for it that talks as OpenAI's does
    summary_tokens: int | None = None
    compaction_calls: int | None = None  # to models for one compaction, at most
    compaction_seconds: float | None = None
    compaction_cost: float | None = None  # dollars
    mask_secrets: bool | None = None  # in digests and summaries
    lease_seconds: float = 30.0  # a writer that is silent for so long has lost its session
    wait_seconds: float = 10.0  # for another writer to end
    hook_seconds: float = 5.0
    durable: bool = True  # each commit is on the disk before it is told

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for low, high, allowed, keys in _BOUNDS:
            for key in keys:
                figure: float | None = getattr(self, key)
                if figure is not None and not low <= figure <= high:
                    raise BadPolicy(f"{key} is {figure}; it must be {allowed}")
        for key in ("store", "model", "summarizer", "base_url"):
            if getattr(self, key) is not None and not getattr(self, key).strip():
                raise BadPolicy(f"{key} is empty")
        with _naming_key("policy"):
            preset(self.policy)
        # An exact counter is slow to load: whoever counts finds out whether it is there.
        if self.estimate is not None and not self.estimate.startswith("tiktoken:"):
            with _naming_key("estimate"):
                counter(self.estimate)
        with _naming_key("threshold"):
            WindowRules(threshold=self.threshold)
        for model, threshold in self.thresholds.items():
            with _naming_key(f"thresholds.{model}"):
                WindowRules(threshold=threshold)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The fields as they may be printed."""
        fields: Json = {key: getattr(self, key) for key in self.__struct_fields__}
        if self.store:
            fields["store"] = masked_address(self.store)
        return list(fields.items())

    def __repr__(self) -> str:
        """The same as one text."""
        return f"Settings({', '.join(f'{key}={value!r}' for key, value in self.__rich_repr__())})"

    def rules(self, policy: Policy | None = None) -> Policy:
        """The policy, the one given or the one that is named, adjusted by what is set beside it."""
        policy = (policy or preset(self.policy)).adjusted(
            auto=self.auto,
            prune=self.prune,
            reserved=self.reserved,
            threshold=self.threshold,
            tail_tokens=self.tail_tokens,
            output_cap=self.output_cap,
        )
        return changed(
            policy,
            estimate=self.estimate,
            window=replace(
                policy.window, thresholds={**policy.window.thresholds, **self.thresholds}
            ),
            prune=changed(policy.prune, protected_tools=self.protected_tools),
            view=changed(policy.view, summary=self.summary_tokens),
            compact=changed(
                policy.compact,
                calls=self.compaction_calls,
                seconds=self.compaction_seconds,
                cost=self.compaction_cost,
                mask=self.mask_secrets,
            ),
        )

    def limit(self) -> Limit | None:
        """The model's limits, or None where neither a window nor a model is set."""
        model_limit = None
        try:
            model_limit = model_limits(limits_name(self.model)) if self.model is not None else None
        except UnknownModel:
            if self.window is None:
                raise
        context = self.window or (model_limit.context if model_limit else None)
        if context is None:
            return None
        # A window of the user's stands for all that is known of the input.
        input_limit = self.input or (model_limit.input if model_limit and not self.window else None)
        if input_limit and context:
            input_limit = min(input_limit, context)
        return Limit(
            context=context,
            output=self.output or (model_limit.output if model_limit else 0),
            input=input_limit,
        )


_KINDS: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Settings)}
USER_KEYS = frozenset(_KINDS) - PROJECT_KEYS


def load_settings(
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **arguments: object,
) -> Settings:
    """What files, the environment and the arguments set; None is an argument not given.

    A key is taken whole from the last way that has it: tables and lists are not merged.
    """
    variables = os.environ if environment is None else environment
    values = {
        **_from_files(folder or Path.cwd(), variables),
        **_from_environment(variables),
        **_from_arguments(arguments),
    }
    if "store" in values:
        values["store"] = _resolve_store(values["store"], Path())
    return Settings(**values)


# --- one setting ---------------------------------------------------------------------------


class _Origin(Frozen):
    """Where settings were found, so that an error can tell it."""

    source: str | None = None
    text: str = ""  # of a file
    table: tuple[str, ...] = ()  # of the file, in which the settings lie

    def place(self, path: tuple[str, ...]) -> str | None:
        """The line on which a key is set: the last before which it is not there."""
        lines = self.text.split("\n")
        for above in reversed(range(len(lines))):
            if path[-1] not in lines[above]:
                continue
            # The half of a document is none: the line lies within a value.
            with suppress(ValueError, RecursionError):
                before = tomllib.loads("\n".join(lines[:above]))
                if _lookup(before, (*self.table, *path)) is None:
                    return f"line {above + 1}"
        return None  # the key is written with escapes

    def refusal(self, path: tuple[str, ...], cause: str) -> BadInput:
        """The error for a key."""
        return BadInput(cause, source=self.source, location=self.place(path))


def _lookup(document: object, path: tuple[str, ...]) -> object:
    for key in path:
        if not isinstance(document, dict):
            return None
        document = cast("Json", document).get(key)
    return document


def _check(path: tuple[str, ...], value: object, origin: _Origin) -> Any:
    """The value of a key, if it is of the right type and makes sense."""
    key, *models = path
    if key not in _KINDS:
        raise origin.refusal(path, _unknown_key(key))
    if key == "thresholds" and not models and isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return {
            model: _check((key, model), converted, origin) for model, converted in table.items()
        }
    try:
        converted: Any = msgspec.convert(value, Threshold if models else _KINDS[key])
    except msgspec.ValidationError as error:
        raise origin.refusal(path, _type_problem(".".join(path), value, str(error))) from None
    try:
        alone: Json = {key: {models[0]: converted} if models else converted}
        Settings(**alone)
    except BadPolicy as error:
        labels = (origin.source, origin.place(path), str(error))
        raise BadPolicy(": ".join(label for label in labels if label)) from None
    return converted


def _unknown_key(key: str) -> str:
    near = get_close_matches(key, _KINDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(_KINDS)}"
    return f"unknown key {printable(key)!r}; {hint}"


def _type_problem(name: str, value: object, problem: str) -> str:
    cause, _, item = problem.replace(" | null", "").partition(" - at `$")
    text = explain_json_error(BadInput(cause)).cause
    for json, toml in _TOML_WORDS.items():
        text = text.replace(json, toml)
    if isinstance(value, str):  # a store may be pasted to a wrong place
        text = f"{text.partition(', got ')[0]}, got the text {masked_address(value)[:60]!r}"
    return f"{printable(name)}{item.rstrip('`')}: {text}"


@contextmanager
def _naming_key(key: str) -> Generator[None]:
    try:
        yield
    except BadPolicy as error:
        raise BadPolicy(f"{key}: {error}") from None


def _resolve_store(store: str, folder: Path) -> str:
    """A store with its path made whole: `~` is the home, and the rest begins in a folder."""
    if "://" in store or store == ":memory:" or PAIRS.match(store):
        return store
    return str(folder / _expand_home(store))


def _expand_home(name: str) -> Path:
    with suppress(RuntimeError):  # nobody is called so: then the file is
        return Path(name).expanduser()
    return Path(name)


# --- the file ------------------------------------------------------------------------------


def _from_files(folder: Path, environment: Mapping[str, str]) -> Json:
    config = environment.get(f"{PREFIX}CONFIG", "").strip()
    own = user_file(environment)
    values = _read_file(own, printable(str(own))) if _exists(own, Path.is_file) else None
    values = values or {}
    if config:
        source = printable(config)
        more = _read_file(_expand_home(config).absolute(), source)
        if more is None:
            raise BadInput("there is no [tool.foldmark] in it", source=source)
        return values | more
    return values | _from_project(folder.resolve(), own)


def _from_project(folder: Path, own: Path) -> Json:
    """What the nearest file sets; nothing if that is the user's own, which is read already."""
    for directory in (folder, *folder.parents):
        for path in (directory / OWN_FILE, directory / SHARED_FILE):
            if not _exists(path, Path.is_file):
                continue
            if path == own.resolve():
                return {}
            source = printable(os.path.relpath(path, folder))
            if (values := _read_file(path, source, instead=own)) is not None:
                return values
        if _exists(directory / ".git", Path.exists):  # in a worktree it is a file
            break
    return {}


def _exists(path: Path, test: Callable[[Path], bool]) -> bool:
    with suppress(OSError):  # a folder above that is closed to us has nothing for us
        return test(path)
    return False


def _read_file(path: Path, source: str, instead: Path | None = None) -> Json | None:
    """What a file sets; None for a pyproject.toml that has no table of ours.

    What a project's file may not set is refused with the file to use `instead`.
    """
    text = _read_text(path, source)
    table = ("tool", "foldmark") if path.name == SHARED_FILE else ()
    if table and table[-1] not in text:
        return None  # whatever else is wrong with it is not ours to tell
    entries = _lookup(_parse(text, source), table)
    if entries is None:
        return None
    if not isinstance(entries, dict):
        refusal = _Origin(source=source, text=text).refusal
        raise refusal(table, "tool.foldmark: expected a table")
    file = _Origin(source=source, text=text, table=table)
    for key in cast("Json", entries):
        if instead is not None and key in USER_KEYS:
            cause = f"{key} cannot be set in a project's file; set it in {printable(str(instead))}"
            raise file.refusal((key,), cause)
    values = {key: _check((key,), value, file) for key, value in cast("Json", entries).items()}
    if "store" in values:
        values["store"] = _resolve_store(values["store"], path.parent)
    return values


def user_file(environment: Mapping[str, str]) -> Path:
    """The user's own file of settings, whether or not it is there."""
    folder = environment.get("XDG_CONFIG_HOME", "")
    # As the specification of XDG has it: a path that does not begin at the root is none.
    above = Path(folder) if Path(folder).is_absolute() else _expand_home("~/.config")
    return above / "foldmark" / OWN_FILE


def _read_text(path: Path, source: str) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadInput("not UTF-8 text", source=source, location=f"line {line}") from None
    except FileNotFoundError:
        raise BadInput("there is no such file", source=source) from None
    except (OSError, ValueError) as error:  # ValueError: no path at all
        cause = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot be read: {cause}", source=source) from None


def _parse(text: str, source: str) -> Json:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadInput("nested too deeply", source=source) from None
    except ValueError as error:
        cause, _, at = str(error).partition(" (at ")
        if at.startswith("end"):  # of the document, where something is missing
            last = text.rstrip().count("\n") + 1
            at = f"line {last}"
        cause = f"not valid TOML: {cause[:1].lower()}{cause[1:]}"
        raise BadInput(cause, source=source, location=at.partition(",")[0] or None) from None


# --- the environment and the arguments -----------------------------------------------------


def _from_environment(environment: Mapping[str, str]) -> Json:
    _refuse_misspelled(environment)
    values: Json = {}
    for key, kind in _KINDS.items():
        variable = f"{PREFIX}{key.upper()}"
        if text := environment.get(variable, "").strip():
            values[key] = _check((key,), _from_text(text, kind), _Origin(source=variable))
    switched = FOLDMARK.in_environment(environment)
    if not switched.auto:
        values["auto"] = False
    if not switched.prune.on:
        values["prune"] = False
    return values


def _refuse_misspelled(environment: Mapping[str, str]) -> None:
    names = (*(key.upper() for key in _KINDS), *_OTHERS)
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in names:
            continue
        if near := get_close_matches(name, names, n=1, cutoff=_CUTOFF):
            cause = f"unknown variable {printable(variable)!r}; did you mean '{PREFIX}{near[0]}'?"
            raise BadInput(cause, source="environment")


def _from_text(text: str, kind: Any) -> object:
    """What a text says of this kind, as TOML would have it, or the text itself if it does not."""
    if kind is _KINDS["thresholds"]:
        pairs = [item.rpartition("=") for item in _items(text)]
        thresholds = {name.strip(): _number(figure.strip()) for name, _, figure in pairs}
        return text if "" in thresholds else thresholds
    for value in (text, _SWITCHES.get(text.lower(), text), _number(text), _items(text)):
        with suppress(msgspec.ValidationError):
            msgspec.convert(value, kind)
            return value
    return text


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _number(text: str) -> object:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _from_arguments(arguments: Mapping[str, object]) -> Json:
    return {
        key: _check((key,), str(value) if isinstance(value, Path) else value, _Origin())
        for key, value in arguments.items()
        if value is not None or key not in _KINDS
    }
