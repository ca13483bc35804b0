"""Settings from files, environment variables and arguments; later sources override earlier ones.

A setting is a field of `Settings`; all sources take its name and type from there. `PROJECT_KEYS`
lists those that a project's file may set. Errors name the file and line, or the variable, but
never the password of a store.

There are two files: the user's own, then the one that FOLDMARK_CONFIG names, else the nearest one
in or above the working directory. The nearest one may come with a cloned repository, so it may
only set what is harmless.
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
DIGEST = "digest"  # the value of `summarizer` for summaries without a model

_ABOVE_ZERO, _DAY = nextafter(0, 1), 86_400.0  # clocks and locks overflow with larger numbers
_SECONDS = "more than 0 seconds, and at most a day"
# Minimum, maximum, the text of the error, and the keys.
_BOUNDS = (
    (1, inf, "1 or more tokens", ("window", "input", "output", "summary_tokens")),
    (0, inf, "0 or more tokens", ("reserved", "tail_tokens", "output_cap")),
    (0, inf, "0 or more", ("compaction_calls",)),
    (_ABOVE_ZERO, nextafter(inf, 0), "more than 0", ("compaction_seconds", "compaction_cost")),
    (_ABOVE_ZERO, _DAY, _SECONDS, ("lease_seconds", "hook_seconds")),
    (0, _DAY, "0 seconds to a day", ("wait_seconds",)),
)
# Variables that are not settings: two policy switches, the config file, and those of the tests.
_OTHERS = (
    "DISABLE_AUTOCOMPACT",
    "DISABLE_PRUNE",
    "CONFIG",
    "VECTORS",
    "CORPUS",
    "EXAMPLES",
    "WEIGHTS",
)
# Stricter than difflib's 0.6: FOLDMARK_TOKEN may belong to another program, not mean STORE.
_CUTOFF = 0.75
_SWITCHES = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

# Words of JSON errors, and what to say instead for TOML.
_TOML_WORDS = {
    "expected a list": "expected a list of texts",
    "expected an object": "expected a number per model, like model=0.8",
    "an object": "a table",
}

# A project's file may set limits and switches that only change how much of a session is visible.
# Only the user may set where data and keys go, prompts, costs, and what protects the data.
PROJECT_KEYS = frozenset(
    {
        *("policy", "window", "input", "output", "auto", "prune", "reserved", "threshold"),
        *("thresholds", "tail_tokens", "output_cap", "protected_tools", "estimate"),
        *("summary_tokens", "lease_seconds", "wait_seconds", "hook_seconds"),
    }
)


class Settings(Frozen):
    """All settings of a user."""

    store: str | None = None  # a path, or postgresql://…
    model: str | None = None  # provider:name
    policy: str = FOLDMARK.name
    window: int | None = None  # the context window in tokens, instead of the model's known one
    input: int | None = None  # input tokens that the model accepts, if less than the window
    output: int | None = None
    auto: bool | None = None  # None, here and below: the policy decides
    prune: bool | None = None
    reserved: int | None = None
    threshold: Threshold | None = None
    thresholds: Mapping[str, Threshold] = {}  # by model name or pattern
    tail_tokens: int | None = None
    output_cap: int | None = None
    protected_tools: tuple[str, ...] | None = None  # outputs that are never pruned
    estimate: str | None = None  # the token counter
    summarizer: str | None = None  # `digest`, or provider:name; None: the session's own model
    base_url: str | None = None  # of an OpenAI-compatible server for the summarizer
    summary_tokens: int | None = None
    compaction_calls: int | None = None  # maximum model calls for one compaction
    compaction_seconds: float | None = None
    compaction_cost: float | None = None  # dollars
    mask_secrets: bool | None = None  # in digests and summaries
    lease_seconds: float = 30.0  # a writer that is silent for longer loses the session
    wait_seconds: float = 10.0  # to wait for another writer
    hook_seconds: float = 5.0
    durable: bool = True  # flush each commit to disk before reporting success

    def __post_init__(self) -> None:
        """Raise BadPolicy for values that make no sense."""
        for low, high, allowed, keys in _BOUNDS:
            for key in keys:
                figure: float | None = getattr(self, key)
                if figure is not None and not low <= figure <= high:
                    raise BadPolicy(f"{key} is {figure}; it must be {allowed}")
        for key in ("store", "model", "summarizer", "base_url"):
            if getattr(self, key) is not None and not getattr(self, key).strip():
                raise BadPolicy(f"{key} is empty; set a value, or leave it out")
        with _naming_key("policy"):
            preset(self.policy)
        # Exact counters are slow to load: the first use shows whether one is installed.
        if self.estimate is not None and not self.estimate.startswith("tiktoken:"):
            with _naming_key("estimate"):
                counter(self.estimate)
        with _naming_key("threshold"):
            WindowRules(threshold=self.threshold)
        for model, threshold in self.thresholds.items():
            with _naming_key(f"thresholds.{model}"):
                WindowRules(threshold=threshold)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The fields, without the password of the store."""
        fields: Json = {key: getattr(self, key) for key in self.__struct_fields__}
        if self.store:
            fields["store"] = masked_address(self.store)
        return list(fields.items())

    def __repr__(self) -> str:
        """The fields as text, without the password of the store."""
        return f"Settings({', '.join(f'{key}={value!r}' for key, value in self.__rich_repr__())})"

    def rules(self, policy: Policy | None = None) -> Policy:
        """The given or named policy, adjusted by the other settings."""
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
        """The model's limits, or None if neither a window nor a model is set."""
        preset_limit = None
        try:
            preset_limit = None if self.model is None else model_limits(limits_name(self.model))
        except UnknownModel:
            if self.window is None:
                raise
        context = self.window or (preset_limit.context if preset_limit else None)
        if context is None:
            return None
        # The user's window also replaces the known limit of the input.
        tokens = self.input or (preset_limit.input if preset_limit and not self.window else None)
        if tokens and context:
            tokens = min(tokens, context)
        output = self.output or (preset_limit.output if preset_limit else 0)
        return Limit(context=context, output=output, input=tokens)


_KINDS: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Settings)}
USER_KEYS = frozenset(_KINDS) - PROJECT_KEYS


def load_settings(
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **arguments: object,
) -> Settings:
    """The settings from files, environment and arguments; an argument of None is ignored.

    Each key comes from the last source that has it: tables and lists are not merged.
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
    """Where settings come from, for error messages."""

    source: str | None = None
    text: str = ""  # the content of the file
    table: tuple[str, ...] = ()  # the table of the file that has the settings

    def line(self, path: tuple[str, ...]) -> str | None:
        """The line that sets a key: the text before it does not have the key yet."""
        lines = self.text.split("\n")
        for above in reversed(range(len(lines))):
            if path[-1] not in lines[above]:
                continue
            # The text before a line inside a value is not valid TOML.
            with suppress(ValueError, RecursionError):
                before = tomllib.loads("\n".join(lines[:above]))
                if _lookup(before, (*self.table, *path)) is None:
                    return f"line {above + 1}"
        return None  # the key is written with escape sequences

    def error(self, path: tuple[str, ...], cause: str) -> BadInput:
        """An error about a key."""
        return BadInput(cause, source=self.source, location=self.line(path))


def _lookup(document: object, path: tuple[str, ...]) -> object:
    for key in path:
        if not isinstance(document, dict):
            return None
        document = cast("Json", document).get(key)
    return document


def _check(path: tuple[str, ...], value: object, origin: _Origin) -> Any:
    """The converted value of a key; raises if it is unknown, or its value has no sense."""
    key, *models = path
    if key not in _KINDS:
        raise origin.error(path, _unknown_key(key))
    if key == "thresholds" and not models and isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return {model: _check((key, model), item, origin) for model, item in table.items()}
    try:
        converted: Any = msgspec.convert(value, Threshold if models else _KINDS[key])
    except msgspec.ValidationError as error:
        raise origin.error(path, _type_problem(".".join(path), value, str(error))) from None
    try:
        alone: Json = {key: {models[0]: converted} if models else converted}
        Settings(**alone)
    except BadPolicy as error:
        labels = (origin.source, origin.line(path), str(error))
        raise BadPolicy(": ".join(label for label in labels if label)) from None
    return converted


def _unknown_key(key: str) -> str:
    near = get_close_matches(key, _KINDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(_KINDS)}"
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
    """The store with an absolute path: relative ones start in `folder`, `~` is expanded."""
    if "://" in store or store == ":memory:" or PAIRS.match(store):
        return store
    return str(folder / _expand_home(store))


def _expand_home(name: str) -> Path:
    with suppress(RuntimeError):  # no such user: the file itself has that name
        return Path(name).expanduser()
    return Path(name)


# --- files ---------------------------------------------------------------------------------


def _from_files(folder: Path, environment: Mapping[str, str]) -> Json:
    config = environment.get(f"{PREFIX}CONFIG", "").strip()
    own = user_file(environment)
    values = _read_file(own, printable(str(own))) if _exists(own, Path.is_file) else None
    values = values or {}
    if config:
        source = printable(config)
        more = _read_file(_expand_home(config).absolute(), source)
        if more is None:
            cause = f"no [tool.foldmark] table; add it, or name another file in {PREFIX}CONFIG"
            raise BadInput(cause, source=source)
        return values | more
    return values | _from_project(folder.resolve(), own)


def _from_project(folder: Path, own: Path) -> Json:
    """The settings of the nearest file, unless that is the user's own, which is read already."""
    for directory in (folder, *folder.parents):
        for path in (directory / OWN_FILE, directory / SHARED_FILE):
            if not _exists(path, Path.is_file):
                continue
            if path == own.resolve():
                return {}
            source = printable(os.path.relpath(path, folder))
            if (values := _read_file(path, source, instead=own)) is not None:
                return values
        if _exists(directory / ".git", Path.exists):  # a file in a worktree
            break
    return {}


def _exists(path: Path, test: Callable[[Path], bool]) -> bool:
    with suppress(OSError):  # ignore directories without read permission
        return test(path)
    return False


def _read_file(path: Path, source: str, instead: Path | None = None) -> Json | None:
    """The settings of a file, or None for a pyproject.toml without a [tool.foldmark] table.

    If `instead` is given, raises for keys that only that file may set.
    """
    text = _read_text(path, source)
    table = ("tool", "foldmark") if path.name == SHARED_FILE else ()
    if table and table[-1] not in text:
        return None  # other errors in it do not matter here
    entries = _lookup(_parse(text, source), table)
    if entries is None:
        return None
    if not isinstance(entries, dict):
        origin = _Origin(source=source, text=text)
        raise origin.error(table, "tool.foldmark: expected a table")
    file = _Origin(source=source, text=text, table=table)
    for key in cast("Json", entries):
        if instead is not None and key in USER_KEYS:
            cause = f"{key} cannot be set in a project's file; set it in {printable(str(instead))}"
            raise file.error((key,), cause)
    values = {key: _check((key,), value, file) for key, value in cast("Json", entries).items()}
    if "store" in values:
        values["store"] = _resolve_store(values["store"], path.parent)
    return values


def user_file(environment: Mapping[str, str]) -> Path:
    """The path of the user's own settings, whether or not the file exists."""
    folder = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification: ignore a relative path.
    above = Path(folder) if Path(folder).is_absolute() else _expand_home("~/.config")
    return above / "foldmark" / OWN_FILE


def _read_text(path: Path, source: str) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadInput(
            "not UTF-8 text; save it as UTF-8", source=source, location=f"line {line}"
        ) from None
    except FileNotFoundError:
        raise BadInput(f"file not found; check {PREFIX}CONFIG", source=source) from None
    except (OSError, ValueError) as error:  # ValueError: not a path
        cause = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot be read: {cause}", source=source) from None


def _parse(text: str, source: str) -> Json:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadInput("nested too deeply", source=source) from None
    except ValueError as error:
        cause, _, at = str(error).partition(" (at ")
        if at.startswith("end"):  # of the document
            last = text.rstrip().count("\n") + 1
            at = f"line {last}"
        cause = f"not valid TOML: {cause[:1].lower()}{cause[1:]}"
        raise BadInput(cause, source=source, location=at.partition(",")[0] or None) from None


# --- environment and arguments -------------------------------------------------------------


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
    """The TOML value of a text for this type, or the text itself if it does not convert."""
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
