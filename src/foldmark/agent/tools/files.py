"""The tools `read`, `write` and `edit`.

Edits preserve line endings, a byte order mark and bytes that are not UTF-8. A file is written as
a whole or not at all. `paths` decides which paths are allowed.
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

from .paths import WorkingFolder, quote_path

LINES = 2_000  # of a file in one page
_MAX_LINE = 2_000
_PAGE = 48_000  # characters of a page: a longer output would be truncated in the middle
_SHOWN = 20_000  # tokens of a page
_MAX_BYTES = 64 * 2**20
_MAX_IMAGE = 5 * 2**20
_MAX_LISTED = 500
_HEAD = 8_192  # bytes searched for a zero, which marks binary files
_MAX_COMPARED = 4_000  # lines compared to find a similar one
_BOM = "\ufeff"
_IMAGES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}

# Calls of one answer run concurrently: this lock keeps one from overwriting another's change.
_WRITING = threading.Lock()

_Path = Annotated[str, "The file, by its path from the working folder."]


def file_tools(working: WorkingFolder) -> tuple[Tool, Tool, Tool]:
    """The tools `read`, `write` and `edit` for a folder."""

    def about(arguments: Json) -> str:
        return working.subject(arguments.get("path"))

    @tool(changes_files=False, visible_tokens=_SHOWN, subject=about)
    def read(
        path: Annotated[str, "A file or folder, by its path from the working folder."],
        context: Context,
        offset: Annotated[int, "The first line wanted; lines count from 1."] = 1,
        limit: Annotated[int, "How many lines."] = LINES,
    ) -> ToolOutput:
        """Read a text file, each line after its number and a tab; or see an image, or a folder."""
        target = working.with_guarded(context.session.files).inside(path)
        if offset < 1 or limit < 1:
            raise ToolRefusal("offset and limit: at least 1")
        if target.is_dir():
            return ToolOutput(text=_listing(target), title=working.display(target))
        return _read(working, target, offset, limit)

    @tool(subject=about, changed_paths=_paths)
    def write(
        path: _Path, content: Annotated[str, "All that the file is to hold."], context: Context
    ) -> ToolOutput:
        """Write a file as a whole; folders on its way are made, and what it held is replaced."""
        target = working.with_guarded(context.session.files).inside(path, writing=True)
        data = _encode(content)
        with _WRITING:
            existed = _write(working, target, data)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        verb = "replaced" if existed else "made"
        return _change_output(working, target, f"{verb} {working.display(target)}: {_lines(lines)}")

    @tool(subject=about, changed_paths=_paths)
    def edit(
        path: _Path,
        old: Annotated[str, "The text to replace, exactly as it stands in the file."],
        new: Annotated[str, "What to put in its place."],
        context: Context,
        all: Annotated[bool, "Replace every occurrence, not just the only one."] = False,  # noqa: A002, FBT002
    ) -> ToolOutput:
        """Replace a text in a file. It must stand there once, unless all are to be replaced."""
        target = working.with_guarded(context.session.files).inside(path, writing=True)
        with _WRITING:
            text, count = _edit_text(_read_text(working, target), old, new, every=all)
            _write(working, target, text.encode("utf-8", "surrogateescape"))
        times = "once" if count == 1 else f"{count} times"
        name = working.display(target)
        return _change_output(working, target, f"edited {name}: replaced {times}")

    return read, write, edit


def _paths(arguments: Json) -> tuple[str, ...]:
    path = arguments.get("path")
    return (path,) if isinstance(path, str) else ()


def _change_output(working: WorkingFolder, path: Path, text: str) -> ToolOutput:
    """The output for a written file; snapshots read its name from the metadata."""
    name = working.display(path)
    return ToolOutput(text=text, title=name, metadata={"files": [name]})


def _lines(count: int) -> str:
    return f"{count} {'line' if count == 1 else 'lines'}"


# --- opening -------------------------------------------------------------------------------


def _read_bytes(working: WorkingFolder, path: Path) -> bytes:
    """The bytes of a regular file; reading anything else could block forever."""
    name = quote_path(working.display(path))
    try:
        with working.parent(path) as folder, open_regular(path.name, folder=folder) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= _MAX_BYTES:
                return file.read(_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise ToolRefusal(f"there is no file {name}{_near(path)}") from None
    except PermissionError:
        raise ToolRefusal(f"{name}: no permission to read it") from None
    except NotRegular:
        raise ToolRefusal(f"{name} is no regular file, and is not read") from None
    except OSError as error:
        raise ToolRefusal(f"{name} cannot be opened: {error.strerror}") from None
    raise ToolRefusal(f"{name} has {size_text(size)}, which is too much to read; use grep")


def _near(path: Path) -> str:
    """A hint with similar names in the folder of a missing file."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for _, entry in zip(range(_MAX_LISTED * 4), entries)]  # noqa: B905
    except OSError:
        return ""
    lowered = {name.lower(): name for name in names}
    close = get_close_matches(path.name.lower(), list(lowered), n=3, cutoff=0.6)
    listing = ", ".join(quote_path(lowered[name]) for name in close)
    return f"; near it: {listing}" if listing else ""


def _check_text(head: bytes, size: int, path: Path, name: str) -> None:
    if b"\0" in head:
        kind = mimetypes.guess_type(path.name)[0] or "unknown"
        raise ToolRefusal(f"{quote_path(name)} is no text: {size_text(size)} of kind {kind}")


# --- reading -------------------------------------------------------------------------------


def _read(working: WorkingFolder, path: Path, offset: int, limit: int) -> ToolOutput:
    name, data = working.display(path), _read_bytes(working, path)
    if kind := next((kind for kind, head in _IMAGES.items() if head.match(data)), None):
        return _image_output(data, kind, path.name, name)
    _check_text(data[:_HEAD], len(data), path, name)
    text = data.decode("utf-8", "replace").removeprefix(_BOM)
    return ToolOutput(text=_page(text, offset, limit, name), title=name)


def _page(text: str, offset: int, limit: int, name: str) -> str:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return "[the file is empty]"
    if offset > len(lines):
        raise ToolRefusal(f"{quote_path(name)} has only {_lines(len(lines))}")
    rows: list[str] = []
    length = 0
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        row = f"{number}\t{_truncate_line(line.removesuffix(chr(13)))}"
        length += len(row) + 1
        if rows and length > _PAGE:
            break
        rows.append(row)
    end = offset - 1 + len(rows)
    if end < len(lines):
        rows.append(f"[{_lines(len(lines))} in all; read on with offset={end + 1}]")
    return "\n".join(rows)


def _truncate_line(line: str) -> str:
    more = len(line) - _MAX_LINE
    return line if more <= 0 else f"{line[:_MAX_LINE]} [{more} characters more in this line]"


def _image_output(data: bytes, kind: str, name: str, title: str) -> ToolOutput:
    if len(data) > _MAX_IMAGE:
        raise ToolRefusal(f"{quote_path(title)} is an image of more than {size_text(_MAX_IMAGE)}")
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    file = FilePart(mime=kind, url=url, filename=name)
    return ToolOutput(text=f"[{kind}, {size_text(len(data))}]", title=title, files=(file,))


def _listing(folder: Path) -> str:
    try:
        with os.scandir(folder) as entries:
            names = sorted(_entry_name(entry) for entry in entries)
    except PermissionError:
        raise ToolRefusal(f"{quote_path(folder.name)}: no permission to list it") from None
    if len(names) > _MAX_LISTED:
        names[_MAX_LISTED:] = [f"[{len(names) - _MAX_LISTED} more]"]
    return "\n".join(names) or "[the folder is empty]"


def _entry_name(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return f"{entry.name}@"
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


# --- writing -------------------------------------------------------------------------------


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolRefusal("content: it holds half of a character, which no file can") from None


def _write(working: WorkingFolder, path: Path, data: bytes) -> bool:
    """Write a file atomically; return whether it existed before."""
    name = quote_path(working.display(path))
    try:
        with working.parent(path, make=True) as folder:
            mode = _mode(folder, path.name, name)
            write_file(folder, path.name, data, mode)
            return mode is not None
    except PermissionError:
        raise ToolRefusal(f"{name}: no permission to write it") from None
    except OSError as error:
        raise ToolRefusal(f"{name} cannot be written: {error.strerror}") from None


def _mode(folder: int, name: str, display: str) -> int | None:
    """The mode of an existing file. Raises ToolRefusal for a folder, link or device."""
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(about.st_mode):
        raise ToolRefusal(f"{display} is no regular file, and is not written to")
    return stat.S_IMODE(about.st_mode)


# --- editing -------------------------------------------------------------------------------


def _read_text(working: WorkingFolder, path: Path) -> str:
    """The text of a file, decoded so that its exact bytes can be written back."""
    name = working.display(path)
    if path.is_dir():
        raise ToolRefusal(f"{quote_path(name)} is a folder")
    data = _read_bytes(working, path)
    _check_text(data, len(data), path, name)
    return data.decode("utf-8", "surrogateescape")


def _edit_text(text: str, old: str, new: str, *, every: bool) -> tuple[str, int]:
    if not old:
        raise ToolRefusal("old: it is empty; to make a file or replace it as a whole, use write")
    if old == new:
        raise ToolRefusal("old and new are the same; there is nothing to change")
    _encode(new)
    if "\r\n" in text and (old not in text or "\n" not in text.replace("\r\n", "")):
        old, new = _with_returns(old), _with_returns(new)
    count = text.count(old)
    if count == 0:
        raise ToolRefusal(f"old: this text is not in the file{_hint(text, old)}")
    if count > 1 and not every:
        raise ToolRefusal(
            f"old: it is {count} times in the file, in lines {_line_numbers(text, old)}; "
            "give more of what stands around it, or all=true"
        )
    return text.replace(old, new), count


def _with_returns(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _line_numbers(text: str, old: str) -> str:
    numbers: list[str] = []
    at = text.find(old)
    while at >= 0 and len(numbers) < 10:
        numbers.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(numbers) + (" …" if at >= 0 else "")


def _hint(text: str, old: str) -> str:
    """A hint with the line most similar to the first line of `old`."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")[:200]
    lines = [line.strip()[:200] for line in text.split("\n")[:_MAX_COMPARED]]
    close = get_close_matches(first, lines, n=1, cutoff=0.6) if first else []
    if not close:
        return "; read it again"
    return f"; line {lines.index(close[0]) + 1} is like it: {quote_path(close[0])}"
