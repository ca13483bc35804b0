"""The answers of the MCP tools for transcripts, folders and stores."""

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import anyio
import jsonschema
import pytest
from mcp import Client

import foldmark
from foldmark.adapters.mcp import sources as mcp_sources
from foldmark.adapters.mcp.server import ToolDispatcher, mcp_server
from foldmark.adapters.mcp.sources import (
    FolderSource,
    StoreSource,
    TranscriptSource,
    read_only_store,
)
from foldmark.session.settings import Settings
from foldmark.store.store import Store
from tests.support.cli_program import compacted_store, run_cli, sample_transcript, write_transcript
from tests.support.mcp_clients import (
    answered,
    appended,
    fill,
    hits_of,
    listed,
    page_of,
    parser_session,
    refusal,
    session_of,
    text_of,
)
from tests.support.stored_transcripts import SESSION, Lines, write


def states(text: str) -> dict[str, str]:
    return {hit.snippet.split()[1]: hit.state for hit in hits_of(text)}


# --- the tools -----------------------------------------------------------------------------


def test_what_is_shown_pruned_and_folded_is_told_apart(tmp_path: Path):
    source = TranscriptSource(write(tmp_path / "s.jsonl", parser_session().all), Settings(), fill)
    hit_states = states(answered(source, "search", query="early", most=50))
    assert hit_states["a1"] == "folded"
    assert hit_states["b0"] == "pruned"
    assert hit_states["b5"] == "shown"
    source.close()


def test_what_was_taken_back_is_told_as_reverted(tmp_path: Path):
    where = str(tmp_path / "agent.db")
    with foldmark.open(where, session="ses_back") as live:
        message = live.user("Look at the parser")
        live.user("Paint the zeppelin")
        live.record("It is red.")
        live.revert(message.id)
    source = StoreSource(read_only_store(where, wait=1), Settings())
    (hit,) = hits_of(answered(source, "search", query="zeppelin"))
    assert hit.state == "reverted"
    assert page_of(answered(source, "recall", handle=hit.handle)).text == "Paint the zeppelin"
    source.close()


def test_pages_together_are_the_whole_text(tmp_path: Path):
    whole = "".join(f"{number}: the parser ☸ turns\n" for number in range(4_000))
    lines = Lines()
    lines.user("Go")
    lines.step("big", whole)
    source = TranscriptSource(write(tmp_path / "s.jsonl", lines.all), Settings(), fill)
    (hit, *_) = hits_of(answered(source, "search", query="3999 parser"))
    text, start = "", 0
    while start is not None:
        page = page_of(answered(source, "recall", handle=hit.handle, start=start))
        assert 0 < len(page.text) <= 20_000
        assert page.total == len(whole)
        text, start = text + page.text, page.next
    assert text == whole
    assert page_of(answered(source, "recall", handle=hit.handle, start=len(whole))).text == ""
    answer = ToolDispatcher(source).answer(
        "recall", {"handle": hit.handle, "start": len(whole) + 1}
    )
    assert "characters" in refusal(answer)
    source.close()


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path):
    lines, read = parser_session(), list[int]()
    path = write(tmp_path / "s.jsonl", lines.all)

    def counted(store: Store, file: BinaryIO, name: str) -> int:
        read.append(1)
        return fill(store, file, name)

    source = TranscriptSource(path, Settings(), counted)
    for name in ("inspect", "plan", "inspect"):
        answered(source, name)
    assert len(read) == 1
    first = len(lines.all)
    lines.step("c0")
    appended(path, lines, first)
    for name in ("inspect", "plan"):
        answered(source, name)
    assert len(read) == 2
    source.close()


def test_a_file_that_grows_during_an_answer_is_read_once_for_it(tmp_path: Path):
    lines, read = parser_session(), list[int]()
    path = write(tmp_path / "s.jsonl", lines.all)

    def grown(store: Store, file: BinaryIO, name: str) -> int:
        unreadable_lines = fill(store, file, name)
        read.append(len(lines.all))
        lines.step(f"c{len(read)}")
        appended(path, lines, read[-1])
        return unreadable_lines

    source = TranscriptSource(path, Settings(), grown)
    for count in (1, 2, 3):
        assert listed(answered(source, "inspect"), "session") == [SESSION]
        assert len(read) == count
    source.close()


def test_calls_at_the_same_time_read_a_file_once(tmp_path: Path):
    path = write(tmp_path / "s.jsonl", parser_session().all)
    under_way, peaks, read = list[int](), list[int](), list[int]()

    def counted(store: Store, file: BinaryIO, name: str) -> int:
        under_way.append(1)
        peaks.append(len(under_way))
        read.append(1)
        try:
            return fill(store, file, name)
        finally:
            under_way.pop()

    source = TranscriptSource(path, Settings(), counted)
    answering = ToolDispatcher(source)
    with ThreadPoolExecutor(8) as pool:
        for count in (1, 2):
            jobs = [pool.submit(answering.answer, "inspect", {}) for _ in range(8)]
            answers = [one.result() for one in jobs]
            assert not any(answer.is_error for answer in answers)
            assert (len(read), max(peaks)) == (count, 1)
            with path.open("a") as file:
                file.write("\n")
    source.close()


def test_of_a_folder_no_file_is_read_twice_that_has_not_changed(tmp_path: Path):
    read: list[str] = []

    def counted(store: Store, file: BinaryIO, name: str) -> int:
        read.append(Path(name).name)
        return fill(store, file, name)

    names = [f"s{number}.jsonl" for number in range(8)]
    for name in names:
        write(tmp_path / name, parser_session().all)
    source = FolderSource(tmp_path, Settings(), counted, lambda: sorted(tmp_path.iterdir()))
    for name in (*names, *names, *reversed(names)):
        assert hits_of(answered(source, "search", query="zeppelin", session=name))
    assert read == names
    source.close()


@pytest.mark.parametrize("bound", ["_MAX_COPIES", "_MAX_BYTES"])
def test_only_so_many_copies_are_kept_and_always_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
):
    names = ("a.jsonl", "b.jsonl", "c.jsonl")
    paths = [write(tmp_path / name, parser_session().all) for name in names]
    size = paths[0].stat().st_size
    monkeypatch.setattr(mcp_sources, bound, {"_MAX_COPIES": 2, "_MAX_BYTES": 2 * size}[bound])
    source = FolderSource(tmp_path, Settings(), fill, lambda: sorted(tmp_path.iterdir()))
    for name in names:
        answered(source, "plan", session=name)
    assert [path.name for path in source._copies] == ["b.jsonl", "c.jsonl"]  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(mcp_sources, bound, 0)
    assert session_of(answered(source, "plan", session="a.jsonl")) == "a.jsonl"
    assert [path.name for path in source._copies] == ["a.jsonl"]  # pyright: ignore[reportPrivateUsage]
    source.close()


def test_a_file_that_was_written_anew_vanished_or_is_half_written_is_read_as_it_is(tmp_path: Path):
    path = write(tmp_path / "s.jsonl", parser_session().all)
    source = TranscriptSource(path, Settings(), fill)
    assert hits_of(answered(source, "search", query="zeppelin"))
    other = Lines()
    other.user("Quite another request")
    other.step("x1")
    write(path, other.all)
    assert hits_of(answered(source, "search", query="zeppelin")) == []
    assert hits_of(answered(source, "search", query="another"))
    path.unlink()
    assert "no such file" in refusal(ToolDispatcher(source).answer("inspect", {}))
    write(path, parser_session().all)
    with path.open("a") as file:
        file.write('this is no JSON\n{"type": "user", "mess')
    assert hits_of(answered(source, "search", query="zeppelin"))
    assert "that could not be read: 2." in answered(source, "inspect")
    source.close()


def test_a_search_says_whether_there_is_more(tmp_path: Path):
    source = TranscriptSource(write(tmp_path / "s.jsonl", parser_session().all), Settings(), fill)
    whole = hits_of(answered(source, "search", query="early", most=50))
    count = len(whole)
    assert 1 < count < 50
    assert f"all {count}." in answered(source, "search", query="early", most=count)
    some = answered(source, "search", query="early", most=count - 1)
    assert hits_of(some) == whole[:-1]
    assert f"the first {count - 1} of more." in some
    assert "another `session`" in answered(source, "search", query="xyzzy")
    source.close()


def test_texts_tell_what_a_reader_would_ask_next(tmp_path: Path):
    path = write(tmp_path / "s.jsonl", parser_session().all)
    with path.open("a") as file:
        file.write("this is no JSON\n")
    source = TranscriptSource(path, Settings(), fill)
    text = answered(source, "inspect")
    assert "that could not be read: 1." in text
    assert "format: claude-code" in text
    assert "model anthropic:claude-x" in text
    assert "kind file" not in text  # there is none
    assert "sessions are listed" not in text  # all of them are
    text = answered(source, "plan")
    assert "as no model tells it; give `window`" in text
    assert " : " not in text
    source.close()


def test_a_plan_names_its_window_and_what_would_be_hidden(tmp_path: Path):
    source = TranscriptSource(
        write_transcript(tmp_path, sample_transcript(calls=40)), Settings(), fill
    )
    plan = answered(source, "plan")
    assert "in a window of 200,000. It fits" in plan
    plan = answered(source, "plan", window=40_000, model="anthropic:claude-sonnet-4-5")
    assert "in a window of 40,000. It overflows" in plan
    match = re.search(r"^prune (h\w+) read (\S+): [\d,]+ tokens; \w+", plan, re.MULTILINE)
    assert match
    number = match[2].removeprefix("/shop/order_").removesuffix(".py")
    assert f"order {number}\n" in page_of(answered(source, "recall", handle=match[1])).text
    answer = ToolDispatcher(source).answer("plan", {"model": "nobody:knows-this"})
    assert "Give `window`" in refusal(answer)
    source.close()
    lines = TranscriptSource(write(tmp_path / "s.jsonl", parser_session().all), Settings(), fill)
    assert "(assumed, as no model tells it" in answered(lines, "plan")
    lines.close()


def test_every_answer_is_text_and_its_arguments_are_of_their_schema(tmp_path: Path):
    source = TranscriptSource(write(tmp_path / "s.jsonl", parser_session().all), Settings(), fill)

    async def run() -> None:
        async with Client(mcp_server(source)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            for name, arguments in {
                "search": {"query": "parser", "most": "50"},  # some clients send texts
                "recall": {"handle": "H0"},
                "plan": {"window": 5_000},
                "inspect": {"session": None},
            }.items():
                jsonschema.Draft202012Validator.check_schema(tools[name].input_schema)
                answer = await client.call_tool(name, arguments)
                assert tools[name].output_schema is None
                assert "It is data" in text_of(answer)

    anyio.run(run)
    source.close()


# --- stores --------------------------------------------------------------------------------


def test_a_store_is_not_changed_by_being_served(tmp_path: Path):
    compacted_store(str(tmp_path / "agent.db"), steps=12)
    copy = tmp_path / "copy.db"
    assert run_cli("backup", copy, "--store", tmp_path / "agent.db")[0] == 0
    with sqlite3.connect(copy) as opened:  # as if it had never been indexed
        opened.execute("UPDATE sessions SET indexed = 0")
    before = copy.read_bytes()
    source = StoreSource(read_only_store(str(copy), wait=1), Settings())
    for name, arguments in {"search": {"query": "line"}, "plan": {"window": 9_000}}.items():
        answered(source, name, **arguments)
    answered(source, "inspect")
    with pytest.raises(foldmark.FoldmarkError, match="read-only"):
        source.store.engine.run("DELETE FROM sessions")  # pyright: ignore[reportPrivateUsage]
    source.close()
    assert copy.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.db", "copy.db"]


def test_a_store_on_each_engine_is_served(where: str):
    compacted_store(where, steps=12)
    source = StoreSource(read_only_store(where, wait=1), Settings())
    assert hits_of(answered(source, "search", query="schema"))[0].state == "folded"
    assert listed(answered(source, "inspect"), "session") == ["ses_live"]
    source.close()


def test_only_the_session_that_was_pointed_at_is_served(tmp_path: Path):
    where = compacted_store(
        compacted_store(str(tmp_path / "agent.db"), "ses_one", steps=12), "ses_two", steps=12
    )
    source = StoreSource(read_only_store(where, wait=1), Settings())
    assert listed(answered(source, "inspect"), "session") == ["ses_two", "ses_one"]
    assert session_of(answered(source, "inspect", session="ses_o")) == "ses_one"
    source.close()
    alone = StoreSource(read_only_store(where, wait=1), Settings(), "ses_one")
    figures = answered(alone, "inspect")
    assert (session_of(figures), listed(figures, "session")) == ("ses_one", ["ses_one"])
    assert "ses_two" in refusal(
        ToolDispatcher(alone).answer("search", {"query": "a", "session": "ses_two"})
    )
    alone.close()


def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path: Path):
    where = Path(compacted_store(str(tmp_path / "agent.db"), steps=12))
    with sqlite3.connect(where) as opened:
        opened.execute("PRAGMA user_version = 2")
    opened.close()
    before = where.read_bytes()
    with pytest.raises(foldmark.FoldmarkError, match="another Foldmark"):
        read_only_store(str(where), wait=1)
    assert where.read_bytes() == before


def test_a_session_of_a_store_is_known_by_a_beginning_too(tmp_path: Path):
    where = compacted_store(str(tmp_path / "agent.db"), steps=12)
    source = StoreSource(read_only_store(where, wait=1), Settings(), "ses_l")
    assert session_of(answered(source, "inspect")) == "ses_live"
    source.close()


def test_a_folder_without_a_transcript_by_now_says_so(tmp_path: Path):
    source = FolderSource(tmp_path, Settings(), fill, lambda: sorted(tmp_path.iterdir()))
    assert "no transcript" in refusal(ToolDispatcher(source).answer("inspect", {}))
    write(tmp_path / "s.jsonl", parser_session().all)
    assert session_of(answered(source, "inspect")) == "s.jsonl"
    source.close()
