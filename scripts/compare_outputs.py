"""Compare what two versions of Foldmark say about the same transcripts.

    .venv/bin/python scripts/compare_outputs.py record old.jsonl     # in a checkout of the one
    .venv/bin/python scripts/compare_outputs.py record new.jsonl     # in a checkout of the other
    .venv/bin/python scripts/compare_outputs.py compare old.jsonl new.jsonl

Recorded are `inspect`, `plan` and `compact` with `--json`, and the bytes of the request before each
answer in every API format. Transcripts come from the folder that FOLDMARK_CORPUS names.
"""

import io
import json
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, cast

CORPUS = Path(os.environ.get("FOLDMARK_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
API_FORMATS = ("openai-chat", "openai-responses", "anthropic", "gemini")
COMMANDS = (
    "inspect",
    "plan",
    "plan --window 60000",
    "plan --window 60000 --policy opencode",
    "plan --window 60000 --policy opencode-2025",
    "compact --window 60000",
    "compact --window 24000",
    "compact --target 5000",
    "compact --window 60000 --policy opencode",
    "compact --window 60000 --policy codelet",
)
MOST_REQUESTS = 60  # of one session: more of them show the same
# Made anew at each run, as are the ids that hold the time.
FLEETING = re.compile(r"\b(?:msg|prt|ses)_[0-9a-zA-Z]{10,}\b|\b1[789]\d{11}\b")


def record(target: Path) -> None:
    """Write a line for each output of each transcript."""
    files = sorted(path for path in CORPUS.glob("*/*") if path.is_file())
    if not files:
        sys.exit(f"no transcripts in {CORPUS}; set FOLDMARK_CORPUS")
    with target.open("w", encoding="utf-8") as lines:
        for path in files:
            print(path.relative_to(CORPUS), file=sys.stderr)
            for name, output in [*_commands(path), *_requests(path)]:
                row = {"file": str(path.relative_to(CORPUS)), "of": name, "output": output}
                lines.write(json.dumps(row) + "\n")


def _commands(path: Path) -> Iterator[tuple[str, Any]]:
    main: Callable[[], None] = import_module("foldmark.cli").main
    for command in COMMANDS:
        name, *options = command.split()
        sys.argv = ["foldmark", name, str(path), *options, "--json"]
        out, err, code = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
        if code:
            yield command, f"exit {code}: {err.getvalue().strip()}"
        else:
            yield command, _steady(json.loads(out.getvalue()))


def _requests(path: Path) -> Iterator[tuple[str, Any]]:
    """Digests of the requests before the answers of a transcript, as its cache would see them."""
    import foldmark  # noqa: PLC0415 - the version that is being recorded

    log_type, viewer_type = foldmark.Log, foldmark.Viewer
    request = _function("request", "foldmark.wire")
    try:
        session = foldmark.read_transcript(path)
    except foldmark.FoldmarkError as error:
        yield "requests", str(error)
        return
    log = log_type(_function("by_classes", "foldmark.tokens"))
    viewer = viewer_type(log, foldmark.preset("foldmark"))
    answers = [m for m in session.messages if m.info.__class__.__name__ == "AssistantInfo"]
    chosen = {id(m) for m in answers[:: len(answers) // MOST_REQUESTS + 1]}
    digests: dict[str, list[str]] = {api: [] for api in API_FORMATS}
    for message in session.messages:
        if id(message) in chosen:
            shown = viewer.view().messages
            for api in API_FORMATS:
                data = json.dumps(request(shown, api, "Be brief."), sort_keys=True)
                digests[api].append(sha256(data.encode()).hexdigest()[:16])
        log.append(message)
    yield "requests", digests


def _function(name: str, package: str) -> Callable[..., Any]:
    """A function of a package, in whichever of its modules it is."""
    home = import_module(package)
    modules = [package]
    if hasattr(home, "__path__"):
        modules += [f"{package}.{found.name}" for found in pkgutil.iter_modules(home.__path__)]
    for module in modules:
        function = vars(import_module(module)).get(name)
        if function is not None and function.__module__ == module:
            return function
    sys.exit(f"{package} has no function {name}")


def _steady(value: Any) -> Any:
    """JSON without what each run makes anew."""
    return json.loads(FLEETING.sub("_", json.dumps(value)))


def compare(old: Path, new: Path) -> int:
    """Print what differs; the number of outputs that do."""
    before, after = _rows(old), _rows(new)
    count = 0
    for key in sorted(before.keys() | after.keys()):
        found = list(_differences(before.get(key), after.get(key), ""))
        count += bool(found)
        for line in found[:8]:
            print(f"{key[0]} · {key[1]}{line}")
        if len(found) > 8:
            print(f"{key[0]} · {key[1]}: {len(found) - 8} more")
    print(f"{len(before)} outputs before, {len(after)} after, {count} differ")
    return count


def _rows(path: Path) -> dict[tuple[str, str], Any]:
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {(row["file"], row["of"]): row["output"] for row in rows}


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    left, right = _children(old), _children(new)
    if left is not None and right is not None and type(old) is type(new):
        for key in {**left, **right}:
            yield from _differences(left.get(key), right.get(key), f"{path}.{key}")
    elif old != new:
        yield f"{path}: {_short(old)} -> {_short(new)}"


def _children(value: Any) -> dict[str, Any] | None:
    """What lies inside an object or a list, by its key or its number."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if isinstance(value, list):
        return {str(number): item for number, item in enumerate(cast("list[Any]", value))}
    return None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:150]}… ({len(text)})"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", target]:
            record(Path(target))
        case ["compare", old, new]:
            sys.exit(1 if compare(Path(old), Path(new)) else 0)
        case _:
            sys.exit(__doc__)
