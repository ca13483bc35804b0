"""Names of models, and the errors for models that cannot be reached."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from foldmark.errors import BadPolicy
from foldmark.providers.models import limits_name, model_named
from foldmark.tokens.limits import known_models, model_limits

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (*KEYS, "OLLAMA_BASE_URL"):
        monkeypatch.delenv(key, raising=False)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("openai-chat:gpt-5", "openai:gpt-5"),
        ("openai-responses:gpt-5", "openai:gpt-5"),
        ("gateway/openai:gpt-5", "openai:gpt-5"),
        ("google-gla:gemini-2.5-pro", "google:gemini-2.5-pro"),
        ("google-cloud:gemini-2.5-pro", "google-vertex:gemini-2.5-pro"),
        ("google-vertex:gemini-2.5-pro", "google-vertex:gemini-2.5-pro"),
        ("bedrock:apac.anthropic.claude-opus-4-7", "amazon-bedrock:anthropic.claude-opus-4-7"),
        ("bedrock:eu.anthropic.claude-opus-4-7", "amazon-bedrock:eu.anthropic.claude-opus-4-7"),
        ("anthropic:claude-sonnet-4-6", "anthropic:claude-sonnet-4-6"),
    ],
)
def test_pydantic_ais_names_are_found_in_the_limits(name: str, known: str) -> None:
    assert limits_name(name) == known
    assert known in known_models()
    assert model_limits(limits_name(name)).context > 0


def test_an_unknown_model_keeps_its_name() -> None:
    assert limits_name("vllm:our-model") == "vllm:our-model"
    assert limits_name("our-model") == "our-model"
    assert limits_name("openai-chat:our-model") == "openai:our-model"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic:claude-sonnet-4-6", "ANTHROPIC_API_KEY"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("google:gemini-2.5-pro", "GOOGLE_API_KEY"),
        ("ollama:llama3", "OLLAMA_BASE_URL"),
    ],
)
def test_a_missing_variable_is_named_in_one_line(name: str, variable: str) -> None:
    field = "base_url" if variable.endswith("URL") else "api_key"
    with pytest.raises(BadPolicy, match=f"set {variable}, or pass {field}=… in Python") as error:
        model_named(name)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(find_spec("groq") is not None, reason="the package groq is installed")
def test_a_missing_provider_package_is_named() -> None:
    with pytest.raises(BadPolicy, match=r"pip install 'pydantic-ai-slim\[groq\]'"):
        model_named("groq:llama")


def test_a_missing_pydantic_ai_is_named() -> None:
    code = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "from foldmark.providers.models import model_named\n"
        "try: model_named('openai:gpt-5')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("BadPolicy models need the package pydantic_ai")
    assert "pip install 'foldmark[models]'" in run.stdout


def test_importing_models_does_not_import_pydantic_ai() -> None:
    code = (
        "import sys, foldmark.providers.models, foldmark.providers.driver\n"
        "print('pydantic_ai' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_an_unknown_provider_is_refused_with_similar_names() -> None:
    with pytest.raises(BadPolicy, match=r"unknown provider 'antropic'\. Did you mean anthropic"):
        model_named("antropic:claude-sonnet-4-6")
    with pytest.raises(BadPolicy, match="does not accept base_url"):
        model_named("openrouter:a/b", base_url="http://127.0.0.1:9", api_key="k")


def test_missing_credentials_are_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(BadPolicy, match=r"none\.json") as error:
        model_named("google-vertex:gemini-2.5-pro")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["gpt-5", ":gpt-5", "openai:", ""])
def test_a_name_without_a_provider_is_refused(name: str) -> None:
    with pytest.raises(BadPolicy, match="is not a model name; use provider:model"):
        model_named(name)
    with pytest.raises(BadPolicy, match="openai:gpt-5"):
        model_named("gpt-5")


def test_a_model_has_the_requested_name() -> None:
    assert model_named("google-gla:gemini-2.5-pro", api_key="k").name == "google-gla:gemini-2.5-pro"
