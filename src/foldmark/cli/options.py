"""Options that commands share, in groups, and what each group opens: a transcript or a store."""

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
from foldmark.files import MOST_BYTES, harmless, size_text, user_data
from foldmark.log.log import Log
from foldmark.model.messages import Transcript
from foldmark.policy import FOLDMARK, PRESETS, Policy, preset
from foldmark.session.opening import make_session
from foldmark.session.session import Session
from foldmark.session.settings import Settings, load_settings
from foldmark.store.rows import SessionRow
from foldmark.store.store import LATEST, Store
from foldmark.tokens.counters import counter
from foldmark.transcripts.read import ReadFile, picked, read_file

from .groups import argument, flag, option
from .text import plain

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|b|k|kb|kib|m|mb|mib|g|gb|gib)", re.IGNORECASE)
_FACTORS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def size_in_bytes(text: str | int) -> int:
    """The bytes that a size like 512MB or 2GB stands for; typer sends its default through, too."""
    found = _SIZE.fullmatch(str(text).strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size like 512MB or 2GB")
    return int(min(float(found[1]), 2.0**40) * _FACTORS[found[2][:1].lower()])


def size_option() -> Any:
    """The option for the largest line or document."""
    shown = size_text(MOST_BYTES)
    return option(*MAX_SIZE, parser=size_in_bytes, show_default=shown, default=MOST_BYTES)


# --- options that stand alone --------------------------------------------------------------

File = Annotated[
    str,
    argument(
        "FILE",
        "A transcript of any format that is known (`foldmark formats`); - is standard input.",
    ),
]
SessionName = Annotated[
    str,
    argument("ID", "A session: its id, a beginning that only it has, or `latest`."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

# Options that more than one group has.
FORMAT = (
    "--format NAME",
    "Read it as this format, where its content does not tell; see `foldmark formats`.",
)
LENIENT = ("--lenient", "Leave out lines that cannot be read, and say which.")
MAX_SIZE = ("--max-size SIZE", "Refuse a line, or a document, that is larger than this.")
WINDOW = ("--window", "The model's context window in tokens.")
BASE_URL = ("--base-url URL", "Where that model is, if not at its provider's own place.")
_STORE_HELP = (
    "The store: a file or a postgresql:// address (default: FOLDMARK_STORE, your settings, or "
    "foldmark/foldmark.db in $XDG_DATA_HOME or ~/.local/share)."
)
STORE = ("--store WHERE", _STORE_HELP)
DEFAULT_POLICY = FOLDMARK.name


def policy_named(name: str) -> Policy:
    """The preset of this name, with what the environment switches off."""
    return preset(name).in_environment(os.environ)


# --- groups --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a transcript is read, and which of its sessions is meant."""

    format: str | None = option(*FORMAT)
    pick: int | None = option(
        "--pick N",
        "Of a file with several sessions, the one of this number; else the longest.",
        min=1,
    )
    lenient: bool = flag(*LENIENT)
    max_size: int = size_option()

    def read(self, file: str) -> ReadFile:
        """The file, with a word on each line that was left out."""
        read = read_file(file, format=self.format, lenient=self.lenient, most_bytes=self.max_size)
        for skipped in read.skipped:
            line = plain(f"foldmark: left out line {skipped.line}: {skipped.cause}")
            sys.stderr.write(f"{line}\n")
        return read

    def open(self, file: str, policy: Policy) -> tuple[Transcript, Log]:
        """The session that is meant, and the log that holds it; says which, if there are others."""
        read = self.read(file)
        place = picked(read, self.pick, file)
        transcript = read.sessions[place]
        if self.format is not None and not transcript.messages:
            raise BadInput(f"nothing in it is {self.format}", source=harmless(file))
        if self.pick is None and len(read.sessions) > 1:
            sys.stderr.write(
                f"foldmark: the longest of {len(read.sessions)} sessions, number {place + 1}; "
                "another one: --pick N\n"
            )
        return transcript, Log(counter(policy.estimate), transcript.messages)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The policy, the model and its window."""

    policy: str = option("--policy NAME", f"One of {', '.join(PRESETS)}.", default=DEFAULT_POLICY)
    model: str | None = option(
        "--model PROVIDER:NAME",
        "The model whose window it shall fit; the newest one in the session unless given.",
    )
    window: int | None = option(*WINDOW, min=1)


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The store of a command, and how it answers."""

    store: str | None = option(*STORE, show_default=False)
    json: bool = flag("--json", "Print one JSON object instead of tables.")

    def open(self) -> AbstractContextManager[Store]:
        """The store, which must be there."""
        return opened_store(store_settings(store=self.store))

    @contextmanager
    def session(self, name: str) -> Generator[tuple[Session, Store, SessionRow]]:
        """A session that is in the store, by its name, with the store and its row."""
        settings = store_settings(store=self.store)
        with opened_store(settings) as store:
            row = store.named(name)
            with make_session(row, store, settings, settings.rules()) as session:
                yield session, store, row


# --- stores --------------------------------------------------------------------------------


def store_settings(**given: Any) -> Settings:
    """The settings of a command on a store; without another choice it is the user's own."""
    settings = load_settings(**given)
    return replace(settings, store=store_place(settings))


def store_place(settings: Settings) -> str:
    """A command's store: a path or an address; else the user's own, outside of any project."""
    return settings.store or str(user_data() / "foldmark.db")


@contextmanager
def opened_store(
    settings: Settings, *, make: bool = False, missing: str = "begin with: foldmark import FILE"
) -> Generator[Store]:
    """The store that the settings name; only a command that fills it may make it."""
    wait = max(settings.wait_seconds, 1.0)
    try:
        store = Store.open(store_place(settings), durable=settings.durable, wait=wait, make=make)
    except NoStore as error:
        raise BadInput(f"no store at {error.store}; {missing}") from None
    try:
        yield store
    finally:
        store.close()


def new_name(name: str | None) -> str | None:
    """An id that a user gives to a new session, if it can be one."""
    if name is not None and (not name.strip() or name == LATEST):
        raise BadInput(f"{name!r} cannot be the id of a session; give another")
    return name
