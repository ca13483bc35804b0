"""`foldmark demo`: the whole story, on a session made on the spot."""

import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from foldmark.analysis.growth import sampled
from foldmark.files import write_private
from foldmark.lab.generate import generate
from foldmark.model.messages import Transcript, encode_transcript
from foldmark.presets import FOLDMARK
from foldmark.session.means import DIGEST
from foldmark.session.opening import open as open_session
from foldmark.store.store import Store
from foldmark.tokens.limits import Limit, model_limits

from .demonstrated import story
from .demonstration import Demonstration, Outcome
from .options import AsJson
from .tables import show, show_json

EXAMPLE = "Example: foldmark demo --seed 11"
MODEL, MESSAGES, OUTPUT_CHARS = "anthropic:claude-sonnet-4-5", 900, 2_500
_ON_THE_FILE = ("inspect {}", "plan {}", "compact {} --window 64000")
_ON_THE_STORE = ("show latest", "search latest wheel", "sessions", "undo latest")

Seed = Annotated[int, typer.Option("--seed", help="Another number makes another session.")]


def demo(*, seed: Seed = 7, json: AsJson = False) -> None:
    """Let a session outgrow its model's window, and show how it is made to fit, and undone.

    No model is asked and nothing is sent anywhere. The session stays in a private folder, as a
    file and in a store, so that the other commands can be tried on it.
    """
    limit = model_limits(MODEL)
    transcript = generate(
        seed, messages=MESSAGES, output_chars=OUTPUT_CHARS, model=MODEL, window=limit.context
    )
    path = _stored(transcript)
    store = path.with_name("agent.db")
    found = _outcome(transcript, store, limit)
    if json:
        told = msgspec.structs.asdict(found) | {"points": sampled(list(found.points))}
        show_json({"path": str(path), "store": str(store), "seed": seed, "model": MODEL, **told})
        return
    folder = transcript.info.directory or ""
    told = story(found, model=MODEL, window=limit.context, folder=folder)
    show(*told, Text("Try it yourself", style="bold"), commands=_commands(path, store, found))


def _stored(transcript: Transcript) -> Path:
    """The session as a file, in a folder that only this user may enter."""
    path = Path(tempfile.mkdtemp(prefix="foldmark-demo-")) / "session.json"
    write_private(path, encode_transcript(transcript))
    return path


def _outcome(transcript: Transcript, place: Path, limit: Limit) -> Outcome:
    """What becomes of the same messages when they are said one by one."""
    info = transcript.info
    with Store.open(place, durable=False) as store:
        store.create(info, estimate=FOLDMARK.estimate)
    # Nothing that stands in the user's settings shall change the story, or ask a model.
    with open_session(
        place,
        session=info.id,
        policy=FOLDMARK,
        summarizer=DIGEST,
        model=MODEL,
        window=limit.context,
        output=limit.output,
        durable=False,
    ) as session:
        return Demonstration(session).outcome(transcript.messages)


def _commands(path: Path, store: Path, found: Outcome) -> list[str]:
    file, place = shlex.quote(str(path)), shlex.quote(str(store))
    recall = [f"recall latest {example.handle}" for example in found.examples[-1:]]
    return [
        *(f"foldmark {command.format(file)}" for command in _ON_THE_FILE),
        *(f"foldmark {command} --store {place}" for command in (*_ON_THE_STORE, *recall)),
    ]
