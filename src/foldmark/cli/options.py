"""Options that several commands share, and the transcript or store that they open."""

import os
import re
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from foldmark.errors import BadInput, NoStore
from foldmark.files import MAX_BYTES, printable, size_text, user_data
from foldmark.log.log import Log
from foldmark.model.messages import Transcript
from foldmark.policy import FOLDMARK, PRESETS, Policy, preset
from foldmark.session.opening import make_session
from foldmark.session.session import Session
from foldmark.session.settings import Settings, load_settings
from foldmark.store.rows import SessionRow
from foldmark.store.store import LATEST, Store
from foldmark.tokens.counters import counter
from foldmark.transcripts.read import TranscriptFile, pick_session, read_file

from .groups import argument, flag, option, switch
from .text import plain

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|b|k|kb|kib|m|mb|mib|g|gb|gib)", re.IGNORECASE)
_FACTORS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def parse_size(text: str | int) -> int:
    """The bytes in a size such as 512MB or 2GB. Typer also passes the default through here."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size; write it like 512MB or 2GB")
    return int(min(float(match[1]), 2.0**40) * _FACTORS[match[2][:1].lower()])


def size_option() -> Any:
    """The option for the size limit of a line or document."""
    default = size_text(MAX_BYTES)
    return option(*MAX_SIZE, parser=parse_size, show_default=default, default=MAX_BYTES)


# --- single options ------------------------------------------------------------------------

File = Annotated[
    str,
    argument(
        "FILE",
        "Transcript in any known format (see `foldmark formats`); - reads standard input.",
    ),
]
SessionName = Annotated[
    str,
    argument("ID", "Session: its id, an unambiguous start of its id, or `latest`."),
]
_JSON_HELP = "Print one JSON object instead of tables."
AsJson = Annotated[bool, switch("--json", _JSON_HELP)]

# Names and help of options that several groups have.
FORMAT = (
    "--format NAME",
    "Read the file in this format instead of detecting it; see `foldmark formats`.",
)
LENIENT = ("--lenient", "Skip lines that cannot be read, and report each of them.")
MAX_SIZE = ("--max-size SIZE", "Refuse a line or document larger than this.")
WINDOW = ("--window TOKENS", "Context window of the model, in tokens.")
BASE_URL = ("--base-url URL", "Address of the model's server, if not the provider's own.")
_STORE_HELP = (
    "Store: a file or a postgresql:// address (default: FOLDMARK_STORE, your settings, or "
    "foldmark/foldmark.db in $XDG_DATA_HOME or ~/.local/share)."
)
STORE = ("--store WHERE", _STORE_HELP)
POLICY = ("--policy NAME", f"Policy: {', '.join(PRESETS)}.")


def policy_named(name: str) -> Policy:
    """The preset of this name, without the features that environment variables disable."""
    return preset(name).in_environment(os.environ)


# --- groups --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a transcript, and which of its sessions to use."""

    format: str | None = option(*FORMAT)
    pick: int | None = option(
        "--pick N",
        "Use this session of a file that has several (default: the longest).",
        min=1,
    )
    lenient: bool = flag(*LENIENT)
    max_size: int = size_option()

    def read(self, file: str) -> TranscriptFile:
        """Read the file, and report each skipped line on standard error."""
        source = read_file(file, format=self.format, lenient=self.lenient, max_bytes=self.max_size)
        for skipped in source.skipped:
            line = plain(f"foldmark: skipped line {skipped.line}: {skipped.cause}")
            sys.stderr.write(f"{line}\n")
        return source

    def open(self, file: str, policy: Policy) -> tuple[Transcript, Log]:
        """The chosen session and its log. If there are others, a line reports the choice."""
        source = self.read(file)
        index = pick_session(source, self.pick, file)
        transcript = source.sessions[index]
        if self.format is not None and not transcript.messages:
            cause = f"no message was read as {self.format}; leave out --format to detect the format"
            raise BadInput(cause, source=printable(file))
        if self.pick is None and len(source.sessions) > 1:
            sys.stderr.write(
                f"foldmark: using session {index + 1}, the longest of {len(source.sessions)}; "
                "choose another with --pick N\n"
            )
        return transcript, Log(counter(policy.estimate), transcript.messages)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The policy, the model and its context window, as the options choose them."""

    policy: str = option(*POLICY, default=FOLDMARK.name)
    model: str | None = option(
        "-m --model PROVIDER:NAME",
        "Model whose window to fit (default: the newest one in the session).",
    )
    window: int | None = option(*WINDOW, min=1)


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The store of a command, and the form of its output."""

    store: str | None = option(*STORE, show_default=False)
    json: bool = flag("--json", _JSON_HELP)

    def open(self) -> AbstractContextManager[Store]:
        """Open the store. Raises BadInput if it does not exist."""
        return opened_store(store_settings(store=self.store))

    @contextmanager
    def session(self, name: str) -> Generator[tuple[Session, Store, SessionRow]]:
        """Open the session with this name; also gives the store and the session's row."""
        settings = store_settings(store=self.store)
        with opened_store(settings) as store:
            row = store.resolve(name)
            with make_session(row, store, settings, settings.rules()) as session:
                yield session, store, row


# --- stores --------------------------------------------------------------------------------


def store_settings(**values: Any) -> Settings:
    """The settings of a command, with the user's own store if no other is chosen."""
    settings = load_settings(**values)
    return replace(settings, store=store_location(settings))


def store_location(settings: Settings) -> str:
    """The path or address of the store; by default the user's own, outside of any project."""
    return settings.store or str(user_data() / "foldmark.db")


@contextmanager
def opened_store(
    settings: Settings, *, create: bool = False, missing: str = "start with: foldmark import FILE"
) -> Generator[Store]:
    """Open the store of the settings; only `create` creates a missing one."""
    wait = max(settings.wait_seconds, 1.0)
    try:
        store = Store.open(
            store_location(settings), durable=settings.durable, wait=wait, make=create
        )
    except NoStore as error:
        raise BadInput(f"no store at {error.store}; {missing}") from None
    try:
        yield store
    finally:
        store.close()


def check_new_id(name: str | None) -> str | None:
    """Return the id that the user chose for a new session. Raises BadInput if it is unusable."""
    if name is not None and (not name.strip() or name == LATEST):
        raise BadInput(f"{name!r} cannot be a session id; use another one")
    return name
