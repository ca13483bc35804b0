"""What a user sets: in files, in the environment, as arguments; the later way beats the earlier.

A setting is a field of `Settings`. All ways know its name and type from there, so a new one needs
nothing more than a place in `PROJECT_KEYS` or `USER_KEYS`. What is wrong is told with its place:
the line of the file, or the variable. What a setting does is told where it is used; a store's
password is never told at all.

There are two files, the later beats the earlier: the user's own, and the one that FOLDMARK_CONFIG
names, else the nearest one in or above the working folder. That one may come with a cloned
repository, so it may set only what does no harm.
"""

import os
import re
import tomllib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import inspect as shapes
from msgspec.structs import replace

from foldmark.errors import BadInput, BadPolicy, UnknownModel
from foldmark.files import harmless
from foldmark.model.values import Frozen, Json
from foldmark.policy import FOLDMARK, CompactRules, Policy, Threshold, WindowRules, preset
from foldmark.providers.models import limits_name
from foldmark.store.address import PAIRS, shown_store
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import Limit, model_limits

OWN_FILE, SHARED_FILE = "foldmark.toml", "pyproject.toml"
PREFIX = "FOLDMARK_"
DIGEST = "digest"  # in place of a summarizer's name: nobody is asked

_LEAST = {
    **dict.fromkeys(("window", "input", "output", "summary_tokens"), 1),
    **dict.fromkeys(("reserved", "tail_tokens", "output_cap", "compaction_calls"), 0),
}
_FIGURES = ("compaction_seconds", "compaction_cost")
_SECONDS = ("lease_seconds", "wait_seconds", "hook_seconds")
_MOST_SECONDS = 86_400.0  # a day: clocks and locks do not take any number
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
_NEAR = 0.75
_SWITCHES = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

_TYPES = {
    "object": "a table",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "int | float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_EXPECTED = {**_TYPES, "array": "a list of texts", "object": "a number per model, like model=0.8"}
_MISTYPED = re.compile(r"Expected `(.+?)(?: \| null)?`, got `(.+?)`(?: - at `\$(.+)`)?")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# What the file of a project may set: figures and switches that only change when and how much of a
# session is shown.
PROJECT_KEYS = frozenset(
    {
        *("policy", "window", "input", "output", "auto", "prune", "reserved", "threshold"),
        *("thresholds", "tail_tokens", "output_cap", "protected_tools", "estimate"),
        *("summary_tokens", "lease_seconds", "wait_seconds", "hook_seconds"),
    }
)
# What only the user may set: where data and keys go, what is asked, what it may cost, and what
# protects the data.
USER_KEYS = frozenset(
    {
        *("store", "model", "summarizer", "base_url"),
        *("compaction_calls", "compaction_seconds", "compaction_cost"),
        *("mask_secrets", "durable"),
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
        self._check_figures()
        for key in ("store", "model", "summarizer", "base_url"):
            if getattr(self, key) is not None and not getattr(self, key).strip():
                raise BadPolicy(f"{key} is empty")
        with _naming("policy"):
            preset(self.policy)
        # An exact counter is slow to load: whoever counts finds out whether it is there.
        if self.estimate is not None and not self.estimate.startswith("tiktoken:"):
            with _naming("estimate"):
                counter(self.estimate)
        with _naming("threshold"):
            WindowRules(threshold=self.threshold)
        for model, threshold in self.thresholds.items():
            with _naming(f"thresholds.{model}"):
                WindowRules(threshold=threshold)

    def _check_figures(self) -> None:
        for key, least in _LEAST.items():
            tokens = getattr(self, key)
            if tokens is not None and tokens < least:
                unit = "" if key == "compaction_calls" else " tokens"
                raise BadPolicy(f"{key} is {tokens}; it must be {least} or more{unit}")
        for key in _FIGURES:
            figure = getattr(self, key)
            if figure is not None and not 0 < figure < float("inf"):
                raise BadPolicy(f"{key} is {figure}; it must be more than 0")
        for key in _SECONDS:
            seconds = getattr(self, key)
            waits = key == "wait_seconds" and seconds == 0  # not to wait at all makes sense
            if not (0 < seconds <= _MOST_SECONDS or waits):
                raise BadPolicy(
                    f"{key} is {seconds}; it must be more than 0 seconds, and a day at most"
                )

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The fields as they may be printed."""
        shown: Json = {key: getattr(self, key) for key in self.__struct_fields__}
        if self.store:
            shown["store"] = shown_store(self.store)
        return list(shown.items())

    def __repr__(self) -> str:
        """The same as one text."""
        return f"Settings({', '.join(f'{key}={held!r}' for key, held in self.__rich_repr__())})"

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
        own = {**policy.window.thresholds, **self.thresholds}
        pruning = policy.prune
        if self.protected_tools is not None:
            pruning = replace(pruning, protected_tools=self.protected_tools)
        return replace(
            policy,
            estimate=self.estimate or policy.estimate,
            window=replace(policy.window, thresholds=own),
            prune=pruning,
            view=replace(policy.view, summary=self.summary_tokens or policy.view.summary),
            compact=self._bounds(policy.compact),
        )

    def _bounds(self, rules: CompactRules) -> CompactRules:
        own = {
            "calls": self.compaction_calls,
            "seconds": self.compaction_seconds,
            "cost": self.compaction_cost,
            "mask": self.mask_secrets,
        }
        return replace(rules, **{name: held for name, held in own.items() if held is not None})

    def limit(self) -> Limit | None:
        """The model's limits, or None where neither a window nor a model is set."""
        known = self._known()
        context = self.window or (known.context if known else None)
        if context is None:
            return None
        # A window of the user's stands for all that is known of the input.
        taken = self.input or (known.input if known and not self.window else None)
        if taken and context:
            taken = min(taken, context)
        return Limit(
            context=context, output=self.output or (known.output if known else 0), input=taken
        )

    def _known(self) -> Limit | None:
        if self.model is None:
            return None
        try:
            return model_limits(limits_name(self.model))
        except UnknownModel:
            if self.window is None:
                raise
            return None


_KINDS: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Settings)}


def load_settings(
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **arguments: object,
) -> Settings:
    """What files, the environment and the arguments set; None is an argument not given.

    A key is taken whole from the last way that has it: tables and lists are not merged.
    """
    variables = os.environ if environment is None else environment
    found = {
        **_from_files(folder or Path.cwd(), variables),
        **_from_environment(variables),
        **_from_arguments(arguments),
    }
    if "store" in found:
        found["store"] = _placed(found["store"], Path())
    return Settings(**found)


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
            if path[-1] in lines[above] and _lacks("\n".join(lines[:above]), (*self.table, *path)):
                return f"line {above + 1}"
        return None  # the key is written with escapes

    def refusal(self, path: tuple[str, ...], cause: str) -> BadInput:
        """The error for a key."""
        return BadInput(cause, source=self.source, place=self.place(path))


def _lacks(text: str, path: tuple[str, ...]) -> bool:
    """Whether a whole document comes without a key; the half of one does not."""
    try:
        return _within(tomllib.loads(text), path) is None
    except (ValueError, RecursionError):
        return False


def _within(document: object, path: tuple[str, ...]) -> object:
    for key in path:
        if not isinstance(document, dict):
            return None
        document = cast("Json", document).get(key)
    return document


def _checked(path: tuple[str, ...], value: object, origin: _Origin) -> Any:
    """The value of a key, if it is of the right type and makes sense."""
    key, *models = path
    if key not in _KINDS:
        raise origin.refusal(path, _unknown(key))
    if key == "thresholds" and not models and isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return {model: _checked((key, model), held, origin) for model, held in table.items()}
    try:
        held: Any = msgspec.convert(value, Threshold if models else _KINDS[key])
    except msgspec.ValidationError as error:
        raise origin.refusal(path, _mistyped(".".join(path), value, str(error))) from None
    try:
        alone: Json = {key: {models[0]: held} if models else held}
        Settings(**alone)
    except BadPolicy as error:
        labels = (origin.source, origin.place(path), str(error))
        raise BadPolicy(": ".join(label for label in labels if label)) from None
    return held


def _unknown(key: str) -> str:
    near = get_close_matches(key, _KINDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(_KINDS)}"
    return f"unknown key {harmless(key)!r}; {hint}"


def _mistyped(name: str, value: object, problem: str) -> str:
    found = _MISTYPED.fullmatch(problem)
    if found is None:
        return f"{name}: {problem}"
    expected, got, item = found[1], found[2], found[3] or ""
    words = _TYPES.get(got, got)
    if isinstance(value, str):  # a store may be pasted to a wrong place
        words = f"the text {shown_store(value)[:60]!r}"
    return f"{harmless(name)}{item}: expected {_EXPECTED.get(expected, expected)}, got {words}"


@contextmanager
def _naming(key: str) -> Generator[None]:
    try:
        yield
    except BadPolicy as error:
        raise BadPolicy(f"{key}: {error}") from None


def _placed(store: str, folder: Path) -> str:
    """A store with its path made whole: `~` is the home, and the rest begins in a folder."""
    if "://" in store or store == ":memory:" or PAIRS.match(store):
        return store
    return str(folder / _at_home(store))


def _at_home(name: str) -> Path:
    with suppress(RuntimeError):  # nobody is called so: then the file is
        return Path(name).expanduser()
    return Path(name)


# --- the file ------------------------------------------------------------------------------


class _File(_Origin):
    """A file of settings."""

    folder: Path
    entries: Json


def _from_files(folder: Path, environment: Mapping[str, str]) -> Json:
    named = environment.get(f"{PREFIX}CONFIG", "").strip()
    own = user_file(environment)
    found = _read(_opened(own, harmless(str(own)))) if _is_there(own, Path.is_file) else {}
    if named:
        return found | _read(_named_file(named))
    file = _nearest_file(folder.resolve())
    if file is None or file.folder / OWN_FILE == own.resolve():
        return found
    return found | _read(file, instead=own)


def _read(file: "_File | None", instead: Path | None = None) -> Json:
    """What a file sets; what it may not set is refused with the file to use `instead`."""
    if file is None:
        return {}
    for key in file.entries:
        if instead is not None and key in _KINDS and key not in PROJECT_KEYS:
            cause = f"{key} cannot be set in a project's file; set it in {harmless(str(instead))}"
            raise file.refusal((key,), cause)
    found = {key: _checked((key,), value, file) for key, value in file.entries.items()}
    if "store" in found:
        found["store"] = _placed(found["store"], file.folder)
    return found


def user_file(environment: Mapping[str, str]) -> Path:
    """The user's own file of settings, whether or not it is there."""
    folder = environment.get("XDG_CONFIG_HOME", "")
    # As the specification of XDG has it: a path that does not begin at the root is none.
    above = Path(folder) if Path(folder).is_absolute() else _at_home("~/.config")
    return above / "foldmark" / OWN_FILE


def _named_file(name: str) -> _File:
    source = harmless(name)
    file = _opened(_at_home(name).absolute(), source)
    if file is None:
        raise BadInput("there is no [tool.foldmark] in it", source=source)
    return file


def _nearest_file(folder: Path) -> _File | None:
    for place in (folder, *folder.parents):
        for path in (place / OWN_FILE, place / SHARED_FILE):
            if _is_there(path, Path.is_file):
                file = _opened(path, harmless(os.path.relpath(path, folder)))
                if file is not None:
                    return file
        if _is_there(place / ".git", Path.exists):  # in a worktree it is a file
            return None
    return None


def _is_there(path: Path, asked: Callable[[Path], bool]) -> bool:
    with suppress(OSError):  # a folder above that is closed to us has nothing for us
        return asked(path)
    return False


def _opened(path: Path, source: str) -> _File | None:
    """A file of settings; None for a pyproject.toml that has none."""
    text = _text(path, source)
    table = ("tool", "foldmark") if path.name == SHARED_FILE else ()
    if table and table[-1] not in text:
        return None  # whatever else is wrong with it is not ours to tell
    entries = _within(_parsed(text, source), table)
    if entries is None:
        return None
    origin = _Origin(source=source, text=text)
    if not isinstance(entries, dict):
        raise origin.refusal(table, "tool.foldmark: expected a table")
    return _File(
        source=source, text=text, table=table, folder=path.parent, entries=cast("Json", entries)
    )


def _text(path: Path, source: str) -> str:
    try:
        data = path.read_bytes().removeprefix(_BYTE_ORDER_MARK)
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadInput("not UTF-8 text", source=source, place=f"line {line}") from None
    except FileNotFoundError:
        raise BadInput("there is no such file", source=source) from None
    except (OSError, ValueError) as error:  # ValueError: no path at all
        cause = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot be read: {cause}", source=source) from None


def _parsed(text: str, source: str) -> Json:
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
        raise BadInput(cause, source=source, place=at.partition(",")[0] or None) from None


# --- the environment and the arguments -----------------------------------------------------


def _from_environment(environment: Mapping[str, str]) -> Json:
    _refuse_misspelt(environment)
    found: Json = {}
    for key, kind in _KINDS.items():
        variable = f"{PREFIX}{key.upper()}"
        if text := environment.get(variable, "").strip():
            found[key] = _checked((key,), _plain(text, kind), _Origin(source=variable))
    switched = FOLDMARK.in_environment(environment)
    if not switched.auto:
        found["auto"] = False
    if not switched.prune.on:
        found["prune"] = False
    return found


def _refuse_misspelt(environment: Mapping[str, str]) -> None:
    known = (*(key.upper() for key in _KINDS), *_OTHERS)
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known:
            continue
        if near := get_close_matches(name, known, n=1, cutoff=_NEAR):
            cause = f"unknown variable {harmless(variable)!r}; did you mean '{PREFIX}{near[0]}'?"
            raise BadInput(cause, source="environment")


def _plain(text: str, kind: Any) -> object:
    """What a text says, as TOML would have it, or the text itself where it says no such thing."""
    shape = shapes.type_info(kind)
    for member in shape.types if isinstance(shape, shapes.UnionType) else (shape,):
        match member:
            case shapes.BoolType():
                return _SWITCHES.get(text.lower(), text)
            case shapes.IntType() | shapes.FloatType():
                return _number(text)
            case shapes.VarTupleType():
                return _items(text)
            case shapes.DictType():
                pairs = [item.rpartition("=") for item in _items(text)]
                named = {name.strip(): _number(figure.strip()) for name, _, figure in pairs}
                return text if "" in named else named
            case _:
                continue
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
        key: _checked((key,), str(value) if isinstance(value, Path) else value, _Origin())
        for key, value in arguments.items()
        if value is not None or key not in _KINDS
    }
