"""The tools that read, write and edit files.

Texts are kept as they are: line endings, a mark at the beginning, bytes that are no UTF-8. A file
is written as a whole or not at all. Which paths may be used is told in `paths`.
"""

import base64
import mimetypes
import os
import re
import stat
import threading
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Context, Tool, ToolOutput, ToolRefusal
from foldmark.files import NotRegular, open_regular, size_text, write_file
from foldmark.model.messages import FilePart
from foldmark.model.values import Json

from .paths import Places, printed

LINES = 2_000  # of a file that are read at once
_LONGEST_LINE = 2_000
_PAGE = 48_000  # characters after which a page ends: more would be cut in the middle when shown
_SHOWN = 20_000  # tokens of a page
_MOST_BYTES = 64 * 2**20
_MOST_IMAGE = 5 * 2**20
_MOST_LISTED = 500
_HEAD = 8_192  # bytes in which a zero says that a file is no text
_MOST_COMPARED = 4_000  # lines that are looked at for one that is like another
_BOM = "\ufeff"
_IMAGES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}

# Calls of one answer run at the same time: none shall write over what another just changed.
_WRITING = threading.Lock()

_Path = Annotated[str, "The file, by its path from the working folder."]


def file_tools(places: Places) -> tuple[Tool, Tool, Tool]:
    """The tools `read`, `write` and `edit` for a folder."""

    def about(given: Json) -> str:
        return places.subject(given.get("path"))

    @tool(changes=False, shown=_SHOWN, subject=about)
    def read(
        path: Annotated[str, "A file or folder, by its path from the working folder."],
        context: Context,
        offset: Annotated[int, "The first line wanted; lines count from 1."] = 1,
        limit: Annotated[int, "How many lines."] = LINES,
    ) -> ToolOutput:
        """Read a text file, each line after its number and a tab; or see an image, or a folder."""
        found = places.guarding(context.session.files).inside(path)
        if offset < 1 or limit < 1:
            raise ToolRefusal("offset and limit: at least 1")
        if found.is_dir():
            return ToolOutput(text=_listing(found), title=places.shown(found))
        return _read(places, found, offset, limit)

    @tool(subject=about, touches=_named)
    def write(
        path: _Path, content: Annotated[str, "All that the file is to hold."], context: Context
    ) -> ToolOutput:
        """Write a file as a whole; folders on its way are made, and what it held is replaced."""
        found = places.guarding(context.session.files).inside(path, writing=True)
        data = _encoded(content)
        with _WRITING:
            was = _write(places, found, data)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        verb = "replaced" if was else "made"
        return _changed(places, found, f"{verb} {places.shown(found)}: {_lines(lines)}")

    @tool(subject=about, touches=_named)
    def edit(
        path: _Path,
        old: Annotated[str, "The text to replace, exactly as it stands in the file."],
        new: Annotated[str, "What to put in its place."],
        context: Context,
        all: Annotated[bool, "Replace every occurrence, not just the only one."] = False,  # noqa: A002, FBT002
    ) -> ToolOutput:
        """Replace a text in a file. It must stand there once, unless all are to be replaced."""
        found = places.guarding(context.session.files).inside(path, writing=True)
        with _WRITING:
            text, count = _edited(_whole(places, found), old, new, every=all)
            _write(places, found, text.encode("utf-8", "surrogateescape"))
        times = "once" if count == 1 else f"{count} times"
        return _changed(places, found, f"edited {places.shown(found)}: replaced {times}")

    return read, write, edit


def _named(given: Json) -> tuple[str, ...]:
    path = given.get("path")
    return (path,) if isinstance(path, str) else ()


def _changed(places: Places, path: Path, text: str) -> ToolOutput:
    """That a file was written; snapshots learn its name from the metadata."""
    shown = places.shown(path)
    return ToolOutput(text=text, title=shown, metadata={"files": [shown]})


def _lines(count: int) -> str:
    return f"{count} {'line' if count == 1 else 'lines'}"


# --- opening -------------------------------------------------------------------------------


def _data(places: Places, path: Path) -> bytes:
    """The bytes of a regular file; anything else could hang or never end."""
    shown = printed(places.shown(path))
    try:
        with places.parent(path) as folder, open_regular(path.name, folder=folder) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= _MOST_BYTES:
                return file.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise ToolRefusal(f"there is no file {shown}{_near(path)}") from None
    except PermissionError:
        raise ToolRefusal(f"{shown}: no permission to read it") from None
    except NotRegular:
        raise ToolRefusal(f"{shown} is no regular file, and is not read") from None
    except OSError as error:
        raise ToolRefusal(f"{shown} cannot be opened: {error.strerror}") from None
    raise ToolRefusal(f"{shown} has {size_text(size)}, which is too much to read; use grep")


def _near(path: Path) -> str:
    """Files beside a missing one that are called almost the same."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for _, entry in zip(range(_MOST_LISTED * 4), entries)]  # noqa: B905
    except OSError:
        return ""
    lowered = {name.lower(): name for name in names}
    close = get_close_matches(path.name.lower(), list(lowered), n=3, cutoff=0.6)
    found = ", ".join(printed(lowered[name]) for name in close)
    return f"; near it: {found}" if found else ""


def _check_text(head: bytes, size: int, path: Path, shown: str) -> None:
    if b"\0" in head:
        kind = mimetypes.guess_type(path.name)[0] or "unknown"
        raise ToolRefusal(f"{printed(shown)} is no text: {size_text(size)} of kind {kind}")


# --- reading -------------------------------------------------------------------------------


def _read(places: Places, path: Path, offset: int, limit: int) -> ToolOutput:
    shown, data = places.shown(path), _data(places, path)
    if kind := next((kind for kind, head in _IMAGES.items() if head.match(data)), None):
        return _pictured(data, kind, path.name, shown)
    _check_text(data[:_HEAD], len(data), path, shown)
    text = data.decode("utf-8", "replace").removeprefix(_BOM)
    return ToolOutput(text=_page(text, offset, limit, shown), title=shown)


def _page(text: str, offset: int, limit: int, shown: str) -> str:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return "[the file is empty]"
    if offset > len(lines):
        raise ToolRefusal(f"{printed(shown)} has only {_lines(len(lines))}")
    told: list[str] = []
    length = 0
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        row = f"{number}\t{_bounded(line.removesuffix(chr(13)))}"
        length += len(row) + 1
        if told and length > _PAGE:
            break
        told.append(row)
    end = offset - 1 + len(told)
    if end < len(lines):
        told.append(f"[{_lines(len(lines))} in all; read on with offset={end + 1}]")
    return "\n".join(told)


def _bounded(line: str) -> str:
    more = len(line) - _LONGEST_LINE
    return line if more <= 0 else f"{line[:_LONGEST_LINE]} [{more} characters more in this line]"


def _pictured(data: bytes, kind: str, name: str, shown: str) -> ToolOutput:
    if len(data) > _MOST_IMAGE:
        raise ToolRefusal(f"{printed(shown)} is an image of more than {size_text(_MOST_IMAGE)}")
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    file = FilePart(mime=kind, url=url, filename=name)
    return ToolOutput(text=f"[{kind}, {size_text(len(data))}]", title=shown, files=(file,))


def _listing(folder: Path) -> str:
    try:
        with os.scandir(folder) as entries:
            names = sorted(_entry_name(entry) for entry in entries)
    except PermissionError:
        raise ToolRefusal(f"{printed(folder.name)}: no permission to list it") from None
    if len(names) > _MOST_LISTED:
        names[_MOST_LISTED:] = [f"[{len(names) - _MOST_LISTED} more]"]
    return "\n".join(names) or "[the folder is empty]"


def _entry_name(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return f"{entry.name}@"
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


# --- writing -------------------------------------------------------------------------------


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolRefusal("content: it holds half of a character, which no file can") from None


def _write(places: Places, path: Path, data: bytes) -> bool:
    """Put bytes in the place of a file's, whole or not at all; whether there was one."""
    shown = printed(places.shown(path))
    try:
        with places.parent(path, make=True) as folder:
            mode = _mode(folder, path.name, shown)
            write_file(folder, path.name, data, mode)
            return mode is not None
    except PermissionError:
        raise ToolRefusal(f"{shown}: no permission to write it") from None
    except OSError as error:
        raise ToolRefusal(f"{shown} cannot be written: {error.strerror}") from None


def _mode(folder: int, name: str, shown: str) -> int | None:
    """The mode of a file that is there; a folder, link or device is not replaced."""
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(about.st_mode):
        raise ToolRefusal(f"{shown} is no regular file, and is not written to")
    return stat.S_IMODE(about.st_mode)


# --- editing -------------------------------------------------------------------------------


def _whole(places: Places, path: Path) -> str:
    """The text of a file, from which its very bytes can be made again."""
    shown = places.shown(path)
    if path.is_dir():
        raise ToolRefusal(f"{printed(shown)} is a folder")
    data = _data(places, path)
    _check_text(data, len(data), path, shown)
    return data.decode("utf-8", "surrogateescape")


def _edited(text: str, old: str, new: str, *, every: bool) -> tuple[str, int]:
    if not old:
        raise ToolRefusal("old: it is empty; to make a file or replace it as a whole, use write")
    if old == new:
        raise ToolRefusal("old and new are the same; there is nothing to change")
    _encoded(new)
    if "\r\n" in text and (old not in text or "\n" not in text.replace("\r\n", "")):
        old, new = _with_returns(old), _with_returns(new)
    count = text.count(old)
    if count == 0:
        raise ToolRefusal(f"old: this text is not in the file{_hint(text, old)}")
    if count > 1 and not every:
        raise ToolRefusal(
            f"old: it is {count} times in the file, in lines {_places(text, old)}; "
            "give more of what stands around it, or all=true"
        )
    return text.replace(old, new), count


def _with_returns(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _places(text: str, old: str) -> str:
    found: list[str] = []
    at = text.find(old)
    while at >= 0 and len(found) < 10:
        found.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(found) + (" …" if at >= 0 else "")


def _hint(text: str, old: str) -> str:
    """Where the line is that is most like the first one that was looked for."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")[:200]
    lines = [line.strip()[:200] for line in text.split("\n")[:_MOST_COMPARED]]
    close = get_close_matches(wanted, lines, n=1, cutoff=0.6) if wanted else []
    if not close:
        return "; read it again"
    return f"; line {lines.index(close[0]) + 1} is like it: {printed(close[0])}"
