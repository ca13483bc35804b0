"""Search: visible and hidden text is found, and queries are data, never syntax."""

import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import foldmark
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    FilePart,
    Message,
    Path,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.session import writer
from foldmark.session.session import Session, state_of
from foldmark.store.maintenance import collect
from foldmark.store.search import words
from foldmark.store.store import Store
from tests.support.session_strategies import PNG, WORDS, sessions
from tests.support.store_engines import new_database
from tests.support.stored_sessions import call, fill, opened, work

SAID = (
    "The Zeppelin lands at DAWN",
    "load_user_profile calls fetchAll in src/app/parser_race.py",
    "日本語のテキスト and 한국어",
    "Ünïcödé Straße café ΣΊΣΥΦΟΣ \u017ftop",
    "version 1.2.3-rc4 of 3.14159, see RFC2119",
    "new letters 𞤀𞤁𞤂 ꟁꟂ and ²³",
    "data: the figures of May",
)
FOUND: dict[str, set[int]] = {
    "zeppelin": {0},
    "ZEPPELIN": {0},
    "zepp": {0},
    "dawn lands": {0},
    "dawn nowhere": set(),
    "eppelin": set(),
    "profile": {1},
    "load_user": {1},
    "fetchall": {1},
    "parser_race.py": {1},
    "src/app": {1},
    "race": {1},
    "日本": {2},
    "本": {2},
    "한국어": {2},
    "ünïcödé": {3},
    "ÜNÏ": {3},
    "unicode": set(),
    "strasse": set(),
    "straße": {3},
    "café": {3},
    "cafe": set(),
    "σίσυ": {3},
    "ΣΊΣΥΦΟΣ": {3},
    "stop": set(),
    "\u017ftop": {3},
    "3.14159": {4},
    "1.2.3": {4},
    "rc4": {4},
    "rfc2119": {4},
    "𞤀𞤁": {5},
    "²³": {5},
    "figures": {6},
    "may data": {6},
}


def handles(session: foldmark.Session, query: str, limit: int = 50) -> set[str]:
    return {hit.handle for hit in session.search(query, limit=limit)}


def user_message(number: int, text: str) -> Message:
    return Message(info=UserInfo(id=f"m{number}"), parts=(TextPart(text=text),))


@pytest.mark.parametrize("indexed", [True, False])
def test_words_of_any_script_are_found(where: str, *, indexed: bool) -> None:
    """Whole words and prefixes, in any case; also before they are indexed."""
    if indexed:
        fill(where, [user_message(number, text) for number, text in enumerate(SAID)])
    with opened(where, "s") as session:
        for text in () if indexed else SAID:
            session.user(text)
        row = session.info
        assert (row.indexed == row.places) == indexed
        for query, indexes in FOUND.items():
            assert {hit.place for hit in session.search(query)} == indexes, query


def test_exact_matches_come_first_then_the_newest(where: str) -> None:
    texts = ["repo parser", "parser of the repo", "repo parser again", "parser repo"]
    fill(where, [user_message(number, text) for number, text in enumerate(texts)])
    with opened(where, "s") as session:
        assert [hit.place for hit in session.search("repo parser")] == [2, 0, 3, 1]
        assert [hit.place for hit in session.search("repo parser", limit=1)] == [2]
        assert session.search("repo parser", limit=0) == []
        assert session.search("repo parser")[0].snippet == "repo parser again"


def test_a_hit_has_its_state_snippet_and_handle(where: str) -> None:
    with opened(where, "s") as session:
        work(session, words=("zebra", "lynx"))
        session.prune()
        hits = {hit.handle: hit for hit in session.search("zebra", limit=100)}
        assert len(hits) == 15
        assert {hit.state for hit in hits.values()} == {"pruned", "shown"}
        for name, hit in hits.items():
            assert (hit.kind, hit.tool) == ("tool", "read")
            assert "zebra" in hit.snippet
            assert "zebra" in session.recall(name)
        session.compact("All about a lion.")
        states = {hit.state for hit in session.search("zebra", limit=100)}
        assert states >= {"folded"}
        assert [hit.state for hit in session.search("lion")] == ["shown"]
        session.undo()
        session.undo()
        assert {hit.state for hit in session.search("zebra", limit=100)} == {"shown"}


def test_reverted_text_is_found(where: str) -> None:
    with opened(where, "s") as session:
        first = session.user("One")
        session.user("A giraffe")
        session.revert(first.id)
        session.user("A rhino")
        hit = session.search("giraffe")[0]
        assert (hit.state, session.recall(hit.handle)) == ("reverted", "A giraffe")
        session.undo()
        assert session.search("giraffe")[0].state == "shown"


def test_a_late_result_is_found(where: str) -> None:
    with opened(where, "s") as session:
        session.record([call("c", "okapi.py")])
        with session.fork(session="f") as fork:  # indexes the messages so far
            session.result("c", "a walrus sleeps")
            assert handles(session, "walrus") == handles(session, "okapi") == {"h0"}
            assert handles(fork, "walrus") == set()
            assert handles(fork, "okapi") == {"h0"}
            fork.result("c", "a heron wakes")
            assert handles(fork, "heron") == {"h0"}
            assert handles(session, "heron") == set()


def rewrite(session: Session, old: Message, text: str) -> None:
    parts = (TextPart(text=text),)
    writer.amend(state_of(session), old.id, lambda message: replace(message, parts=parts))


def test_a_fork_finds_its_own_text_whatever_happens_to_its_origin(where: str) -> None:
    with opened(where, "s") as session:
        old = session.record("a walrus sleeps")
        forks = [session.fork(session=f"f{number}") for number in range(2)]
        forks.append(forks[0].fork(session="f2"))
        for text in ("a heron wakes", "a stork flies"):
            rewrite(session, old, text)
        assert handles(session, "stork") == {"h0"}
        assert handles(session, "walrus") == handles(session, "heron") == set()
        for fork in forks:
            assert handles(fork, "walrus") == {"h0"}
            assert handles(fork, "heron") == handles(fork, "stork") == set()
        rewrite(forks[1], old, "a crane")
        assert handles(forks[1], "crane") == {"h0"}
        assert handles(forks[1], "walrus") == set()
        assert handles(forks[0], "walrus") == handles(forks[2], "walrus") == {"h0"}
        for fork in forks:
            fork.close()
    store = Store.open(where)
    store.engine.run("UPDATE sessions SET updated = 0 WHERE id IN ('s', 'f0')")
    assert set(collect(store, older_than=1).sessions) == {"s", "f0"}
    store.close()
    with opened(where, "f2") as fork:
        assert handles(fork, "walrus") == {"h0"}


def test_text_in_parts_is_found_before_other_fields(where: str) -> None:
    """Every reply has the directory in its info; only one part mentions it."""
    path = Path(cwd="/home/repo", root="/home/repo")
    messages = [user_message(0, "the repo stands")]
    for number in range(200):
        info = AssistantInfo(id=f"a{number}", path=path, finish="stop")
        messages.append(Message(info=info, parts=(TextPart(text="yes"),)))
    fill(where, messages)
    with opened(where, "s") as session:
        assert [hit.place for hit in session.search("repo", limit=1)] == [0]


def test_inputs_outputs_and_file_names_are_found_but_no_file_content(where: str) -> None:
    shot = FilePart(mime="image/png", url=PNG, filename="okapi.png")
    state = Completed(input={"pattern": "lynx|puma"}, output="two otters", title="an ibex")
    info = AssistantInfo(id="a", finish="stop")
    fill(where, [Message(info=info, parts=(shot, ToolPart(tool="grep", state=state)))])
    with opened(where, "s") as session:
        assert handles(session, "okapi") == {"h0"}
        for query in ("puma", "otters", "ibex", "lynx two"):
            assert handles(session, query) == {"h1"}
        assert handles(session, "iVBORw0KGgo") == set()


SIGNS = """
" "" * ( ) () AND OR NOT NEAR a:b ^a -a "repo repo"* repo* & | ! <-> :* !repo 'repo' repo:* repo:A
' '' \\ \' $1 %s % _ ? repo? ... {repo} [repo] repo\\ rowid doc words
"""
HOSTILE = (
    *SIGNS.split(),
    *("NEAR(a b, 2)", "text : repo", "repo AND", "repo OR parser", "NOT repo", "repo & parser"),
    *("repo | parser", "repo <-> parser", "'; DROP TABLE sessions; --", "", " ", "\n", "—"),
    *("\0", "repo\0parser", "\ud83d", "repo \ud83d", "\ue001", "stop repo", "\u017ftop repo"),
    *("a" * 100_000, "repo " * 20_000, "'" * 50_000),
    " ".join(f"w{number}" for number in range(20_000)),
    "repo " + " ".join(f"{number}" for number in range(20_000)),
    " ".join(f"{number}" for number in range(20_000)),
)


def holds(text: str, query: str) -> bool:
    known, required = set(words(text)), set(words(query))
    return bool(required) and all(
        word in known or any(other.startswith(word) for other in known) for word in required
    )


def test_hostile_queries_are_data(where: str) -> None:
    texts = ["the repo and its parser", "repo or parser, not near", "a rowid \u017ftop doc repo"]
    texts.append(" ".join(f"{number}" for number in range(20_000)))
    fill(where, [user_message(number, text) for number, text in enumerate(texts)])
    texts.append("repo parser, not indexed yet; 1 2 3 words")
    with opened(where, "s") as session:
        session.user(texts[-1])
        for query in HOSTILE:
            expected = {index for index, text in enumerate(texts) if holds(text, query)}
            assert {hit.place for hit in session.search(query)} == expected, query[:40]
    with opened(where, "s") as session:
        assert session.info.places == 5


@pytest.fixture
def address(postgres: str) -> str:
    return new_database(postgres)


queries = st.lists(
    st.sampled_from((*WORDS, "log", "t", "日", "timeouts", "src", "app.py", "Fix", "nothing")),
    min_size=1,
    max_size=3,
).map(" ".join)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sessions(), st.lists(queries, min_size=1, max_size=6), st.integers(0, 24))
def test_both_engines_find_the_same(
    address: str,
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[Message],
    terms: list[str],
    first: int,
) -> None:
    """Some messages are indexed, the others not yet."""
    file = str(tmp_path_factory.mktemp("store") / "store.db")
    name = f"s{sum(1 for _ in _sessions(address))}"
    results: list[list[set[str]]] = []
    for where in (file, address):
        fill(where, messages[:first], name)
        with opened(where, name) as session:
            for message in messages[first:]:
                session.user(message) if message.is_user else session.record(message)
            results.append([handles(session, query) for query in terms])
            hits = [hit for query in terms for hit in session.search(query, limit=50)]
            assert all(session.recall(hit.handle) is not None for hit in hits)
    assert results[0] == results[1]


def _sessions(where: str) -> list[str]:
    store = Store.open(where)
    try:
        return [row.id for row in store.sessions()]
    finally:
        store.close()


def test_the_index_is_consistent_after_many_changes(tmp_path: pytest.TempPathFactory) -> None:
    """SQLite's index has no text of its own: it must remove exactly what it added."""
    where = f"{tmp_path}/store.db"
    with opened(where, "s") as session:
        for number in range(20):
            session.record([call(f"c{number}")])
            with session.fork() as fork:
                fork.result(f"c{number}", f"fork {number}")
            session.result(f"c{number}", f"origin {number}")
        session.compact("Folded.")
    with sqlite3.connect(where) as connection:
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
