"""The limits of models, their names and overrides, and the script that renews the snapshot."""

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from foldmark.errors import BadPolicy, UnknownModel
from foldmark.tokens.limits import MAKERS, Limit, known_models, model_limits

SCRIPT = Path(__file__).parents[2] / "scripts" / "renew_limits.py"


def renew(folder: Path, providers: dict[str, Any]) -> tuple[str, str]:
    """The file that the script writes, and its output, for made-up providers."""
    (folder / "made-up.json").write_text(json.dumps(providers), encoding="utf-8")
    paths = ["--read", str(folder / "made-up.json"), "--write", str(folder / "limits.json")]
    command = [sys.executable, str(SCRIPT), "--date", "2026-02-03", *paths]
    run = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    return (folder / "limits.json").read_text(encoding="utf-8"), run.stdout


def offer(context: int | None, output: int = 10, **more: Any) -> dict[str, Any]:
    return {"limit": {"context": context, "output": output}, **more}


def resold() -> dict[str, list[str]]:
    """The offers of each bare name that several resellers have, but its maker does not."""
    offers: dict[str, list[str]] = {}
    for name in known_models():
        offers.setdefault(name.lower().partition(":")[2], []).append(name)
    return {
        bare: names
        for bare, names in offers.items()
        if len(names) > 1
        and not {name.partition(":")[0] for name in names} & MAKERS
        and bare.replace("/", ":", 1) not in {name.lower() for name in known_models()}
    }


def test_a_provider_is_named_before_a_colon_or_a_slash_in_any_case():
    limit = model_limits("anthropic:claude-sonnet-4-5")
    assert limit == Limit(context=200_000, output=64_000)
    assert model_limits("Anthropic/Claude-Sonnet-4-5") == limit
    assert model_limits("minimax:minimax-m2.5") == model_limits("minimax:MiniMax-M2.5")
    resold = model_limits("openrouter:anthropic/claude-haiku-4.5")
    assert model_limits("openrouter/anthropic/claude-haiku-4.5") == resold
    assert model_limits("anthropic/claude-haiku-4.5") == resold


def test_a_bare_name_has_the_limits_of_its_maker_if_resellers_disagree():
    maker = model_limits("openai:gpt-5")
    assert model_limits("gpt-5") == maker
    assert model_limits("github-copilot:gpt-5") != maker


def test_a_bare_name_without_a_maker_is_known_only_if_all_its_resellers_agree():
    agreements: set[bool] = set()
    for bare, names in resold().items():
        agreements.add(agree := len({model_limits(name) for name in names}) == 1)
        if agree:
            assert model_limits(bare) == model_limits(names[0])
            continue
        with pytest.raises(UnknownModel) as caught:
            model_limits(bare)
        assert caught.value.nearest == tuple(names[:3])
    assert agreements == {True, False}


@pytest.mark.parametrize("suffix", ["-2025-08-07", "-20250807", "-latest"])
def test_a_dated_or_latest_name_resolves_to_a_base_that_exists(suffix: str):
    assert model_limits(f"openai:gpt-5{suffix}") == model_limits("openai:gpt-5")
    assert model_limits(f"gpt-5{suffix}") == model_limits("openai:gpt-5")


@pytest.mark.parametrize(
    "name",
    [
        "anthropic:claude-3-opus-latest",  # only dated ones exist
        "openai:gpt-5-20251399",  # not a date
        "openai:gpt-4-1106",  # a short date may be another model
        "openai:gpt-5-turbo-latest",
        "my-proxy:gpt-5",  # another provider's window is a guess
    ],
)
def test_a_name_that_would_need_a_guess_is_unknown(name: str):
    with pytest.raises(UnknownModel):
        model_limits(name)


def test_an_unknown_model_names_the_nearest_known_ones():
    with pytest.raises(UnknownModel) as caught:
        model_limits("claude-sonet-4-5")
    error = caught.value
    assert error.model == "claude-sonet-4-5"
    assert error.nearest[0] == "anthropic:claude-sonnet-4-5"
    assert len(error.nearest) <= 3
    for part in (repr(error.model), *error.nearest, "Limit(context=…)", "--window N"):
        assert part in str(error)

    with pytest.raises(UnknownModel) as caught:
        model_limits("openai/gpt5.1")
    assert caught.value.nearest[0] == "openai:gpt-5.1"
    with pytest.raises(UnknownModel, match="--window N") as caught:
        model_limits("§§§")
    assert caught.value.nearest == ()
    assert "Did you mean" not in str(caught.value)


def test_an_override_wins_over_the_snapshot_exact_first_then_the_longest_pattern():
    overrides = {
        "*": Limit(1),
        "openai:gpt-5*": Limit(2),
        "openai:gpt-5.1*": Limit(3),
        "OpenAI/gpt-5.1-codex": Limit(4),
    }
    names = ("anthropic:claude-opus-4-5", "openai:gpt-5", "openai/GPT-5.1", "openai:gpt-5.1-codex")
    assert [model_limits(name, overrides).context for name in names] == [1, 2, 3, 4]


def test_an_override_of_the_full_name_applies_to_bare_and_dated_names():
    overrides = {"openai:gpt-5": Limit(7)}
    assert model_limits("gpt-5", overrides) == Limit(7)
    assert model_limits("gpt-5-2025-08-07", overrides) == Limit(7)
    assert model_limits("azure:gpt-5", overrides) == model_limits("azure:gpt-5")


def test_an_override_makes_an_unknown_model_known():
    assert model_limits("my-own:llama", {"my-own:*": Limit(0)}).context == 0
    with pytest.raises(UnknownModel):
        model_limits("my-own:llama", {"other:*": Limit(0)})


@pytest.mark.parametrize("tokens", [-1, 1.5, "200000", True, None])
def test_a_limit_that_is_not_a_number_of_tokens_is_a_bad_policy(tokens: Any):
    with pytest.raises(BadPolicy, match="context"):
        Limit(context=tokens)
    with pytest.raises(BadPolicy, match="output"):
        Limit(context=1, output=tokens)
    with pytest.raises(BadPolicy, match="input"):
        Limit(context=1, input=-1)


def test_the_snapshot_is_sorted_unique_and_plausible():
    names = known_models()
    assert list(names) == sorted(names)
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        limit = model_limits(name)
        assert limit.context > 0, name
        assert limit.output <= limit.context, name
        assert limit.input is None or 0 < limit.input <= limit.context, name


def test_the_snapshot_is_dated_small_and_has_one_model_on_a_line():
    text = files("foldmark.tokens").joinpath("limits.json").read_text(encoding="utf-8")
    assert re.match(r'\{"dated":"20\d\d-\d\d-\d\d",', text)
    assert len(text) < 350_000
    assert len(text.splitlines()) == len(known_models()) + 2


def test_the_script_writes_plausible_models_sorted(tmp_path: Path):
    providers = {
        "openai": {"models": {"b": offer(100), "a": offer(100, 0)}},
        "nobody-uses-this": {"models": {"a": offer(100)}},
    }
    text, printed = renew(tmp_path, providers)
    assert text.splitlines() == [
        '{"dated":"2026-02-03","source":"made-up.json","models":[',
        '{"name":"openai:a","limit":{"context":100}},',
        '{"name":"openai:b","limit":{"context":100,"output":10}}',
        "]}",
    ]
    assert "wrote 2 models" in printed


def test_the_script_lists_and_skips_implausible_models(tmp_path: Path):
    models = {
        "endless": offer(None),
        "none": offer(0),
        "negative": offer(-5, -9),
        "talkative": offer(100, 101),
        "greedy": {"limit": {"context": 100, "output": 1, "input": 101}},
        "sound": {"limit": {"context": 100, "output": 100, "input": 100}},
    }
    text, printed = renew(tmp_path, {"openai": {"models": models}})
    assert [model["name"] for model in json.loads(text)["models"]] == ["openai:sound"]
    for name in models.keys() - {"sound"}:
        assert f"skipped openai:{name}: " in printed


def test_the_script_prints_resellers_that_contradict_the_maker(tmp_path: Path):
    providers = {
        "anthropic": {"models": {"claude-x-4-5": offer(200), "claude-y": offer(200)}},
        "openrouter": {"models": {"anthropic/claude-x-4.5": offer(150)}},
        "amazon-bedrock": {"models": {"us.anthropic.claude-x-4-5-v1:0": offer(180)}},
        "azure": {"models": {"claude-y": offer(200)}},
    }
    _, printed = renew(tmp_path, providers)
    lines = [line for line in printed.splitlines() if line.startswith("disagree")]
    bedrock = "amazon-bedrock:us.anthropic.claude-x-4-5-v1:0 180"
    router = "openrouter:anthropic/claude-x-4.5 150"
    assert lines == [f"disagree anthropic:claude-x-4-5 200, but {bedrock}, {router}"]


def test_the_script_warns_when_the_data_is_older_than_its_date(tmp_path: Path):
    old = {"openai": {"models": {"a": offer(100, last_updated="2025-12-01")}}}
    new = {"openai": {"models": {"a": offer(100, last_updated="2026-02-01")}}}
    assert "--date 2025-12-01" in renew(tmp_path, old)[1]
    assert "stale" not in renew(tmp_path, new)[1]
