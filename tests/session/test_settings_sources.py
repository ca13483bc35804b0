"""Settings from files, environment variables and arguments."""

import json
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foldmark.errors import BadInput, BadPolicy, FoldmarkError, UnknownModel
from foldmark.policy import FOLDMARK, PRESETS
from foldmark.session.settings import (
    PROJECT_KEYS,
    USER_KEYS,
    Settings,
    load_settings,
    masked_address,
    user_file,
)
from foldmark.tokens.budget import threshold_for
from foldmark.tokens.limits import Limit, model_limits
from tests.support.setting_values import EXAMPLES

SOURCES = ("user", "file", "environment", "arguments")
SECONDS = ("lease_seconds", "wait_seconds", "hook_seconds")
OWN = "foldmark.toml"
SECRET = "hunter2"  # noqa: S105 - must never be printed
URL = f"postgresql://app:{SECRET}@db.example/sessions"
every_key = pytest.mark.parametrize("key", Settings.__struct_fields__)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory inside a repository, so that no file above the test's directory is found."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home" / ".config" / "foldmark").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    result = tmp_path / "src" / "deep"
    result.mkdir(parents=True)
    return result


def as_toml(value: Any) -> str:
    if not hasattr(value, "items"):
        return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
    return "{" + ", ".join(f'"{name}" = {entry}' for name, entry in value.items()) + "}"


def as_text(value: Any) -> str:
    if hasattr(value, "items"):
        return ",".join(f"{name}={entry}" for name, entry in value.items())
    return str(value) if isinstance(value, str | int | float) else ",".join(value)


def write(folder: Path, text: str, name: str = OWN) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, key: str, **values: Any) -> Any:
    """The value of a key that these sources set."""
    environment: dict[str, str] = {}
    arguments: dict[str, Any] = {}
    for source, value in values.items():
        if source in {"user", "file"}:
            directory = user_file({}).parent if source == "user" else folder
            write(directory, f"{key} = {as_toml(value)}\n")
        elif source == "environment":
            environment[f"FOLDMARK_{key.upper()}"] = as_text(value)
        else:
            arguments[key] = value
    return getattr(load_settings(folder, environment, **arguments), key)


def refusal(folder: Path, environment: Mapping[str, str] | None = None, **arguments: Any) -> str:
    with pytest.raises(FoldmarkError) as caught:
        load_settings(folder, environment or {}, **arguments)
    return str(caught.value)


def file_error(folder: Path, text: str, name: str = OWN) -> BadInput:
    write(folder, text, name)
    with pytest.raises(BadInput) as caught:
        load_settings(folder, {})
    return caught.value


# --- precedence ----------------------------------------------------------------------------


def sources_of(key: str) -> tuple[str, ...]:
    """The sources that may set a key; later ones override earlier ones."""
    return SOURCES if key in PROJECT_KEYS else tuple(one for one in SOURCES if one != "file")


EVERY_SOURCE = [(key, one) for key in Settings.__struct_fields__ for one in sources_of(key)]
EVERY_PAIR = [
    (key, *pair) for key in Settings.__struct_fields__ for pair in combinations(sources_of(key), 2)
]


@pytest.mark.parametrize(("key", "source"), EVERY_SOURCE)
def test_every_key_can_be_set_by_every_source(folder: Path, key: str, source: str) -> None:
    for value in EXAMPLES[key]:
        result = loaded(folder, key, **{source: value})
        assert result == value
        assert type(result) is type(value)


@pytest.mark.parametrize(("key", "lower", "higher"), EVERY_PAIR)
def test_later_sources_override_earlier_ones_for_every_key(
    folder: Path, key: str, lower: str, higher: str
) -> None:
    one, two = EXAMPLES[key]
    assert loaded(folder, key, **{lower: one, higher: two}) == two
    assert loaded(folder, key, **{lower: two, higher: one}) == one


@every_key
def test_an_argument_of_none_and_an_empty_variable_are_ignored(folder: Path, key: str) -> None:
    value = EXAMPLES[key][1]
    assert loaded(folder, key, user=value, environment=" ", arguments=None) == value
    assert loaded(folder, key, environment=value, arguments=None) == value


def test_sources_are_merged_key_by_key(folder: Path) -> None:
    write(user_file({}).parent, 'model = "a"\nreserved = 0\n')
    write(folder, "reserved = 1\nthresholds = {a = 0.5, b = 0.5}\n")
    environment = {"FOLDMARK_RESERVED": "2", "FOLDMARK_THRESHOLDS": "c=0.9"}
    expected = Settings(model="a", reserved=2, tail_tokens=3, thresholds={"c": 0.9})
    assert load_settings(folder, environment, tail_tokens=3) == expected


def test_defaults_apply_if_nothing_is_set(folder: Path) -> None:
    assert load_settings(folder, {}) == Settings()
    assert Settings().rules() == FOLDMARK
    assert Settings().limit() is None


def test_the_working_directory_and_environment_are_read_by_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "reserved = 5\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FOLDMARK_TAIL_TOKENS", "6")
    monkeypatch.delenv("FOLDMARK_CONFIG", raising=False)
    settings = load_settings()
    assert (settings.reserved, settings.tail_tokens) == (5, 6)


# --- the environment -----------------------------------------------------------------------


def test_variables_accept_several_words_for_true_and_false(folder: Path) -> None:
    words = {"1": True, "true": True, "YES": True, " on ": True}
    for text, value in (words | dict.fromkeys(("0", "false", "No", "off"), False)).items():
        assert load_settings(folder, {"FOLDMARK_AUTO": text}).auto is value


def test_lists_and_tables_in_variables_may_have_spaces_or_nothing_in_them(folder: Path) -> None:
    write(folder, 'protected_tools = ["a"]\nthresholds = {a = 0.5}\n')
    spaced = {"FOLDMARK_PROTECTED_TOOLS": " b , c,", "FOLDMARK_THRESHOLDS": "a = 0.8 , b=90_000"}
    expected = Settings(protected_tools=("b", "c"), thresholds={"a": 0.8, "b": 90_000})
    assert load_settings(folder, spaced) == expected
    assert load_settings(folder, dict.fromkeys(spaced, ",")) == Settings(protected_tools=())


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("FOLDMARK_WINDOW", "200k", "window: expected a whole number, got the text '200k'"),
        ("FOLDMARK_AUTO", "maybe", "auto: expected true or false, got the text 'maybe'"),
        ("FOLDMARK_THRESHOLD", "half", "threshold: expected a number, got the text 'half'"),
        ("FOLDMARK_THRESHOLDS", "0.8", "thresholds: expected a number per model, like model=0.8"),
        ("FOLDMARK_THRESHOLDS", "a=b", "thresholds.a: expected a number, got the text 'b'"),
        ("FOLDMARK_WAIT_SECONDS", "ten", "wait_seconds: expected a number, got the text 'ten'"),
    ],
)
def test_a_variable_of_the_wrong_type_is_refused(
    folder: Path, variable: str, text: str, expected: str
) -> None:
    assert refusal(folder, {variable: text}).startswith(f"{variable}: {expected}")


@pytest.mark.parametrize("prefix", ["FOLDMARK", "OPENCODE"])
@pytest.mark.parametrize(("key", "name"), [("auto", "AUTOCOMPACT"), ("prune", "PRUNE")])
def test_a_switch_overrides_the_file_but_no_argument(
    folder: Path, key: str, name: str, prefix: str
) -> None:
    write(folder, f"{key} = true\n")
    switch = {f"{prefix}_DISABLE_{name}": "1"}
    on: dict[str, Any] = {key: True}
    off: dict[str, Any] = {key: False}
    assert load_settings(folder, switch) == Settings(**off)
    assert load_settings(folder, switch, **on) == Settings(**on)
    assert load_settings(folder, dict.fromkeys(switch, "0")) == Settings(**on)
    # If two variables disagree, the one that switches off wins.
    both = {**switch, f"FOLDMARK_{key.upper()}": "1"}
    assert load_settings(folder, both) == Settings(**off)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("POLCY", "POLICY"), ("CORPU", "CORPUS"), ("DISABLE_PRUNING", "DISABLE_PRUNE")],
)
def test_a_misspelled_variable_is_refused(folder: Path, typed: str, meant: str) -> None:
    expected = f"unknown variable 'FOLDMARK_{typed}'; did you mean 'FOLDMARK_{meant}'?"
    assert refusal(folder, {f"FOLDMARK_{typed}": SECRET}) == f"environment: {expected}"


def test_variables_of_other_programs_are_ignored(folder: Path) -> None:
    tests = ("FOLDMARK_CORPUS", "FOLDMARK_EXAMPLES")
    far_off = ("FOLDMARK_TOKEN", "FOLDMARK_IN_A_SHED", "POLCY", "OPENCODE_POLCY", "foldmark_polcy")
    assert load_settings(folder, dict.fromkeys((*tests, *far_off), "x")) == Settings()


# --- which file ----------------------------------------------------------------------------


def test_the_nearest_file_is_read_and_only_that(folder: Path) -> None:
    write(folder.parent, "reserved = 1\ntail_tokens = 1\n")
    assert load_settings(folder, {}).reserved == 1
    write(folder, "reserved = 2\n")
    assert load_settings(folder, {}) == Settings(reserved=2)


def test_a_pyproject_is_read_if_it_has_our_table(folder: Path) -> None:
    write(folder.parent, "[tool.foldmark]\nreserved = 1\n", "pyproject.toml")
    assert load_settings(folder, {}).reserved == 1
    write(folder, '[project]\ndependencies = ["foldmark"]\n', "pyproject.toml")
    assert load_settings(folder, {}).reserved == 1
    write(folder, "[tool.foldmark.thresholds]\na = 0.5\n", "pyproject.toml")
    assert load_settings(folder, {}) == Settings(thresholds={"a": 0.5})


def test_our_own_file_overrides_a_pyproject_beside_it(folder: Path) -> None:
    write(folder, "[tool.foldmark]\nreserved = 1\n", "pyproject.toml")
    write(folder, "")
    assert load_settings(folder, {}) == Settings()


def test_a_broken_pyproject_without_our_table_is_ignored(folder: Path) -> None:
    write(folder, "[project\n", "pyproject.toml")
    assert load_settings(folder, {}) == Settings()
    assert "not valid TOML" in str(file_error(folder, "[tool.foldmark\n", "pyproject.toml"))


def test_the_search_for_a_file_ends_at_the_root_of_the_repository(folder: Path) -> None:
    write(folder.parents[1], "reserved = 1\n")
    assert load_settings(folder, {}).reserved == 1
    (folder.parent / ".git").mkdir()
    assert load_settings(folder, {}) == Settings()
    write(folder.parent, "reserved = 2\n")
    assert load_settings(folder, {}).reserved == 2
    write(folder, "gitdir: elsewhere\n", ".git")  # as in a worktree
    assert load_settings(folder, {}) == Settings()


def test_a_named_file_replaces_the_nearest_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    write(folder, "tail_tokens = 7\n")
    for name, header in (("own.toml", ""), ("pyproject.toml", "[tool.foldmark]\n")):
        path = write(folder.parent, f"{header}reserved = 1\n", name)
        for config in (str(path), f"~/{name}"):
            assert load_settings(folder, {"FOLDMARK_CONFIG": config}) == Settings(reserved=1)


def test_a_named_file_must_exist_and_be_readable(folder: Path, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.toml")
    bare = str(write(tmp_path, "[tool.other]\n", "pyproject.toml"))
    for config, cause in (
        (absent, "file not found; check FOLDMARK_CONFIG"),
        (str(folder), "cannot be read: "),
        (bare, "no [tool.foldmark] table; add it"),
    ):
        assert refusal(folder, {"FOLDMARK_CONFIG": config}).startswith(f"{config}: {cause}")


# --- errors in files -----------------------------------------------------------------------


def test_an_unknown_key_names_its_line_and_the_nearest(folder: Path) -> None:
    error = file_error(folder, '# polcy = "x"\n\npolcy = "opencode"\n')
    assert str(error) == "foldmark.toml: line 3: unknown key 'polcy'; did you mean 'policy'?"
    assert (error.source, error.location) == ("foldmark.toml", "line 3")


def test_an_unknown_key_unlike_any_other_lists_the_valid_ones(folder: Path) -> None:
    text = str(file_error(folder, "zzz = 1\n"))
    assert text.startswith("foldmark.toml: line 1: unknown key 'zzz'; valid keys: store, model, ")
    assert "did you mean" not in text
    assert all(key in text for key in Settings.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[tool.other]\nwindw = 1\n[tool.foldmark]\nwindw = 1\n", 4),
        ("[tool.foldmark]\nwindw = 1 # windw\n# windw\n[tool.other]\nwindw = 1\n", 2),
        ("[tool]\nfoldmark = {windw = 1}\n", 2),
        ("[tool]\nfoldmark.auto = true\nfoldmark.windw = 1\n", 3),
        ('[tool.foldmark]\nprotected_tools = ["""\nwindw = 2"""]\n"windw" = 1\n', 4),
        ("[tool.foldmark]\nauto = true\n\n[tool.foldmark.windw]\n", 4),
        ("[tool.foldmark]\r\nauto = true\r\nwindw = [\r\n1]\r\n", 3),
    ],
)
def test_the_line_is_found_however_the_key_is_written(folder: Path, text: str, line: int) -> None:
    (folder / "pyproject.toml").write_bytes(text.encode())
    assert refusal(folder) == (
        f"pyproject.toml: line {line}: unknown key 'windw'; did you mean 'window'?"
    )


def test_only_the_user_sets_where_data_goes_and_what_it_costs() -> None:
    addresses = {"store", "model", "summarizer", "base_url"}
    costs = {"compaction_calls", "compaction_seconds", "compaction_cost"}
    assert addresses | costs | {"mask_secrets", "durable"} == USER_KEYS
    assert set(Settings.__struct_fields__) >= PROJECT_KEYS


@pytest.mark.parametrize("name", ["foldmark.toml", "pyproject.toml"])
@pytest.mark.parametrize("key", sorted(USER_KEYS))
def test_a_projects_file_cannot_set_where_data_goes_or_what_it_costs(
    folder: Path, key: str, name: str
) -> None:
    header = "[tool.foldmark]\n" if name == "pyproject.toml" else "\n"
    error = file_error(folder.parent, f"{header}{key} = {as_toml(EXAMPLES[key][0])}\n", name)
    assert str(error) == f"{name}: line 2: {key} cannot be set in a project's file; set it in " + (
        str(user_file({}))
    )
    assert str(error) in refusal(folder, {}, **{key: EXAMPLES[key][1]}).removeprefix("../")


def test_a_named_project_file_may_set_anything(folder: Path) -> None:
    path = write(folder, 'base_url = "http://one.example/v1"\n')
    settings = load_settings(folder, {"FOLDMARK_CONFIG": str(path)})
    assert settings.base_url == "http://one.example/v1"


def test_the_users_file_is_in_the_xdg_directory_if_that_is_absolute(
    folder: Path, tmp_path: Path
) -> None:
    for home in ("", "relative"):
        assert user_file({"XDG_CONFIG_HOME": home}) == tmp_path / "home/.config/foldmark" / OWN
    elsewhere = {"XDG_CONFIG_HOME": str(tmp_path / "elsewhere")}
    assert load_settings(folder, elsewhere) == Settings()
    (tmp_path / "elsewhere" / "foldmark").mkdir(parents=True)
    write(tmp_path / "elsewhere" / "foldmark", 'model = "a"\n')
    assert load_settings(folder, elsewhere) == Settings(model="a")
    within = tmp_path / "elsewhere" / "foldmark" / "deep"
    within.mkdir()
    assert load_settings(within, elsewhere) == Settings(model="a")  # it is also the nearest


def test_the_users_file_and_a_named_one_are_merged(folder: Path) -> None:
    write(user_file({}).parent, 'model = "a"\nreserved = 1\n')
    path = write(folder.parent, "reserved = 2\n", "own.toml")
    environment = {"FOLDMARK_CONFIG": str(path)}
    assert load_settings(folder, environment) == Settings(model="a", reserved=2)


def test_an_error_in_the_users_file_names_the_file(folder: Path) -> None:
    path = write(user_file({}).parent, "\nmodle = 1\n")
    assert refusal(folder) == f"{path}: line 2: unknown key 'modle'; did you mean 'model'?"


def test_a_file_above_is_named_relative_to_the_working_directory(folder: Path) -> None:
    write(folder.parents[1], "zzz = 1\n")
    assert refusal(folder).startswith("../../foldmark.toml: line 1: ")


@every_key
def test_no_key_accepts_a_date(folder: Path, key: str) -> None:
    write(user_file({}).parent, f"\n{key} = 2025-01-01\n")
    with pytest.raises(BadInput) as caught:
        load_settings(folder, {})
    error = caught.value
    assert error.location == "line 2"
    assert re.match(rf"{key}: expected .+, got date$", error.cause)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('window = "200k"', "line 1: window: expected a whole number, got the text '200k'"),
        ("window = 1.5", "line 1: window: expected a whole number, got a number"),
        ("window = true", "line 1: window: expected a whole number, got true or false"),
        ("auto = 1", "line 1: auto: expected true or false, got a whole number"),
        ("model = {}", "line 1: model: expected a text, got a table"),
        ("store = [1]", "line 1: store: expected a text, got a list"),
        ('protected_tools = "a"', "line 1: protected_tools: expected a list of texts, got the"),
        (
            'protected_tools = ["a", 1]',
            "line 1: protected_tools[1]: expected a text, got a whole number",
        ),
        (
            "[thresholds]\na = 1\ngpt-4.1 = 0.5",
            "line 3: thresholds.gpt-4: expected a number, got a",
        ),
    ],
)
def test_a_wrong_type_names_line_key_and_expected_type(
    folder: Path, text: str, expected: str
) -> None:
    path = write(user_file({}).parent, text)
    assert refusal(folder).startswith(f"{path}: {expected}")


@pytest.mark.parametrize(
    ("text", "line"),
    [("auto = true\nwindow 5\n", 2), ("auto = true\n\nmodel = [1,\n\n", 3), ("a = 1\na = 2", 2)],
)
def test_malformed_toml_names_its_line(folder: Path, text: str, line: int) -> None:
    error = str(file_error(folder, text))
    assert error.startswith(f"foldmark.toml: line {line}: not valid TOML: ")


def test_invalid_utf_8_and_deep_nesting_are_refused(folder: Path) -> None:
    assert str(file_error(folder, "model = " + "[" * 100_000)) == "foldmark.toml: nested too deeply"
    (folder / "foldmark.toml").write_bytes(b"auto = true\nmodel = '\xff'\n")
    assert refusal(folder) == "foldmark.toml: line 2: not UTF-8 text; save it as UTF-8"


def test_a_byte_order_mark_is_ignored(folder: Path) -> None:
    (folder / "foldmark.toml").write_bytes(b"\xef\xbb\xbfreserved = 1\r\n")
    assert load_settings(folder, {}).reserved == 1


# --- arguments, and senseless values -------------------------------------------------------


def test_arguments_are_checked_like_files(folder: Path) -> None:
    assert refusal(folder, polcy=None) == "unknown key 'polcy'; did you mean 'policy'?"
    assert refusal(folder, window="9") == "window: expected a whole number, got the text '9'"
    assert load_settings(folder, {}, store=Path("a.db"), lease_seconds=3).lease_seconds == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in SECONDS for value in (-1, float("inf"), float("nan"), 1e9)),
        *((key, 0) for key in ("lease_seconds", "hook_seconds")),
        *((key, value) for key in ("window", "input", "output") for value in (0, -1)),
        *((key, -1) for key in ("reserved", "tail_tokens", "output_cap")),
        *(("threshold", value) for value in (0, -0.5, 1.5, float("inf"))),
        *((key, " ") for key in ("store", "model")),
        *(("policy", "opencod"), ("estimate", "guess"), ("thresholds", {"a": 0.5, "b": -1})),
    ],
)
def test_a_senseless_value_is_refused_with_its_key(folder: Path, key: str, value: Any) -> None:
    with pytest.raises(BadPolicy, match=f"^{key}"):
        Settings(**{key: value})
    with pytest.raises(BadPolicy, match=f"^{key}"):
        load_settings(folder, {}, **{key: value})
    path = write(user_file({}).parent, f"\n{key} = {as_toml(value)}")
    assert refusal(folder).startswith(f"{path}: line 2: {key}")


# --- policy and limits ---------------------------------------------------------------------


def test_the_policy_is_adjusted_by_the_other_settings() -> None:
    for name, policy in PRESETS.items():
        assert Settings(policy=name, wait_seconds=0).rules() == policy
    rules = Settings(
        **{key: values[1] for key, values in EXAMPLES.items() if key not in ("policy", "threshold")}
    ).rules()
    assert (rules.name, rules.auto, rules.estimate) == ("foldmark", False, "tiktoken:o200k_base")
    assert (rules.prune.on, rules.prune.protected_tools) == (False, ("read",))
    assert (rules.window.reserved, rules.window.output_cap, rules.tail.tokens) == (
        12_000,
        1_000,
        5_000,
    )
    assert [threshold_for(rules.window, name) for name in ("gpt-5", "claude-x")] == [90_000, 0.75]
    assert Settings(protected_tools=()).rules().prune.protected_tools == ()
    assert Settings(threshold=0.5).rules() == FOLDMARK.adjusted(threshold=0.5)


def test_limits_come_from_the_model_unless_set() -> None:
    limits = model_limits("openai:gpt-5")
    assert limits.input is not None
    assert Settings(model="openai:gpt-5").limit() == limits
    assert Settings(model="openai:gpt-5", output=9).limit() == replace(limits, output=9)
    assert Settings(model="openai:gpt-5", input=9).limit() == replace(limits, input=9)
    assert Settings(model="openai:gpt-5", window=50).limit() == Limit(50, limits.output)
    assert Settings(model="mine", window=50, output=9, input=70).limit() == Limit(50, 9, 50)
    assert Settings(output=9).limit() is None
    with pytest.raises(UnknownModel):
        Settings(model="mine").limit()


# --- the store -----------------------------------------------------------------------------


def test_a_relative_store_in_a_file_starts_in_its_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = folder.parent
    environment = {"FOLDMARK_CONFIG": str(above / "own.toml")}
    monkeypatch.setenv("HOME", "/home/ada")
    for store, whole in {
        "a.db": f"{above}/a.db",
        "../a.db": f"{above}/../a.db",
        "/a.db": "/a.db",
        "~/a.db": "/home/ada/a.db",
        **{same: same for same in (URL, ":memory:", "host=db.example dbname=x")},
    }.items():
        write(above, f"store = {as_toml(store)}\n", "own.toml")
        assert load_settings(folder, environment).store == whole
    assert load_settings(folder, {"FOLDMARK_STORE": "~/b.db"}).store == "/home/ada/b.db"
    assert load_settings(folder, {}, store="b.db").store == "b.db"


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        (URL, "postgresql://app:***@db.example/sessions"),
        (f"postgres://:{SECRET}@[::1]:5432,b/x", "postgres://:***@[::1]:5432,b/x"),
        (f"postgresql://a@b:p@/?#{SECRET}@h/x", "postgresql://a@b:***@h/x"),
        (f"postgresql://app:{SECRET}/x", "postgresql://app:***"),
        (f"postgresql://h/x?a=1&Password=@{SECRET}&b=2", "postgresql://h/x?a=1&Password=***&b=2"),
        (f"postgresql://u:p@h/x?pass%77ord=p@{SECRET}", "postgresql://u:***@h/x?password=***"),
        (f"host=h password = 'it\\'s {SECRET}' user=u", "host=h password = *** user=u"),
        (f"sslpassword=a\\ {SECRET} host=h", "sslpassword=*** host=h"),
        (f"app:{SECRET}@h/x", "app:***@h/x"),
        (f"\x1b[1m{URL}", "\ufffd[1mpostgresql:***@db.example/sessions"),
        *((same, same) for same in ("a.db", "/a:b@c.db", "C:\\a@b.db", ":memory:", "~/x")),
        *((same, same) for same in ("postgresql://u@h:1,[::1]:2/x?a=b", "postgresql:///x")),
    ],
)
def test_a_store_is_printed_without_its_password(store: str, shown: str) -> None:
    assert masked_address(store) == shown


@given(st.text(), st.text())
def test_no_password_is_printed_whatever_it_contains(before: str, after: str) -> None:
    password = f"x{before}{SECRET}{after}"
    assert SECRET not in masked_address(f"postgresql://u:{password}@h/x")
    assert SECRET not in masked_address(f"postgresql://h/x?password={password.replace('&', '')}")
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    assert SECRET not in masked_address(f"host=h password='{escaped}'")


def test_no_message_contains_a_password(folder: Path) -> None:
    settings = load_settings(folder, {"FOLDMARK_STORE": URL})
    assert settings.store == URL
    assert "postgresql://app:***@" in repr(settings)
    assert SECRET not in f"{settings!r}{settings}{settings.__rich_repr__()}"
    assert SECRET not in refusal(folder, {"FOLDMARK_WINDOW": URL})
    for text in (f"window = '{URL}'", f"store = ['{URL}']", f"store = {URL}", f"stor = '{URL}'"):
        assert SECRET not in str(file_error(folder, text))
        write(user_file({}).parent, text)
        assert SECRET not in refusal(folder.parents[1])
